//! Identifiers and small value types that every module of the pool shares.
//!
//! Invariants: a [`RecordId`] is given out once and never again, and ids only grow, so an id is the logical birth time
//! of its record. A [`Location`] names bytes on media and may change under an id at any time (cleaning, recompression).
//! [`SegmentId`]s are numbered across the whole pool: the label of each member says which range of them it holds, so a
//! location needs no member number and a segment can later live on several members.

use crate::encoding::{Malformed, Reader, put_varint};
use std::fmt;

/// Names one record for ever. Larger means born later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId(pub u64);

/// Names one tree of the pool. Tree 0 is the catalog; datasets follow from [`TreeId::FIRST_DATASET`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreeId(pub u32);

impl TreeId {
    /// The pool's own tree: datasets, their properties, tree roots.
    pub const CATALOG: TreeId = TreeId(0);
    /// Lowest number a dataset's tree gets; those below are kept for trees of the pool itself.
    pub const FIRST_DATASET: TreeId = TreeId(16);
}

/// Position of a commit in the pool's history; [`crate::Pool::sync`] makes everything up to one durable.
/// Counts from 1 at every open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct CommitSequence(pub u64);

/// Expected lifetime of a record. Records of one stream are laid in the same segments, so that data which dies together
/// lies together and its segments empty themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// Logs and temporary files: overwritten or deleted soon.
    ShortLived,
    /// Everything else a user writes.
    Data,
}

/// Number of a segment, counted over all members of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u32);

impl SegmentId {
    /// On media: "no segment".
    pub(crate) const NONE: SegmentId = SegmentId(u32::MAX);
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Where the packed bytes of a record lie now, and what they must hash to.
///
/// On media: varint segment, varint offset, varint packed length, varint raw length, 8 bytes checksum (little endian).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Segment that holds the bytes.
    pub segment: SegmentId,
    /// First byte, from the start of the segment; any byte, not a sector.
    pub offset_bytes: u32,
    /// Length of the frame on media.
    pub packed_bytes: u32,
    /// Length of the record after unpacking.
    pub raw_bytes: u32,
    /// [`packstone_codec::checksum`] of the packed bytes.
    pub checksum: u64,
}

impl Location {
    /// Bytes this record costs in its segment: the frame and its entry in the batch directory.
    pub(crate) fn footprint_bytes(&self) -> u32 {
        // Saturates, for a damaged table may name any length.
        self.packed_bytes.saturating_add(DIRECTORY_ENTRY_BYTES)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.segment.0));
        put_varint(out, u64::from(self.offset_bytes));
        put_varint(out, u64::from(self.packed_bytes));
        put_varint(out, u64::from(self.raw_bytes));
        out.extend_from_slice(&self.checksum.to_le_bytes());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Location, Malformed> {
        Ok(Location {
            segment: SegmentId(reader.varint_u32()?),
            offset_bytes: reader.varint_u32()?,
            packed_bytes: reader.varint_u32()?,
            raw_bytes: reader.varint_u32()?,
            checksum: reader.u64()?,
        })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "segment {} offset {} ({} bytes packed, {} raw)",
            self.segment, self.offset_bytes, self.packed_bytes, self.raw_bytes
        )
    }
}

/// What one record's entry in a batch directory is counted as; the real entry is 13 to 20 bytes. Counting it as live
/// keeps "live bytes" an honest measure of the room that cleaning can win from a segment.
pub(crate) const DIRECTORY_ENTRY_BYTES: u32 = 16;

/// Longest record that is believed, raw bytes, so that a lying length cannot make us allocate.
pub(crate) const RECORD_RAW_BYTES_MAX: u32 = 64 << 20;

/// Largest number of a record, batch, checkpoint or epoch that is believed: counting on from it never overflows.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;
/// Epochs and numbers of checkpoints that are believed: so far below [`NUMBER_MAX`] that none which is counted on from one of
/// them gets there.
pub(crate) const COUNTED_MAX: u64 = NUMBER_MAX - (1 << 32);

/// Alignment of batches and the unit in which media may tear, bytes.
pub(crate) const SECTOR_BYTES: u32 = 4096;

/// Rounds up to whole sectors.
pub(crate) fn round_up_to_sector(bytes: u32) -> u32 {
    bytes.div_ceil(SECTOR_BYTES) * SECTOR_BYTES
}
