//! A pool in a file, with its background work, to mount in tests and examples.

use packstone_fs::{Caller, FileSystem, MountOptions, Timestamp};
use packstone_media::{CreateMode, FileMedia, Media};
use packstone_pool::{BackgroundWork, CreateOptions, OpenOptions, Pool, StepOutcome};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const MEMBER_BYTES: u64 = 1 << 30;

/// An open pool with one dataset, whose background work is driven by a thread.
pub struct Store {
    pub filesystem: Arc<FileSystem>,
    pool: Arc<Pool>,
    stop: Arc<AtomicBool>,
    background: Option<JoinHandle<()>>,
}

fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    Timestamp {
        seconds: since.as_secs() as i64,
        nanoseconds: since.subsec_nanos(),
    }
}

impl Store {
    /// Makes `pool.pack` in `directory`; its root belongs to whoever runs this.
    pub fn create(directory: &Path) -> Store {
        let member = FileMedia::create(&directory.join("pool.pack"), MEMBER_BYTES, CreateMode::New)
            .expect("a member file");
        let members: Vec<Arc<dyn Media>> = vec![Arc::new(member)];
        let options = CreateOptions {
            name: "tank".into(),
            pool_id: [7; 16],
            segment_bytes: None,
            properties: BTreeMap::new(),
        };
        Pool::create(&members, &options).expect("a pool");
        let options = OpenOptions {
            read_only: false,
            memory_bytes: Some(64 << 20),
            ..OpenOptions::default()
        };
        let pool = Arc::new(Pool::open(members, &options).expect("the pool opens"));
        pool.create_dataset("tank/files", BTreeMap::new())
            .expect("a dataset");
        let caller = Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            umask: 0,
            now: now(),
        };
        let filesystem = FileSystem::open(pool.clone(), "tank/files", MountOptions::default(), &caller);
        let filesystem = Arc::new(filesystem.expect("the dataset opens"));
        let stop = Arc::new(AtomicBool::new(false));
        let background = thread::spawn({
            let (pool, filesystem, stop) = (pool.clone(), filesystem.clone(), stop.clone());
            move || drive(&pool, &filesystem, &stop)
        });
        Store {
            filesystem,
            pool,
            stop,
            background: Some(background),
        }
    }
}

fn drive(pool: &Pool, filesystem: &FileSystem, stop: &AtomicBool) {
    let started = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let mut busy = filesystem.step(now()).expect("a step of the file system");
        for work in [
            BackgroundWork::Flush,
            BackgroundWork::Checkpoint,
            BackgroundWork::Clean,
        ] {
            let outcome = pool
                .step(work, started.elapsed().as_millis() as u64)
                .expect("a step of the pool");
            busy |= outcome == StepOutcome::Progress;
        }
        if !busy {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(background) = self.background.take() {
            let outcome = background.join();
            if !thread::panicking() {
                outcome.expect("background work");
                self.filesystem.close().expect("the file system closes");
                self.pool.close().expect("the pool closes");
            }
        }
    }
}
