//! Background work in pieces. The owner of the pool calls [`Pool::step`] from threads of its own, or in turn from one;
//! the pool itself has neither threads nor a clock.

use crate::error::{Error, ErrorKind, Result};
use crate::pool::{GROUP_BYTES_MAX, Pool};
use crate::space::reserve_segments;

/// Background work that the owner of a pool drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundWork {
    /// Write out commits that wait: soon when they are many, durable within some seconds when nobody asks.
    Flush,
    /// Work the overlay into the trees when the log, memory or time calls for it.
    Checkpoint,
    /// Win back mostly dead segments when free ones become few.
    Clean,
}

/// Whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// Nothing to do now: call again in some 100 ms.
    Idle,
    /// A piece was done: call again at once.
    Progress,
}

/// Commits nobody waits for become durable within this time, as on other file systems.
const FLUSH_MS: u64 = 5_000;
/// A group is written early, though not flushed, from this size.
const WRITE_BYTES: u64 = GROUP_BYTES_MAX / 4;
/// Longest time between checkpoints while anything changes.
const CHECKPOINT_MS: u64 = 120_000;
/// Log bytes between checkpoints; bounds what recovery replays, which takes about half a second for each 100 MiB.
const CHECKPOINT_LOG_BYTES: u64 = 256 << 20;

impl Pool {
    /// Does one piece of background work. `now_ms` is any clock that only goes forward.
    ///
    /// Errors are those of the work; a full pool is none, it only leaves the work undone.
    pub fn step(&self, work: BackgroundWork, now_ms: u64) -> Result<StepOutcome> {
        if self.state.read().require_writable("background work").is_err() {
            return Ok(StepOutcome::Idle);
        }
        let done = match work {
            BackgroundWork::Flush => self.flush_step(now_ms),
            BackgroundWork::Checkpoint => self.checkpoint_step(now_ms),
            BackgroundWork::Clean => self.clean_step(),
        };
        match done {
            Ok(true) => Ok(StepOutcome::Progress),
            Ok(false) => Ok(StepOutcome::Idle),
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(StepOutcome::Idle),
            Err(error) => Err(error),
        }
    }

    fn flush_step(&self, now_ms: u64) -> Result<bool> {
        let (waiting, due) = {
            let mut state = self.state.write();
            if state.durable_commit == state.last_commit {
                state.unflushed = None;
                return Ok(false);
            }
            let newest = state.last_commit;
            let (since_ms, noticed) = *state.unflushed.get_or_insert((now_ms, newest));
            if state.durable_commit >= noticed {
                state.unflushed = Some((now_ms, newest));
            }
            (
                state.group.bytes >= WRITE_BYTES,
                now_ms.saturating_sub(since_ms) >= FLUSH_MS && state.durable_commit < noticed,
            )
        };
        if waiting || due {
            self.write_group(&mut self.log.lock(), due)?;
        }
        Ok(waiting)
    }

    fn checkpoint_step(&self, now_ms: u64) -> Result<bool> {
        let mut checkpointer = self.checkpointer.lock();
        let last_ms = *checkpointer.last_ms.get_or_insert(now_ms);
        let due = {
            let state = self.state.read();
            // A frozen overlay is what an attempt that failed left behind.
            let dirty = !state.active.is_empty() || !state.group.is_empty() || state.frozen.is_some();
            let room = state.segments.free_count() < 2 * reserve_segments(state.segments.count());
            state.log_bytes > self.log_bytes_max()
                || state.active.memory_bytes() as u64 > self.memory_bytes / 8
                || (dirty && now_ms.saturating_sub(last_ms) > CHECKPOINT_MS)
                || (room && state.segments.empty_count() > 0)
        };
        if !due {
            return Ok(false);
        }
        self.checkpoint(&mut checkpointer)?;
        checkpointer.last_ms = Some(now_ms);
        Ok(true)
    }

    /// A checkpoint is due when the log behind the last one is longer.
    fn log_bytes_max(&self) -> u64 {
        CHECKPOINT_LOG_BYTES.min(self.geometry.label.capacity_bytes / 8)
    }

    /// Writes a checkpoint if the log has grown long, for owners that drive no background work.
    pub(crate) fn shorten_log(&self) -> Result<()> {
        let is_long = || self.state.read().log_bytes > self.log_bytes_max();
        if !is_long() {
            return Ok(());
        }
        let mut checkpointer = self.checkpointer.lock();
        // Somebody else may have written one while we waited.
        if is_long() {
            self.checkpoint(&mut checkpointer)
        } else {
            Ok(())
        }
    }

    fn clean_step(&self) -> Result<bool> {
        if !self.wants_cleaning() {
            return Ok(false);
        }
        let mut cleaner = self.cleaner.lock();
        Ok(self.clean_some(&mut cleaner)? > 0)
    }

    /// Makes everything durable and writes a checkpoint now, for callers that want the log empty.
    pub fn checkpoint_now(&self) -> Result<()> {
        self.checkpoint(&mut self.checkpointer.lock())
    }

    /// Makes everything durable, writes a last checkpoint, and refuses further work.
    ///
    /// A pool that was opened for reading, or stopped after an error, is just closed.
    pub fn close(&self) -> Result<()> {
        {
            let mut state = self.state.write();
            if state.closed {
                return Ok(());
            }
            if state.stopped.is_some() {
                state.closed = true;
                return Ok(());
            }
        }
        self.sync(self.last_commit())?;
        let result = self.checkpoint_now();
        self.state.write().closed = true;
        match result {
            // The log holds everything: the next open replays it.
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
            Err(error) => Err(Error::new(error.kind(), "close pool", error.to_string())),
            Ok(()) => Ok(()),
        }
    }
}
