//! Inodes without a name: their data goes when nobody holds them any more.
//!
//! Invariants:
//! - An inode whose link count is 0 has an orphan key, put by the transaction that took the last name away. After a
//!   crash the keys say what to reclaim.
//! - Reclaiming goes in transactions of bounded size. Attributes and orphan key go with the last one, so that it can be
//!   taken up again anywhere.

use crate::error::from_pool;
use crate::filesystem::FileSystem;
use crate::inode::Inode;
use crate::layout::{decode_extent, keys};
use crate::staged::FreedOnce;
use crate::types::{ErrorKind, Ino, Result};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Keys removed in one transaction.
const KEYS_PER_PIECE: usize = 1024;
/// Orphan keys read at a time after opening.
const ORPHANS_PER_SCAN: usize = 256;

/// Inodes waiting to be reclaimed.
pub(crate) struct OrphanQueue {
    waiting: Mutex<Waiting>,
    /// Where to go on looking for orphans of an earlier run; `None` when all are found.
    scan_after: Mutex<Option<Ino>>,
}

#[derive(Default)]
struct Waiting {
    order: VecDeque<Ino>,
    members: HashSet<Ino>,
}

impl OrphanQueue {
    pub(crate) fn new(scan: bool) -> OrphanQueue {
        OrphanQueue {
            waiting: Mutex::default(),
            scan_after: Mutex::new(scan.then_some(Ino(0))),
        }
    }

    fn push(&self, ino: Ino) {
        let mut waiting = self.waiting.lock();
        if waiting.members.insert(ino) {
            waiting.order.push_back(ino);
        }
    }

    fn pop(&self) -> Option<Ino> {
        let mut waiting = self.waiting.lock();
        let ino = waiting.order.pop_front()?;
        waiting.members.remove(&ino);
        Some(ino)
    }

    fn is_empty(&self) -> bool {
        self.waiting.lock().order.is_empty() && self.scan_after.lock().is_none()
    }
}

impl FileSystem {
    /// Reclaims an inode that lost its last name and its last holder: a small one at once, a large one in steps.
    pub(crate) fn reclaim_soon(&self, ino: Ino) {
        if self.read_only {
            return;
        }
        match self.reclaim_piece(ino) {
            Ok(false) => {}
            Ok(true) => self.orphans.push(ino),
            Err(failed) => {
                tracing::warn!(ino = ino.0, error = %failed, "reclaiming a deleted file is put off");
                self.orphans.push(ino);
            }
        }
    }

    /// One piece of one orphan. True while more waits.
    pub(crate) fn reclaim_step(&self) -> Result<bool> {
        // Those that are known already need not wait until the others can be found.
        let found = self.find_orphans();
        if let Some(ino) = self.orphans.pop() {
            match self.reclaim_piece(ino) {
                Ok(false) => {}
                Ok(true) => self.orphans.push(ino),
                // Trying again cannot help until somebody repairs it; the key stays for the next run.
                Err(failed) if failed.kind == ErrorKind::Damaged => {
                    tracing::error!(ino = ino.0, error = %failed, "a deleted file cannot be reclaimed");
                }
                Err(failed) => {
                    self.orphans.push(ino);
                    return Err(failed);
                }
            }
        }
        found.map(|()| !self.orphans.is_empty())
    }

    /// Reads the next few orphan keys that an earlier run left.
    fn find_orphans(&self) -> Result<()> {
        const OPERATION: &str = "find orphans";
        let mut scan_after = self.orphans.scan_after.lock();
        let Some(after) = *scan_after else { return Ok(()) };
        let (from, to) = (keys::orphan(after), keys::orphan(Ino(u64::MAX)));
        let pairs = self
            .pool
            .scan(
                self.tree,
                Bound::Excluded(&from),
                Bound::Included(&to),
                ORPHANS_PER_SCAN,
            )
            .map_err(from_pool(OPERATION))?;
        let mut last = None;
        for (key, _) in &pairs {
            if let Some(keys::Key::Orphan(ino)) = keys::parse(key) {
                self.orphans.push(ino);
                last = Some(ino);
            }
        }
        *scan_after = last.filter(|_| pairs.len() == ORPHANS_PER_SCAN);
        Ok(())
    }

    /// Removes up to `KEYS_PER_PIECE` keys of an orphan, or the inode itself when no other key is left. True while more
    /// waits. Does nothing to an inode that is held, or has a name.
    fn reclaim_piece(&self, ino: Ino) -> Result<bool> {
        const OPERATION: &str = "reclaim a deleted file";
        if self
            .pool
            .get(self.tree, &keys::orphan(ino))
            .map_err(from_pool(OPERATION))?
            .is_none()
        {
            return Ok(false);
        }
        let inode = match self.inode(OPERATION, ino) {
            Ok(inode) => inode,
            Err(missing) if missing.kind == ErrorKind::NotFound => return self.forget_orphan(ino),
            Err(other) => return Err(other),
        };
        self.reclaim_inode(OPERATION, &inode)
    }

    /// An orphan key whose inode does not exist says nothing.
    fn forget_orphan(&self, ino: Ino) -> Result<bool> {
        const OPERATION: &str = "drop an orphan key";
        let still_there = self
            .pool
            .get(self.tree, &keys::orphan(ino))
            .map_err(from_pool(OPERATION))?
            .is_some();
        if still_there {
            tracing::error!(ino = ino.0, "an orphan key names an inode that does not exist");
            let mut transaction = self.pool.begin();
            transaction.may_use_reserve();
            transaction.delete(self.tree, &keys::orphan(ino));
            self.commit(OPERATION, transaction)?;
        }
        Ok(false)
    }

    fn reclaim_inode(&self, operation: &'static str, inode: &Arc<Inode>) -> Result<bool> {
        let ino = inode.ino;
        let mut state = inode.any_state();
        if !inode.is_unheld() || state.record.nlink > 0 {
            return Ok(false);
        }
        // Another thread may have finished meanwhile.
        if self
            .pool
            .get(self.tree, &keys::orphan(ino))
            .map_err(from_pool(operation))?
            .is_none()
        {
            return Ok(false);
        }
        state.dead = true;
        self.dirty.drop_open_record(&mut state);
        state.size_dirty = false;
        state.attributes_dirty = false;
        let (from, to) = (keys::inode(ino), keys::end(ino));
        let pairs = self
            .pool
            .scan(
                self.tree,
                Bound::Excluded(&from),
                Bound::Excluded(&to),
                KEYS_PER_PIECE,
            )
            .map_err(from_pool(operation))?;
        let mut transaction = self.pool.begin();
        transaction.may_use_reserve();
        let mut freed = FreedOnce::default();
        for (key, value) in &pairs {
            if let Some(keys::Key::Extent(_, index)) = keys::parse(key) {
                match decode_extent(value) {
                    Ok(id) => {
                        self.free_record(operation, ino, id, &mut freed, &mut transaction)?;
                    }
                    Err(why) => {
                        tracing::error!(ino = ino.0, index, why, "a record of a deleted file is lost")
                    }
                }
            }
            transaction.delete(self.tree, key);
        }
        let last = pairs.len() < KEYS_PER_PIECE;
        if last {
            transaction.delete(self.tree, &keys::inode(ino));
            transaction.delete(self.tree, &keys::orphan(ino));
        }
        let sequence = self.commit(operation, transaction)?;
        state.last_commit = sequence.unwrap_or(state.last_commit);
        if !last {
            self.between_pieces(operation)?;
        }
        Ok(!last)
    }
}
