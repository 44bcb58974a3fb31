//! Crashes: at every media call, and at random moments of a long life.

use super::world::*;
use crate::*;
use packstone_media::{Fate, FaultKind, Media, SimulatedMedia};
use rand::Rng;
use std::sync::Arc;

/// A short life with everything in it; stops at the first error.
fn short_life(world: &mut World, commits: usize) {
    for round in 0..commits {
        let outcome = match round % 7 {
            3 => world.commit().and_then(|()| world.sync()),
            5 => world.pool.checkpoint_now().and_then(|()| world.commit()),
            6 => world.step(),
            _ => world.commit(),
        };
        if outcome.is_err() {
            return;
        }
    }
}

#[test]
fn every_media_call_may_be_the_last() {
    let mut states = 0;
    for seed in 0..2 {
        let calls = {
            let mut world = World::new(seed, 8 << 20);
            let before = world.media.media_changes();
            short_life(&mut world, 60);
            world.media.media_changes() - before
        };
        assert!(calls > 30, "{calls} media calls are too few to mean anything");
        for call in 0..calls {
            for variant in 0..4 {
                let mut world = World::new(seed, 8 << 20);
                world.media.stop_after_changes(world.media.media_changes() + call);
                short_life(&mut world, 60);
                world.media.clear_faults();
                match variant {
                    0 => world.media.crash_losing_all(),
                    1 => world.media.crash_losing_nothing(),
                    _ => world.media.crash(seed * 1000 + call * 10 + variant),
                }
                world.reopen_after_crash();
                if variant == 3 {
                    world.check_offline();
                }
                states += 1;
            }
        }
    }
    println!("{states} crash states");
}

#[test]
fn life_goes_on_after_crashes() {
    for seed in 100..106 {
        let mut world = World::new(seed, 12 << 20);
        world.keys = 600;
        for crash in 0..40 {
            for _ in 0..world.rng.random_range(1..120) {
                match world.rng.random_range(0..100) {
                    0..75 => world.commit().expect("commits"),
                    75..85 => world.sync().expect("syncs"),
                    85..98 => world.step().expect("steps"),
                    _ => world.pool.checkpoint_now().expect("checkpoints"),
                }
            }
            world.media.crash(seed * 100 + crash);
            world.reopen_after_crash();
            if crash % 10 == 9 {
                world.check_offline();
            }
        }
    }
}

/// A batch that outlived a crash while the one before it did not must never be taken for the continuation of what a later
/// life wrote: that is what epochs are for.
#[test]
fn leftovers_of_an_earlier_life_are_not_replayed() {
    let media = Arc::new(SimulatedMedia::new(16 << 20));
    create(&media);
    let pool = open(&media).expect("opens");
    let tree = pool
        .create_dataset("data", Properties::new())
        .expect("creates")
        .tree;
    pool.checkpoint_now().expect("checkpoints");
    let store = |pool: &Pool, streams: &[Stream], key: &[u8]| {
        let mut transaction = pool.begin();
        for stream in streams {
            transaction.store(
                tree,
                *stream,
                PackedRecord::pack(&content(1, 500), Compression::None),
            );
        }
        transaction.put(tree, key, b"here");
        pool.commit(transaction).expect("commits");
    };
    // Two batches: the first in the stream of short-lived data, the second, with the operations, in the other.
    store(&pool, &[Stream::ShortLived, Stream::Data], b"lost");
    media.fail_next_flushes(1);
    pool.sync(pool.last_commit()).expect_err("the flush fails");
    drop(pool);
    let first = std::cell::Cell::new(None);
    media.crash_with(&mut |sector| {
        if first.get().is_none() {
            first.set(Some(sector.write));
        }
        if first.get() == Some(sector.write) {
            Fate::Lost
        } else {
            Fate::Persisted
        }
    });
    let pool = open(&media).expect("opens");
    assert_eq!(
        pool.get(tree, b"lost").expect("reads"),
        None,
        "half a group is no group"
    );
    // One batch, with the number of the one that was lost, where that one was.
    store(&pool, &[Stream::ShortLived], b"kept");
    pool.sync(pool.last_commit()).expect("syncs");
    drop(pool);
    media.crash_losing_all();
    let pool = open(&media).expect("opens");
    assert_eq!(pool.get(tree, b"kept").expect("reads"), Some(b"here".to_vec()));
    assert_eq!(
        pool.get(tree, b"lost").expect("reads"),
        None,
        "a batch of an earlier life was replayed"
    );
}

/// A pool that opens must have everything. True if it opened.
fn keep_or_refuse(world: &mut World, opened: crate::Result<Pool>, what: &str) -> bool {
    match opened {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}: {error}");
            false
        }
        Ok(pool) => {
            world.pool = pool;
            world.verify();
            true
        }
    }
}

/// A read that fails while the log is replayed is not its end: taken for one, everything behind it would be lost for ever,
/// because opening ends with a checkpoint. Every read of the opening fails in turn, and then every sector.
#[test]
fn a_read_that_fails_while_opening_loses_nothing() {
    let mut world = World::new(5, 16 << 20);
    for _ in 0..40 {
        world.commit().expect("commits");
        world.sync().expect("syncs");
    }
    let image = {
        world.media.crash_losing_all();
        world.media.snapshot()
    };
    // Each call of the opening fails once: a second try may do.
    let struck = |media: &SimulatedMedia| media.fault_counts().of(FaultKind::ReadError);
    for failing in 0.. {
        world.media.restore(&image);
        let before = struck(&world.media);
        world.media.inject_after(FaultKind::ReadError, failing);
        let opened = open(&world.media);
        world.media.clear_faults();
        keep_or_refuse(&mut world, opened, &format!("read {failing}"));
        if struck(&world.media) == before {
            break;
        }
    }
    // Each sector fails for good.
    let mut refused = 0;
    for offset_bytes in (0..world.media.size_bytes()).step_by(4096) {
        world.media.restore(&image);
        world.media.fail_reads_in(offset_bytes..offset_bytes + 1);
        let errors_before = world.media.counters().read_errors;
        let opened = open(&world.media);
        let errors = world.media.counters().read_errors - errors_before;
        // A device may take seconds for each.
        assert!(errors < 32, "{errors} reads of the sector at {offset_bytes}");
        world.media.clear_faults();
        refused += u32::from(!keep_or_refuse(
            &mut world,
            opened,
            &format!("sector at {offset_bytes}"),
        ));
    }
    assert!(refused > 40, "only {refused} bad sectors of the log were met");
    world.media.restore(&image);
    world.reopen_after_crash();
}
