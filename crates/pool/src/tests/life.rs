//! Ordinary life: commits, background work, reopening, filling up.

use super::world::*;
use crate::*;
use packstone_media::{Media, SimulatedMedia};
use rand::Rng;
use std::sync::Arc;

#[test]
fn random_life_matches_the_model() {
    for seed in 0..6 {
        let mut world = World::new(seed, 24 << 20);
        for round in 0..3000 {
            match world.rng.random_range(0..100) {
                0..80 => world.commit().expect("commits"),
                80..90 => world.sync().expect("syncs"),
                90..99 => world.step().expect("steps"),
                _ => world.pool.checkpoint_now().expect("checkpoints"),
            }
            if round % 500 == 499 {
                world.verify();
                world.check_offline();
            }
        }
    }
}

#[test]
fn overwriting_for_ever_never_fills_the_pool() {
    let mut world = World::new(42, 12 << 20);
    world.keys = 500;
    world.record_bytes_max = 16_000;
    let written = |world: &World| world.pool.statistics().written.total();
    let mut total = 0;
    while total < 10 * (12 << 20) {
        let before = written(&world);
        for _ in 0..500 {
            world.commit().expect("commits without running out of room");
        }
        world.verify();
        total += written(&world) - before;
    }
    world.check_offline();
}

#[test]
fn a_full_pool_refuses_writes_and_still_deletes() {
    for seed in 0..2 {
        let mut world = World::new(seed, 24 << 20);
        world.keys = 100_000;
        world.will_crash = false;
        // Small against a segment, as in a real pool: the end of a segment that fits no record is lost.
        world.record_bytes_max = 3000;
        for _ in 0..2 {
            let error = loop {
                if let Err(error) = world.commit() {
                    break error;
                }
            };
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            let space = world.pool.space();
            assert!(
                space.available_bytes * 50 < space.capacity_bytes,
                "{space:?} left in a full pool"
            );
            world.verify();
            world.sync().expect("a full pool still syncs");
            world.check_offline();
            let half = world.items.len() / 2;
            world.delete_some(half);
            world.verify();
            for _ in 0..50 {
                world.commit().expect("room came back");
            }
        }
        let all = world.items.len();
        world.delete_some(all);
        world.check_offline();
    }
}

#[test]
fn available_bytes_can_be_written() {
    let mut world = World::new(5, 32 << 20);
    world.keys = u32::MAX;
    let available = world.pool.space().available_bytes;
    let mut stored = 0;
    loop {
        let record = PackedRecord::pack(&content(stored, 2048), Compression::None);
        let mut transaction = world.pool.begin();
        let packed = u64::from(record.packed_bytes());
        let id = transaction.store(world.tree, Stream::Data, record);
        transaction.put(world.tree, &stored.to_be_bytes(), &id.0.to_le_bytes());
        if world.pool.commit(transaction).is_err() {
            break;
        }
        stored += packed;
    }
    let used = available - stored.min(available);
    assert!(
        used * 100 < available * 2,
        "{stored} of {available} bytes could be written"
    );
}

#[test]
fn datasets_and_properties_survive() {
    let media = Arc::new(SimulatedMedia::new(16 << 20));
    create(&media);
    let pool = open(&media).expect("opens");
    let first = pool
        .create_dataset("a", Properties::from([("recordsize".into(), "8K".into())]))
        .expect("creates");
    let second = pool.create_dataset("b", Properties::new()).expect("creates");
    assert_ne!(first.tree, second.tree);
    assert_eq!(
        pool.create_dataset("a", Properties::new())
            .expect_err("exists")
            .kind(),
        ErrorKind::AlreadyExists
    );
    pool.set_properties(Properties::from([("memory".into(), "1G".into())]))
        .expect("sets");
    pool.mark_dataset_destroying("b").expect("marks");
    pool.sync(pool.last_commit()).expect("syncs");
    drop(pool);
    media.crash_losing_all();
    let pool = open(&media).expect("opens");
    assert_eq!(pool.dataset("a").expect("finds"), first);
    assert_eq!(pool.dataset("b").expect("finds").state, DatasetState::Destroying);
    assert_eq!(pool.properties().expect("reads")["memory"], "1G");
    pool.remove_dataset("b").expect("removes");
    let third = pool.create_dataset("c", Properties::new()).expect("creates");
    assert!(third.tree > second.tree, "tree numbers are not given out twice");
    pool.close().expect("closes");
    let pool = open(&media).expect("opens");
    assert_eq!(
        pool.datasets()
            .expect("lists")
            .iter()
            .map(|dataset| dataset.name.as_str())
            .collect::<Vec<_>>(),
        ["a", "c"]
    );
    assert_eq!(
        pool.dataset("b").expect_err("is gone").kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn a_failed_flush_stops_writing_but_not_reading() {
    let mut world = World::new(1, 16 << 20);
    for _ in 0..50 {
        world.commit().expect("commits");
    }
    world.sync().expect("syncs");
    world.commit().expect("commits");
    world.media.fail_next_flushes(1);
    assert_eq!(
        world.sync().expect_err("flush fails").kind(),
        ErrorKind::Unavailable
    );
    assert_eq!(
        world.sync().expect_err("no false success later").kind(),
        ErrorKind::ReadOnly
    );
    assert_eq!(
        world.commit().expect_err("no more writes").kind(),
        ErrorKind::ReadOnly
    );
    assert_eq!(world.pool.statistics().state, PoolState::ReadOnly);
    world.verify();
    world.pool.close().expect("closes");
    world.media.clear_faults();
    world.media.crash_losing_all();
    world.reopen_after_crash();
}

#[test]
fn damaged_bytes_are_an_error_and_never_data() {
    let mut world = World::new(3, 16 << 20);
    world.record_bytes_max = 9000;
    for _ in 0..300 {
        world.commit().expect("commits");
    }
    world.pool.close().expect("closes");
    let image = world.media.image();
    let mut refused = 0;
    for at in (0..image.len()).step_by(4099) {
        if image[at] == 0 && image[at & !4095..].iter().take(4096).all(|byte| *byte == 0) {
            continue;
        }
        let media = Arc::new(SimulatedMedia::from_image(&image, 4096));
        media.corrupt(at as u64, 0x41);
        let opened = Pool::open(
            vec![media as Arc<dyn Media>],
            &OpenOptions {
                read_only: true,
                memory_bytes: None,
                ..OpenOptions::default()
            },
        );
        let Ok(pool) = opened else {
            refused += 1;
            continue;
        };
        for item in world.items.values() {
            match pool.read_records(&[item.record]) {
                Ok(bytes) => assert_eq!(bytes[0][..], content(item.seed, item.length)),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
                    refused += 1;
                }
            }
        }
        check(&pool, &mut |_, _| {}).expect("check reports damage, it does not fail");
    }
    assert!(refused > 10, "the corruption met nothing that matters");
}
