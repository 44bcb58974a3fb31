//! Opening a pool: newest checkpoint, then the unbroken prefix of the log behind it.
//!
//! Each stream goes on at the cursor the slot names; batches are numbered over all streams, so the next one to apply is
//! at exactly one cursor. Replay stops at the first number that is nowhere, and takes back what belongs to a commit group
//! whose last batch is missing. Nothing is written: places and changes go into the overlay, as commits do, and the first
//! checkpoint after opening works them into the trees.
//!
//! A missing batch is the end of the log, unless a later batch says that it was durable once (`durable_below`): then
//! acknowledged data were lost on media, and that is an error, not an end. A read that fails is no end either.
//!
//! Where the newest checkpoint is lost, replay starts at an older one and may pass into a later epoch. The first batch of
//! an epoch has the number and the place at which the log before it ended, so at the start of a group the batch with the
//! highest epoch wins, and no lower one counts after it.

use crate::batch::{Batch, BatchKind, EntryKind, Header};
use crate::catalog::dataset_tree;
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::Geometry;
use crate::log::{OPERATIONS_BYTES_MAX, UNFOLDING_MAX};
use crate::pool::Stable;
use crate::scanner::Scanner;
use crate::segments::SegmentKind;
use crate::slot::{Cursor, Slot};
use crate::state::{LOG_STREAMS, Recent, State};
use crate::stores::{TableStore, locate, unpack};
use crate::transaction::{Operation, is_too_long};
use crate::types::{COUNTED_MAX, Location, NUMBER_MAX, RecordId, SegmentId, TreeId};

const OPERATION: &str = "recover pool";
/// Longest commit group that is believed: it is held in memory until its last batch is found.
const GROUP_BYTES_MAX: u64 = 1 << 30;

/// Where the log goes on after replay.
pub(crate) struct Replayed {
    pub cursors: [Cursor; LOG_STREAMS],
    pub next_batch: u64,
    pub next_record: u64,
    /// Of the last batch applied.
    pub epoch: u64,
    /// What a pool opened for reading only has to say of its log.
    pub unread: Option<String>,
}

pub(crate) struct Replay<'a> {
    pub geometry: &'a Geometry,
    pub table: TableStore<'a>,
    pub stable: &'a Stable,
    pub slot: &'a Slot,
    pub scanner: Scanner<'a>,
    /// A log that cannot be read ends there; opened for writing that is an error.
    pub read_only: bool,
    /// A log that shows that something is missing ends there as well.
    pub incomplete: bool,
}

/// How the log goes on at a position.
enum Next {
    Batch(Box<Batch>),
    End,
    /// A read failed there, and no other place has the batch.
    Unread(Cursor, Error),
}

/// Progress through the log; copied at every end of a group.
#[derive(Clone, Copy)]
struct Position {
    cursors: [Cursor; LOG_STREAMS],
    next_batch: u64,
    epoch: u64,
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
            epoch: self.slot.epoch,
        };
        let mut applied = position;
        let mut group: Vec<Batch> = Vec::new();
        let mut group_bytes = 0;
        let mut next_record = self.slot.next_record;
        let mut unread = None;
        loop {
            let batch = match self.next_batch(state, &position, group.is_empty()) {
                Ok(Next::Batch(batch)) => *batch,
                Ok(Next::End) => break,
                Ok(Next::Unread(cursor, error)) => {
                    unread = Some(self.unread(&cursor, &error)?);
                    break;
                }
                Err(error) => {
                    unread = Some(self.put_up_with(error)?);
                    break;
                }
            };
            let stream = usize::from(batch.header.stream);
            position.next_batch += 1;
            position.epoch = batch.header.epoch;
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
        if let Err(error) = self.refuse_gap(&position) {
            unread.get_or_insert(self.put_up_with(error)?);
        }
        Ok(Replayed {
            cursors: applied.cursors,
            next_batch: applied.next_batch,
            next_record,
            epoch: applied.epoch,
            unread,
        })
    }

    /// The batch with the next number, at whichever cursor it is; at the start of a group also of a later epoch. A read that
    /// fails is told from an end where it happens: a device may fail once and not again.
    fn next_batch(&self, state: &State, position: &Position, group_starts: bool) -> Result<Next> {
        let scanner = &self.scanner;
        let mut found: Vec<(Cursor, Header)> = Vec::new();
        let mut end = Next::End;
        for (stream, cursor) in position.cursors.iter().enumerate() {
            match scanner.header_at(cursor) {
                Ok(Some(header))
                    if header.kind == BatchKind::Log
                        && usize::from(header.stream) == stream
                        && header.sequence == position.next_batch
                        && (header.epoch == position.epoch
                            || (group_starts && (position.epoch..COUNTED_MAX).contains(&header.epoch))) =>
                {
                    found.push((*cursor, header));
                }
                Ok(_) => {}
                Err(error) => end = Next::Unread(*cursor, error),
            }
        }
        found.sort_by_key(|(_, header)| std::cmp::Reverse(header.epoch));
        for (cursor, header) in found {
            match scanner.batch_at(&cursor, header) {
                Ok(Some(batch)) => {
                    self.check_next_segment(state, position, &batch)?;
                    return Ok(Next::Batch(Box::new(batch)));
                }
                Ok(None) => {}
                Err(error) => end = Next::Unread(cursor, error),
            }
        }
        Ok(end)
    }

    fn check_next_segment(&self, state: &State, position: &Position, batch: &Batch) -> Result<()> {
        let next = batch.header.next_segment;
        // A free segment, for nothing else may follow; a checksum guards against damage, this against loops.
        let is_free = state.segments.contains(next)
            && state.segments.get(next).kind == SegmentKind::Free
            && position.cursors.iter().all(|cursor| cursor.segment != next);
        if next == SegmentId::NONE || is_free {
            return Ok(());
        }
        Err(Error::damaged(
            OPERATION,
            format!("the log goes on in segment {next}, which is in use"),
        ))
    }

    /// What is shown of a pool although acknowledged data are missing.
    fn put_up_with(&self, error: Error) -> Result<String> {
        if self.incomplete {
            Ok(format!("INCOMPLETE: {error}"))
        } else {
            Err(error)
        }
    }

    /// The log ends because it cannot be read where it would go on.
    fn unread(&self, cursor: &Cursor, error: &Error) -> Result<String> {
        let message = format!(
            "the log cannot be read at segment {} offset {} ({error}), so nobody knows whether it ends there",
            cursor.segment, cursor.offset_bytes
        );
        if self.read_only {
            return Ok(message);
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            OPERATION,
            format!("{message}: mend the device and open it again; packstone check shows what is there"),
        ))
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
        let mut unfolded_bytes = 0;
        for chunk in batch
            .operation_chunks()
            .map_err(|m| Error::malformed(OPERATION, "a batch", m))?
        {
            let raw = unpack(chunk, OPERATIONS_BYTES_MAX)?;
            unfolded_bytes += raw.len() as u64;
            if unfolded_bytes > UNFOLDING_MAX * u64::from(batch.header.total_bytes) {
                return Err(Error::damaged(
                    OPERATION,
                    "the log holds operations that unfold into more than any pool writes",
                ));
            }
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
            Operation::Change(_, item) if is_too_long(&item) => {
                return Err(Error::damaged(OPERATION, "the log holds a pair that is too long"));
            }
            Operation::Change(tree, item) => {
                let value = item.value();
                if let Some(TreeId(number)) = value.and_then(|value| dataset_tree(tree, item.key(), value)) {
                    state.next_tree = state.next_tree.max(number.saturating_add(1));
                }
                state.active.set(tree, item);
            }
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
        let scanner = &self.scanner;
        for cursor in &position.cursors {
            for (at, header) in scanner.headers_behind(cursor) {
                if header.kind == BatchKind::Log
                    && header.epoch >= position.epoch
                    && header.sequence > position.next_batch
                    && header.durable_below > position.next_batch
                    && scanner.is_whole(&at, &header)
                {
                    return Err(Error::damaged(
                        OPERATION,
                        format!(
                            "log batch {} cannot be read, but batch {} was written after it was durable: the media lost data",
                            position.next_batch, header.sequence
                        ),
                    ));
                }
            }
        }
        Ok(())
    }
}

fn place(state: &mut State, id: RecordId, location: &Location) {
    state.segments.add(location);
    state.active.set_record(id, Some(*location));
}
