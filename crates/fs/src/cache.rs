//! Inodes in memory, by number.
//!
//! Invariants:
//! - There is at most one `Inode` per number: look-up, insertion and removal hold the shard's lock, and an inode is
//!   removed only while nobody else holds it (its `Arc` count is 1) and it is clean.
//! - The pool is never read under a shard's lock. A value read without the lock is inserted only if nothing was
//!   evicted from the shard meanwhile; otherwise it may be old and is read again.
//! - Inodes that the kernel does not hold wait in a list of bounded length, oldest first, to be evicted.

use crate::inode::Inode;
use crate::layout::InodeRecord;
use crate::types::{Ino, Result};
use packstone_pool::CommitSequence;
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SHARDS: usize = 64;
/// Inodes kept although the kernel does not hold them.
const IDLE_MAX: usize = 4096;

#[derive(Default)]
struct Shard {
    inodes: HashMap<u64, Arc<Inode>>,
    evictions: u64,
}

/// All inodes in memory of one mounted dataset.
pub(crate) struct InodeCache {
    shards: Vec<Mutex<Shard>>,
    idle: Mutex<VecDeque<Ino>>,
}

impl InodeCache {
    pub(crate) fn new() -> InodeCache {
        InodeCache {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            idle: Mutex::default(),
        }
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// The inode if it is in memory.
    pub(crate) fn peek(&self, ino: Ino) -> Option<Arc<Inode>> {
        self.shard(ino).lock().inodes.get(&ino.0).cloned()
    }

    /// The inode, read with `load` if it is not in memory.
    pub(crate) fn get(
        &self,
        ino: Ino,
        load: impl Fn() -> Result<(InodeRecord, CommitSequence)>,
    ) -> Result<Arc<Inode>> {
        loop {
            let evictions = {
                let shard = self.shard(ino).lock();
                if let Some(inode) = shard.inodes.get(&ino.0) {
                    return Ok(inode.clone());
                }
                shard.evictions
            };
            let (record, last_commit) = load()?;
            let mut shard = self.shard(ino).lock();
            if let Some(inode) = shard.inodes.get(&ino.0) {
                return Ok(inode.clone());
            }
            if shard.evictions != evictions {
                continue;
            }
            let inode = Arc::new(Inode::new(ino, record, last_commit));
            shard.inodes.insert(ino.0, inode.clone());
            drop(shard);
            self.note_idle(&inode);
            return Ok(inode);
        }
    }

    /// Takes in an inode that is about to be created, referred to once. `None` if there is one with that number, which
    /// only a damaged superblock can bring about.
    pub(crate) fn insert_new(
        &self,
        ino: Ino,
        record: InodeRecord,
        last_commit: CommitSequence,
    ) -> Option<Arc<Inode>> {
        let inode = Arc::new(Inode::new(ino, record, last_commit));
        inode.references.store(1, Ordering::SeqCst);
        match self.shard(ino).lock().inodes.entry(ino.0) {
            Entry::Occupied(_) => None,
            Entry::Vacant(vacant) => Some(vacant.insert(inode).clone()),
        }
    }

    /// Call when the kernel may have let go of the inode.
    pub(crate) fn note_idle(&self, inode: &Inode) {
        if inode.is_unheld() && !inode.idle_queued.swap(true, Ordering::SeqCst) {
            self.idle.lock().push_back(inode.ino);
        }
        for _ in 0..2 {
            if self.idle.lock().len() <= IDLE_MAX || !self.evict_one() {
                break;
            }
        }
    }

    /// Looks at the oldest candidate. False if there was none.
    fn evict_one(&self) -> bool {
        let Some(ino) = self.idle.lock().pop_front() else {
            return false;
        };
        let mut shard = self.shard(ino).lock();
        let Some(inode) = shard.inodes.get(&ino.0) else {
            return true;
        };
        if !inode.is_unheld() {
            // The next forget or release queues it again.
            inode.idle_queued.store(false, Ordering::SeqCst);
            if !inode.is_unheld() {
                return true;
            }
            inode.idle_queued.store(true, Ordering::SeqCst);
        }
        // With the shard locked nobody can take another handle, and without other handles nobody holds the state.
        if Arc::strong_count(inode) == 1 && inode.any_state().is_clean() {
            shard.inodes.remove(&ino.0);
            shard.evictions += 1;
        } else {
            drop(shard);
            self.idle.lock().push_back(ino);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{FileKind, Timestamp};
    use packstone_pool::Stream;

    fn load() -> Result<(InodeRecord, CommitSequence)> {
        let time = Timestamp::default();
        let record = InodeRecord {
            kind: FileKind::Regular,
            stream: Stream::Data,
            record_bytes_log2: 0,
            flags: 0,
            mode: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size_bytes: 0,
            stored_bytes: 0,
            parent: Ino(0),
            accessed: time,
            modified: time,
            changed: time,
            born: time,
        };
        Ok((record, CommitSequence(0)))
    }

    fn held(cache: &InodeCache) -> usize {
        cache.shards.iter().map(|shard| shard.lock().inodes.len()).sum()
    }

    #[test]
    fn only_unheld_clean_inodes_are_evicted() {
        let cache = InodeCache::new();
        let referred = cache.get(Ino(1), load).unwrap();
        referred.references.store(1, Ordering::SeqCst);
        let dirty = cache.get(Ino(2), load).unwrap();
        dirty.any_state().attributes_dirty = true;
        drop(dirty);
        let handled = cache.get(Ino(3), load).unwrap();
        for number in 4..10_000 {
            cache.get(Ino(number), load).unwrap();
        }
        assert!(held(&cache) <= IDLE_MAX + 4, "{} inodes are kept", held(&cache));
        assert!((1..4).all(|number| cache.peek(Ino(number)).is_some()));
        assert!(cache.peek(Ino(4)).is_none() && cache.peek(Ino(9_999)).is_some());
        referred.references.store(0, Ordering::SeqCst);
        cache.note_idle(&referred);
        drop((referred, handled));
        for number in 10_000..30_000 {
            cache.get(Ino(number), load).unwrap();
        }
        assert!(cache.peek(Ino(1)).is_none() && cache.peek(Ino(3)).is_none() && cache.peek(Ino(2)).is_some());
    }
}
