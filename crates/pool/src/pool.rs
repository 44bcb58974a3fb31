//! The open pool: its parts, its locks, and the calls of every day (commit, get, scan).
//!
//! Locks, in the order in which they may be taken; none is held while a caller's data is compressed, and only the log,
//! cleaner and checkpoint locks are held across writes to media:
//!
//! | lock | guards |
//! |---|---|
//! | `cleaner` | who makes room |
//! | `checkpointer` | writing checkpoints |
//! | `turn` | who writes and flushes for all that wait; a flag, taken over write and flush |
//! | `log` | appending batches; held over write and flush |
//! | `stable` | roots of the trees on media; shared by readers, exclusive for the instant of publishing |
//! | `state` | everything a commit touches; memory work only |

use crate::btree::{Root, Window, lookup};
use crate::cache::Caches;
use crate::checkpoint::Checkpointer;
use crate::cleaner::Cleaner;
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint::Failpoints;
use crate::geometry::Geometry;
use crate::incidents::Journal;
use crate::log::{LogWriter, Turn};
use crate::node::Pair;
use crate::opening::{Note, Opening};
use crate::overlay::FixedState;
use crate::scan::merged_scan;
use crate::state::{Pending, Recent, State};
use crate::stores::{TableStore, TreeStore, locate};
use crate::transaction::{KEY_BYTES_MAX, Operation, Transaction, is_too_long};
use crate::types::{CommitSequence, Location, RECORD_RAW_BYTES_MAX, RecordId, TreeId};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A group larger than this is written by whoever made it so.
pub(crate) const GROUP_BYTES_MAX: u64 = 4 << 20;

/// Roots of the trees on media.
#[derive(Clone, Default)]
pub(crate) struct Stable {
    pub table_root: Option<Root<Location>>,
    pub trees: BTreeMap<TreeId, Root<RecordId>>,
}

/// Counts of damage met since the pool was opened.
#[derive(Default)]
pub(crate) struct Damage {
    pub checksum_errors: AtomicU64,
}

/// An open pool. All methods may be called from many threads.
pub struct Pool {
    pub(crate) geometry: Geometry,
    pub(crate) pool_tag: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) next_record: Arc<AtomicU64>,
    pub(crate) caches: Caches,
    pub(crate) cleaner: Mutex<Cleaner>,
    pub(crate) checkpointer: Mutex<Checkpointer>,
    pub(crate) turn: Turn,
    pub(crate) log: Mutex<LogWriter>,
    pub(crate) stable: RwLock<Stable>,
    pub(crate) state: RwLock<State>,
    pub(crate) catalog_lock: Mutex<()>,
    pub(crate) damage: Damage,
    pub(crate) failpoints: Failpoints,
    pub(crate) incidents: Journal,
    /// What opening found out of the ordinary.
    pub(crate) notes: Mutex<Vec<Note>>,
    /// Kept by a pool that was opened for reading only, for the repair that may follow.
    pub(crate) opening: Mutex<Option<Opening>>,
}

/// Where the records a transaction frees or moves were found outside the state lock.
struct Resolved {
    publishes: u64,
    places: HashMap<RecordId, Location, FixedState>,
}

impl Pool {
    /// Name given at creation.
    pub fn name(&self) -> &str {
        &self.geometry.label.pool_name
    }

    /// Largest record that is sure to fit, raw bytes.
    pub fn record_bytes_max(&self) -> u32 {
        (self.geometry.frame_bytes_max() - 64).min(1 << 20)
    }

    /// An empty transaction.
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.next_record.clone())
    }

    /// Applies the transaction: visible to every later call when this returns, durable after [`Pool::sync`].
    ///
    /// Errors, with nothing applied: `NoSpace` when the pool is full, `ReadOnly`, `InvalidInput` for keys, values or
    /// records that are too long, `Damaged` when a freed record does not exist.
    pub fn commit(&self, transaction: Transaction) -> Result<CommitSequence> {
        self.validate(&transaction)?;
        self.admit(&transaction)?;
        let commit = self.apply_transaction(transaction)?;
        // The transaction is applied: what goes wrong here must not look as if it were not. A full pool relieves memory
        // later; after a failed write the pool has stopped, and `sync` says so.
        let _ = self.relieve_memory();
        Ok(commit)
    }

    /// The newest commit.
    pub fn last_commit(&self) -> CommitSequence {
        self.state.read().last_commit
    }

    fn validate(&self, transaction: &Transaction) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidInput, "commit", message));
        for stored in &transaction.stored {
            if stored.record.raw_bytes() > RECORD_RAW_BYTES_MAX {
                return invalid(format!(
                    "a record of {} bytes is too long",
                    stored.record.raw_bytes()
                ));
            }
            if stored.record.packed_bytes() > self.geometry.frame_bytes_max() {
                return invalid(format!(
                    "a record of {} packed bytes does not fit segments of {} bytes: use a smaller recordsize",
                    stored.record.packed_bytes(),
                    self.geometry.segment_bytes()
                ));
            }
        }
        for operation in &transaction.operations {
            match operation {
                // A key that is deleted goes into the log as well.
                Operation::Change(_, item) if is_too_long(item) || item.key().len() > KEY_BYTES_MAX => {
                    return invalid(format!(
                        "a pair of {} and {} bytes is too long",
                        item.key().len(),
                        item.value().map_or(0, <[u8]>::len)
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn apply_transaction(&self, transaction: Transaction) -> Result<CommitSequence> {
        let chunks = transaction.encode_operations();
        loop {
            let resolved = self.resolve(&transaction)?;
            let mut state = self.state.write();
            state.require_writable("commit")?;
            // A checkpoint moved places into the trees meanwhile: what was resolved may be stale.
            if state.publishes == resolved.publishes {
                return Ok(apply_to_state(&mut state, transaction, chunks, &resolved.places));
            }
        }
    }

    /// Finds the places on media of all records that the transaction frees or moves.
    fn resolve(&self, transaction: &Transaction) -> Result<Resolved> {
        let frees = transaction
            .operations
            .iter()
            .filter_map(|operation| match operation {
                Operation::Free(_, id) => Some(*id),
                _ => None,
            });
        let mut unknown = Vec::new();
        let publishes = {
            let state = self.state.read();
            for id in frees {
                match state.recent(id) {
                    Recent::Unknown => unknown.push((id, true)),
                    Recent::Gone => return Err(missing_record(id)),
                    Recent::Pending(_) | Recent::At(_) => {}
                }
            }
            let moves = transaction
                .stored
                .iter()
                .filter(|stored| stored.moved_from.is_some());
            unknown.extend(moves.map(|stored| (stored.id, false)));
            state.publishes
        };
        let mut places = HashMap::default();
        if !unknown.is_empty() {
            let stable = self.stable.read();
            for (id, must_exist) in unknown {
                match locate(&self.table_store(), stable.table_root.as_ref(), id)? {
                    Some(location) => drop(places.insert(id, location)),
                    // Freed, published and forgotten since we looked: the caller frees what somebody else freed.
                    None if must_exist => return Err(missing_record(id)),
                    None => {}
                }
            }
        }
        Ok(Resolved { publishes, places })
    }

    /// Writes out what has piled up beyond its share of the memory budget.
    fn relieve_memory(&self) -> Result<()> {
        let (group_bytes, overlay_bytes) = {
            let state = self.state.read();
            (state.group.bytes, state.active.memory_bytes() as u64)
        };
        if group_bytes > GROUP_BYTES_MAX {
            // Somebody may be writing already; wait only when that is not enough.
            let log = if group_bytes > 4 * GROUP_BYTES_MAX {
                Some(self.log.lock())
            } else {
                self.log.try_lock()
            };
            if let Some(mut log) = log {
                self.write_group(&mut log, false)?;
            }
        }
        if overlay_bytes > self.memory_bytes / 4 {
            let mut checkpointer = self.checkpointer.lock();
            if self.state.read().active.memory_bytes() as u64 > self.memory_bytes / 4 {
                self.checkpoint(&mut checkpointer)?;
            }
        }
        Ok(())
    }

    pub(crate) fn table_store(&self) -> TableStore<'_> {
        TableStore {
            geometry: &self.geometry,
            caches: &self.caches,
        }
    }

    pub(crate) fn tree_store(&self, stable: &Stable) -> TreeStore<'_> {
        TreeStore {
            table: self.table_store(),
            table_root: stable.table_root,
        }
    }

    /// The value of a key.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(value) = self.state.read().recent_pair(tree, key) {
            return Ok(value);
        }
        let stable = self.stable.read();
        lookup(&self.tree_store(&stable), stable.trees.get(&tree), key)
            .map_err(|error| error.within_tree(tree))
    }

    /// At most `limit` pairs of the range, in key order.
    pub fn scan(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair>> {
        merged_scan(self, tree, Window { from, to, limit }, false).map_err(|error| error.within_tree(tree))
    }

    /// The last pair of the range, if any.
    pub fn last(&self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Option<Pair>> {
        let found = merged_scan(self, tree, Window { from, to, limit: 1 }, true);
        Ok(found.map_err(|error| error.within_tree(tree))?.pop())
    }
}

/// The part of a commit that happens under the state lock.
fn apply_to_state(
    state: &mut State,
    transaction: Transaction,
    chunks: Vec<Vec<u8>>,
    places: &HashMap<RecordId, Location, FixedState>,
) -> CommitSequence {
    for stored in transaction.stored {
        if stored.moved_from.is_some() && !still_there(state, stored.id, stored.moved_from, places) {
            continue;
        }
        if stored.moved_from.is_none() {
            let (raw_bytes, packed_bytes) = (stored.record.raw_bytes(), stored.record.packed_bytes());
            state
                .counters
                .entry(stored.tree)
                .or_default()
                .add(raw_bytes, packed_bytes);
        }
        state.group.bytes += u64::from(stored.record.packed_bytes());
        state.group.largest_bytes = state.group.largest_bytes.max(stored.record.packed_bytes());
        state.group.records[stored.stream].push(stored.id);
        let pending = Pending {
            record: stored.record,
            tree: stored.tree,
            moved_from: stored.moved_from,
            in_flight: false,
        };
        state.pending.insert(stored.id, pending);
    }
    for operation in transaction.operations {
        match operation {
            Operation::Change(tree, item) => state.active.set(tree, item),
            Operation::Free(tree, id) => state.free_record(tree, id, places.get(&id).copied()),
        }
    }
    chunks.into_iter().for_each(|chunk| state.group.push_chunk(chunk));
    state.last_commit.0 += 1;
    state.last_commit
}

/// A record is moved only from the place where the cleaner read it.
fn still_there(
    state: &State,
    id: RecordId,
    from: Option<Location>,
    places: &HashMap<RecordId, Location, FixedState>,
) -> bool {
    match state.recent(id) {
        Recent::At(location) => Some(location) == from,
        Recent::Unknown => places.get(&id).copied() == from,
        Recent::Pending(_) | Recent::Gone => false,
    }
}

fn missing_record(id: RecordId) -> Error {
    Error::damaged(
        "commit",
        format!(
            "record {} is to be freed but does not exist; run packstone check",
            id.0
        ),
    )
}
