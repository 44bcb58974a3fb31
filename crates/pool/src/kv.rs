//! A pool as an embedded key-value store: named trees, one writer, and views beside it.
//!
//! ```text
//!   Store ──begin──► Writer ──put, delete──► commit(Durable) ──► batch in the log, one write and one flush
//!     └────view───► View ──get, range──► one commit's state, whatever the writer does meanwhile
//! ```
//!
//! A commit changes any number of keys in any number of trees, all or nothing. A durable one has been flushed when it
//! returns; one that is not is visible at once, durable with the next durable commit, and lost as a whole, with all that
//! came after it, by a crash before that. What it costs, what is promised and where the limits are: `docs/key-value.md`.
//!
//! There are no threads here. A commit that finds the log or the changes in memory grown beyond their bounds writes the
//! checkpoint itself, and is slower by that. A program that has a thread to spare may call [`Pool::step`] from it
//! ([`Store::pool`]), and commits then seldom meet this.
//!
//! ```
//! use packstone_pool::kv::{Durability, Store};
//! use packstone_pool::{CreateOptions, OpenOptions};
//! use std::ops::Bound;
//!
//! # let directory = std::env::temp_dir().join(format!("packstone-kv-{}", std::process::id()));
//! # std::fs::create_dir_all(&directory)?;
//! # let path = directory.join("example.pack");
//! # let _ = std::fs::remove_file(&path);
//! let options = CreateOptions { name: "shop".into(), pool_id: [7; 16], segment_bytes: None, properties: Default::default() };
//! Store::create(&path, 64 << 20, &options)?;
//! let store = Store::open(&path, &OpenOptions::default())?;
//! let (items, stock) = (store.tree("items")?, store.tree("stock")?);
//!
//! let mut writer = store.begin();
//! writer.put(items, b"apple", b"red")?;
//! writer.put(items, b"pear", b"green")?;
//! writer.put(stock, b"apple", &12u32.to_be_bytes())?;
//! assert_eq!(writer.get(items, b"apple")?, Some(b"red".to_vec())); // sees itself; nobody else does yet
//! writer.commit(Durability::Durable)?;
//!
//! let view = store.view();
//! let mut writer = store.begin();
//! writer.delete(items, b"apple")?;
//! writer.commit(Durability::Buffered)?;
//!
//! assert_eq!(view.get(items, b"apple")?, Some(b"red".to_vec())); // still
//! assert_eq!(store.view().get(items, b"apple")?, None);
//! let mut names = view.range(items, Bound::Included(b"a"), Bound::Unbounded);
//! assert_eq!(names.next_back().transpose()?.map(|(key, _)| key), Some(b"pear".to_vec()));
//! drop(names);
//! drop(view);
//! store.close()?;
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod writer;

pub use writer::{Durability, Writer};

use crate::catalog::{Dataset, DatasetState, KEY_VALUE, Properties};
use crate::error::{Error, ErrorKind, Result};
use crate::lifecycle::{CreateOptions, OpenOptions};
use crate::pool::Pool;
use crate::types::TreeId;
use crate::view::View;
use packstone_media::{Access, AlignedBuffer, CreateMode, FileMedia, Media};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

/// Bytes at the front of a new file that are written once at creation, at most; an eighth of a small file.
const LOG_AREA_BYTES_MAX: u64 = 1 << 30;

/// An open key-value store. May be used from many threads.
pub struct Store {
    pool: Arc<Pool>,
    writer: Mutex<()>,
}

impl Store {
    /// Makes a new file of that size (a multiple of 4096 bytes) with an empty store. All of it is allocated, and the part where
    /// the log begins is written, so that no later commit waits for the host file system to do either.
    ///
    /// Errors: `InvalidInput` for a file that exists, a bad name or size, `Unavailable`.
    pub fn create(path: &Path, size_bytes: u64, options: &CreateOptions) -> Result<()> {
        const OPERATION: &str = "create store";
        let media =
            FileMedia::create(path, size_bytes, CreateMode::New).map_err(|e| Error::media(OPERATION, e))?;
        let media: Arc<dyn Media> = Arc::new(media);
        let made = write_log_area(media.as_ref())
            .map_err(|e| Error::media(OPERATION, e))
            .and_then(|()| Pool::create(std::slice::from_ref(&media), options));
        if made.is_err() {
            // The first error is the one to report.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Opens the store in a file or on a block device, and recovers it if need be.
    ///
    /// Errors: `NotFound`, `Busy` while another process has it open, `Unsupported` for a newer format, `Damaged`.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Store> {
        let access = if options.read_only {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        };
        let media = FileMedia::open(path, access).map_err(|e| Error::media("open store", e))?;
        Pool::open(vec![Arc::new(media)], options).map(|pool| Store::on(Arc::new(pool)))
    }

    /// The store on a pool that is open already. Nobody else must change its key-value trees.
    pub fn on(pool: Arc<Pool>) -> Store {
        Store {
            pool,
            writer: Mutex::new(()),
        }
    }

    /// The pool below: statistics, space, background work.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The tree of that name, 1 to 255 bytes; made if there is none. Trees are few: each costs a few hundred bytes of memory.
    ///
    /// Errors: `InvalidInput` when the pool has a file system of that name, `NoSpace`, `ReadOnly`.
    pub fn tree(&self, name: &str) -> Result<TreeId> {
        const OPERATION: &str = "open tree";
        let dataset = match self.pool.dataset(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let properties = Properties::from([(KEY_VALUE.0.to_owned(), KEY_VALUE.1.to_owned())]);
                match self.pool.create_dataset(name, properties) {
                    // Somebody else made it meanwhile.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => self.pool.dataset(name)?,
                    made => made?,
                }
            }
            found => found?,
        };
        if !dataset.is_key_value() || dataset.state != DatasetState::Active {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                OPERATION,
                format!("{name} is a file system, or one being destroyed: choose another name"),
            ));
        }
        Ok(dataset.tree)
    }

    /// Names of all trees, sorted.
    pub fn tree_names(&self) -> Result<Vec<String>> {
        let datasets = self.pool.datasets()?.into_iter();
        let ours = datasets.filter(Dataset::is_key_value);
        Ok(ours.map(|dataset| dataset.name).collect())
    }

    /// A view of the newest commit. Neither waits for a writer nor makes one wait.
    pub fn view(&self) -> View {
        self.pool.view()
    }

    /// Begins to write; waits while another writer is open. Dropping the writer forgets its changes.
    pub fn begin(&self) -> Writer<'_> {
        Writer::new(&self.pool, self.writer.lock())
    }

    /// Makes every commit so far durable.
    ///
    /// Errors: `ReadOnly` after a failed write or flush, `Unavailable` when it fails now.
    pub fn sync(&self) -> Result<()> {
        self.pool.sync(self.pool.last_commit())
    }

    /// Makes everything durable and writes a last checkpoint, so that the next open has nothing to replay. Views may go on
    /// reading until they are dropped, and only then may the file be opened again.
    pub fn close(self) -> Result<()> {
        self.pool.close()
    }
}

/// Blocks that were only allocated cost the host file system a change of its own metadata at their first flush.
fn write_log_area(media: &dyn Media) -> packstone_media::Result<()> {
    const CHUNK_BYTES: u64 = 4 << 20;
    let area_bytes = LOG_AREA_BYTES_MAX.min(media.size_bytes() / 8) / CHUNK_BYTES * CHUNK_BYTES;
    let zeros = AlignedBuffer::zeroed(CHUNK_BYTES as usize);
    for offset_bytes in (0..area_bytes).step_by(CHUNK_BYTES as usize) {
        media.write(offset_bytes, &zeros)?;
    }
    media.flush()
}
