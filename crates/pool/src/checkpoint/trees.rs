//! The apply stage of a checkpoint: dataset trees first, then the catalog (which holds their roots), then the record
//! table (which holds the places of all their nodes).

use super::{Applied, Freeze};
use crate::batch::EntryKind;
use crate::btree::{Change, Root, apply, lookup};
use crate::catalog;
use crate::changes::{Item, TreeChanges};
use crate::error::Result;
use crate::node_writer::NodeWriter;
use crate::overlay::Overlay;
use crate::pool::{Pool, Stable};
use crate::sinks::{NodeChanges, TableSink, TreeSink};
use crate::state::Counters;
use crate::stores::{TableStore, TreeStore, locate, table_key};
use crate::types::{Location, RecordId, SegmentId, TreeId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Works the frozen overlay into the trees and writes their nodes.
pub(super) fn apply_overlay(
    pool: &Pool,
    relocate: &BTreeSet<SegmentId>,
    freeze: &Freeze,
    writer: &mut NodeWriter<'_>,
) -> Result<Applied> {
    let stable = pool.stable.read().clone();
    let stale = StaleNodes::find(pool, &stable, relocate)?;
    let mut work = Apply {
        pool,
        table_root: stable.table_root,
        stable,
        writer,
        changes: NodeChanges::default(),
        counters: freeze.counters.clone(),
    };
    let datasets: BTreeSet<TreeId> = freeze
        .overlay
        .trees
        .keys()
        .chain(stale.nodes.keys())
        .copied()
        .filter(|tree| *tree != TreeId::CATALOG)
        .collect();
    for tree in datasets {
        work.tree(
            tree,
            tree_changes(freeze.overlay.trees.get(&tree)),
            stale.of(tree),
        )?;
    }
    let mut catalog_changes = freeze
        .overlay
        .trees
        .get(&TreeId::CATALOG)
        .cloned()
        .unwrap_or_default();
    work.root_entries(&mut catalog_changes)?;
    work.tree(
        TreeId::CATALOG,
        tree_changes(Some(&catalog_changes)),
        stale.of(TreeId::CATALOG),
    )?;
    work.table(&freeze.overlay, &stale.table_keys, freeze.table_bytes)
}

struct Apply<'p, 'w, 'n> {
    pool: &'p Pool,
    /// The table as it is on media, which knows where nodes are before this checkpoint.
    table_root: Option<Root<Location>>,
    stable: Stable,
    writer: &'w mut NodeWriter<'n>,
    changes: NodeChanges,
    counters: BTreeMap<TreeId, Counters>,
}

impl Apply<'_, '_, '_> {
    fn table_store(&self) -> TableStore<'_> {
        TableStore {
            geometry: &self.pool.geometry,
            caches: &self.pool.caches,
        }
    }

    fn tree(&mut self, tree: TreeId, pairs: Vec<(&[u8], Change<'_>)>, stale: &[RecordId]) -> Result<()> {
        let table = TableStore {
            geometry: &self.pool.geometry,
            caches: &self.pool.caches,
        };
        let mut sink = TreeSink {
            store: TreeStore {
                table,
                table_root: self.table_root,
            },
            tree,
            writer: self.writer,
            changes: &mut self.changes,
            next_record: &self.pool.next_record,
            bytes_delta: 0,
        };
        let root = apply(&mut sink, self.stable.trees.get(&tree).cloned(), &pairs)?;
        for id in stale {
            if !sink.changes.places.contains_key(id) {
                sink.relocate(*id)?;
            }
        }
        let delta = sink.bytes_delta;
        let counters = self.counters.entry(tree).or_default();
        counters.node_bytes = counters.node_bytes.saturating_add_signed(delta);
        match root {
            Some(root) => self.stable.trees.insert(tree, root),
            None => self.stable.trees.remove(&tree),
        };
        Ok(())
    }

    /// Adds the catalog's entry of every tree whose root or totals changed.
    fn root_entries(&self, catalog_changes: &mut TreeChanges) -> Result<()> {
        let catalog = TreeStore {
            table: self.table_store(),
            table_root: self.table_root,
        };
        let catalog_root = self.stable.trees.get(&TreeId::CATALOG);
        let trees: BTreeSet<TreeId> = self
            .counters
            .keys()
            .chain(self.stable.trees.keys())
            .copied()
            .collect();
        for tree in trees.into_iter().filter(|tree| *tree != TreeId::CATALOG) {
            let counters = self.counters.get(&tree).copied().unwrap_or_default();
            let entry = catalog::encode_root(self.stable.trees.get(&tree), &counters);
            let key = catalog::root_key(tree);
            if lookup(&catalog, catalog_root, &key)? != entry {
                catalog_changes.insert(match entry {
                    Some(entry) => Item::put(&key, &entry, &mut Vec::new()),
                    None => Item::delete(&key),
                });
            }
        }
        Ok(())
    }

    /// Brings the record table up to date: places of records as frozen, and of every node written above.
    fn table(mut self, overlay: &Overlay, touched: &BTreeSet<[u8; 8]>, table_bytes: u64) -> Result<Applied> {
        // Where several name a key the first counts: a place rather than a touch, and a node's new place before all.
        let nodes = self.changes.places.iter();
        let mut named: Vec<_> = nodes
            .chain(&overlay.table)
            .map(|(id, place)| (table_key(*id), Some(*place)))
            .chain(touched.iter().map(|key| (*key, None)))
            .collect();
        named.sort_by_key(|(key, _)| *key);
        named.dedup_by_key(|(key, _)| *key);
        let values = EncodedPlaces::of(&named);
        let changes: Vec<_> = named
            .iter()
            .enumerate()
            .map(|(at, (key, place))| {
                let change = match place {
                    Some(Some(_)) => Change::Put(values.get(at)),
                    Some(None) => Change::Delete,
                    None => Change::Touch,
                };
                (key.as_slice(), change)
            })
            .collect();
        let store = TableStore {
            geometry: &self.pool.geometry,
            caches: &self.pool.caches,
        };
        let mut sink = TableSink {
            store,
            writer: self.writer,
            nodes: HashMap::default(),
            bytes_delta: 0,
        };
        self.stable.table_root = apply(&mut sink, self.table_root, &changes)?;
        let (table_nodes, delta) = (sink.nodes.into_iter().collect(), sink.bytes_delta);
        Ok(Applied {
            stable: self.stable,
            changes: self.changes,
            table_nodes,
            counters: self.counters,
            table_bytes: table_bytes.saturating_add_signed(delta),
        })
    }
}

/// Locations as the record table holds them, all in one buffer.
struct EncodedPlaces {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl EncodedPlaces {
    fn of(named: &[([u8; 8], Option<Option<Location>>)]) -> EncodedPlaces {
        let mut places = EncodedPlaces {
            bytes: Vec::new(),
            ends: Vec::with_capacity(named.len()),
        };
        for (_, place) in named {
            place
                .iter()
                .flatten()
                .for_each(|location| location.encode(&mut places.bytes));
            places.ends.push(places.bytes.len());
        }
        places
    }

    fn get(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[at]]
    }
}

fn tree_changes(changes: Option<&TreeChanges>) -> Vec<(&[u8], Change<'_>)> {
    let items = changes.into_iter().flat_map(TreeChanges::iter);
    items
        .map(|item| (item.key(), item.value().map_or(Change::Delete, Change::Put)))
        .collect()
}

/// Live nodes in segments that are to be won back.
#[derive(Default)]
struct StaleNodes {
    nodes: BTreeMap<TreeId, Vec<RecordId>>,
    /// A key below each live node of the record table.
    table_keys: BTreeSet<[u8; 8]>,
}

impl StaleNodes {
    fn of(&self, tree: TreeId) -> &[RecordId] {
        self.nodes.get(&tree).map_or(&[], Vec::as_slice)
    }

    fn find(pool: &Pool, stable: &Stable, relocate: &BTreeSet<SegmentId>) -> Result<StaleNodes> {
        let mut stale = StaleNodes::default();
        let store = TableStore {
            geometry: &pool.geometry,
            caches: &pool.caches,
        };
        for segment in relocate {
            for batch in pool.scan_segment(*segment)? {
                for (entry, location) in &batch.entries {
                    match entry.kind {
                        EntryKind::Node
                            if locate(&store, stable.table_root.as_ref(), entry.id)? == Some(*location) =>
                        {
                            stale.nodes.entry(entry.tree).or_default().push(entry.id);
                        }
                        // Touching a key whose node is long gone rewrites one path for nothing, and does no harm.
                        EntryKind::TableNode => drop(stale.table_keys.insert(table_key(entry.id))),
                        _ => {}
                    }
                }
            }
        }
        Ok(stale)
    }
}
