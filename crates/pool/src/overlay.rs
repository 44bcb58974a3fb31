//! Changes that are not in the trees on media yet.
//!
//! Writers never touch tree nodes. A commit puts its changes into the *active* overlay; a checkpoint freezes that,
//! starts a new one, and works the frozen one into the trees while writers go on. Readers look into active, then
//! frozen, then the trees. The frozen overlay and the trees may both hold a change while it is being worked in: they
//! agree, so it does not matter which one answers. (Why not change nodes in place: `docs/decisions/0003`.)

use crate::types::{Location, RecordId, TreeId};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// Fixed seed: the same run gives the same order of everything.
pub(crate) type FixedState = rustc_hash::FxBuildHasher;

/// Changes of one tree: `None` deletes.
pub(crate) type TreeChanges = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// What an entry costs beside its bytes, roughly: map node and allocations.
const ENTRY_MEMORY_BYTES: usize = 80;

#[derive(Default, Debug)]
pub(crate) struct Overlay {
    /// `None`: the record was freed.
    pub table: HashMap<RecordId, Option<Location>, FixedState>,
    pub trees: BTreeMap<TreeId, TreeChanges>,
    memory_bytes: usize,
    tree_changes: usize,
    long_value_bytes: usize,
}

/// Shorter values are covered by what a change is taken to cost.
const LONG_VALUE_BYTES: usize = 512;

/// What a value takes in its tree beyond what every change is taken to cost.
fn long_bytes(value: Option<&Vec<u8>>) -> usize {
    value.map_or(0, Vec::len).saturating_sub(LONG_VALUE_BYTES)
}

impl Overlay {
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty() && self.trees.is_empty()
    }

    /// Memory taken, bytes, roughly.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Changes held, of trees and of the record table; repeated ones counted once in the table.
    pub(crate) fn change_count(&self) -> usize {
        self.tree_changes + self.table.len()
    }

    /// Bytes of long values, which will take room in the trees far beyond what their number tells.
    pub(crate) fn long_value_bytes(&self) -> u64 {
        self.long_value_bytes as u64
    }

    pub(crate) fn set_record(&mut self, id: RecordId, location: Option<Location>) {
        if self.table.insert(id, location).is_none() {
            self.memory_bytes += ENTRY_MEMORY_BYTES;
        }
    }

    pub(crate) fn set_pair(&mut self, tree: TreeId, key: Vec<u8>, value: Option<Vec<u8>>) {
        let added = key.len() + value.as_ref().map_or(0, Vec::len);
        self.long_value_bytes += long_bytes(value.as_ref());
        let changes = self.trees.entry(tree).or_default();
        match changes.entry(key) {
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let replaced = entry.insert(value);
                self.long_value_bytes -= long_bytes(replaced.as_ref());
                let removed = replaced.map_or(0, |value| value.len());
                self.memory_bytes = (self.memory_bytes + added).saturating_sub(entry.key().len() + removed);
            }
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(value);
                self.memory_bytes += added + ENTRY_MEMORY_BYTES;
                self.tree_changes += 1;
            }
        }
    }

    /// `Some(None)`: known to be deleted. `None`: this overlay does not say.
    pub(crate) fn pair(&self, tree: TreeId, key: &[u8]) -> Option<Option<&[u8]>> {
        self.trees.get(&tree)?.get(key).map(|value| value.as_deref())
    }

    pub(crate) fn range(
        &self,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Option<Vec<u8>>)> {
        self.trees
            .get(&tree)
            .into_iter()
            .flat_map(move |changes| changes.range::<[u8], _>((from, to)))
    }
}
