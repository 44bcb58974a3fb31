//! From memory to the tree, and from the tree to durability: lazily written attributes, buffered records, fsync.
//!
//! Invariants:
//! - An inode with a buffered record, or with attributes that the tree does not have, is in the queue for it.
//! - Buffered records together are bounded: a writer that exceeds the bound writes out the oldest before it returns.
//! - `sync_file` makes durable what was written to that file, and by commit order everything committed before it.

use crate::error::{error, from_pool};
use crate::filesystem::FileSystem;
use crate::inode::{Inode, InodeState, OpenRecord};
use crate::staged::Staged;
use crate::types::{ErrorKind, Ino, Result, Timestamp};
use packstone_pool::CommitSequence;
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buffered records of all files together.
pub(crate) const BUFFERED_BYTES_MAX: u64 = 64 << 20;
/// Age at which a buffered record is written out.
const BUFFER_AGE_MS: i64 = 1_000;
/// Age at which changed attributes are written out.
const ATTRIBUTES_AGE_MS: i64 = 5_000;
/// Inodes of one queue written out in one step.
const INODES_PER_STEP: usize = 64;

/// What is in memory and not yet in the tree, oldest first.
#[derive(Default)]
pub(crate) struct DirtyQueues {
    /// Held shared from taking an inode out of a queue until it is flushed, and exclusively to flush all of them: so
    /// nobody believes that everything is flushed while another thread is still about to.
    taking: RwLock<()>,
    buffers: Mutex<VecDeque<(Timestamp, Ino)>>,
    attributes: Mutex<VecDeque<(Timestamp, Ino)>>,
    recounts: Mutex<VecDeque<Ino>>,
    buffered_bytes: AtomicU64,
}

impl DirtyQueues {
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.buffered_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn queue_attributes(&self, ino: Ino, state: &mut InodeState, now: Timestamp) {
        if !std::mem::replace(&mut state.attributes_queued, true) {
            self.attributes.lock().push_back((now, ino));
        }
    }

    pub(crate) fn queue_recount(&self, ino: Ino) {
        self.recounts.lock().push_back(ino);
    }

    /// Makes `open` the inode's open record; there must be none.
    pub(crate) fn set_open_record(&self, ino: Ino, state: &mut InodeState, open: OpenRecord, now: Timestamp) {
        assert!(state.open_record.is_none(), "an open record would be lost");
        self.buffered_bytes
            .fetch_add(open.accounted_bytes, Ordering::Relaxed);
        state.open_record = Some(open);
        if !std::mem::replace(&mut state.buffer_queued, true) {
            self.buffers.lock().push_back((now, ino));
        }
    }

    pub(crate) fn drop_open_record(&self, state: &mut InodeState) {
        if let Some(open) = state.open_record.take() {
            self.buffered_bytes
                .fetch_sub(open.accounted_bytes, Ordering::Relaxed);
        }
    }

    fn pop_due(queue: &Mutex<VecDeque<(Timestamp, Ino)>>, now: Timestamp, age_ms: i64) -> Option<Ino> {
        let mut queue = queue.lock();
        let due = queue
            .front()
            .is_some_and(|(since, _)| now.is_past(*since, age_ms));
        if due {
            queue.pop_front().map(|(_, ino)| ino)
        } else {
            None
        }
    }
}

/// How much of an inode must reach the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Data and size.
    Data,
    /// Times and stored bytes as well.
    All,
}

impl FileSystem {
    /// Puts into the tree what only memory has. Answers the commit that has to be synced.
    pub(crate) fn flush(
        &self,
        operation: &'static str,
        inode: &Inode,
        scope: Flush,
    ) -> Result<CommitSequence> {
        let mut state = inode.any_state();
        self.flush_locked(operation, inode, &mut state, scope)?;
        Ok(state.last_commit)
    }

    pub(crate) fn flush_locked(
        &self,
        operation: &'static str,
        inode: &Inode,
        state: &mut InodeState,
        scope: Flush,
    ) -> Result<()> {
        if state.record.nlink == 0 {
            // Nobody sees the attributes of an orphan after a crash.
            state.attributes_dirty = false;
        }
        let attributes = scope == Flush::All && state.attributes_dirty;
        if state.dead || (state.open_record.is_none() && !state.size_dirty && !attributes) {
            return Ok(());
        }
        let attempt = |state: &mut InodeState, may_use_reserve: bool| {
            let mut staged = Staged::new(state);
            staged.put_inode = attributes;
            let mut transaction = self.pool.begin();
            if may_use_reserve {
                transaction.may_use_reserve();
            }
            self.commit_one(operation, inode, state, staged, transaction)
        };
        match attempt(state, false) {
            // The write was acknowledged while there was room: now it has a right to the reserve.
            Err(full) if full.kind == ErrorKind::NoSpace => attempt(state, true),
            result => result,
        }
    }

    /// fsync, fdatasync, and fsync of a directory.
    pub fn sync_file(&self, ino: Ino, data_only: bool) -> Result<()> {
        const OPERATION: &str = "sync";
        let inode = self.inode(OPERATION, ino)?;
        let scope = if data_only { Flush::Data } else { Flush::All };
        let sequence = self.flush(OPERATION, &inode, scope)?;
        self.pool.sync(sequence).map_err(from_pool(OPERATION))
    }

    /// syncfs(2).
    pub fn sync_all(&self) -> Result<()> {
        const OPERATION: &str = "sync file system";
        let _all = self.dirty.taking.write();
        let drained: Vec<Ino> = {
            let buffers = std::mem::take(&mut *self.dirty.buffers.lock());
            let attributes = std::mem::take(&mut *self.dirty.attributes.lock());
            buffers
                .into_iter()
                .chain(attributes)
                .map(|(_, ino)| ino)
                .collect()
        };
        let mut result = Ok(());
        for ino in drained {
            if let Err(failed) = self.flush_queued(OPERATION, ino, Flush::All) {
                result = Err(failed);
            }
        }
        result?;
        self.pool
            .sync(self.pool.last_commit())
            .map_err(from_pool(OPERATION))
    }

    /// Writes what is buffered and makes it durable; call before the pool is closed.
    pub fn close(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.sync_all()
    }

    /// Flushes an inode that was taken from a queue; puts it back if that fails.
    fn flush_queued(&self, operation: &'static str, ino: Ino, scope: Flush) -> Result<()> {
        let Some(inode) = self.inodes.peek(ino) else {
            return Ok(());
        };
        let mut state = inode.any_state();
        if scope == Flush::All {
            state.attributes_queued = false;
        }
        state.buffer_queued = false;
        let result = self.flush_locked(operation, &inode, &mut state, scope);
        let now = state.record.changed;
        if state.open_record.is_some() {
            state.buffer_queued = true;
            self.dirty.buffers.lock().push_back((now, ino));
        }
        if state.attributes_dirty {
            self.dirty.queue_attributes(ino, &mut state, now);
        }
        result
    }

    /// Writes out the oldest buffered records until they are within the bound again. Call without locks.
    pub(crate) fn bound_buffers(&self) -> Result<()> {
        while self.dirty.buffered_bytes() > BUFFERED_BYTES_MAX {
            let _taken = self.dirty.taking.read();
            let oldest = self.dirty.buffers.lock().pop_front();
            let Some((_, ino)) = oldest else { break };
            self.flush_queued("write out buffered data", ino, Flush::Data)?;
        }
        Ok(())
    }

    /// One bounded piece of background work (orphans, lazily written attributes, buffered partial records). True while
    /// more waits.
    pub fn step(&self, now: Timestamp) -> Result<bool> {
        if self.read_only {
            return Ok(false);
        }
        let buffers = self.write_out_due(&self.dirty.buffers, now, BUFFER_AGE_MS, Flush::Data);
        let attributes = self.write_out_due(&self.dirty.attributes, now, ATTRIBUTES_AGE_MS, Flush::All);
        let recounted = self.recount_one();
        let reclaiming = self.reclaim_step();
        // Told only now: what fails for one file must not keep the others waiting.
        Ok(buffers? | attributes? | recounted? | reclaiming?)
    }

    /// Flushes some inodes that have waited long enough in a queue, and tells the first failure. What fails goes behind the
    /// others in the queue. True if more may be due.
    fn write_out_due(
        &self,
        queue: &Mutex<VecDeque<(Timestamp, Ino)>>,
        now: Timestamp,
        age_ms: i64,
        scope: Flush,
    ) -> Result<bool> {
        // No longer than the queue is now: what fails is not tried twice in one step.
        let limit = queue.lock().len().min(INODES_PER_STEP);
        let mut outcome = Ok(());
        for _ in 0..limit {
            let _taken = self.dirty.taking.read();
            // One at a time: what was taken from a queue and not flushed would be forgotten when the other fails.
            let Some(ino) = DirtyQueues::pop_due(queue, now, age_ms) else {
                return outcome.map(|()| false);
            };
            outcome = outcome.and(self.flush_queued("background work", ino, scope));
        }
        outcome.map(|()| limit == INODES_PER_STEP)
    }

    /// Counts stored bytes again for one file whose count was not written before a crash. True if there was one.
    fn recount_one(&self) -> Result<bool> {
        let Some(ino) = self.dirty.recounts.lock().pop_front() else {
            return Ok(false);
        };
        let Some(inode) = self.inodes.peek(ino) else {
            return Ok(true);
        };
        let mut state = inode.any_state();
        if state.dead || !state.recount {
            return Ok(true);
        }
        // A file that cannot be counted now stays in the queue, behind the others. Damage would be met again each time:
        // then the count stays inexact, until the file is mended and opened anew.
        state.record.stored_bytes = self.count_stored_bytes(ino).inspect_err(|failed| {
            if failed.kind != ErrorKind::Damaged {
                self.dirty.queue_recount(ino);
            }
        })?;
        state.recount = false;
        state.attributes_dirty = true;
        let now = state.record.changed;
        self.dirty.queue_attributes(ino, &mut state, now);
        Ok(true)
    }

    fn count_stored_bytes(&self, ino: Ino) -> Result<u64> {
        const OPERATION: &str = "count stored bytes";
        /// Extents looked at in one scan.
        const SCANNED: usize = 1024;
        let (mut stored_bytes, mut from) = (0, 0);
        loop {
            let extents = self.extents_limited(OPERATION, ino, from, u64::MAX, SCANNED)?;
            for (_, id) in &extents {
                match self.pool.packed_bytes(*id) {
                    Ok(packed_bytes) => stored_bytes += u64::from(packed_bytes),
                    Err(missing) if missing.kind() == packstone_pool::ErrorKind::NotFound => {}
                    Err(other) => return Err(from_pool(OPERATION)(other)),
                }
            }
            match extents.last() {
                Some((index, _)) if extents.len() == SCANNED && *index < u64::MAX => from = index + 1,
                _ => return Ok(stored_bytes),
            }
        }
    }

    /// An open file holds its data though unlinked. Pair with `release`.
    pub fn open_file(&self, ino: Ino) -> Result<()> {
        const OPERATION: &str = "open";
        let inode = self.inode(OPERATION, ino)?;
        // Under the state's lock, which an inode being destroyed holds.
        let state = inode.read_state(OPERATION)?;
        inode.opens.fetch_add(1, Ordering::SeqCst);
        drop(state);
        Ok(())
    }

    /// Drops one open. At the last one, buffered data and attributes go to the tree.
    pub fn release(&self, ino: Ino) -> Result<()> {
        const OPERATION: &str = "release";
        let Some(inode) = self.inodes.peek(ino) else {
            return Err(error(
                ErrorKind::NotFound,
                OPERATION,
                format!("inode {ino} is not open"),
            ));
        };
        let before = inode
            .opens
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |opens| {
                Some(opens.saturating_sub(1))
            });
        if before.is_ok_and(|opens| opens > 1) {
            return Ok(());
        }
        let orphan = inode.any_state().record.nlink == 0;
        let result = if orphan || self.read_only {
            Ok(())
        } else {
            self.flush(OPERATION, &inode, Flush::All).map(|_| ())
        };
        self.let_go(&inode);
        result
    }
}
