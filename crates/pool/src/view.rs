//! Views: reading the trees as they were at one commit, while writers go on.
//!
//! A view pins what the state consists of at that moment: the changes above the trees (copies that cost nothing,
//! `changes.rs`), and the roots of the trees on media. Checkpoints go on meanwhile. What they free stays where it is, for the
//! segments are *held* (`segments.rs`), and nodes are found through the record table as the view knows it.
//!
//! A view never makes a writer wait, nor a commit fail. What it holds is given up instead, and the view has *expired*, when
//! the pool has no other free segment left, or when views keep more than half of the memory budget. Every node is checked
//! against the checksum in the pinned table, so a view that expires in the middle of a read gives an error, never other data.
//!
//! Leaves out: records ([`Pool::read_records`]), which a view does not keep from being freed.

mod range;

pub use range::Range;

use crate::btree::{NodeStore, Root, Window, lookup};
use crate::cache::PlaceKey;
use crate::changes::{Item, TreeChanges};
use crate::encoding::Malformed;
use crate::error::{Error, ErrorKind, Result};
use crate::node::{Node, Pair};
use crate::overlay::Overlay;
use crate::pool::{Pool, Stable};
use crate::scan::scan_either;
use crate::state::State;
use crate::stores::{TableStore, TreeStore, count_damage, locate, try_read_node};
use crate::types::{CommitSequence, Location, RecordId, TreeId};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// What a view sees.
struct Pinned {
    active: BTreeMap<TreeId, TreeChanges>,
    frozen: Option<Arc<Overlay>>,
    stable: Stable,
}

impl Pinned {
    /// Changes of one tree, the newest first.
    fn changes(&self, tree: TreeId) -> impl Iterator<Item = &TreeChanges> {
        let frozen = self.frozen.as_ref().and_then(|frozen| frozen.trees.get(&tree));
        self.active.get(&tree).into_iter().chain(frozen)
    }
}

/// An open view as the pool knows it.
struct Cell {
    /// Publishes before it was opened: what later ones freed it may still read.
    publish: u64,
    /// Memory that the changes it sees take, roughly.
    memory_bytes: u64,
    /// `None` once it has expired.
    pinned: RwLock<Option<Arc<Pinned>>>,
}

/// All open views of a pool.
#[derive(Default)]
pub(crate) struct Views {
    open: BTreeMap<u64, Arc<Cell>>,
    next: u64,
}

impl Views {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Memory of changes that only views still need, bytes, by the publish that made them so.
    fn kept_bytes(&self, publishes: u64) -> BTreeMap<u64, u64> {
        let mut kept = BTreeMap::new();
        for cell in self.open.values().filter(|cell| cell.publish < publishes) {
            if cell.pinned.read().is_some() {
                // Those of one time share nearly all of it.
                let bytes: &mut u64 = kept.entry(cell.publish).or_default();
                *bytes = cell.memory_bytes.max(*bytes);
            }
        }
        kept
    }

    pub(crate) fn memory_bytes(&self, publishes: u64) -> u64 {
        self.kept_bytes(publishes).values().sum()
    }

    /// Gives up what views opened before this publish see.
    fn expire_before(&self, publish: u64) {
        for cell in self.open.values().filter(|cell| cell.publish < publish) {
            *cell.pinned.write() = None;
        }
    }

    /// The oldest publish that any view which has not expired needs kept.
    fn oldest(&self) -> Option<u64> {
        let valid = self.open.values().filter(|cell| cell.pinned.read().is_some());
        valid.map(|cell| cell.publish).min()
    }
}

impl State {
    /// After a checkpoint: views that keep more than `memory_bytes` expire, the oldest first.
    pub(crate) fn expire_views(&mut self, memory_bytes: u64) {
        self.views.expire_before(self.segments.lost_before());
        let mut kept = self.views.kept_bytes(self.publishes);
        while kept.values().sum::<u64>() > memory_bytes
            && let Some((publish, _)) = kept.pop_first()
        {
            self.views.expire_before(publish + 1);
        }
        self.let_go_of_segments();
    }

    fn let_go_of_segments(&mut self) {
        let oldest = self.views.oldest().unwrap_or(u64::MAX);
        self.segments.keep_held_since(oldest);
    }
}

/// The trees of a pool as they were at one commit.
///
/// ```
/// # use packstone_media::{Media, SimulatedMedia};
/// # use packstone_pool::{CreateOptions, OpenOptions, Pool};
/// # use std::sync::Arc;
/// # let member: Arc<dyn Media> = Arc::new(SimulatedMedia::new(64 << 20));
/// # let options = CreateOptions { name: "tank".into(), pool_id: [7; 16], segment_bytes: None, properties: Default::default() };
/// # Pool::create(&[member.clone()], &options)?;
/// let pool = Arc::new(Pool::open(vec![member], &OpenOptions::default())?);
/// let tree = pool.create_dataset("pg", Default::default())?.tree;
/// let before = pool.view();
/// let mut transaction = pool.begin();
/// transaction.put(tree, b"a key", b"a value");
/// pool.commit(transaction)?;
/// assert_eq!(before.get(tree, b"a key")?, None);
/// assert_eq!(pool.view().get(tree, b"a key")?, Some(b"a value".to_vec()));
/// # Ok::<(), packstone_pool::Error>(())
/// ```
pub struct View {
    pool: Arc<Pool>,
    number: u64,
    commit: CommitSequence,
    cell: Arc<Cell>,
}

impl Pool {
    /// A view of the newest commit, durable or not. Costs next to nothing, and so does closing it, by dropping.
    pub fn view(self: &Arc<Pool>) -> View {
        // Publishing takes both locks, so what is seen under both belongs together.
        let stable = self.stable.read();
        let mut state = self.state.write();
        let frozen_bytes = state.frozen.as_ref().map_or(0, |frozen| frozen.memory_bytes());
        let pinned = Pinned {
            active: state.active.trees.clone(),
            frozen: state.frozen.clone(),
            stable: stable.clone(),
        };
        let cell = Arc::new(Cell {
            publish: state.publishes,
            memory_bytes: (state.active.memory_bytes() + frozen_bytes) as u64,
            pinned: RwLock::new(Some(Arc::new(pinned))),
        });
        let number = state.views.next;
        state.views.next += 1;
        state.views.open.insert(number, cell.clone());
        View {
            pool: self.clone(),
            number,
            commit: state.last_commit,
            cell,
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let mut state = self.pool.state.write();
        state.views.open.remove(&self.number);
        state.let_go_of_segments();
    }
}

impl View {
    /// The newest commit that this view sees.
    pub fn commit(&self) -> CommitSequence {
        self.commit
    }

    /// The value of a key.
    ///
    /// Errors: `ViewExpired`, `Damaged`, `Unavailable`.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let pinned = self.pinned()?;
        let recent = pinned.changes(tree).find_map(|changes| changes.get(key));
        if let Some(item) = recent {
            return Ok(Item::value(item).map(<[u8]>::to_vec));
        }
        self.on_media(&pinned, tree, &mut Lookup { key, found: None })
            .map(|lookup| lookup.found.take())
    }

    /// The pairs of a range in key order; also read from its end.
    pub fn range<'v>(&'v self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Range<'v> {
        Range::new(self, tree, from, to, None)
    }

    /// The same with changes laid over it that are not committed yet.
    pub(crate) fn range_below<'v>(
        &'v self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        above: Option<TreeChanges>,
    ) -> Range<'v> {
        Range::new(self, tree, from, to, above)
    }

    fn pinned(&self) -> Result<Arc<Pinned>> {
        self.cell.pinned.read().clone().ok_or_else(expired)
    }

    /// Runs a query on the tree on media.
    fn on_media<'q, Q: Query>(&self, pinned: &Pinned, tree: TreeId, query: &'q mut Q) -> Result<&'q mut Q> {
        let root = pinned.stable.trees.get(&tree);
        {
            let now = self.pool.stable.read();
            // Same table, same nodes: then the caches by id hold what this view sees.
            if now.table_root == pinned.stable.table_root {
                let done = query.run(&self.pool.tree_store(&now), root);
                return done.map(|()| query).map_err(|error| error.within_tree(tree));
            }
        }
        let store = PinnedTrees {
            table: PinnedTable { pool: &self.pool },
            root: pinned.stable.table_root,
        };
        match query.run(&store, root) {
            Ok(()) => Ok(query),
            Err(_) if self.has_expired() => Err(expired()),
            Err(error) => {
                count_damage(&self.pool.geometry, &error);
                Err(error.within_tree(tree))
            }
        }
    }

    pub(crate) fn has_expired(&self) -> bool {
        self.pool.state.read().segments.lost_before() > self.cell.publish || self.cell.pinned.read().is_none()
    }
}

fn expired() -> Error {
    Error::new(
        ErrorKind::ViewExpired,
        "read view",
        "the view was kept for longer than there is room or memory for what it sees: open a new one and begin again",
    )
}

/// Something asked of a tree on media, whatever its nodes come from.
trait Query {
    fn run<S: NodeStore>(&mut self, store: &S, root: Option<&Root<S::Pointer>>) -> Result<()>;
}

struct Lookup<'k> {
    key: &'k [u8],
    found: Option<Vec<u8>>,
}

impl Query for Lookup<'_> {
    fn run<S: NodeStore>(&mut self, store: &S, root: Option<&Root<S::Pointer>>) -> Result<()> {
        self.found = lookup(store, root, self.key)?;
        Ok(())
    }
}

struct Scan<'k> {
    window: Window<'k>,
    backwards: bool,
    found: Vec<Pair>,
}

impl Query for Scan<'_> {
    fn run<S: NodeStore>(&mut self, store: &S, root: Option<&Root<S::Pointer>>) -> Result<()> {
        self.found = scan_either(store, root, self.window, self.backwards)?;
        Ok(())
    }
}

/// Nodes by place, where damage may only mean that a view has expired.
struct PinnedTable<'a> {
    pool: &'a Pool,
}

impl NodeStore for PinnedTable<'_> {
    type Pointer = Location;

    fn decode_pointer(value: &[u8]) -> std::result::Result<Location, Malformed> {
        TableStore::decode_pointer(value)
    }

    fn encode_pointer(pointer: &Location) -> Vec<u8> {
        TableStore::encode_pointer(pointer)
    }

    fn load(&self, pointer: &Location) -> Result<Arc<Node>> {
        let (nodes, key) = (&self.pool.caches.table_nodes, PlaceKey::from(pointer));
        if let Some(node) = nodes.get(&key) {
            return Ok(node);
        }
        let node = try_read_node(&self.pool.geometry, pointer)?;
        nodes.insert(key, node.clone());
        Ok(node)
    }
}

/// Nodes of dataset trees where a table of old has them. They are cached by place too: the cache by id is for the newest.
struct PinnedTrees<'a> {
    table: PinnedTable<'a>,
    root: Option<Root<Location>>,
}

impl NodeStore for PinnedTrees<'_> {
    type Pointer = RecordId;

    fn decode_pointer(value: &[u8]) -> std::result::Result<RecordId, Malformed> {
        TreeStore::decode_pointer(value)
    }

    fn encode_pointer(pointer: &RecordId) -> Vec<u8> {
        TreeStore::encode_pointer(pointer)
    }

    fn load(&self, pointer: &RecordId) -> Result<Arc<Node>> {
        let place = locate(&self.table, self.root.as_ref(), *pointer)?.ok_or_else(|| {
            Error::damaged(
                "read tree node",
                format!("node record {} is not in the record table", pointer.0),
            )
        })?;
        self.table.load(&place)
    }
}
