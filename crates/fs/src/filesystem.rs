//! One mounted dataset: opening, inode numbers, properties, and what all operations share. The operations themselves
//! are `impl FileSystem` blocks in files of their own, one for each family. All methods take `&self` and may be called
//! from many threads.
//!
//! Locks, in the order in which they are taken: `rename_lock`; inode states in ino order; then one of the leaves
//! (inode numbers, queues, cache shards), which are held for a few instructions, except that `numbers` is held
//! over the commit that reserves further inode numbers.

use crate::cache::InodeCache;
use crate::error::{damaged, fail, from_pool};
use crate::inode::Inode;
use crate::layout::inode::RECORD_BYTES_LOG2;
use crate::layout::{InodeRecord, Superblock, keys};
use crate::orphans::OrphanQueue;
use crate::properties::DatasetProperties;
use crate::sync::DirtyQueues;
use crate::types::{Caller, ErrorKind, FileKind, Ino, Result, Statistics};
use packstone_pool::{Dataset, DatasetState, Failpoint, Incident, IncidentKind, Pool, Stream, TreeId};
use parking_lot::{Mutex, RwLock};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Inode numbers reserved in one commit.
const NUMBERS_RESERVED: u64 = 4096;
/// Largest file: 2^63-1 bytes.
pub(crate) const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Unit in which statistics count.
const STATISTICS_BLOCK_BYTES: u32 = 4096;

/// How a dataset is opened.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Nothing is changed, not even times or orphans.
    pub read_only: bool,
}

/// A dataset with its files and directories.
pub struct FileSystem {
    pub(crate) pool: Arc<Pool>,
    pub(crate) tree: TreeId,
    pub(crate) read_only: bool,
    pub(crate) hash_seed: u64,
    pub(crate) inodes: InodeCache,
    pub(crate) rename_lock: Mutex<()>,
    pub(crate) dirty: DirtyQueues,
    pub(crate) orphans: OrphanQueue,
    dataset: String,
    properties: RwLock<DatasetProperties>,
    numbers: Mutex<InodeNumbers>,
}

struct InodeNumbers {
    next: Ino,
    /// As it lies in the tree: its `next_ino` ends the reserved block.
    superblock: Superblock,
}

impl FileSystem {
    /// Opens the dataset; creates its root directory (owned by `caller`, mode 0755) the first time. Reclaims orphans of
    /// an earlier crash in `step`.
    pub fn open(
        pool: Arc<Pool>,
        dataset: &str,
        options: MountOptions,
        caller: &Caller,
    ) -> Result<FileSystem> {
        // RandomState draws its keys from the operating system.
        let seed = RandomState::new().build_hasher().finish();
        FileSystem::open_with_seed(pool, dataset, options, caller, seed)
    }

    /// The same with the secret seed of name hashes given, which a new dataset keeps for ever: for simulations, whose
    /// runs must repeat exactly.
    pub fn open_with_seed(
        pool: Arc<Pool>,
        dataset: &str,
        options: MountOptions,
        caller: &Caller,
        seed: u64,
    ) -> Result<FileSystem> {
        const OPERATION: &str = "open dataset";
        let found = pool.dataset(dataset).map_err(from_pool(OPERATION))?;
        if found.state != DatasetState::Active {
            return fail(
                ErrorKind::Busy,
                OPERATION,
                format!("'{dataset}' is being destroyed"),
            );
        }
        if found.is_key_value() {
            let message = format!("'{dataset}' belongs to a key-value store and holds no files");
            return fail(ErrorKind::InvalidInput, OPERATION, message);
        }
        let properties = DatasetProperties::parse(&found.properties)?;
        let value = pool
            .get(found.tree, &keys::superblock())
            .map_err(from_pool(OPERATION))?;
        let superblock = match value {
            Some(value) => Superblock::decode(&value)
                .map_err(|why| damaged(OPERATION, format!("'{dataset}': superblock: {why}")))?,
            None if options.read_only => {
                let message =
                    format!("'{dataset}' has never been mounted, so it cannot be mounted read-only");
                return fail(ErrorKind::ReadOnly, OPERATION, message);
            }
            None => format_dataset(&pool, &found, &properties, caller, seed)?,
        };
        if !options.read_only {
            check_numbers(&pool, &found, &superblock)?;
        }
        let file_system = FileSystem {
            tree: found.tree,
            read_only: options.read_only,
            hash_seed: superblock.hash_seed,
            inodes: InodeCache::new(),
            rename_lock: Mutex::new(()),
            dirty: DirtyQueues::default(),
            orphans: OrphanQueue::new(!options.read_only),
            dataset: dataset.into(),
            properties: RwLock::new(properties),
            numbers: Mutex::new(InodeNumbers {
                next: superblock.next_ino,
                superblock,
            }),
            pool,
        };
        let root = file_system.inode(OPERATION, Ino::ROOT)?;
        if root.read_state(OPERATION)?.record.kind != FileKind::Directory {
            return Err(damaged(
                OPERATION,
                format!("'{dataset}': the root is not a directory"),
            ));
        }
        Ok(file_system)
    }

    /// Name of the dataset.
    pub fn dataset(&self) -> &str {
        &self.dataset
    }

    /// Properties in effect.
    pub fn properties(&self) -> DatasetProperties {
        *self.properties.read()
    }

    /// Record size of files first written now: the property, unless the pool's segments are too small for it.
    pub(crate) fn record_bytes_log2(&self) -> u8 {
        let fitting_log2 = self.pool.record_bytes_max().checked_ilog2().unwrap_or(0) as u8;
        self.properties()
            .record_bytes_log2()
            .min(fitting_log2)
            .max(*RECORD_BYTES_LOG2.start())
    }

    /// The same in bytes.
    pub(crate) fn record_bytes(&self) -> u32 {
        1 << self.record_bytes_log2()
    }

    /// Takes over properties that were changed in the pool while mounted.
    pub fn reload_properties(&self) -> Result<()> {
        let found = self
            .pool
            .dataset(&self.dataset)
            .map_err(from_pool("reload properties"))?;
        *self.properties.write() = DatasetProperties::parse(&found.properties)?;
        Ok(())
    }

    /// Space of the whole pool, which every dataset shares.
    pub fn statistics(&self) -> Result<Statistics> {
        let space = self.pool.space();
        let unit = u64::from(STATISTICS_BLOCK_BYTES);
        Ok(Statistics {
            block_bytes: STATISTICS_BLOCK_BYTES,
            blocks: space.capacity_bytes / unit,
            blocks_free: space.capacity_bytes.saturating_sub(space.used_bytes) / unit,
            blocks_available: space.available_bytes / unit,
            name_bytes_max: crate::layout::entry::NAME_BYTES_MAX as u32,
        })
    }

    pub(crate) fn check_writable(&self, operation: &'static str) -> Result<()> {
        if self.read_only {
            return fail(
                ErrorKind::ReadOnly,
                operation,
                format!("'{}' is mounted read-only", self.dataset),
            );
        }
        Ok(())
    }

    /// Call between the transactions of an operation that takes several.
    pub(crate) fn between_pieces(&self, operation: &'static str) -> Result<()> {
        self.pool
            .reach(Failpoint::BetweenPieces)
            .map_err(from_pool(operation))
    }

    /// A number that no inode ever had.
    pub(crate) fn allocate_number(&self, operation: &'static str) -> Result<Ino> {
        let mut numbers = self.numbers.lock();
        if numbers.next >= numbers.superblock.next_ino {
            let Some(end) = numbers.superblock.next_ino.0.checked_add(NUMBERS_RESERVED) else {
                return fail(ErrorKind::NoSpace, operation, "all inode numbers are used up");
            };
            let superblock = Superblock {
                next_ino: Ino(end),
                ..numbers.superblock.clone()
            };
            let mut transaction = self.pool.begin();
            transaction.put(self.tree, &keys::superblock(), &superblock.encode());
            self.commit(operation, transaction)?;
            numbers.superblock = superblock;
        }
        let ino = numbers.next;
        numbers.next = Ino(ino.0 + 1);
        Ok(ino)
    }

    /// The inode, from memory or the tree.
    pub(crate) fn inode(&self, operation: &'static str, ino: Ino) -> Result<Arc<Inode>> {
        self.inodes.get(ino, || {
            // The newest commit so far covers whatever was written before this inode was last evicted.
            let last_commit = self.pool.last_commit();
            let value = self
                .pool
                .get(self.tree, &keys::inode(ino))
                .map_err(from_pool(operation))?;
            let Some(value) = value else {
                return fail(ErrorKind::NotFound, operation, format!("there is no inode {ino}"));
            };
            let record = InodeRecord::decode(&value)
                .map_err(|why| damaged(operation, format!("{}: {why}", self.describe(ino))))?;
            if record.flags & crate::layout::flags::STORED_INEXACT != 0 {
                self.dirty.queue_recount(ino);
            }
            Ok((record, last_commit))
        })
    }

    /// Notes for `status` that a request on `ino` met media that failed or damage; other errors are none of its business.
    /// Returns the path, as far as it is known.
    pub fn note_incident(&self, ino: Ino, error: &crate::types::Error, now_seconds: i64) -> Option<String> {
        let kind = match error.kind {
            ErrorKind::Unavailable => IncidentKind::Media,
            ErrorKind::Damaged => IncidentKind::Damage,
            _ => return None,
        };
        let place = error.place.as_deref();
        let ino = place.map_or(ino, |place| place.ino);
        let path = self.known_path(ino);
        let source = error.source.as_ref();
        self.pool.note_incident(Incident {
            kind,
            dataset: Some(self.dataset.clone()),
            path: path.clone(),
            ino: Some(ino.0),
            record: place.map(|place| place.index),
            offset_bytes: place.map(|place| place.offset_bytes),
            member: source
                .and_then(|source| source.member())
                .unwrap_or_default()
                .to_owned(),
            message: error.to_string(),
            count: 1,
            first_seconds: now_seconds,
            last_seconds: now_seconds,
        });
        path
    }

    /// Number and, where a name is known, path of an inode, for error texts.
    pub(crate) fn describe(&self, ino: Ino) -> String {
        match self.known_path(ino) {
            Some(path) => format!("inode {ino} ({path})"),
            None => format!("inode {ino}"),
        }
    }

    fn known_path(&self, ino: Ino) -> Option<String> {
        if ino == Ino::ROOT {
            return Some("/".into());
        }
        let mut path = vec![];
        let mut at = ino;
        // Names may be out of date and thus circular: give up after some.
        for _ in 0..64 {
            if at == Ino::ROOT {
                break;
            }
            let last = self
                .inodes
                .peek(at)
                .and_then(|inode| inode.last_name.lock().clone());
            let Some((parent, name)) = last else { break };
            path.push(String::from_utf8_lossy(&name).into_owned());
            at = parent;
        }
        if path.is_empty() {
            return None;
        }
        path.reverse();
        let start = if at == Ino::ROOT { "/" } else { ".../" };
        Some(format!("{start}{}", path.join("/")))
    }

    /// Drops references that earlier answers added.
    pub fn forget(&self, ino: Ino, references: u64) {
        let Some(inode) = self.inodes.peek(ino) else {
            return;
        };
        let before = inode
            .references
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |held| {
                Some(held.saturating_sub(references))
            });
        if before.is_ok_and(|held| held <= references) {
            self.let_go(&inode);
        }
    }

    /// Call when references or opens of an inode may have reached 0.
    pub(crate) fn let_go(&self, inode: &Inode) {
        if inode.is_unheld() && inode.any_state().record.nlink == 0 {
            self.reclaim_soon(inode.ino);
        }
        self.inodes.note_idle(inode);
    }
}

/// No inode may have a number that the superblock would give out again: the new one would take the old one's place.
fn check_numbers(pool: &Pool, dataset: &Dataset, superblock: &Superblock) -> Result<()> {
    const OPERATION: &str = "open dataset";
    let last = pool
        .last(dataset.tree, Bound::Unbounded, Bound::Unbounded)
        .map_err(from_pool(OPERATION))?;
    let highest = last.and_then(|(key, _)| key.first_chunk().map(|ino| u64::from_be_bytes(*ino)));
    match highest {
        Some(highest) if highest >= superblock.next_ino.0 => Err(damaged(
            OPERATION,
            format!(
                "'{}': there is an inode {highest} where the superblock says that none from {} on exists: mount it read-only and copy the files",
                dataset.name, superblock.next_ino
            ),
        )),
        _ => Ok(()),
    }
}

/// Root directory and superblock of a dataset mounted for the first time.
fn format_dataset(
    pool: &Pool,
    dataset: &Dataset,
    properties: &DatasetProperties,
    caller: &Caller,
    seed: u64,
) -> Result<Superblock> {
    let superblock = Superblock {
        record_bytes_log2: properties.record_bytes_log2(),
        created: caller.now,
        hash_seed: seed,
        next_ino: Ino(Ino::ROOT.0 + 1),
    };
    let root = InodeRecord {
        kind: FileKind::Directory,
        stream: Stream::Data,
        record_bytes_log2: 0,
        flags: 0,
        mode: 0o755,
        nlink: 2,
        uid: caller.uid,
        gid: caller.gid,
        rdev: 0,
        size_bytes: 0,
        stored_bytes: 0,
        parent: Ino::ROOT,
        accessed: caller.now,
        modified: caller.now,
        changed: caller.now,
        born: caller.now,
    };
    let mut transaction = pool.begin();
    transaction.put(dataset.tree, &keys::superblock(), &superblock.encode());
    transaction.put(dataset.tree, &keys::inode(Ino::ROOT), &root.encode());
    pool.commit(transaction)
        .map_err(from_pool("create the root directory"))?;
    Ok(superblock)
}
