//! The datasets of a world: a fixed number of slots, each of which holds one, holds one being destroyed, or is empty.

use super::model::{Model, hash_of};
use super::names;
use packstone_fs::{FileSystem, Ino};
use packstone_pool::Properties;
use std::collections::{BTreeMap, BTreeSet};

/// What the pool's catalog says of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Catalog {
    Absent,
    Active(Properties),
    Destroying,
}

/// What the kernel would hold of an inode.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub(crate) references: u64,
    pub(crate) opens: u64,
}

/// A directory being listed in pieces while it changes.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) slot: u8,
    pub(crate) directory: Ino,
    pub(crate) after: u64,
    /// Names that were there all the time: each must be seen once.
    pub(crate) steady: BTreeSet<names::Name>,
    /// Names that were there at some time only.
    pub(crate) passing: BTreeSet<names::Name>,
    pub(crate) seen: BTreeSet<names::Name>,
}

/// One dataset.
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) catalog: Catalog,
    pub(crate) fs: Option<FileSystem>,
    pub(crate) model: Model,
    pub(crate) held: BTreeMap<Ino, Held>,
}

impl Slot {
    pub(crate) fn new(number: u8) -> Slot {
        Slot {
            name: format!("data{number}"),
            catalog: Catalog::Absent,
            fs: None,
            model: Model::new(number),
            held: BTreeMap::new(),
        }
    }

    /// All that a crash must keep in order.
    pub(crate) fn sum(&self) -> u64 {
        slot_sum(&self.name, &self.catalog, self.model.sum)
    }
}

/// What a dataset adds to the sum of the whole pool.
pub(crate) fn slot_sum(name: &str, catalog: &Catalog, model_sum: u64) -> u64 {
    let content = match catalog {
        Catalog::Active(_) => model_sum,
        _ => 0,
    };
    hash_of((name, catalog)).wrapping_add(content)
}
