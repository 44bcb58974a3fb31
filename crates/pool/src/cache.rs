//! Caches of decoded nodes and packed records, bounded by bytes.
//!
//! Three caches share the pool's memory budget. Table nodes are keyed by place and checksum, so a segment that is written
//! anew can never serve old content. Tree nodes are keyed by record id, which keeps its number when the node changes: a
//! checkpoint replaces them at the moment it publishes. Records never change under their id.

use crate::node::Node;
use crate::overlay::FixedState;
use crate::types::{Location, RecordId};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use std::sync::Arc;

/// A place and what lies there.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PlaceKey {
    segment: u32,
    offset_bytes: u32,
    checksum: u64,
}

impl From<&Location> for PlaceKey {
    fn from(location: &Location) -> Self {
        PlaceKey {
            segment: location.segment.0,
            offset_bytes: location.offset_bytes,
            checksum: location.checksum,
        }
    }
}

#[derive(Clone)]
pub(crate) struct NodeWeight;

impl<K> Weighter<K, Arc<Node>> for NodeWeight {
    fn weight(&self, _key: &K, node: &Arc<Node>) -> u64 {
        node.memory_bytes() as u64
    }
}

/// A record as it lies on media, verified. Unpacking it again takes microseconds, and many times as many fit: above the
/// pool the kernel caches what is unpacked.
#[derive(Clone)]
pub(crate) struct CachedRecord {
    pub frame: Arc<[u8]>,
    pub raw_bytes: u32,
}

/// What a cached record costs beside its bytes, roughly: the entry and its allocation.
const CACHED_OVERHEAD_BYTES: u64 = 96;

#[derive(Clone)]
pub(crate) struct RecordWeight;

impl Weighter<RecordId, CachedRecord> for RecordWeight {
    fn weight(&self, _key: &RecordId, record: &CachedRecord) -> u64 {
        record.frame.len() as u64 + CACHED_OVERHEAD_BYTES
    }
}

pub(crate) type NodeCache<K> = Cache<K, Arc<Node>, NodeWeight, FixedState, DefaultLifecycle<K, Arc<Node>>>;

pub(crate) type RecordCache =
    Cache<RecordId, CachedRecord, RecordWeight, FixedState, DefaultLifecycle<RecordId, CachedRecord>>;

pub(crate) struct Caches {
    pub table_nodes: NodeCache<PlaceKey>,
    pub tree_nodes: NodeCache<RecordId>,
    pub records: RecordCache,
}

impl Caches {
    /// Half of the memory budget goes to caches: a sixteenth to table nodes, three to tree nodes, a quarter to packed records,
    /// which are some ten times as much as the nodes that lead to them.
    pub(crate) fn new(budget_bytes: u64) -> Caches {
        let node_cache_items = |bytes: u64| (bytes / 12_000).max(64) as usize;
        let (table, tree, records) = (budget_bytes / 16, budget_bytes / 16 * 3, budget_bytes / 4);
        Caches {
            table_nodes: Cache::with(
                node_cache_items(table),
                table,
                NodeWeight,
                FixedState::default(),
                DefaultLifecycle::default(),
            ),
            tree_nodes: Cache::with(
                node_cache_items(tree),
                tree,
                NodeWeight,
                FixedState::default(),
                DefaultLifecycle::default(),
            ),
            records: Cache::with(
                (records / 1024).max(64) as usize,
                records,
                RecordWeight,
                FixedState::default(),
                DefaultLifecycle::default(),
            ),
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.table_nodes.weight() + self.tree_nodes.weight() + self.records.weight()
    }
}
