//! The pool or file system that a script drives: opening over a recorded device, and the steps that scripts are made of.
//!
//! Steps never read a clock: time is a counter, content comes from a seed. A step that is acknowledged says so to the
//! trace, and from then on nothing older may be found after a crash.

use super::observe::{self, Content};
use super::recorder::{Observer, Recorder, Trace};
use anyhow::{Context, Result, ensure};
use packstone_fs::{Caller, FileKind, FileSystem, Ino, MountOptions, Timestamp};
use packstone_media::{Media, SimulatedMedia};
use packstone_pool::{
    BackgroundWork, Compression, CreateOptions, ErrorKind, MEMORY_BYTES_MIN, OpenOptions, PackedRecord, Pool,
    RecordId, Stream, TreeId,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Smallest there is, so that segments end often.
pub const SEGMENT_BYTES: u32 = 256 << 10;
/// The dataset of every script.
pub const DATASET: &str = "data";

/// A pool, perhaps with a mounted dataset, over a device whose changes are recorded.
pub struct Life {
    /// The device.
    pub device: Arc<SimulatedMedia>,
    /// Where changes go.
    pub trace: Arc<Trace>,
    /// The pool.
    pub pool: Arc<Pool>,
    /// Decides sizes and content.
    pub random: SmallRng,
    content: Content,
    fs: Option<FileSystem>,
    /// Keys and records of each dataset, by tree.
    items: BTreeMap<(TreeId, Vec<u8>), RecordId>,
    seconds: i64,
}

/// Makes a pool with one dataset.
pub fn create(size_bytes: u64) -> Result<Arc<SimulatedMedia>> {
    let device = Arc::new(SimulatedMedia::new(size_bytes));
    let member: Arc<dyn Media> = device.clone();
    let options = CreateOptions {
        name: "tank".into(),
        pool_id: [7; 16],
        segment_bytes: Some(SEGMENT_BYTES),
        properties: Default::default(),
    };
    Pool::create(std::slice::from_ref(&member), &options)?;
    let pool = open(member)?;
    let properties = [("recordsize", "4K"), ("compression", "lz4")];
    pool.create_dataset(
        DATASET,
        properties.map(|(name, value)| (name.into(), value.into())).into(),
    )?;
    pool.close()?;
    Ok(device)
}

/// Opens a pool as these scripts do.
pub fn open(member: Arc<dyn Media>) -> packstone_pool::Result<Arc<Pool>> {
    let options = OpenOptions {
        memory_bytes: Some(MEMORY_BYTES_MIN),
        ..OpenOptions::default()
    };
    Pool::open(vec![member], &options).map(Arc::new)
}

/// Mounts the dataset of a pool as these scripts do.
pub fn mount(pool: &Arc<Pool>) -> packstone_fs::Result<FileSystem> {
    FileSystem::open_with_seed(pool.clone(), DATASET, MountOptions::default(), &caller(1), 42)
}

/// Root at some second.
pub fn caller(seconds: i64) -> Caller {
    Caller {
        uid: 0,
        gid: 0,
        umask: 0o022,
        now: Timestamp {
            seconds,
            nanoseconds: 0,
        },
    }
}

/// Bytes that compress somewhat.
pub fn bytes(random: &mut SmallRng, length: usize) -> Vec<u8> {
    let noisy_of_4 = random.random_range(2..=4);
    (0..length)
        .map(|at| {
            if at % 4 < noisy_of_4 {
                random.random()
            } else {
                b'x'
            }
        })
        .collect()
}

impl Life {
    /// Opens what `prepared` holds durably; nothing is recorded yet.
    pub fn open(prepared: &SimulatedMedia, content: Content, seed: u64) -> Result<Life> {
        let device = Arc::new(prepared.fork());
        let trace = Arc::new(Trace::default());
        let pool = open(recorded(&device, &trace))?;
        let mut life = Life {
            device,
            trace,
            pool,
            random: SmallRng::seed_from_u64(seed),
            content,
            fs: None,
            items: BTreeMap::new(),
            seconds: 10,
        };
        if content == Content::Files {
            life.fs = Some(mount(&life.pool)?);
        }
        life.find_items()?;
        Ok(life)
    }

    fn find_items(&mut self) -> Result<()> {
        if self.content == Content::Files {
            return Ok(());
        }
        use std::ops::Bound::Unbounded;
        self.items.clear();
        for dataset in self.pool.datasets()? {
            for (key, value) in self.pool.scan(dataset.tree, Unbounded, Unbounded, usize::MAX)? {
                if let Ok(id) = <[u8; 8]>::try_from(value.as_slice()) {
                    self.items
                        .insert((dataset.tree, key), RecordId(u64::from_le_bytes(id)));
                }
            }
        }
        Ok(())
    }

    /// Begins to record.
    pub fn record(&self) {
        self.trace.start(self.observer());
    }

    fn observer(&self) -> Observer {
        let (pool, content) = (self.pool.clone(), self.content);
        let rendered = AtomicU64::new(u64::MAX);
        Arc::new(move || {
            let newest = pool.last_commit().0;
            if rendered.swap(newest, Ordering::SeqCst) == newest {
                return None;
            }
            let state = observe::render(&pool, content);
            Some(state.unwrap_or_else(|error| panic!("the live pool cannot be read: {error:#}")))
        })
    }

    /// The process ends, cleanly or not, and another opens the pool.
    pub fn reopen(&mut self, cleanly: bool) -> Result<()> {
        if let Some(fs) = self.fs.take().filter(|_| cleanly) {
            fs.close()?;
        }
        if cleanly {
            self.pool.close()?;
            self.trace.acknowledge();
        }
        self.trace.watch(None);
        self.pool = open(recorded(&self.device, &self.trace))?;
        if self.content == Content::Files {
            self.fs = Some(mount(&self.pool)?);
        }
        self.trace.watch(Some(self.observer()));
        // Opening ends with a checkpoint: what it found is durable.
        self.trace.acknowledge();
        self.find_items()
    }

    /// The tree of a dataset.
    pub fn tree(&self, dataset: &str) -> Result<TreeId> {
        Ok(self.pool.dataset(dataset)?.tree)
    }

    /// One transaction: for each of these keys a new record of that length, or none where the length is `None`.
    pub fn commit(&mut self, stream: Stream, changes: &[(&str, Option<usize>)]) -> Result<()> {
        let tree = self.tree(DATASET)?;
        self.commit_in(tree, stream, changes)
    }

    /// The same in another tree.
    pub fn commit_in(
        &mut self,
        tree: TreeId,
        stream: Stream,
        changes: &[(&str, Option<usize>)],
    ) -> Result<()> {
        let mut transaction = self.pool.begin();
        let mut stored = Vec::new();
        for (key, length) in changes {
            let place = (tree, key.as_bytes().to_vec());
            if let Some(old) = self.items.get(&place) {
                transaction.free(tree, *old);
            }
            match length {
                Some(length) => {
                    let record =
                        PackedRecord::pack(&bytes(&mut self.random, *length), Compression::default());
                    let id = transaction.store(tree, stream, record);
                    transaction.put(tree, key.as_bytes(), &id.0.to_le_bytes());
                    stored.push((place, Some(id)));
                }
                None => {
                    transaction.may_use_reserve();
                    transaction.delete(tree, key.as_bytes());
                    stored.push((place, None));
                }
            }
        }
        self.pool.commit(transaction)?;
        for (place, id) in stored {
            match id {
                Some(id) => drop(self.items.insert(place, id)),
                None => drop(self.items.remove(&place)),
            }
        }
        Ok(())
    }

    /// As `commit`; false when the pool is full.
    pub fn commit_if_room(&mut self, stream: Stream, changes: &[(&str, Option<usize>)]) -> Result<bool> {
        match self.commit(stream, changes) {
            Ok(()) => Ok(true),
            Err(error) => match error.downcast_ref::<packstone_pool::Error>() {
                Some(full) if full.kind() == ErrorKind::NoSpace => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Syncs everything committed.
    pub fn sync(&mut self) -> Result<()> {
        self.pool.sync(self.pool.last_commit())?;
        self.trace.acknowledge();
        Ok(())
    }

    /// Writes a checkpoint, which makes durable what was committed before.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.pool.checkpoint_now()?;
        self.trace.acknowledge();
        Ok(())
    }

    /// Background work of the pool.
    pub fn step(&mut self, work: BackgroundWork) -> Result<()> {
        self.seconds += 2;
        self.pool.step(work, self.seconds as u64 * 1000)?;
        Ok(())
    }

    /// Background work of the file system, some seconds later.
    pub fn step_files(&mut self) -> Result<()> {
        self.seconds += 6;
        let now = caller(self.seconds).now;
        self.fs()?.step(now)?;
        Ok(())
    }

    /// The mounted dataset.
    pub fn fs(&self) -> Result<&FileSystem> {
        self.fs.as_ref().context("this script has no files")
    }

    /// Ends the mount.
    pub fn unmount(&mut self) -> Result<()> {
        if let Some(fs) = self.fs.take() {
            fs.close()?;
            self.trace.acknowledge();
        }
        Ok(())
    }

    /// Root, a second later than before.
    pub fn now(&mut self) -> Caller {
        self.seconds += 1;
        caller(self.seconds)
    }

    /// A new file.
    pub fn create_file(&mut self, parent: Ino, name: &str) -> Result<Ino> {
        let now = self.now();
        let attributes = self
            .fs()?
            .create(&now, parent, name.as_bytes(), FileKind::Regular, 0o640, 0)?;
        Ok(attributes.ino)
    }

    /// Writes bytes that were not there before.
    pub fn write(&mut self, ino: Ino, offset: u64, length: usize) -> Result<()> {
        let now = self.now();
        let data = bytes(&mut self.random, length);
        self.fs()?.write(&now, ino, offset, &data, false)?;
        Ok(())
    }

    /// fsync of a file that was changed since anything else was: all that is committed is durable then. What the file holds
    /// must be what is committed.
    pub fn fsync(&mut self, ino: Ino) -> Result<()> {
        self.fs()?.sync_file(ino, false)?;
        self.trace.acknowledge();
        if self.fs()?.attributes(ino)?.kind == FileKind::Regular {
            let options = MountOptions { read_only: true };
            let view = FileSystem::open_with_seed(self.pool.clone(), DATASET, options, &caller(1), 42)?;
            let (buffered, committed) = (observe::content(self.fs()?, ino)?, observe::content(&view, ino)?);
            ensure!(
                buffered == committed,
                "fsync left bytes of inode {ino} in memory only"
            );
        }
        Ok(())
    }
}

fn recorded(device: &Arc<SimulatedMedia>, trace: &Arc<Trace>) -> Arc<dyn Media> {
    Arc::new(Recorder {
        device: device.clone(),
        trace: trace.clone(),
    })
}
