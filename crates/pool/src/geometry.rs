//! From segment numbers to members and byte offsets, and reading bytes that start and end anywhere.

use crate::error::{Error, Result};
use crate::label::{LABEL_AREA_BYTES, LabelSummary};
use crate::types::{Location, RECORD_RAW_BYTES_MAX, SECTOR_BYTES, SegmentId};
use packstone_media::{AlignedBuffer, Media, ReadRequest};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The members of a pool and how segments lie on them.
pub(crate) struct Geometry {
    pub label: LabelSummary,
    pub members: Vec<Arc<dyn Media>>,
    /// Tree nodes that failed their check since the pool was opened.
    pub damaged_nodes: AtomicU64,
}

impl Geometry {
    pub(crate) fn segment_bytes(&self) -> u32 {
        self.label.segment_bytes
    }

    /// Largest frame that fits any batch of an empty segment with its directory entry.
    pub(crate) fn frame_bytes_max(&self) -> u32 {
        self.segment_bytes() / 2
    }

    pub(crate) fn member(&self) -> &dyn Media {
        self.members[0].as_ref()
    }

    fn offset_bytes(&self, segment: SegmentId, within_bytes: u32) -> u64 {
        LABEL_AREA_BYTES + u64::from(segment.0) * u64::from(self.segment_bytes()) + u64::from(within_bytes)
    }

    /// The frame must lie within an existing segment; anything else comes from a damaged structure.
    pub(crate) fn check_location(&self, location: &Location) -> Result<()> {
        let end = u64::from(location.offset_bytes) + u64::from(location.packed_bytes);
        if location.segment.0 >= self.label.segment_count || end > u64::from(self.segment_bytes()) {
            return Err(Error::damaged(
                "read record",
                format!("{location} lies outside the pool"),
            ));
        }
        if location.raw_bytes > RECORD_RAW_BYTES_MAX {
            return Err(Error::damaged(
                "read record",
                format!("{location} is longer than any record"),
            ));
        }
        Ok(())
    }

    /// Reads whole sectors around `[start, end)` of a segment; returns the buffer and where `start` is in it.
    pub(crate) fn read(&self, segment: SegmentId, start: u32, end: u32) -> Result<(AlignedBuffer, usize)> {
        let aligned_start = start / SECTOR_BYTES * SECTOR_BYTES;
        let aligned_end = end.div_ceil(SECTOR_BYTES) * SECTOR_BYTES;
        let mut buffer = AlignedBuffer::zeroed((aligned_end - aligned_start) as usize);
        self.member()
            .read(self.offset_bytes(segment, aligned_start), &mut buffer)
            .map_err(|e| Error::media("read segment", e))?;
        Ok((buffer, (start - aligned_start) as usize))
    }

    /// As [`Geometry::read`] for several places, all under way at once where the media can.
    pub(crate) fn read_many(&self, places: &[(SegmentId, u32, u32)]) -> Result<Vec<(AlignedBuffer, usize)>> {
        let mut pieces: Vec<(AlignedBuffer, usize)> = Vec::with_capacity(places.len());
        for (_, start, end) in places {
            let aligned_start = start / SECTOR_BYTES * SECTOR_BYTES;
            let aligned_end = end.div_ceil(SECTOR_BYTES) * SECTOR_BYTES;
            let buffer = AlignedBuffer::zeroed((aligned_end - aligned_start) as usize);
            pieces.push((buffer, (start - aligned_start) as usize));
        }
        let mut requests: Vec<ReadRequest<'_>> = places
            .iter()
            .zip(&mut pieces)
            .map(|((segment, start, _), (buffer, skip))| ReadRequest {
                offset_bytes: self.offset_bytes(*segment, start - *skip as u32),
                buffer,
            })
            .collect();
        self.member()
            .read_many(&mut requests)
            .map_err(|e| Error::media("read segment", e))?;
        Ok(pieces)
    }

    /// Writes whole sectors at a sector of a segment.
    pub(crate) fn write(&self, segment: SegmentId, within_bytes: u32, data: &[u8]) -> Result<()> {
        assert!(
            within_bytes as usize + data.len() <= self.segment_bytes() as usize,
            "a batch must end within its segment"
        );
        self.member()
            .write(self.offset_bytes(segment, within_bytes), data)
            .map_err(|e| Error::media("write segment", e))
    }

    pub(crate) fn flush(&self) -> Result<()> {
        for member in &self.members {
            member.flush().map_err(|e| Error::media("flush", e))?;
        }
        Ok(())
    }
}
