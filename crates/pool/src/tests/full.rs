//! A full pool with large trees: deleting never runs out of room, and the pool opens again.

use super::world::*;
use crate::*;
use packstone_media::{Media, SimulatedMedia};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;

fn key(at: u64) -> Vec<u8> {
    SmallRng::seed_from_u64(at).random::<[u8; 16]>().to_vec()
}

/// Many small pairs, so that nodes are a large share of what is live.
fn fill(pool: &Pool, tree: TreeId) -> u64 {
    let mut count = 0;
    loop {
        let mut transaction = pool.begin();
        for at in count..count + 20 {
            let value: [u8; 24] = SmallRng::seed_from_u64(!at).random::<[u8; 24]>();
            transaction.put(tree, &key(at), &value);
        }
        let record = PackedRecord::pack(&content(count, 1000), Compression::None);
        transaction.store(tree, Stream::Data, record);
        match pool.commit(transaction) {
            Ok(_) => count += 20,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                return count;
            }
        }
    }
}

#[test]
fn deletes_synced_one_by_one_never_run_out_of_room() {
    let media = Arc::new(SimulatedMedia::new(24 << 20));
    create(&media);
    let pool = open(&media).expect("opens");
    let tree = pool
        .create_dataset("data", Properties::new())
        .expect("creates")
        .tree;
    let count = fill(&pool, tree);
    assert!(count > 10_000, "{count} pairs are no large tree");
    // Room runs out, if it does, within some hundred.
    for at in 0..1000 {
        let mut transaction = pool.begin();
        transaction.delete(tree, &key(at * 7 % count));
        transaction.may_use_reserve();
        let commit = pool
            .commit(transaction)
            .unwrap_or_else(|error| panic!("delete {at} of {count}: {error}"));
        pool.sync(commit)
            .unwrap_or_else(|error| panic!("sync {at}: {error}"));
    }
    drop(pool);
    media.crash_losing_all();
    let pool = Pool::open(
        vec![media.clone() as Arc<dyn Media>],
        &OpenOptions {
            read_only: false,
            memory_bytes: Some(MEMORY_BYTES_MIN),
            ..OpenOptions::default()
        },
    )
    .expect("a full pool opens again");
    assert_eq!(pool.get(tree, &key(0)).expect("gets"), None);
    pool.close().expect("closes");
}

/// A value may be thousands of times as long as an ordinary one, and waits in memory until a checkpoint stores it.
#[test]
fn long_values_fill_the_pool_without_using_up_the_reserve() {
    let media = Arc::new(SimulatedMedia::new(24 << 20));
    create(&media);
    let pool = open(&media).expect("opens");
    let tree = pool
        .create_dataset("data", Properties::new())
        .expect("creates")
        .tree;
    let mut count = 0;
    let full = loop {
        let mut transaction = pool.begin();
        transaction.put(tree, &key(count), &content(count, 60_000));
        match pool.commit(transaction) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 1000, "more was written than fits");
    };
    assert_eq!(full.kind(), ErrorKind::NoSpace, "{full}");
    pool.checkpoint_now()
        .expect("what was admitted has room in the trees");
    for at in 0..count {
        let mut transaction = pool.begin();
        transaction.delete(tree, &key(at));
        transaction.may_use_reserve();
        let commit = pool
            .commit(transaction)
            .unwrap_or_else(|error| panic!("delete {at} of {count}: {error}"));
        pool.sync(commit)
            .unwrap_or_else(|error| panic!("sync {at}: {error}"));
    }
    pool.close().expect("closes");
}

/// Stores a record of noise under a key, in place of what is there; several at once, as a long write does.
fn replace(
    pool: &Pool,
    tree: TreeId,
    held: &mut BTreeMap<u64, RecordId>,
    keys: &[u64],
    length: usize,
    may_use_reserve: bool,
) -> Result<CommitSequence> {
    let mut transaction = pool.begin();
    let mut stored = Vec::new();
    for at in keys {
        let mut noise = vec![0; length];
        SmallRng::seed_from_u64(*at).fill(&mut noise[..]);
        let id = transaction.store(tree, Stream::Data, PackedRecord::pack(&noise, Compression::None));
        transaction.put(tree, &key(*at), &id.0.to_le_bytes());
        if let Some(old) = held.get(at) {
            transaction.free(tree, *old);
        }
        stored.push((*at, id));
    }
    if may_use_reserve {
        transaction.may_use_reserve();
    }
    let commit = pool.commit(transaction)?;
    held.extend(stored);
    Ok(commit)
}

/// Records of a quarter and of nearly half a segment lose much at the ends of segments. What was admitted can be made
/// durable all the same, what was promised while there was room has its place, and everything can be deleted.
#[test]
fn long_records_fill_the_pool_and_all_that_was_admitted_is_synced() {
    for (length, at_once) in [(64 << 10, 8), (100_000, 3), (127 << 10, 8)] {
        let media = Arc::new(SimulatedMedia::new(64 * u64::from(SEGMENT_BYTES) + (512 << 10)));
        create(&media);
        let pool = open(&media).expect("opens");
        let tree = pool
            .create_dataset("data", Properties::new())
            .expect("creates")
            .tree;
        let mut random = SmallRng::seed_from_u64(length as u64);
        let mut held = BTreeMap::new();
        for round in 0..3 {
            let mut refused = 0;
            while refused < 20 {
                let first = random.random_range(0..200);
                let keys: Vec<u64> = (first..first + random.random_range(1..=at_once)).collect();
                match replace(&pool, tree, &mut held, &keys, length, false) {
                    Ok(commit) if random.random() => pool
                        .sync(commit)
                        .unwrap_or_else(|error| panic!("{length}: sync: {error}")),
                    Ok(_) => {}
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                        refused += 1;
                    }
                }
            }
            for at in 0..4 {
                let commit = replace(&pool, tree, &mut held, &[1000 + at], length, true)
                    .unwrap_or_else(|error| panic!("{length}: promised {at} in round {round}: {error}"));
                pool.sync(commit)
                    .unwrap_or_else(|error| panic!("{length}: sync of promised {at}: {error}"));
            }
            let least = held.len() / (2 - round / 2);
            for (at, record) in held.clone().into_iter().take(least) {
                let mut transaction = pool.begin();
                transaction.delete(tree, &key(at));
                transaction.free(tree, record);
                transaction.may_use_reserve();
                let commit = pool
                    .commit(transaction)
                    .unwrap_or_else(|error| panic!("{length}: delete {at}: {error}"));
                pool.sync(commit)
                    .unwrap_or_else(|error| panic!("{length}: sync of delete {at}: {error}"));
                held.remove(&at);
            }
        }
        pool.close().expect("closes");
    }
}
