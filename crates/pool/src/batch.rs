//! Batches: the only thing that is ever appended to a segment.
//!
//! A batch starts on a sector and is `header | packed records | directory | operations`, padded with zeros to a sector.
//! Log batches carry user records and the operations of the transactions that made them; node batches carry tree nodes
//! and are written by checkpoints only. The record frames come before the directory so that a frame's place is known the
//! moment it is added.
//!
//! | at | bytes | header field |
//! |---|---|---|
//! | 0 | 4 | magic `PKBT` |
//! | 4 | 1 | kind: 0 log, 1 nodes |
//! | 5 | 1 | stream |
//! | 6 | 1 | flags; bit 0: last batch of its commit group |
//! | 7 | 1 | zero |
//! | 8 | 8 | first 8 bytes of the pool id |
//! | 16 | 8 | epoch (one per open of the pool) |
//! | 24 | 8 | log: sequence number, dense over all streams; nodes: checkpoint number |
//! | 32 | 8 | every log batch below this number was durable when this batch was written |
//! | 40 | 4, 4 | own segment and offset: a misdirected write is no batch |
//! | 48 | 4 | segment in which the stream goes on, or all ones: right behind this batch |
//! | 52 | 4 | length with padding |
//! | 56 | 4, 4, 4 | bytes of records, of directory, of operations |
//! | 68 | 4 | records |
//! | 72 | 8 | nodes: every log batch below this number is covered by the checkpoint; log: zero |
//! | 80 | 8 | zero |
//! | 88 | 8 | checksum of everything up to the padding, without this field |
//!
//! A directory entry is: kind (1 byte), id as zigzag varint of the difference to the entry before, varint tree, varint
//! packed length, varint raw length, 8 bytes checksum of the frame. Frames lie in directory order without gaps.

use crate::encoding::{Malformed, Reader, put_varint, unzigzag, zigzag};
use crate::types::{Location, RecordId, SECTOR_BYTES, SegmentId, TreeId, round_up_to_sector};
use packstone_codec::PackedRecord;
use packstone_media::AlignedBuffer;
use xxhash_rust::xxh3::Xxh3;

pub(crate) const HEADER_BYTES: usize = 96;
const MAGIC: u32 = u32::from_le_bytes(*b"PKBT");
const CHECKSUM_AT: usize = 88;
/// Longest directory entry.
pub(crate) const ENTRY_BYTES_MAX: u32 = 1 + 10 + 5 + 5 + 5 + 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchKind {
    Log,
    Nodes,
}

/// What a directory entry is about; decides how recovery and the cleaner treat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A record written for the first time.
    New,
    /// A live record carried here by the cleaner.
    Moved,
    /// Node of a tree; `id` is its record id.
    Node,
    /// Node of the record table; `id` is the first record id it covers, `tree` its level.
    TableNode,
    /// Page of segment usage; `id` is the page number.
    UsagePage,
    /// Locations of the usage pages.
    UsageIndex,
}

impl EntryKind {
    fn from_byte(byte: u8) -> Result<EntryKind, Malformed> {
        Ok(match byte {
            0 => EntryKind::New,
            1 => EntryKind::Moved,
            2 => EntryKind::Node,
            3 => EntryKind::TableNode,
            4 => EntryKind::UsagePage,
            5 => EntryKind::UsageIndex,
            _ => return Err(Malformed("has an unknown directory entry")),
        })
    }

    fn to_byte(self) -> u8 {
        self as u8
    }
}

/// One record of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub kind: EntryKind,
    pub id: RecordId,
    pub tree: TreeId,
    pub packed_bytes: u32,
    pub raw_bytes: u32,
    pub checksum: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: BatchKind,
    pub stream: u8,
    pub group_end: bool,
    pub epoch: u64,
    pub sequence: u64,
    pub durable_below: u64,
    pub segment: SegmentId,
    pub offset_bytes: u32,
    pub next_segment: SegmentId,
    pub total_bytes: u32,
    pub records_bytes: u32,
    pub directory_bytes: u32,
    pub operations_bytes: u32,
    pub record_count: u32,
    pub covered_below: u64,
}

impl Header {
    pub(crate) fn used_bytes(&self) -> usize {
        HEADER_BYTES
            + self.records_bytes as usize
            + self.directory_bytes as usize
            + self.operations_bytes as usize
    }

    fn encode(&self, pool_tag: u64) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.push(match self.kind {
            BatchKind::Log => 0,
            BatchKind::Nodes => 1,
        });
        out.extend_from_slice(&[self.stream, u8::from(self.group_end), 0]);
        for field in [pool_tag, self.epoch, self.sequence, self.durable_below] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        for field in [
            self.segment.0,
            self.offset_bytes,
            self.next_segment.0,
            self.total_bytes,
            self.records_bytes,
            self.directory_bytes,
            self.operations_bytes,
            self.record_count,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&self.covered_below.to_le_bytes());
        let mut header = [0; HEADER_BYTES];
        header[..out.len()].copy_from_slice(&out);
        header
    }

    /// Checks everything the header alone can tell. `room_bytes` is what is left of the segment.
    pub(crate) fn decode(
        bytes: &[u8],
        pool_tag: u64,
        segment: SegmentId,
        offset_bytes: u32,
        room_bytes: u32,
    ) -> Result<Header, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u32()? != MAGIC {
            return Err(Malformed("is no batch"));
        }
        let kind = match reader.u8()? {
            0 => BatchKind::Log,
            1 => BatchKind::Nodes,
            _ => return Err(Malformed("has an unknown kind")),
        };
        let (stream, flags, _) = (reader.u8()?, reader.u8()?, reader.u8()?);
        if reader.u64()? != pool_tag {
            return Err(Malformed("belongs to another pool"));
        }
        let header = Header {
            kind,
            stream,
            group_end: flags & 1 != 0,
            epoch: reader.u64()?,
            sequence: reader.u64()?,
            durable_below: reader.u64()?,
            segment: SegmentId(reader.u32()?),
            offset_bytes: reader.u32()?,
            next_segment: SegmentId(reader.u32()?),
            total_bytes: reader.u32()?,
            records_bytes: reader.u32()?,
            directory_bytes: reader.u32()?,
            operations_bytes: reader.u32()?,
            record_count: reader.u32()?,
            covered_below: reader.u64()?,
        };
        if header.segment != segment || header.offset_bytes != offset_bytes {
            return Err(Malformed("was written for another place"));
        }
        let sectors = header.total_bytes % SECTOR_BYTES == 0
            && header.total_bytes > 0
            && header.total_bytes <= room_bytes;
        let used = HEADER_BYTES as u64
            + u64::from(header.records_bytes)
            + u64::from(header.directory_bytes)
            + u64::from(header.operations_bytes);
        if !sectors || used > u64::from(header.total_bytes) {
            return Err(Malformed("has impossible lengths"));
        }
        Ok(header)
    }
}

/// The first 8 bytes of the pool id, which every batch repeats.
pub(crate) fn pool_tag(pool_id: &[u8; 16]) -> u64 {
    let mut tag = [0; 8];
    tag.copy_from_slice(&pool_id[..8]);
    u64::from_le_bytes(tag)
}

/// A batch being put together in memory at a known place.
pub(crate) struct BatchBuilder {
    pub header: Header,
    frames: Vec<PackedRecord>,
    directory: Vec<u8>,
    operations: Vec<u8>,
    last_id: u64,
}

impl BatchBuilder {
    pub(crate) fn new(kind: BatchKind, stream: u8, segment: SegmentId, offset_bytes: u32) -> BatchBuilder {
        BatchBuilder {
            header: Header {
                kind,
                stream,
                group_end: false,
                epoch: 0,
                sequence: 0,
                durable_below: 0,
                segment,
                offset_bytes,
                next_segment: SegmentId::NONE,
                total_bytes: 0,
                records_bytes: 0,
                directory_bytes: 0,
                operations_bytes: 0,
                record_count: 0,
                covered_below: 0,
            },
            frames: Vec::new(),
            directory: Vec::new(),
            operations: Vec::new(),
            last_id: 0,
        }
    }

    /// Sectors the batch takes if `extra_bytes` more are added.
    pub(crate) fn bytes_with(&self, extra_bytes: u32) -> u32 {
        let used = HEADER_BYTES as u32
            + self.header.records_bytes
            + self.directory.len() as u32
            + self.operations.len() as u32;
        round_up_to_sector(used + extra_bytes)
    }

    /// Adds a frame and returns where it will lie.
    pub(crate) fn push_record(
        &mut self,
        kind: EntryKind,
        id: RecordId,
        tree: TreeId,
        record: PackedRecord,
    ) -> Location {
        let (packed_bytes, raw_bytes, checksum) =
            (record.packed_bytes(), record.raw_bytes(), record.checksum());
        let location = Location {
            segment: self.header.segment,
            offset_bytes: self.header.offset_bytes + HEADER_BYTES as u32 + self.header.records_bytes,
            packed_bytes,
            raw_bytes,
            checksum,
        };
        self.directory.push(kind.to_byte());
        put_varint(
            &mut self.directory,
            zigzag(id.0.wrapping_sub(self.last_id) as i64),
        );
        put_varint(&mut self.directory, u64::from(tree.0));
        put_varint(&mut self.directory, u64::from(packed_bytes));
        put_varint(&mut self.directory, u64::from(raw_bytes));
        self.directory.extend_from_slice(&checksum.to_le_bytes());
        self.last_id = id.0;
        self.header.records_bytes += packed_bytes;
        self.header.record_count += 1;
        self.frames.push(record);
        location
    }

    /// Adds one packed chunk of operations.
    pub(crate) fn push_operations(&mut self, chunk: &[u8]) {
        put_varint(&mut self.operations, chunk.len() as u64);
        self.operations.extend_from_slice(chunk);
    }

    /// Fixes the lengths; the place behind the batch is known from here on.
    pub(crate) fn close(&mut self) -> u32 {
        self.header.directory_bytes = self.directory.len() as u32;
        self.header.operations_bytes = self.operations.len() as u32;
        self.header.total_bytes = self.bytes_with(0);
        self.header.total_bytes
    }

    /// The bytes for media, padded and checksummed.
    pub(crate) fn encode(&self, pool_tag: u64) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::zeroed(self.header.total_bytes as usize);
        buffer[..HEADER_BYTES].copy_from_slice(&self.header.encode(pool_tag));
        let mut at = HEADER_BYTES;
        let parts = self
            .frames
            .iter()
            .map(|frame| frame.frame())
            .chain([self.directory.as_slice(), self.operations.as_slice()]);
        for part in parts {
            buffer[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let checksum = checksum(&buffer[..at]);
        buffer[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        buffer
    }
}

fn checksum(used: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&used[..CHECKSUM_AT]);
    hash.update(&used[HEADER_BYTES..]);
    hash.digest()
}

/// Gives a batch that was changed a checksum that holds again, as far as its lengths can be believed.
#[cfg(feature = "fuzzing")]
pub(crate) fn reseal(batch: &mut [u8]) {
    let lengths = batch[56..68].chunks(4).map(|field| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(field);
        u32::from_le_bytes(bytes) as usize
    });
    let used = HEADER_BYTES + lengths.fold(0usize, |sum, length| sum.saturating_add(length));
    let checksum = checksum(&batch[..used.min(batch.len())]);
    batch[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// A whole batch read back from media; its checksum holds.
pub(crate) struct Batch {
    pub header: Header,
    pub entries: Vec<(Entry, Location)>,
    bytes: AlignedBuffer,
}

impl Batch {
    /// `bytes` holds the batch from its first byte, at least `header.total_bytes` long.
    pub(crate) fn decode(header: Header, bytes: AlignedBuffer) -> Result<Batch, Malformed> {
        let used = bytes
            .get(..header.used_bytes())
            .ok_or(Malformed("is cut short"))?;
        if checksum(used).to_le_bytes() != used[CHECKSUM_AT..HEADER_BYTES] {
            return Err(Malformed("fails its checksum"));
        }
        let directory_at = HEADER_BYTES + header.records_bytes as usize;
        let directory = &used[directory_at..directory_at + header.directory_bytes as usize];
        let entries = decode_directory(directory, &header)?;
        Ok(Batch {
            header,
            entries,
            bytes,
        })
    }

    /// The packed bytes of an entry.
    pub(crate) fn frame(&self, location: &Location) -> &[u8] {
        let at = (location.offset_bytes - self.header.offset_bytes) as usize;
        &self.bytes[at..at + location.packed_bytes as usize]
    }

    /// The packed chunks of operations, in order.
    pub(crate) fn operation_chunks(&self) -> Result<Vec<&[u8]>, Malformed> {
        let end = self.header.used_bytes();
        let mut reader = Reader::new(&self.bytes[end - self.header.operations_bytes as usize..end]);
        let mut chunks = Vec::new();
        while !reader.is_empty() {
            chunks.push(reader.bytes()?);
        }
        Ok(chunks)
    }
}

fn decode_directory(directory: &[u8], header: &Header) -> Result<Vec<(Entry, Location)>, Malformed> {
    let mut reader = Reader::new(directory);
    let mut entries = Vec::new();
    let (mut last_id, mut offset_bytes) = (0u64, u64::from(header.offset_bytes) + HEADER_BYTES as u64);
    let records_end = offset_bytes + u64::from(header.records_bytes);
    while !reader.is_empty() {
        let kind = EntryKind::from_byte(reader.u8()?)?;
        let id = last_id.wrapping_add(unzigzag(reader.varint()?) as u64);
        let tree = TreeId(reader.varint_u32()?);
        let (packed_bytes, raw_bytes, checksum) = (reader.varint_u32()?, reader.varint_u32()?, reader.u64()?);
        let next = offset_bytes + u64::from(packed_bytes);
        if next > records_end {
            return Err(Malformed("has a directory that reaches beyond its records"));
        }
        let entry = Entry {
            kind,
            id: RecordId(id),
            tree,
            packed_bytes,
            raw_bytes,
            checksum,
        };
        let location = Location {
            segment: header.segment,
            offset_bytes: offset_bytes as u32,
            packed_bytes,
            raw_bytes,
            checksum,
        };
        entries.push((entry, location));
        (last_id, offset_bytes) = (id, next);
    }
    if offset_bytes != records_end || entries.len() != header.record_count as usize {
        return Err(Malformed("has a directory that does not match its records"));
    }
    Ok(entries)
}
