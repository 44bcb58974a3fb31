//! One inode in memory: attributes, the buffered partial record, and who holds it.
//!
//! Invariants:
//! - `references` counts the kernel's look-ups, `opens` its open files. An inode is destroyed only when both are 0 and it
//!   has no name; then `dead` is set and every later access answers `NotFound`.
//! - `state.record` is what callers see. The tree may be behind it: by times and stored bytes (`attributes_dirty`), and
//!   by the size that the open record gave it (`size_dirty`).
//! - Whenever attributes are put, the open record is stored in the same transaction: no crash shows a size without
//!   the bytes.
//! - Locks of several inodes are taken in ino order (see `locked`).

use crate::error::fail;
use crate::layout::InodeRecord;
use crate::types::{Attributes, ErrorKind, Ino, Result};
use packstone_pool::CommitSequence;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// `st_blksize` of what has no records.
const BLOCK_BYTES: u32 = 4096;

/// An inode held in memory.
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    pub(crate) references: AtomicU64,
    pub(crate) opens: AtomicU64,
    /// Already waits in the cache's list of candidates for eviction.
    pub(crate) idle_queued: AtomicBool,
    /// A name it was found under, for error texts only; may be out of date.
    pub(crate) last_name: Mutex<Option<(Ino, Box<[u8]>)>>,
    state: RwLock<InodeState>,
}

/// What the inode's lock protects.
pub(crate) struct InodeState {
    pub(crate) record: InodeRecord,
    pub(crate) open_record: Option<OpenRecord>,
    pub(crate) size_dirty: bool,
    pub(crate) attributes_dirty: bool,
    /// The value in the tree says that stored bytes are not exact.
    pub(crate) tree_says_inexact: bool,
    /// Stored bytes must be counted again: the last run ended without writing them.
    pub(crate) recount: bool,
    pub(crate) buffer_queued: bool,
    pub(crate) attributes_queued: bool,
    /// Syncing this makes everything written so far durable.
    pub(crate) last_commit: CommitSequence,
    /// Being destroyed.
    pub(crate) dead: bool,
}

/// The one record of a file that is gathered in memory, uncompressed, before it is stored.
pub(crate) struct OpenRecord {
    pub(crate) index: u64,
    /// What it counts for in the bound on buffered bytes.
    pub(crate) accounted_bytes: u64,
    /// From the start of the record; what is missing up to the record's end reads as zeros.
    pub(crate) content: Vec<u8>,
}

impl Inode {
    pub(crate) fn new(ino: Ino, record: InodeRecord, last_commit: CommitSequence) -> Inode {
        let inexact = record.flags & crate::layout::flags::STORED_INEXACT != 0;
        let state = InodeState {
            record,
            open_record: None,
            size_dirty: false,
            attributes_dirty: false,
            tree_says_inexact: inexact,
            recount: inexact,
            buffer_queued: false,
            attributes_queued: false,
            last_commit,
            dead: false,
        };
        Inode {
            ino,
            references: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            idle_queued: AtomicBool::new(false),
            last_name: Mutex::new(None),
            state: RwLock::new(state),
        }
    }

    /// Shared access; `NotFound` once destroyed.
    pub(crate) fn read_state(&self, operation: &'static str) -> Result<RwLockReadGuard<'_, InodeState>> {
        let state = self.state.read();
        if state.dead {
            self.gone(operation)
        } else {
            Ok(state)
        }
    }

    /// Exclusive access; `NotFound` once destroyed.
    pub(crate) fn write_state(&self, operation: &'static str) -> Result<RwLockWriteGuard<'_, InodeState>> {
        let state = self.state.write();
        if state.dead {
            self.gone(operation)
        } else {
            Ok(state)
        }
    }

    /// Exclusive access also to an inode being destroyed.
    pub(crate) fn any_state(&self) -> RwLockWriteGuard<'_, InodeState> {
        self.state.write()
    }

    fn gone<T>(&self, operation: &'static str) -> Result<T> {
        fail(
            ErrorKind::NotFound,
            operation,
            format!("inode {} no longer exists", self.ino),
        )
    }

    /// Whether the kernel neither knows nor has opened it.
    pub(crate) fn is_unheld(&self) -> bool {
        self.references.load(Ordering::SeqCst) == 0 && self.opens.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn remember_name(&self, parent: Ino, name: &[u8]) {
        let mut last = self.last_name.lock();
        let same = last
            .as_ref()
            .is_some_and(|(ino, known)| *ino == parent && known.as_ref() == name);
        if !same {
            *last = Some((parent, name.into()));
        }
    }
}

impl InodeState {
    /// Nothing in memory that the tree does not have.
    pub(crate) fn is_clean(&self) -> bool {
        self.open_record.is_none() && !self.size_dirty && !self.attributes_dirty
    }

    /// What stat shows. `default_record_bytes` is the dataset's, for files not yet written.
    pub(crate) fn attributes(&self, ino: Ino, default_record_bytes: u32) -> Attributes {
        let record = &self.record;
        let block_bytes = match (record.kind, record.record_bytes()) {
            (crate::types::FileKind::Regular, Some(bytes)) => bytes as u32,
            (crate::types::FileKind::Regular, None) => default_record_bytes,
            _ => BLOCK_BYTES,
        };
        Attributes {
            ino,
            kind: record.kind,
            mode: record.mode,
            nlink: record.nlink,
            uid: record.uid,
            gid: record.gid,
            rdev: record.rdev,
            size_bytes: record.size_bytes,
            stored_bytes: record.stored_bytes,
            block_bytes,
            accessed: record.accessed,
            modified: record.modified,
            changed: record.changed,
            born: record.born,
        }
    }
}
