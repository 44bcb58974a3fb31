//! What changes with every commit, all under one lock that is held for memory work only.
//!
//! A record lives through these stages: *buffered* (in `pending`, no location), *in flight* (in `pending`, and the
//! active overlay knows its location: its batch is being written), *written* (only the table knows it). Readers look
//! into `pending` first, so a record can be read at every stage.

use crate::error::{Error, ErrorKind, Result};
use crate::overlay::{FixedState, Overlay};
use crate::segments::SegmentTable;
use crate::types::{CommitSequence, Location, RecordId, TreeId};
use crate::view::Views;
use packstone_codec::PackedRecord;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Log streams: the two a caller chooses from, and one for records that the cleaner moved.
pub(crate) const LOG_STREAMS: usize = 3;
pub(crate) const COLD_STREAM: usize = 2;
/// Number of the node stream in batch headers and slots.
pub(crate) const NODE_STREAM: usize = 3;

/// A record that is not on media yet, or whose batch is being written.
#[derive(Clone)]
pub(crate) struct Pending {
    pub record: PackedRecord,
    pub tree: TreeId,
    pub moved_from: Option<Location>,
    pub in_flight: bool,
}

/// Commits that wait for the next batches.
#[derive(Default)]
pub(crate) struct Group {
    pub records: [Vec<RecordId>; LOG_STREAMS],
    /// Encoded operations, in chunks.
    pub chunks: Vec<Vec<u8>>,
    pub bytes: u64,
    /// Packed bytes of the largest record.
    pub largest_bytes: u32,
}

impl Group {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.records.iter().all(Vec::is_empty)
    }

    pub(crate) fn push_chunk(&mut self, chunk: Vec<u8>) {
        self.bytes += chunk.len() as u64;
        match self.chunks.last_mut() {
            Some(last) if last.len() + chunk.len() <= crate::transaction::CHUNK_BYTES => {
                last.extend_from_slice(&chunk)
            }
            _ => self.chunks.push(chunk),
        }
    }
}

/// Totals of one tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub logical_bytes: u64,
    pub packed_bytes: u64,
    pub records: u64,
    pub node_bytes: u64,
}

impl Counters {
    pub(crate) fn add(&mut self, raw_bytes: u32, packed_bytes: u32) {
        self.logical_bytes += u64::from(raw_bytes);
        self.packed_bytes += u64::from(packed_bytes);
        self.records += 1;
    }

    /// Saturates: on a damaged pool a record may be freed by a tree that does not own it.
    pub(crate) fn remove(&mut self, raw_bytes: u32, packed_bytes: u32) {
        self.logical_bytes = self.logical_bytes.saturating_sub(u64::from(raw_bytes));
        self.packed_bytes = self.packed_bytes.saturating_sub(u64::from(packed_bytes));
        self.records = self.records.saturating_sub(1);
    }
}

/// Bytes written to media since the pool was opened, by what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenBytes {
    /// Packed records of users.
    pub data: u64,
    /// Batch headers, directories and operations.
    pub operations: u64,
    /// Filling batches up to whole sectors.
    pub padding: u64,
    /// Tree nodes, record table and segment usage.
    pub nodes: u64,
    /// Packed records moved by the cleaner.
    pub cleaning: u64,
    /// Labels and checkpoint slots.
    pub labels: u64,
}

impl WrittenBytes {
    /// Sum over all purposes.
    pub fn total(&self) -> u64 {
        self.data + self.operations + self.padding + self.nodes + self.cleaning + self.labels
    }
}

/// What is known about a record without asking the table on media.
pub(crate) enum Recent {
    Pending(PackedRecord),
    At(Location),
    Gone,
    Unknown,
}

pub(crate) struct State {
    pub active: Overlay,
    pub frozen: Option<Arc<Overlay>>,
    pub pending: HashMap<RecordId, Pending, FixedState>,
    pub group: Group,
    pub segments: SegmentTable,
    pub counters: BTreeMap<TreeId, Counters>,
    pub table_bytes: u64,
    pub next_tree: u32,
    pub last_commit: CommitSequence,
    pub written_commit: CommitSequence,
    pub durable_commit: CommitSequence,
    /// When the flush step first saw commits that are not durable yet, and how far it saw them, by the clock of `step`.
    pub unflushed: Option<(u64, CommitSequence)>,
    /// Log batches below this are covered by the newest durable checkpoint.
    pub covered_below: u64,
    /// Log bytes since the last freeze.
    pub log_bytes: u64,
    pub written: WrittenBytes,
    /// Times the trees on media were replaced; tells a commit that what it resolved outside the lock is stale.
    pub publishes: u64,
    /// Checkpoints written since the pool was opened.
    pub checkpoints: u64,
    /// Why the last checkpoint failed, if it was not for want of room.
    pub checkpoint_failure: Option<(ErrorKind, String)>,
    /// Why nothing is written any more.
    pub stopped: Option<String>,
    pub closed: bool,
    pub views: Views,
}

impl State {
    pub(crate) fn new(segments: SegmentTable) -> State {
        State {
            active: Overlay::default(),
            frozen: None,
            pending: HashMap::default(),
            group: Group::default(),
            segments,
            counters: BTreeMap::new(),
            table_bytes: 0,
            next_tree: TreeId::FIRST_DATASET.0,
            last_commit: CommitSequence(0),
            written_commit: CommitSequence(0),
            durable_commit: CommitSequence(0),
            unflushed: None,
            covered_below: 0,
            log_bytes: 0,
            written: WrittenBytes::default(),
            publishes: 0,
            checkpoints: 0,
            checkpoint_failure: None,
            stopped: None,
            closed: false,
            views: Views::default(),
        }
    }

    pub(crate) fn require_writable(&self, operation: &'static str) -> Result<()> {
        match &self.stopped {
            Some(reason) => Err(Error::new(ErrorKind::ReadOnly, operation, reason.clone())),
            None if self.closed => Err(Error::new(ErrorKind::ReadOnly, operation, "the pool is closed")),
            None => Ok(()),
        }
    }

    pub(crate) fn recent(&self, id: RecordId) -> Recent {
        if let Some(pending) = self.pending.get(&id) {
            return Recent::Pending(pending.record.clone());
        }
        self.recent_location(id)
    }

    /// Like [`State::recent`], but only what the overlays say.
    pub(crate) fn recent_location(&self, id: RecordId) -> Recent {
        let frozen = || self.frozen.as_ref().and_then(|overlay| overlay.table.get(&id));
        match self.active.table.get(&id).or_else(frozen) {
            Some(Some(location)) => Recent::At(*location),
            Some(None) => Recent::Gone,
            None => Recent::Unknown,
        }
    }

    /// `Some(None)`: deleted. `None`: ask the trees on media.
    pub(crate) fn recent_pair(&self, tree: TreeId, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let found = self
            .active
            .pair(tree, key)
            .or_else(|| self.frozen.as_ref().and_then(|frozen| frozen.pair(tree, key)));
        found.map(|value| value.map(<[u8]>::to_vec))
    }

    /// Takes a record out of the table. `resolved` is where the trees on media have it, if the overlays do not say.
    pub(crate) fn free_record(&mut self, tree: TreeId, id: RecordId, resolved: Option<Location>) {
        let buffered = self
            .pending
            .get(&id)
            .filter(|pending| !pending.in_flight)
            .cloned();
        let location = match &buffered {
            Some(pending) => pending.moved_from,
            None => match self.recent_location(id) {
                Recent::At(location) => Some(location),
                Recent::Unknown => resolved,
                Recent::Gone | Recent::Pending(_) => None,
            },
        };
        let (raw_bytes, packed_bytes) = match (&buffered, &location) {
            (Some(pending), _) => (pending.record.raw_bytes(), pending.record.packed_bytes()),
            (None, Some(location)) => (location.raw_bytes, location.packed_bytes),
            (None, None) => return,
        };
        self.pending.remove(&id);
        if let Some(location) = location {
            self.segments.release(&location);
            self.active.set_record(id, None);
        }
        self.counters
            .entry(tree)
            .or_default()
            .remove(raw_bytes, packed_bytes);
    }
}
