//! A crash at every joint of the pool, by name; and a device that lies about a flush.

use super::world::*;
use crate::*;
use packstone_media::{FaultKind, Media, SimulatedMedia};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Fails at one joint, the n-th time it is reached, and counts all.
#[derive(Default)]
struct Trap {
    state: Mutex<TrapState>,
}

#[derive(Default)]
struct TrapState {
    armed: Option<(Failpoint, u64)>,
    reached: BTreeMap<Failpoint, u64>,
}

impl FailpointHandler for Trap {
    fn reach(&self, point: Failpoint) -> std::result::Result<(), String> {
        let mut state = self.state.lock();
        let count = state.reached.entry(point).or_default();
        *count += 1;
        let count = *count;
        if state.armed == Some((point, count)) {
            return Err("the test asks for it".into());
        }
        Ok(())
    }
}

fn open_with(media: &Arc<SimulatedMedia>, trap: &Arc<Trap>) -> Result<Pool> {
    Pool::open(
        vec![media.clone() as Arc<dyn Media>],
        &OpenOptions {
            memory_bytes: Some(MEMORY_BYTES_MIN),
            failpoints: Failpoints::new(trap.clone()),
            ..OpenOptions::default()
        },
    )
}

/// Commits, syncs, checkpoints and cleaning in a pool that is nearly full; ends at the first error but that of a full pool.
fn busy_life(world: &mut World) -> bool {
    for round in 0..260 {
        let outcome = match round % 8 {
            2 | 5 => world.commit().and_then(|()| world.sync()),
            4 => world.pool.checkpoint_now().and_then(|()| world.commit()),
            6 => world.step(),
            7 => world.pool.step(BackgroundWork::Clean, 0).map(drop),
            _ => world.commit(),
        };
        match outcome {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace => world.delete_some(20),
            Err(_) => return false,
        }
    }
    true
}

fn world_with(trap: &Arc<Trap>) -> Option<World> {
    let mut world = World::new(9, 6 << 20);
    world.keys = 300;
    drop(std::mem::replace(
        &mut world.pool,
        open_with(&world.media, trap).ok()?,
    ));
    Some(world)
}

#[test]
fn the_pool_recovers_from_a_crash_at_every_joint() {
    let counting = Arc::new(Trap::default());
    assert!(busy_life(
        &mut world_with(&counting).expect("nothing is armed yet")
    ));
    let reached = counting.state.lock().reached.clone();
    for point in Failpoint::ALL {
        assert_eq!(Failpoint::from_name(point.name()), Some(*point));
        if *point == Failpoint::BetweenPieces || *point == Failpoint::AfterReplay {
            continue;
        }
        let count = *reached.get(point).unwrap_or(&0);
        assert!(count > 0, "{point} is never reached");
        // The first time, the last, and one in between.
        for at in [1, count.div_ceil(2), count] {
            for seed in 0..3 {
                let trap = Arc::new(Trap::default());
                trap.state.lock().armed = Some((*point, at));
                match world_with(&trap) {
                    None => continue, // The first checkpoint is that of the opening, which then fails.
                    Some(mut world) => {
                        assert!(
                            !busy_life(&mut world),
                            "{point} at {at}: the error went unnoticed"
                        );
                        world.commit().expect_err("a pool that failed takes nothing more");
                        match seed {
                            0 => world.media.crash_losing_all(),
                            1 => world.media.crash_losing_nothing(),
                            seed => world.media.crash(seed + at),
                        }
                        world.reopen_after_crash();
                        world.check_offline();
                    }
                }
            }
        }
    }
}

#[test]
fn a_crash_between_replay_and_its_checkpoint_loses_nothing() {
    let trap = Arc::new(Trap::default());
    let mut world = world_with(&trap).expect("nothing is armed yet");
    for _ in 0..20 {
        world.commit().expect("commits");
    }
    world.sync().expect("syncs");
    for point in [
        Failpoint::AfterReplay,
        Failpoint::BeforeNodeBatch,
        Failpoint::BetweenSlotCopies,
    ] {
        world.media.crash(point as u64);
        let failing = Arc::new(Trap::default());
        failing.state.lock().armed = Some((point, 1));
        let error = open_with(&world.media, &failing)
            .err()
            .expect("fails at the joint");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(point.name()), "{error}");
    }
    world.media.crash_losing_all();
    world.reopen_after_crash();
    world.check_offline();
}

/// The device fails a flush once, forgets what it should have flushed, and claims success from then on.
#[test]
fn a_flush_that_succeeds_after_it_failed_is_not_believed() {
    let flushes = {
        let mut world = World::new(3, 8 << 20);
        let before = world.media.counters().flushes;
        assert!(busy_life(&mut world));
        world.media.counters().flushes - before
    };
    assert!(flushes > 30);
    for flush in (0..flushes).step_by(3) {
        let mut world = World::new(3, 8 << 20);
        world.media.inject_after(FaultKind::DroppingFlush, flush);
        assert!(!busy_life(&mut world), "the failed flush went unnoticed");
        assert_eq!(world.media.fault_counts().of(FaultKind::DroppingFlush), 1);
        world.media.flush().expect("the device claims success by now");
        world
            .sync()
            .expect_err("a sync was acknowledged after a failed flush");
        world
            .pool
            .checkpoint_now()
            .expect_err("a checkpoint after a failed flush");
        world
            .commit()
            .expect_err("a commit was accepted after a failed flush");
        world.media.crash(flush);
        world.reopen_after_crash();
    }
}
