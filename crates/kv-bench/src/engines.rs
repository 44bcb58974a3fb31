//! The stores that are compared. Each is opened with settings that make every transaction durable when it returns, and
//! otherwise as its authors ship it; where it has a cache to size, it gets [`CACHE_BYTES`].

#[cfg(feature = "peers")]
mod fjall;
#[cfg(feature = "peers")]
mod lmdb;
mod packstone;
#[cfg(feature = "peers")]
mod redb;
#[cfg(feature = "peers")]
mod sqlite;

use crate::items::{Items, Key};
use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;
use std::path::Path;

/// Memory each store may use for caches and buffers, as far as it can be told.
pub const CACHE_BYTES: u64 = 512 << 20;

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Packstone's trees, in a file allocated at creation.
    Packstone,
    /// LMDB through heed: a memory-mapped copy-on-write B+tree.
    Lmdb,
    /// redb: a copy-on-write B+tree in Rust.
    Redb,
    /// SQLite: a table without rowid, write-ahead log, synchronous=FULL.
    Sqlite,
    /// fjall: a log-structured merge tree in Rust.
    Fjall,
}

impl Engine {
    /// All that this program was built with.
    pub fn available() -> &'static [Engine] {
        if cfg!(feature = "peers") {
            Engine::value_variants()
        } else {
            &[Engine::Packstone]
        }
    }

    /// As it is called on the command line and in results.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What it was told.
    pub fn settings(self) -> &'static str {
        match self {
            Engine::Packstone => {
                "sync after each commit (one write, one fdatasync); memory budget 512 MiB; file allocated, its front written at creation"
            }
            Engine::Lmdb => {
                "default flags (fdatasync and a synchronous meta page at each commit); map of 16 times the data"
            }
            Engine::Redb => "Durability::Immediate; cache 512 MiB",
            Engine::Sqlite => {
                "journal_mode=WAL, synchronous=FULL, cache 512 MiB, WITHOUT ROWID, blob key as primary key"
            }
            Engine::Fjall => {
                "a batch and PersistMode::SyncData for each transaction; cache 512 MiB; lz4 as by default"
            }
        }
    }

    /// Makes an empty store in an empty directory, sized for these items, and closes it.
    pub fn create(self, directory: &Path, items: &Items) -> Result<()> {
        match self {
            Engine::Packstone => packstone::create(directory, items),
            // The others are made by opening them.
            _ => self.open(directory, items)?.close().map(drop),
        }
    }

    /// Opens the store in that directory.
    pub fn open(self, directory: &Path, items: &Items) -> Result<Box<dyn Opened>> {
        let _ = items;
        match self {
            Engine::Packstone => packstone::open(directory),
            #[cfg(feature = "peers")]
            Engine::Lmdb => lmdb::open(directory, items),
            #[cfg(feature = "peers")]
            Engine::Redb => redb::open(directory),
            #[cfg(feature = "peers")]
            Engine::Sqlite => sqlite::open(directory),
            #[cfg(feature = "peers")]
            Engine::Fjall => fjall::open(directory),
            #[cfg(not(feature = "peers"))]
            other => anyhow::bail!(
                "this program was built without {}: use `make kv-bench`, or build it with `--features peers`",
                other.name()
            ),
        }
    }
}

/// What a store says of itself when it is closed; the others are measured from outside.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// Bytes it wrote since it was opened, by its own count.
    pub own_written_bytes: Option<u64>,
    /// Bytes its file takes of which it could give back the rest.
    pub allocated_bytes: Option<u64>,
    /// Bytes of its content as stored.
    pub stored_bytes: Option<u64>,
}

/// An open store.
pub trait Opened {
    /// One durable transaction.
    fn put_all(&mut self, items: &[(Key, Vec<u8>)]) -> Result<()>;
    /// Looks keys up one by one, all in one read transaction.
    fn get_all(
        &mut self,
        keys: &mut dyn Iterator<Item = Key>,
        visit: &mut dyn FnMut(&Key, Option<&[u8]>),
    ) -> Result<()>;
    /// Reads everything in key order, in one read transaction.
    fn scan(&mut self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;
    /// Closes it in order.
    fn close(self: Box<Self>) -> Result<Account>;
}
