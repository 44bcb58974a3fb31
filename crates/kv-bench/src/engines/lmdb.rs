//! LMDB through heed, as it comes: every commit flushes, then writes its meta page synchronously.

use super::{Account, Opened};
use crate::items::{Items, KEY_BYTES, Key};
use anyhow::Result;
use heed::types::Bytes;
use heed::{Database, Env, EnvOpenOptions};
use std::path::Path;

/// The map must have room for everything, freed pages included; it costs address space only.
const MAP_TIMES: u64 = 16;
const MAP_BYTES_MIN: u64 = 4 << 30;

struct Lmdb {
    environment: Env,
    database: Database<Bytes, Bytes>,
}

pub(super) fn open(directory: &Path, items: &Items) -> Result<Box<dyn Opened>> {
    let data_bytes = items.count * (KEY_BYTES + items.value_bytes) as u64;
    let map_bytes = (MAP_TIMES * data_bytes)
        .next_multiple_of(1 << 20)
        .max(MAP_BYTES_MIN);
    let mut options = EnvOpenOptions::new();
    options.map_size(map_bytes as usize);
    // SAFETY: the directory was made for this run, and nobody else opens or changes the file.
    let environment = unsafe { options.open(directory)? };
    let mut transaction = environment.write_txn()?;
    let database = environment.create_database(&mut transaction, None)?;
    transaction.commit()?;
    Ok(Box::new(Lmdb {
        environment,
        database,
    }))
}

impl Opened for Lmdb {
    fn put_all(&mut self, items: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut transaction = self.environment.write_txn()?;
        for (key, value) in items {
            self.database.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn get_all(
        &mut self,
        keys: &mut dyn Iterator<Item = Key>,
        visit: &mut dyn FnMut(&Key, Option<&[u8]>),
    ) -> Result<()> {
        let transaction = self.environment.read_txn()?;
        for key in keys {
            visit(&key, self.database.get(&transaction, &key)?);
        }
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let transaction = self.environment.read_txn()?;
        for pair in self.database.iter(&transaction)? {
            let (key, value) = pair?;
            visit(key, value);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<Account> {
        self.environment.prepare_for_closing().wait();
        Ok(Account::default())
    }
}
