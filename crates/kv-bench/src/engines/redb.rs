//! redb with its default durability, which is immediate.

use super::{Account, CACHE_BYTES, Opened};
use crate::items::Key;
use anyhow::Result;
use redb::{Builder, Database, Durability, ReadableTable, TableDefinition};
use std::path::Path;

const ITEMS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("items");

struct Redb {
    database: Database,
}

pub(super) fn open(directory: &Path) -> Result<Box<dyn Opened>> {
    let database = Builder::new()
        .set_cache_size(CACHE_BYTES as usize)
        .create(directory.join("store.redb"))?;
    let transaction = database.begin_write()?;
    transaction.open_table(ITEMS)?;
    transaction.commit()?;
    Ok(Box::new(Redb { database }))
}

impl Opened for Redb {
    fn put_all(&mut self, items: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate);
        {
            let mut table = transaction.open_table(ITEMS)?;
            for (key, value) in items {
                table.insert(key.as_slice(), value.as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn get_all(
        &mut self,
        keys: &mut dyn Iterator<Item = Key>,
        visit: &mut dyn FnMut(&Key, Option<&[u8]>),
    ) -> Result<()> {
        let table = self.database.begin_read()?.open_table(ITEMS)?;
        for key in keys {
            let found = table.get(key.as_slice())?;
            visit(&key, found.as_ref().map(|value| value.value()));
        }
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let table = self.database.begin_read()?.open_table(ITEMS)?;
        for pair in table.iter()? {
            let (key, value) = pair?;
            visit(key.value(), value.value());
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<Account> {
        Ok(Account::default())
    }
}
