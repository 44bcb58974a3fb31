//! SQLite with its write-ahead log, flushed at every commit.

use super::{Account, CACHE_BYTES, Opened};
use crate::items::Key;
use anyhow::{Result, anyhow};
use rusqlite::{Connection, OptionalExtension};
use std::path::Path;

struct Sqlite {
    connection: Connection,
}

pub(super) fn open(directory: &Path) -> Result<Box<dyn Opened>> {
    let connection = Connection::open(directory.join("store.sqlite"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Negative: KiB rather than pages.
    connection.pragma_update(None, "cache_size", -((CACHE_BYTES >> 10) as i64))?;
    connection.execute(
        "CREATE TABLE IF NOT EXISTS items (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        [],
    )?;
    Ok(Box::new(Sqlite { connection }))
}

impl Opened for Sqlite {
    fn put_all(&mut self, items: &[(Key, Vec<u8>)]) -> Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut insert =
                transaction.prepare_cached("INSERT OR REPLACE INTO items (key, value) VALUES (?1, ?2)")?;
            for (key, value) in items {
                insert.execute((key.as_slice(), value.as_slice()))?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn get_all(
        &mut self,
        keys: &mut dyn Iterator<Item = Key>,
        visit: &mut dyn FnMut(&Key, Option<&[u8]>),
    ) -> Result<()> {
        let transaction = self.connection.transaction()?;
        let mut select = transaction.prepare_cached("SELECT value FROM items WHERE key = ?1")?;
        for key in keys {
            let found = select
                .query_row((key.as_slice(),), |row| {
                    visit(&key, Some(row.get_ref(0)?.as_blob()?));
                    Ok(())
                })
                .optional()?;
            if found.is_none() {
                visit(&key, None);
            }
        }
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut select = self
            .connection
            .prepare_cached("SELECT key, value FROM items ORDER BY key")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            visit(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<Account> {
        let closed = self.connection.close();
        closed.map_err(|(_, error)| anyhow!(error))?;
        Ok(Account::default())
    }
}
