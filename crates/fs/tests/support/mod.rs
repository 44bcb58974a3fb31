//! What the tests of whole file systems share: a pool on a simulated device, a caller with a settable clock.
#![allow(dead_code, reason = "each test program uses its part")]

pub mod model;

use packstone_fs::{Caller, FileSystem, FsCheckReport, MountOptions, Timestamp, check};
use packstone_media::{Media, SimulatedMedia};
use packstone_pool::{CreateOptions, OpenOptions, Pool};
use std::sync::Arc;

/// The dataset that every test uses.
pub const DATASET: &str = "tank/test";
/// Size of the device under `pool`; only what is written takes memory.
const DEVICE_BYTES: u64 = 1 << 30;

/// A device with a new pool and one dataset.
pub fn device(size_bytes: u64, properties: &[(&str, &str)]) -> Arc<SimulatedMedia> {
    let media = Arc::new(SimulatedMedia::new(size_bytes));
    let member: Arc<dyn Media> = media.clone();
    let options = CreateOptions {
        name: "tank".into(),
        pool_id: [7; 16],
        segment_bytes: None,
        properties: Default::default(),
    };
    Pool::create(&[member], &options).unwrap();
    let pool = open_pool(&media);
    let properties = properties
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()));
    pool.create_dataset(DATASET, properties.collect()).unwrap();
    pool.close().unwrap();
    media
}

/// The pool on a device, recovered if need be.
pub fn open_pool(media: &Arc<SimulatedMedia>) -> Arc<Pool> {
    let member: Arc<dyn Media> = media.clone();
    let options = OpenOptions {
        read_only: false,
        memory_bytes: Some(16 << 20),
        ..OpenOptions::default()
    };
    Arc::new(Pool::open(vec![member], &options).unwrap())
}

/// A pool with one dataset on a device with much room.
pub fn pool(properties: &[(&str, &str)]) -> Arc<Pool> {
    open_pool(&device(DEVICE_BYTES, properties))
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

/// Opens the dataset of `pool`, the same way in every run.
pub fn open(pool: &Arc<Pool>) -> FileSystem {
    FileSystem::open_with_seed(pool.clone(), DATASET, MountOptions::default(), &caller(1), 42).unwrap()
}

/// Runs background work until there is none.
pub fn settle(fs: &FileSystem, seconds: i64) {
    let mut steps = 0;
    while fs
        .step(Timestamp {
            seconds,
            nanoseconds: 0,
        })
        .unwrap()
    {
        steps += 1;
        assert!(steps < 100_000, "background work does not end");
    }
}

/// Checks the dataset: no problem, and as many records referenced as the pool keeps for it.
pub fn check_clean(pool: &Arc<Pool>) -> FsCheckReport {
    let report = check(pool, DATASET, &mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    let tree = pool.dataset(DATASET).unwrap().tree;
    assert_eq!(
        report.references.len() as u64,
        pool.tree_usage(tree).records,
        "records leaked"
    );
    report
}
