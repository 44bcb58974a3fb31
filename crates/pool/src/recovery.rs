//! Opening a pool: newest checkpoint, then the unbroken prefix of the log behind it.
//!
//! Each stream goes on at the cursor the slot names; batches are numbered over all streams, so the next one to apply is
//! at exactly one cursor. Replay stops at the first number that is nowhere, and takes back what belongs to a commit group
//! whose last batch is missing. Nothing is written: places and changes go into the overlay, as commits do, and the first
//! checkpoint after opening works them into the trees.
//!
//! A missing batch is the end of the log, unless a later batch says that it was durable once (`durable_below`): then
//! acknowledged data were lost on media, and that is an error, not an end.

use crate::batch::{Batch, BatchKind, EntryKind, HEADER_BYTES, Header};
use crate::catalog::dataset_tree;
use crate::encoding::Malformed;
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::pool::Stable;
use crate::segments::SegmentKind;
use crate::slot::{Cursor, Slot};
use crate::state::{LOG_STREAMS, Recent, State};
use crate::stores::{TableStore, locate, unpack};
use crate::transaction::{KEY_BYTES_MAX, Operation, VALUE_BYTES_MAX};
use crate::types::{Location, NUMBER_MAX, RecordId, SECTOR_BYTES, SegmentId, TreeId};

const OPERATION: &str = "recover pool";
/// Bound for unpacking a chunk of operations: a few operations with the longest values.
const CHUNK_RAW_BYTES_MAX: u32 = 1 << 20;
/// Longest commit group that is believed: it is held in memory until its last batch is found.
const GROUP_BYTES_MAX: u64 = 1 << 30;

/// Where the log goes on after replay.
pub(crate) struct Replayed {
    pub cursors: [Cursor; LOG_STREAMS],
    pub next_batch: u64,
    pub next_record: u64,
}

pub(crate) struct Replay<'a> {
    pub geometry: &'a Geometry,
    pub table: TableStore<'a>,
    pub stable: &'a Stable,
    pub slot: &'a Slot,
    pub pool_tag: u64,
}

/// Progress through the log; copied at every end of a group.
#[derive(Clone, Copy)]
struct Position {
    cursors: [Cursor; LOG_STREAMS],
    next_batch: u64,
}

impl Replay<'_> {
    /// Applies the log to `state`, which holds what the checkpoint said.
    pub(crate) fn run(&self, state: &mut State) -> Result<Replayed> {
        let mut cursors = [Cursor {
            segment: SegmentId(0),
            offset_bytes: 0,
        }; LOG_STREAMS];
        cursors.copy_from_slice(&self.slot.cursors[..LOG_STREAMS]);
        let mut position = Position {
            cursors,
            next_batch: self.slot.next_batch,
        };
        let mut applied = position;
        let mut group: Vec<Batch> = Vec::new();
        let mut group_bytes = 0;
        let mut next_record = self.slot.next_record;
        while let Some(batch) = self.next_batch(state, &position)? {
            let stream = usize::from(batch.header.stream);
            position.next_batch += 1;
            position.cursors[stream] = match batch.header.next_segment {
                SegmentId::NONE => Cursor {
                    offset_bytes: batch.header.offset_bytes + batch.header.total_bytes,
                    ..position.cursors[stream]
                },
                next => Cursor {
                    segment: next,
                    offset_bytes: 0,
                },
            };
            let group_end = batch.header.group_end;
            group_bytes += u64::from(batch.header.total_bytes);
            if group_bytes > GROUP_BYTES_MAX {
                return Err(Error::damaged(
                    OPERATION,
                    "the log holds a commit group without an end",
                ));
            }
            group.push(batch);
            if group_end {
                for batch in group.drain(..) {
                    next_record = next_record.max(self.apply(state, &batch)?);
                }
                (applied, group_bytes) = (position, 0);
            }
        }
        self.refuse_gap(&position)?;
        Ok(Replayed {
            cursors: applied.cursors,
            next_batch: applied.next_batch,
            next_record,
        })
    }

    /// The batch with the next number, at whichever cursor it is.
    fn next_batch(&self, state: &State, position: &Position) -> Result<Option<Batch>> {
        for (stream, cursor) in position.cursors.iter().enumerate() {
            let Ok(header) = self.header_at(cursor) else {
                continue;
            };
            let expected = header.kind == BatchKind::Log
                && usize::from(header.stream) == stream
                && header.epoch == self.slot.epoch
                && header.sequence == position.next_batch;
            if !expected {
                continue;
            }
            if let Ok(batch) = self.batch_at(cursor, header) {
                let next = batch.header.next_segment;
                // A free segment, for nothing else may follow; a checksum guards against damage, this against loops.
                let is_free = state.segments.contains(next)
                    && state.segments.get(next).kind == SegmentKind::Free
                    && position.cursors.iter().all(|cursor| cursor.segment != next);
                if next != SegmentId::NONE && !is_free {
                    return Err(Error::damaged(
                        OPERATION,
                        format!("the log goes on in segment {next}, which is in use"),
                    ));
                }
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    fn header_at(&self, cursor: &Cursor) -> std::result::Result<Header, Malformed> {
        let room = self.geometry.segment_bytes().saturating_sub(cursor.offset_bytes);
        if room < SECTOR_BYTES {
            return Err(Malformed("lies beyond its segment"));
        }
        let (bytes, _) = self
            .geometry
            .read(
                cursor.segment,
                cursor.offset_bytes,
                cursor.offset_bytes + SECTOR_BYTES,
            )
            .map_err(|_| Malformed("cannot be read"))?;
        Header::decode(
            &bytes[..HEADER_BYTES],
            self.pool_tag,
            cursor.segment,
            cursor.offset_bytes,
            room,
        )
    }

    fn batch_at(&self, cursor: &Cursor, header: Header) -> std::result::Result<Batch, Malformed> {
        let end = cursor.offset_bytes + header.total_bytes;
        let read = self.geometry.read(cursor.segment, cursor.offset_bytes, end);
        let (bytes, _) = read.map_err(|_| Malformed("cannot be read"))?;
        Batch::decode(header, bytes)
    }

    /// Applies one batch and returns the lowest record id that is still unused.
    fn apply(&self, state: &mut State, batch: &Batch) -> Result<u64> {
        let mut next_record = 0;
        for (entry, location) in &batch.entries {
            match entry.kind {
                EntryKind::New => {
                    if entry.id.0 >= NUMBER_MAX {
                        return Err(Error::damaged(
                            OPERATION,
                            "the log holds an impossible record number",
                        ));
                    }
                    next_record = next_record.max(entry.id.0.saturating_add(1));
                    state
                        .counters
                        .entry(entry.tree)
                        .or_default()
                        .add(entry.raw_bytes, entry.packed_bytes);
                    place(state, entry.id, location);
                }
                EntryKind::Moved => {
                    // Freed earlier in the log: the move came too late, as it did then.
                    if let Some(old) = self.current(state, entry.id)? {
                        state.segments.release(&old);
                        place(state, entry.id, location);
                    }
                }
                EntryKind::Node | EntryKind::TableNode | EntryKind::UsagePage | EntryKind::UsageIndex => {
                    return Err(Error::damaged(OPERATION, "the log holds a tree node"));
                }
            }
        }
        for chunk in batch
            .operation_chunks()
            .map_err(|m| Error::malformed(OPERATION, "a batch", m))?
        {
            let raw = unpack(chunk, CHUNK_RAW_BYTES_MAX)?;
            for operation in
                Operation::decode_chunk(&raw).map_err(|m| Error::malformed(OPERATION, "a batch", m))?
            {
                self.apply_operation(state, operation)?;
            }
        }
        let header = &batch.header;
        if header.next_segment != SegmentId::NONE {
            state.segments.seal(header.segment);
            state
                .segments
                .open_found(header.next_segment, SegmentKind::Log(header.stream));
        }
        state.log_bytes += u64::from(header.total_bytes);
        Ok(next_record)
    }

    fn apply_operation(&self, state: &mut State, operation: Operation) -> Result<()> {
        match operation {
            Operation::Put(_, key, value) if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX => {
                return Err(Error::damaged(OPERATION, "the log holds a pair that is too long"));
            }
            Operation::Put(tree, key, value) => {
                if let Some(TreeId(number)) = dataset_tree(tree, &key, &value) {
                    state.next_tree = state.next_tree.max(number.saturating_add(1));
                }
                state.active.set_pair(tree, key, Some(value));
            }
            Operation::Delete(tree, key) => state.active.set_pair(tree, key, None),
            Operation::Free(tree, id) => {
                let place = self.current(state, id)?;
                state.free_record(tree, id, place);
            }
        }
        Ok(())
    }

    fn current(&self, state: &State, id: RecordId) -> Result<Option<Location>> {
        match state.recent_location(id) {
            Recent::At(location) => Ok(Some(location)),
            Recent::Gone | Recent::Pending(_) => Ok(None),
            Recent::Unknown => {
                let place = locate(&self.table, self.stable.table_root.as_ref(), id)?;
                place
                    .as_ref()
                    .map_or(Ok(()), |place| self.geometry.check_location(place))?;
                Ok(place)
            }
        }
    }

    /// Looks behind the end for a batch that proves the end is no end.
    fn refuse_gap(&self, position: &Position) -> Result<()> {
        for cursor in &position.cursors {
            let mut at = *cursor;
            while at.offset_bytes + SECTOR_BYTES <= self.geometry.segment_bytes() {
                if let Ok(header) = self.header_at(&at)
                    && header.kind == BatchKind::Log
                    && header.epoch == self.slot.epoch
                    && header.sequence > position.next_batch
                    && header.durable_below > position.next_batch
                    && self.batch_at(&at, header.clone()).is_ok()
                {
                    return Err(Error::damaged(
                        OPERATION,
                        format!(
                            "log batch {} cannot be read, but batch {} was written after it was durable: the media lost data",
                            position.next_batch, header.sequence
                        ),
                    ));
                }
                at.offset_bytes += SECTOR_BYTES;
            }
        }
        Ok(())
    }
}

fn place(state: &mut State, id: RecordId, location: &Location) {
    state.segments.add(location);
    state.active.set_record(id, Some(*location));
}
