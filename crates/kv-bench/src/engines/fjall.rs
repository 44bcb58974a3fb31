//! fjall: a batch for each transaction, and its journal flushed (`fdatasync`) before the next.

use super::{Account, CACHE_BYTES, Opened};
use crate::items::Key;
use anyhow::Result;
use fjall::{Config, Keyspace, PartitionCreateOptions, PartitionHandle, PersistMode};
use std::path::Path;

struct Fjall {
    keyspace: Keyspace,
    partition: PartitionHandle,
}

pub(super) fn open(directory: &Path) -> Result<Box<dyn Opened>> {
    let keyspace = Config::new(directory).cache_size(CACHE_BYTES).open()?;
    let partition = keyspace.open_partition("items", PartitionCreateOptions::default())?;
    Ok(Box::new(Fjall { keyspace, partition }))
}

impl Opened for Fjall {
    fn put_all(&mut self, items: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut batch = self.keyspace.batch();
        for (key, value) in items {
            batch.insert(&self.partition, key.as_slice(), value.as_slice());
        }
        batch.commit()?;
        Ok(self.keyspace.persist(PersistMode::SyncData)?)
    }

    fn get_all(
        &mut self,
        keys: &mut dyn Iterator<Item = Key>,
        visit: &mut dyn FnMut(&Key, Option<&[u8]>),
    ) -> Result<()> {
        let snapshot = self.partition.snapshot();
        for key in keys {
            visit(&key, snapshot.get(key)?.as_deref());
        }
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for pair in self.partition.snapshot().iter() {
            let (key, value) = pair?;
            visit(&key, &value);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<Account> {
        self.keyspace.persist(PersistMode::SyncAll)?;
        Ok(Account::default())
    }
}
