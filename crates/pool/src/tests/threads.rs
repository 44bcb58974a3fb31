//! Many threads at once: every lock is taken in every order that real use takes them.

use super::world::content;
use crate::*;
use packstone_media::{Media, SimulatedMedia};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const WRITERS: u64 = 4;
const KEYS: u64 = 60;
const COMMITS: u64 = 1500;

fn new_pool() -> (Arc<SimulatedMedia>, Arc<Pool>) {
    let media = Arc::new(SimulatedMedia::new(48 << 20));
    super::world::create(&media);
    let pool = super::world::open(&media).expect("opens");
    (media, Arc::new(pool))
}

/// Overwrites its own keys; returns the seed of the last write to each.
fn write(pool: &Pool, tree: TreeId, writer: u64) -> Vec<(Vec<u8>, RecordId, u64)> {
    let mut current: Vec<Option<(RecordId, u64)>> = vec![None; KEYS as usize];
    let key = |slot: u64| [writer.to_be_bytes(), slot.to_be_bytes()].concat();
    for round in 0..COMMITS {
        let slot = round * 7 % KEYS;
        let seed = writer << 32 | round;
        let mut transaction = pool.begin();
        let record = PackedRecord::pack(&content(seed, 3000), Compression::default());
        let id = transaction.store(tree, Stream::Data, record);
        transaction.put(tree, &key(slot), &id.0.to_le_bytes());
        if let Some((old, _)) = current[slot as usize].replace((id, seed)) {
            transaction.free(tree, old);
        }
        let commit = pool.commit(transaction).expect("commits");
        if round % 5 == 0 {
            pool.sync(commit).expect("syncs");
        }
        let (probe, seed) = current[(round * 3 % KEYS) as usize].unwrap_or((id, seed));
        assert_eq!(
            pool.read_records(&[probe]).expect("reads")[0][..],
            content(seed, 3000)
        );
    }
    let slots = (0..KEYS).filter_map(|slot| current[slot as usize].map(|(id, seed)| (key(slot), id, seed)));
    slots.collect()
}

#[test]
fn writers_readers_checkpoints_and_cleaning_do_not_stand_in_each_others_way() {
    let (media, pool) = new_pool();
    let tree = pool
        .create_dataset("data", Properties::new())
        .expect("creates")
        .tree;
    let done = AtomicBool::new(false);
    let expected: Vec<_> = thread::scope(|scope| {
        let background = scope.spawn(|| {
            let mut now_ms = 0;
            while !done.load(Ordering::Relaxed) {
                now_ms += 500;
                for work in [
                    BackgroundWork::Flush,
                    BackgroundWork::Clean,
                    BackgroundWork::Checkpoint,
                ] {
                    pool.step(work, now_ms).expect("steps");
                }
                pool.checkpoint_now().expect("checkpoints");
            }
        });
        let scanner = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let pairs = pool
                    .scan(tree, Bound::Unbounded, Bound::Unbounded, usize::MAX)
                    .expect("scans");
                assert!(pairs.windows(2).all(|pair| pair[0].0 < pair[1].0));
                pool.statistics();
                pool.space();
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let pool = &pool;
                    move || write(pool, tree, writer)
                })
            })
            .collect();
        let expected = writers
            .into_iter()
            .flat_map(|writer| writer.join().expect("a writer"))
            .collect();
        done.store(true, Ordering::Relaxed);
        background.join().expect("background work");
        scanner.join().expect("the scanner");
        expected
    });
    pool.sync(pool.last_commit()).expect("syncs");
    drop(pool);
    media.crash_losing_all();
    let pool = super::world::open(&media).expect("opens");
    for (key, id, seed) in expected {
        assert_eq!(
            pool.get(tree, &key).expect("gets"),
            Some(id.0.to_le_bytes().to_vec())
        );
        assert_eq!(
            pool.read_records(&[id]).expect("reads")[0][..],
            content(seed, 3000)
        );
    }
    let report = check(&pool, &mut |_, _| {}).expect("checks");
    assert_eq!(report.problems, Vec::<String>::new());
    assert!(media.counters().flushes > 0);
}
