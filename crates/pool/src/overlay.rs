//! Changes that are not in the trees on media yet.
//!
//! Writers never touch tree nodes. A commit puts its changes into the *active* overlay; a checkpoint freezes that,
//! starts a new one, and works the frozen one into the trees while writers go on. Readers look into active, then
//! frozen, then the trees. The frozen overlay and the trees may both hold a change while it is being worked in: they
//! agree, so it does not matter which one answers. (Why not change nodes in place: `docs/decisions/0003`.)

use crate::changes::{Item, TreeChanges};
use crate::types::{Location, RecordId, TreeId};
use std::collections::{BTreeMap, HashMap};

/// Fixed seed: the same run gives the same order of everything.
pub(crate) type FixedState = rustc_hash::FxBuildHasher;

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
fn long_bytes(item: &Item) -> usize {
    item.value()
        .map_or(0, <[u8]>::len)
        .saturating_sub(LONG_VALUE_BYTES)
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

    pub(crate) fn set(&mut self, tree: TreeId, item: Item) {
        self.long_value_bytes += long_bytes(&item);
        self.memory_bytes += item.len();
        match self.trees.entry(tree).or_default().insert(item) {
            Some(replaced) => {
                self.long_value_bytes -= long_bytes(&replaced);
                self.memory_bytes -= replaced.len();
            }
            None => {
                self.memory_bytes += ENTRY_MEMORY_BYTES;
                self.tree_changes += 1;
            }
        }
    }

    /// `Some(None)`: known to be deleted. `None`: this overlay does not say.
    pub(crate) fn pair(&self, tree: TreeId, key: &[u8]) -> Option<Option<&[u8]>> {
        self.trees.get(&tree)?.get(key).map(Item::value)
    }
}
