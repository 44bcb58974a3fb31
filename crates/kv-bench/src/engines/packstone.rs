//! Packstone's own trees.

use super::{Account, CACHE_BYTES, Opened};
use crate::items::{Items, KEY_BYTES, Key};
use anyhow::Result;
use packstone_pool::kv::{Durability, Store};
use packstone_pool::{CreateOptions, OpenOptions, TreeId};
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// Room for the log between two checkpoints, for two generations of nodes, and for what waits to be cleaned.
const FILE_TIMES: u64 = 32;
/// Smallest file that is made.
const FILE_BYTES_MIN: u64 = 256 << 20;

struct Packstone {
    store: Store,
    tree: TreeId,
}

fn file(directory: &Path) -> PathBuf {
    directory.join("store.pack")
}

pub(super) fn create(directory: &Path, items: &Items) -> Result<()> {
    let data_bytes = items.count * (KEY_BYTES + items.value_bytes) as u64;
    let file_bytes = (FILE_TIMES * data_bytes)
        .next_multiple_of(1 << 20)
        .max(FILE_BYTES_MIN);
    let options = CreateOptions {
        name: "bench".to_owned(),
        pool_id: *b"packstone bench!",
        segment_bytes: None,
        properties: Default::default(),
    };
    Ok(Store::create(&file(directory), file_bytes, &options)?)
}

pub(super) fn open(directory: &Path) -> Result<Box<dyn Opened>> {
    let options = OpenOptions {
        memory_bytes: Some(CACHE_BYTES),
        ..OpenOptions::default()
    };
    let store = Store::open(&file(directory), &options)?;
    let tree = store.tree("items")?;
    Ok(Box::new(Packstone { store, tree }))
}

impl Opened for Packstone {
    fn put_all(&mut self, items: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut writer = self.store.begin();
        for (key, value) in items {
            writer.put(self.tree, key, value)?;
        }
        writer.commit(Durability::Durable)?;
        Ok(())
    }

    fn get_all(
        &mut self,
        keys: &mut dyn Iterator<Item = Key>,
        visit: &mut dyn FnMut(&Key, Option<&[u8]>),
    ) -> Result<()> {
        let view = self.store.view();
        for key in keys {
            visit(&key, view.get(self.tree, &key)?.as_deref());
        }
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let view = self.store.view();
        for pair in view.range(self.tree, Bound::Unbounded, Bound::Unbounded) {
            let (key, value) = pair?;
            visit(&key, &value);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<Account> {
        let pool = self.store.pool().clone();
        self.store.close()?;
        let facts = pool.statistics();
        Ok(Account {
            own_written_bytes: Some(facts.written.total()),
            allocated_bytes: Some(facts.allocated_bytes),
            stored_bytes: Some(facts.stored_bytes),
        })
    }
}
