//! Which segments are free, who writes to the others, and how many bytes of each are live.
//!
//! Live bytes count the footprint of records and nodes that can still be read ([`Location::footprint_bytes`]); headers,
//! operations and padding are dead as soon as a checkpoint has covered them. A segment that is not open and has no live
//! bytes is *empty*: it may be written again once a checkpoint that no longer needs its log is durable.
//!
//! What the newest checkpoint freed the one before still needs, and the pool can be opened from that one if the newest is
//! damaged. So free segments *rest* for two checkpoints and are taken only when no others are left. Among the others the lowest
//! is taken first, so that a pool in a file keeps to blocks of the host file system that were written before.
//!
//! What a view ([`crate::View`]) may still read is *held*: free for everything else, but taken last of all, what was freed
//! first before the rest. The views that lose something by that have expired ([`SegmentTable::lost_before`]). So views cost no
//! commit its room.
//!
//! Usage comes from media and so may lie. A segment that would lose more than it holds makes the whole table distrusted
//! ([`SegmentTable::mismatch`]): then no checkpoint is written from it, and so nothing live is ever written over.
//!
//! On media a page describes [`SEGMENTS_PER_PAGE`] segments in 8 bytes each: live bytes (4), kind (1), zero (3). Kinds:
//! 0 free, 1 to 3 log streams, 16 nodes. Pages are fixed in size so that a checkpoint can count the room they take
//! before it writes them.

use crate::encoding::{Malformed, Reader};
use crate::types::{Location, SECTOR_BYTES, SegmentId};
use std::collections::{BTreeMap, BTreeSet};

/// Segments described by one usage page.
pub(crate) const SEGMENTS_PER_PAGE: u32 = 512;
/// Bytes of a usage page before packing.
pub(crate) const USAGE_PAGE_BYTES: usize = SEGMENTS_PER_PAGE as usize * 8;

/// Most live bytes that are believed of a segment of that size. Entries of batch directories may be smaller than they are
/// counted as, so a segment may seem to hold a little more than its size.
pub(crate) fn live_bytes_max(segment_bytes: u32) -> u32 {
    segment_bytes.saturating_mul(2)
}

/// What a segment is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// Holds nothing; may be opened.
    Free,
    /// Log batches of the stream with this number.
    Log(u8),
    /// Node batches.
    Nodes,
}

impl SegmentKind {
    fn to_byte(self) -> u8 {
        match self {
            SegmentKind::Free => 0,
            SegmentKind::Log(stream) => stream + 1,
            SegmentKind::Nodes => 16,
        }
    }

    fn from_byte(byte: u8) -> Result<SegmentKind, Malformed> {
        match byte {
            0 => Ok(SegmentKind::Free),
            1..=3 => Ok(SegmentKind::Log(byte - 1)),
            16 => Ok(SegmentKind::Nodes),
            _ => Err(Malformed("names an unknown kind of segment")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub kind: SegmentKind,
    pub live_bytes: u32,
}

/// Usage of all segments.
#[derive(Clone, Debug)]
pub(crate) struct SegmentTable {
    segments: Vec<Segment>,
    /// Free for longer than two checkpoints.
    free: BTreeSet<SegmentId>,
    /// Freed by the checkpoint before the newest.
    resting: BTreeSet<SegmentId>,
    /// Freed by the newest checkpoint.
    fresh: BTreeSet<SegmentId>,
    open: BTreeSet<SegmentId>,
    /// Free segments that views may read, with the number of the publish that freed them.
    held: BTreeMap<SegmentId, u64>,
    lost_before: u64,
    live_bytes: u64,
    /// A segment whose usage cannot be true.
    mismatch: Option<SegmentId>,
}

impl SegmentTable {
    pub(crate) fn new(count: u32) -> SegmentTable {
        SegmentTable {
            segments: vec![
                Segment {
                    kind: SegmentKind::Free,
                    live_bytes: 0
                };
                count as usize
            ],
            free: (0..count).map(SegmentId).collect(),
            resting: BTreeSet::new(),
            fresh: BTreeSet::new(),
            open: BTreeSet::new(),
            held: BTreeMap::new(),
            lost_before: 0,
            live_bytes: 0,
            mismatch: None,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.segments.len() as u32
    }

    pub(crate) fn free_count(&self) -> u32 {
        (self.free.len() + self.resting.len() + self.fresh.len()) as u32
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    pub(crate) fn get(&self, id: SegmentId) -> Segment {
        self.segments[id.0 as usize]
    }

    pub(crate) fn contains(&self, id: SegmentId) -> bool {
        id.0 < self.count()
    }

    pub(crate) fn is_open(&self, id: SegmentId) -> bool {
        self.open.contains(&id)
    }

    /// Takes a free segment, the lowest of those that rested longest, and opens it.
    pub(crate) fn allocate(&mut self, kind: SegmentKind) -> Option<SegmentId> {
        let mut classes = self.free.iter().chain(&self.resting).chain(&self.fresh);
        let unheld = classes.find(|id| !self.held.contains_key(id)).copied();
        let id = unheld.or_else(|| self.take_from_views())?;
        self.take(id);
        self.segments[id.0 as usize] = Segment { kind, live_bytes: 0 };
        self.open.insert(id);
        Some(id)
    }

    /// The held segment that was freed first. Views that were opened before that have expired.
    fn take_from_views(&mut self) -> Option<SegmentId> {
        let (freed_at, id) = self.held.iter().map(|(id, freed_at)| (*freed_at, *id)).min()?;
        self.lost_before = freed_at;
        self.keep_held_since(freed_at);
        Some(id)
    }

    /// A segment that was just freed may be read by views opened before the publish of this number.
    pub(crate) fn hold(&mut self, id: SegmentId, publish: u64) {
        self.held.insert(id, publish);
    }

    /// No view is left that was opened before this publish.
    pub(crate) fn keep_held_since(&mut self, publish: u64) {
        self.held.retain(|_, freed_at| *freed_at > publish);
    }

    /// Views opened before this publish may have lost what they refer to.
    pub(crate) fn lost_before(&self) -> u64 {
        self.lost_before
    }

    /// Opens a segment that somebody else chose: recovery found that the log went on there, or a checkpoint repeats on
    /// its own copy of the table what it did on the live one.
    pub(crate) fn open_found(&mut self, id: SegmentId, kind: SegmentKind) {
        self.take(id);
        self.segments[id.0 as usize].kind = kind;
        self.open.insert(id);
    }

    fn take(&mut self, id: SegmentId) {
        self.held.remove(&id);
        for class in [&mut self.free, &mut self.resting, &mut self.fresh] {
            class.remove(&id);
        }
    }

    /// A checkpoint is durable: what the ones before it freed has rested one checkpoint more.
    pub(crate) fn rest(&mut self) {
        let fresh = std::mem::take(&mut self.fresh);
        let mut rested = std::mem::replace(&mut self.resting, fresh);
        self.free.append(&mut rested);
    }

    /// After opening: what is free now but was in use in the eyes of an older checkpoint was freed lately.
    pub(crate) fn rest_what_was_used_in(&mut self, older: &SegmentTable) {
        for (id, segment) in older.iter() {
            if segment.kind != SegmentKind::Free && self.free.remove(&id) {
                self.fresh.insert(id);
            }
        }
    }

    /// Nothing more will be appended.
    pub(crate) fn seal(&mut self, id: SegmentId) {
        self.open.remove(&id);
    }

    pub(crate) fn add(&mut self, location: &Location) {
        let footprint = location.footprint_bytes();
        let grown = self
            .segments
            .get_mut(location.segment.0 as usize)
            .and_then(|segment| {
                segment.live_bytes = segment.live_bytes.checked_add(footprint)?;
                Some(())
            });
        match grown {
            Some(()) => self.live_bytes += u64::from(footprint),
            None => self.distrust(location.segment),
        }
    }

    pub(crate) fn release(&mut self, location: &Location) {
        let footprint = location.footprint_bytes();
        let shrunk = self
            .segments
            .get_mut(location.segment.0 as usize)
            .and_then(|segment| {
                segment.live_bytes = segment.live_bytes.checked_sub(footprint)?;
                Some(())
            });
        match shrunk {
            Some(()) => self.live_bytes -= u64::from(footprint),
            None => self.distrust(location.segment),
        }
    }

    /// Usage and record table contradict each other: media can make them. What is live can no longer be told from what
    /// is dead, so no segment may be freed by this table any more; checkpoints refuse it.
    pub(crate) fn distrust(&mut self, id: SegmentId) {
        self.mismatch.get_or_insert(id);
    }

    /// Every segment was counted anew and set right: checkpoints may go by the table again.
    pub(crate) fn trust(&mut self) {
        self.mismatch = None;
    }

    /// Sets what is live in a segment, as counted.
    pub(crate) fn recount(&mut self, id: SegmentId, kind: SegmentKind, live_bytes: u32) {
        let Some(segment) = self.segments.get_mut(id.0 as usize) else {
            return;
        };
        self.live_bytes = self.live_bytes - u64::from(segment.live_bytes) + u64::from(live_bytes);
        *segment = Segment { kind, live_bytes };
        if kind != SegmentKind::Free {
            self.take(id);
        }
    }

    pub(crate) fn mismatch(&self) -> Option<SegmentId> {
        self.mismatch
    }

    /// Sealed segments without live bytes.
    pub(crate) fn empty_segments(&self) -> Vec<SegmentId> {
        self.iter()
            .filter(|(id, segment)| {
                segment.kind != SegmentKind::Free && segment.live_bytes == 0 && !self.is_open(*id)
            })
            .map(|(id, _)| id)
            .collect()
    }

    pub(crate) fn empty_count(&self) -> u32 {
        self.empty_segments().len() as u32
    }

    /// The segment may be written again.
    pub(crate) fn free(&mut self, id: SegmentId) {
        self.clear(id);
        self.fresh.insert(id);
    }

    /// A segment that was opened in vain, as nothing on media names it.
    pub(crate) fn give_back(&mut self, id: SegmentId) {
        self.open.remove(&id);
        self.clear(id);
        self.free.insert(id);
    }

    fn clear(&mut self, id: SegmentId) {
        let segment = &mut self.segments[id.0 as usize];
        assert!(
            segment.live_bytes == 0 && !self.open.contains(&id),
            "segment {id} is still in use"
        );
        segment.kind = SegmentKind::Free;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, Segment)> + '_ {
        self.segments
            .iter()
            .enumerate()
            .map(|(at, segment)| (SegmentId(at as u32), *segment))
    }

    /// Most segments of that size whose usage pages, with their index, fit one batch: a checkpoint writes them in one.
    pub(crate) fn count_max(segment_bytes: u32) -> u32 {
        // A page takes its bytes, its frame and directory entry, and its entry in the index.
        let page_bytes = USAGE_PAGE_BYTES as u32 + 128;
        (segment_bytes.saturating_sub(2 * SECTOR_BYTES) / page_bytes).saturating_mul(SEGMENTS_PER_PAGE)
    }

    pub(crate) fn page_count(&self) -> u32 {
        self.count().div_ceil(SEGMENTS_PER_PAGE)
    }

    /// Content of one page, always [`USAGE_PAGE_BYTES`] long.
    pub(crate) fn encode_page(&self, page: u32) -> Vec<u8> {
        let first = (page * SEGMENTS_PER_PAGE) as usize;
        let mut out = Vec::with_capacity(USAGE_PAGE_BYTES);
        for segment in self.segments.iter().skip(first).take(SEGMENTS_PER_PAGE as usize) {
            out.extend_from_slice(&segment.live_bytes.to_le_bytes());
            out.extend_from_slice(&[segment.kind.to_byte(), 0, 0, 0]);
        }
        out.resize(USAGE_PAGE_BYTES, 0);
        out
    }

    /// Fills in one page while opening a pool.
    pub(crate) fn decode_page(
        &mut self,
        page: u32,
        bytes: &[u8],
        segment_bytes: u32,
    ) -> Result<(), Malformed> {
        let mut reader = Reader::new(bytes);
        for number in page * SEGMENTS_PER_PAGE..self.count().min((page + 1) * SEGMENTS_PER_PAGE) {
            let live_bytes = reader.u32()?;
            let kind = SegmentKind::from_byte(reader.u8()?)?;
            reader.take(3)?;
            if live_bytes > live_bytes_max(segment_bytes) || (kind == SegmentKind::Free && live_bytes > 0) {
                return Err(Malformed("has impossible live bytes"));
            }
            let id = SegmentId(number);
            self.segments[number as usize] = Segment { kind, live_bytes };
            self.live_bytes += u64::from(live_bytes);
            if kind != SegmentKind::Free {
                self.take(id);
            }
        }
        Ok(())
    }
}
