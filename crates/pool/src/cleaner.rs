//! The cleaner: copies what is live out of mostly dead segments, so that overwriting for ever never fills the pool.
//!
//! Victims are chosen greedily: the sealed segment with the fewest live bytes. From a log segment each live record is
//! moved as it is (packed bytes, no recompression) by an ordinary commit whose entries say "moved"; the commit takes
//! effect only for records that still are where they were read, so writers are never held up. Nodes are not moved
//! through the log: their segments are handed to the next checkpoint, which writes the live nodes anew. Either way the
//! segment is free after the checkpoint that follows.

use crate::batch::{Batch, BatchKind, EntryKind, HEADER_BYTES, Header};
use crate::encoding::Malformed;
use crate::error::{ErrorKind, Result};
use crate::failpoint::Failpoint;
use crate::log::group_segments;
use crate::pool::Pool;
use crate::segments::SegmentKind;
use crate::space::{checkpoint_segments, reserve_segments};
use crate::state::{COLD_STREAM, Recent};
use crate::transaction::Stored;
use crate::types::{SECTOR_BYTES, SegmentId};
use packstone_codec::PackedRecord;
use packstone_media::AlignedBuffer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Moves are committed in transactions of about this many bytes.
const MOVE_BYTES: u64 = 1 << 20;
/// Attempts to relocate the nodes of one segment that change nothing before it is left alone.
const RELOCATIONS_MAX: u32 = 16;
/// Victims of one round, at most.
const VICTIMS_MAX: u32 = 8;

/// What the cleaner remembers; owned by whoever holds the cleaner lock.
#[derive(Default)]
pub(crate) struct Cleaner {
    /// Segments with live records that cannot be found or read; tried again after the next open.
    unreadable: BTreeSet<SegmentId>,
    /// Node segments handed to a checkpoint: their live bytes at that time, and how often that changed nothing.
    relocated: BTreeMap<SegmentId, (u32, u32)>,
}

impl Cleaner {
    /// Whether checkpoints keep leaving a node segment as it is. One may fail for want of room; several in a row mean that
    /// the nodes cannot be found.
    fn tried_in_vain(&mut self, victim: SegmentId, live_bytes: u32) -> bool {
        let entry = self.relocated.entry(victim).or_insert((live_bytes, 0));
        *entry = if entry.0 == live_bytes {
            (live_bytes, entry.1 + 1)
        } else {
            (live_bytes, 1)
        };
        entry.1 > RELOCATIONS_MAX
    }
}

impl Pool {
    /// Whether free segments have become so few that cleaning should start in the background.
    pub(crate) fn wants_cleaning(&self) -> bool {
        let state = self.state.read();
        let count = state.segments.count();
        let free_soon = state.segments.free_count() + state.segments.empty_count();
        free_soon < 2 * reserve_segments(count)
    }

    /// Empties some victims; returns how many. Their segments are won by the next checkpoint.
    pub(crate) fn clean_some(&self, cleaner: &mut Cleaner) -> Result<u32> {
        let mut cleaned = 0;
        let most = (self.state.read().segments.count() / 16).clamp(1, VICTIMS_MAX);
        while cleaned < most && self.has_room_to_clean() {
            let Some((victim, kind)) = self.choose_victim(cleaner) else {
                break;
            };
            if kind == SegmentKind::Nodes {
                let live_bytes = self.state.read().segments.get(victim).live_bytes;
                if cleaner.tried_in_vain(victim, live_bytes) {
                    cleaner.unreadable.insert(victim);
                    continue;
                }
                self.checkpointer.lock().relocate.insert(victim);
            } else if !self.clean_segment(cleaner, victim)? {
                break;
            }
            cleaned += 1;
        }
        Ok(cleaned)
    }

    /// Cleaning in the last free segments would leave none for the checkpoint that makes it count.
    pub(crate) fn has_room_to_clean(&self) -> bool {
        let state = self.state.read();
        let segment_bytes = self.geometry.segment_bytes();
        // What one victim holds may fill the open segment and begin another.
        let needed =
            checkpoint_segments(&state, segment_bytes, 0) + group_segments(&state.group, segment_bytes) + 2;
        state.segments.free_count() >= needed
    }

    fn choose_victim(&self, cleaner: &Cleaner) -> Option<(SegmentId, SegmentKind)> {
        // Taken before the state lock, as their order demands.
        let relocating = self.checkpointer.lock().relocate.clone();
        let state = self.state.read();
        let segment_bytes = self.geometry.segment_bytes();
        let worth_it = segment_bytes - segment_bytes / 32;
        let sealed = state.segments.iter().filter(|(id, segment)| {
            segment.kind != SegmentKind::Free
                && segment.live_bytes > 0
                && segment.live_bytes < worth_it
                && !state.segments.is_open(*id)
                && !cleaner.unreadable.contains(id)
                && !relocating.contains(id)
        });
        sealed
            .min_by_key(|(_, segment)| segment.live_bytes)
            .map(|(id, segment)| (id, segment.kind))
    }

    /// Moves every live record out of a log segment. False when there is no room to move them to.
    fn clean_segment(&self, cleaner: &mut Cleaner, victim: SegmentId) -> Result<bool> {
        // Its last batch may still be on its way to the media; whoever writes it holds the log.
        drop(self.log.lock());
        let live_bytes = self.state.read().segments.get(victim).live_bytes;
        for batch in self.scan_segment(victim)? {
            let mut transaction = self.begin();
            for (entry, location) in &batch.entries {
                if !matches!(entry.kind, EntryKind::New | EntryKind::Moved)
                    || self.location(entry.id)? != Some(*location)
                {
                    continue;
                }
                if matches!(self.state.read().recent(entry.id), Recent::Pending(_)) {
                    continue;
                }
                let Ok(record) = PackedRecord::from_frame(Arc::from(batch.frame(location))) else {
                    continue;
                };
                if record.checksum() != location.checksum {
                    continue;
                }
                transaction.bytes += u64::from(record.packed_bytes()) + 48;
                let moved_from = Some(*location);
                transaction.stored.push(Stored {
                    id: entry.id,
                    tree: entry.tree,
                    stream: COLD_STREAM,
                    record,
                    moved_from,
                });
                if transaction.bytes > MOVE_BYTES {
                    let full = std::mem::replace(&mut transaction, self.begin());
                    self.apply_transaction(full)?;
                }
            }
            if !transaction.is_empty() {
                self.apply_transaction(transaction)?;
            }
        }
        // Moves count only once they have places, and the places must be written before the segment is freed.
        match self.write_group(&mut self.log.lock(), false) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(false),
            Err(error) => return Err(error),
        }
        self.reach(Failpoint::MidClean)?;
        let left = self.state.read().segments.get(victim).live_bytes;
        if left > 0 && left == live_bytes {
            cleaner.unreadable.insert(victim);
        }
        Ok(true)
    }

    /// All whole batches of a segment, also of its earlier uses: callers compare places with the record table.
    pub(crate) fn scan_segment(&self, segment: SegmentId) -> Result<Vec<Batch>> {
        let segment_bytes = self.geometry.segment_bytes();
        let (bytes, _) = self.geometry.read(segment, 0, segment_bytes)?;
        let mut batches = Vec::new();
        let mut offset = 0;
        while offset < segment_bytes {
            match decode_at(&bytes, self.pool_tag, segment, offset) {
                Ok(batch) => {
                    offset += batch.header.total_bytes;
                    batches.push(batch);
                }
                Err(_) => offset += SECTOR_BYTES,
            }
        }
        Ok(batches)
    }
}

/// The batch that starts at `offset` of a segment held in memory.
fn decode_at(
    bytes: &[u8],
    pool_tag: u64,
    segment: SegmentId,
    offset: u32,
) -> std::result::Result<Batch, Malformed> {
    let rest = &bytes[offset as usize..];
    let header = Header::decode(
        &rest[..HEADER_BYTES],
        pool_tag,
        segment,
        offset,
        rest.len() as u32,
    )?;
    debug_assert!(matches!(header.kind, BatchKind::Log | BatchKind::Nodes));
    let length = header.total_bytes as usize;
    Batch::decode(header, AlignedBuffer::copy_of(&rest[..length]))
}
