//! The log: commits gathered into groups, groups laid out as batches, batches written and flushed.
//!
//! ```text
//!   commit ──► group (memory) ──plan──► batches with places ──write──► flush ──► durable
//!               under the state lock    under the state lock     under the log lock only
//! ```
//!
//! A group holds whole transactions. Its records go to one batch a stream (more where a segment ends), its operations to
//! the last of these, and that one carries the group-end flag: recovery applies whole groups only. Batches are numbered
//! without gaps over all streams, so the order in which they reach the media does not matter.
//!
//! Records freed before their group is planned are left out. From planning on, a record is written even if it is freed
//! meanwhile, for the operation that frees it belongs to a later group, which a crash may take.
//!
//! Of those who wait for durability one has the *turn*: it writes and flushes for everybody who committed before it
//! started (group commit). When it is done all others look at once whether their commit was among them, rather than each
//! waking the next, and one of those left takes the next turn.

use crate::batch::{BatchBuilder, BatchKind, ENTRY_BYTES_MAX, EntryKind, HEADER_BYTES};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint::Failpoint;
use crate::pool::Pool;
use crate::segments::SegmentKind;
use crate::slot::Cursor;
use crate::state::{COLD_STREAM, Group, LOG_STREAMS, Pending, State};
use crate::types::{CommitSequence, RecordId, SECTOR_BYTES, SegmentId, round_up_to_sector};
use packstone_codec::{Compression, PackedRecord};
use std::sync::PoisonError;

/// Longest log batch, so that no buffer grows with the segment size.
const BATCH_BYTES_MAX: u32 = 4 << 20;

/// Longest chunk of operations: a full one, and one more operation with the longest key and value.
pub(crate) const OPERATIONS_BYTES_MAX: u32 = 84 << 10;

/// Shorter chunks of operations stay as they are: what a single commit would save is lost to the sector's padding.
const PACKED_OPERATIONS_BYTES_MIN: usize = 512;

/// How many bytes of operations a byte of a batch may unfold into: bounds the memory that replay takes for a log.
pub(crate) const UNFOLDING_MAX: u64 = 64;

/// Who writes and flushes for all who wait.
#[derive(Default)]
pub(crate) struct Turn {
    queue: std::sync::Mutex<Queue>,
    ended: std::sync::Condvar,
}

#[derive(Default)]
struct Queue {
    is_taken: bool,
    /// Waking costs a system call, also where nobody sleeps.
    waiting: u32,
}

impl Turn {
    /// Waits until `done` is true or an error, or until the turn is ours: answers whether it is.
    fn begin(&self, done: impl Fn() -> Result<bool>) -> Result<bool> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if done()? {
                return Ok(false);
            }
            if !std::mem::replace(&mut queue.is_taken, true) {
                return Ok(true);
            }
            queue.waiting += 1;
            queue = self.ended.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.waiting -= 1;
        }
    }

    fn end(&self) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.is_taken = false;
        if queue.waiting > 0 {
            self.ended.notify_all();
        }
    }
}

/// Ends the turn, also when whoever has it panics.
struct TurnEnd<'a>(&'a Pool);

impl Drop for TurnEnd<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The group may be half written, and nobody has it any more: nothing may be promised after it.
            let reason = "the pool stopped after a panic while it wrote the log; close it and open it again";
            self.0.state.write().stopped.get_or_insert(reason.to_string());
        }
        self.0.turn.end();
    }
}

/// Position of the log; owned by whoever holds the log lock.
pub(crate) struct LogWriter {
    pub cursors: [Cursor; LOG_STREAMS],
    pub epoch: u64,
    pub next_batch: u64,
    /// Batches below this number were made durable by flushes of the log; a checkpoint may have done more.
    pub durable_below: u64,
}

/// Batches with fixed places, ready to be written.
pub(crate) struct Plan {
    pub batches: Vec<BatchBuilder>,
    pub records: Vec<RecordId>,
    pub commit: CommitSequence,
}

impl Plan {
    fn data_bytes(&self) -> u64 {
        self.batches
            .iter()
            .map(|batch| u64::from(batch.header.total_bytes))
            .sum()
    }
}

/// Segments that a group of `bytes` in `records` may need, none longer than `largest_bytes`: the end of each may be too
/// short for the next record or chunk of operations, and every stream may have to begin a new one.
pub(crate) fn segments_needed(bytes: u64, records: usize, largest_bytes: u32, segment_bytes: u32) -> u32 {
    let overhead =
        records as u64 * u64::from(ENTRY_BYTES_MAX) + (HEADER_BYTES as u64 + u64::from(SECTOR_BYTES)) * 4;
    // Lost at the end of a segment: the next record or chunk of operations, a header, the rounding to a sector.
    let lost = largest_bytes.max(OPERATIONS_BYTES_MAX) + ENTRY_BYTES_MAX + HEADER_BYTES as u32 + SECTOR_BYTES;
    let usable = segment_bytes - lost.min(segment_bytes / 2 + 2 * SECTOR_BYTES);
    (bytes + overhead).div_ceil(u64::from(usable)) as u32 + LOG_STREAMS as u32
}

/// Segments that the waiting group may need.
pub(crate) fn group_segments(group: &Group, segment_bytes: u32) -> u32 {
    if group.is_empty() {
        return 0;
    }
    let records = group.records.iter().map(Vec::len).sum();
    segments_needed(group.bytes, records, group.largest_bytes, segment_bytes)
}

/// Whether the free segments suffice for the waiting group. Counted closely only where the estimate says no.
fn fits(state: &State, log: &LogWriter, segment_bytes: u32) -> bool {
    let free = state.segments.free_count();
    if group_segments(&state.group, segment_bytes) <= free {
        return true;
    }
    // Batches that end before their segment does would have to be counted too.
    segment_bytes <= BATCH_BYTES_MAX && Layout::of_group(state, log, segment_bytes).opened <= free
}

/// How many segments the planner would open for a group. Sizes are the planner's or a little more; then no item ends
/// further on with the planner than here, and so the planner opens no more segments.
struct Layout {
    segment_bytes: u32,
    ends: [u32; LOG_STREAMS],
    /// Stream of the batch that can still grow, and its bytes.
    open: Option<(usize, u32)>,
    opened: u32,
}

impl Layout {
    fn of_group(state: &State, log: &LogWriter, segment_bytes: u32) -> Layout {
        let mut layout = Layout {
            segment_bytes,
            ends: log.cursors.map(|cursor| cursor.offset_bytes),
            open: None,
            opened: 0,
        };
        for (stream, ids) in state.group.records.iter().enumerate() {
            for pending in ids.iter().filter_map(|id| state.pending.get(id)) {
                layout.place(stream, pending.record.packed_bytes() + ENTRY_BYTES_MAX);
            }
        }
        for chunk in &state.group.chunks {
            let stream = layout.open.map_or(0, |(stream, _)| stream);
            layout.place(stream, pack_operations(chunk).packed_bytes() + 5);
        }
        layout.close();
        layout
    }

    fn place(&mut self, stream: usize, bytes: u32) {
        if let Some((open, used)) = self.open
            && open == stream
            && self.ends[stream] + round_up_to_sector(used + bytes) <= self.segment_bytes
        {
            self.open = Some((stream, used + bytes));
            return;
        }
        self.close();
        let used = HEADER_BYTES as u32 + bytes;
        if self.ends[stream] + round_up_to_sector(used) > self.segment_bytes {
            self.opened += 1;
            self.ends[stream] = 0;
        }
        self.open = Some((stream, used));
    }

    fn close(&mut self) {
        if let Some((stream, used)) = self.open.take() {
            self.ends[stream] += round_up_to_sector(used);
            if self.ends[stream] == self.segment_bytes {
                self.opened += 1;
                self.ends[stream] = 0;
            }
        }
    }
}

fn pack_operations(chunk: &[u8]) -> PackedRecord {
    if chunk.len() < PACKED_OPERATIONS_BYTES_MIN {
        return PackedRecord::pack(chunk, Compression::None);
    }
    let packed = PackedRecord::pack(chunk, Compression::default());
    if chunk.len() as u64 > UNFOLDING_MAX * u64::from(packed.packed_bytes()) {
        return PackedRecord::pack(chunk, Compression::None);
    }
    packed
}

/// Lays the waiting group out. Nothing is changed when it fails.
pub(crate) fn plan_group(state: &mut State, log: &mut LogWriter, segment_bytes: u32) -> Result<Plan> {
    let commit = state.last_commit;
    if state.group.is_empty() {
        return Ok(Plan {
            batches: Vec::new(),
            records: Vec::new(),
            commit,
        });
    }
    if !fits(state, log, segment_bytes) {
        return Err(Error::new(
            ErrorKind::NoSpace,
            "write log",
            "no free segment is left for the log",
        ));
    }
    let group = std::mem::take(&mut state.group);
    let mut planner = Planner {
        state,
        log,
        segment_bytes,
        batches: Vec::new(),
        open: None,
    };
    let mut written = Vec::new();
    for (stream, ids) in group.records.iter().enumerate() {
        for id in ids {
            // Freed again before it was ever written: it leaves no trace but the operations.
            let Some(pending) = planner.state.pending.get(id).cloned() else {
                continue;
            };
            planner.place_record(stream, *id, &pending);
            written.push(*id);
        }
    }
    for chunk in &group.chunks {
        planner.place_operations(chunk);
    }
    planner.close_open();
    let mut batches = planner.batches;
    if let Some(last) = batches.last_mut() {
        last.header.group_end = true;
    }
    let durable_below = log.durable_below.max(state.covered_below);
    for batch in &mut batches {
        batch.header.epoch = log.epoch;
        batch.header.sequence = log.next_batch;
        batch.header.durable_below = durable_below;
        log.next_batch += 1;
    }
    let plan = Plan {
        batches,
        records: written,
        commit,
    };
    state.log_bytes += plan.data_bytes();
    Ok(plan)
}

struct Planner<'a> {
    state: &'a mut State,
    log: &'a mut LogWriter,
    segment_bytes: u32,
    batches: Vec<BatchBuilder>,
    /// Stream of the batch at the end of `batches`, while it can still grow.
    open: Option<usize>,
}

impl Planner<'_> {
    fn place_record(&mut self, stream: usize, id: RecordId, pending: &Pending) {
        let kind = if pending.moved_from.is_some() {
            EntryKind::Moved
        } else {
            EntryKind::New
        };
        let batch = self.batch_for(stream, pending.record.packed_bytes() + ENTRY_BYTES_MAX);
        let location = batch.push_record(kind, id, pending.tree, pending.record.clone());
        if let Some(old) = &pending.moved_from {
            self.state.segments.release(old);
        }
        self.state.segments.add(&location);
        self.state.active.set_record(id, Some(location));
        if let Some(pending) = self.state.pending.get_mut(&id) {
            pending.in_flight = true;
        }
    }

    fn place_operations(&mut self, chunk: &[u8]) {
        let packed = pack_operations(chunk);
        let stream = self.open.unwrap_or(0);
        self.batch_for(stream, packed.packed_bytes() + 5)
            .push_operations(packed.frame());
    }

    /// The open batch of the stream, or a new one, with room for `bytes` more.
    fn batch_for(&mut self, stream: usize, bytes: u32) -> &mut BatchBuilder {
        let fits = self.open == Some(stream)
            && self.batches.last().is_some_and(|batch| {
                let total = batch.bytes_with(bytes);
                batch.header.offset_bytes + total <= self.segment_bytes
                    && total <= BATCH_BYTES_MAX.max(self.segment_bytes / 2)
            });
        if !fits {
            self.close_open();
            self.open_batch(stream, bytes);
        }
        self.batches
            .last_mut()
            .unwrap_or_else(|| unreachable!("a batch was just opened"))
    }

    fn open_batch(&mut self, stream: usize, bytes: u32) {
        let kind = BatchKind::Log;
        let cursor = self.log.cursors[stream];
        let batch = BatchBuilder::new(kind, stream as u8, cursor.segment, cursor.offset_bytes);
        if cursor.offset_bytes + batch.bytes_with(bytes) <= self.segment_bytes {
            self.batches.push(batch);
        } else {
            // The batch before this one, or an empty batch at the cursor, names the next segment.
            let next = self.next_segment(stream);
            match self
                .batches
                .iter_mut()
                .rev()
                .find(|batch| usize::from(batch.header.stream) == stream)
            {
                Some(before) => before.header.next_segment = next,
                None => {
                    let mut link = batch;
                    link.header.next_segment = next;
                    link.close();
                    self.batches.push(link);
                }
            }
            self.log.cursors[stream] = Cursor {
                segment: next,
                offset_bytes: 0,
            };
            self.batches.push(BatchBuilder::new(kind, stream as u8, next, 0));
        }
        self.open = Some(stream);
    }

    fn close_open(&mut self) {
        let Some(stream) = self.open.take() else { return };
        let Some(batch) = self.batches.last_mut() else {
            return;
        };
        let end = batch.header.offset_bytes + batch.close();
        if end == self.segment_bytes {
            // No sector is left to name the next segment later, so it is named now.
            let next = self.next_segment(stream);
            if let Some(batch) = self.batches.last_mut() {
                batch.header.next_segment = next;
            }
            self.log.cursors[stream] = Cursor {
                segment: next,
                offset_bytes: 0,
            };
        } else {
            self.log.cursors[stream].offset_bytes = end;
        }
    }

    fn next_segment(&mut self, stream: usize) -> SegmentId {
        self.state.segments.seal(self.log.cursors[stream].segment);
        let next = self.state.segments.allocate(SegmentKind::Log(stream as u8));
        next.unwrap_or_else(|| unreachable!("free segments were counted before the group was planned"))
    }
}

impl Pool {
    /// Returns once everything committed up to and including `through` is durable.
    ///
    /// Errors: `ReadOnly` when an earlier write or flush failed (nothing is promised any more), `Unavailable` when this
    /// one does.
    pub fn sync(&self, through: CommitSequence) -> Result<()> {
        if !self.turn.begin(|| self.is_durable(through))? {
            return Ok(());
        }
        let turn = TurnEnd(self);
        let result = self.write_group(&mut self.log.lock(), true);
        drop(turn);
        result
    }

    fn is_durable(&self, through: CommitSequence) -> Result<bool> {
        let state = self.state.read();
        if state.durable_commit >= through {
            return Ok(true);
        }
        state.require_writable("sync").map(|()| false)
    }

    /// Writes the waiting group, and makes it durable when `flush` is set.
    pub(crate) fn write_group(&self, log: &mut LogWriter, flush: bool) -> Result<()> {
        let plan = {
            let mut state = self.state.write();
            state.require_writable("write log")?;
            plan_group(&mut state, log, self.geometry.segment_bytes())?
        };
        self.write_plan(log, &plan, flush)
    }

    /// Writes planned batches. A failure stops the pool: what was promised to be written can no longer be.
    pub(crate) fn write_plan(&self, log: &mut LogWriter, plan: &Plan, flush: bool) -> Result<()> {
        for (at, batch) in plan.batches.iter().enumerate() {
            if at + 1 < plan.batches.len() {
                self.reach(Failpoint::BeforeBatch)?;
            } else {
                self.reach(Failpoint::BeforeLastBatch)?;
            }
            let bytes = batch.encode(self.pool_tag);
            let written = self
                .geometry
                .write(batch.header.segment, batch.header.offset_bytes, &bytes);
            self.stop_on_error(written)?;
        }
        if flush {
            self.reach(Failpoint::BeforeLogFlush)?;
            self.stop_on_error(self.geometry.flush())?;
            self.reach(Failpoint::AfterLogFlush)?;
            log.durable_below = log.next_batch;
        }
        let mut state = self.state.write();
        // A write or flush that failed elsewhere meanwhile may have let this one succeed for nothing.
        state.require_writable("write log")?;
        for id in &plan.records {
            state.pending.remove(id);
        }
        count_written(&mut state, plan);
        state.written_commit = state.written_commit.max(plan.commit);
        if flush {
            state.durable_commit = state.durable_commit.max(plan.commit);
        }
        Ok(())
    }

    /// After a failed write or flush nobody knows what is on media: refuse every further promise.
    pub(crate) fn stop_on_error<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            let reason = format!(
                "the pool stopped writing after an error ({error}); close it, mend the device, open it again"
            );
            self.state.write().stopped.get_or_insert(reason);
        }
        result
    }
}

fn count_written(state: &mut State, plan: &Plan) {
    for batch in &plan.batches {
        let header = &batch.header;
        let used = header.used_bytes() as u64;
        if usize::from(header.stream) == COLD_STREAM {
            state.written.cleaning += u64::from(header.records_bytes);
        } else {
            state.written.data += u64::from(header.records_bytes);
        }
        state.written.operations += used - u64::from(header.records_bytes);
        state.written.padding += u64::from(header.total_bytes) - used;
    }
}
