//! Scripts of records and trees: the log, checkpoints, datasets, cleaning, full pools, reopening.

use super::{Script, nothing};
use crate::exhaustive::life::Life;
use crate::exhaustive::observe::Content;
use anyhow::Result;
use packstone_pool::{BackgroundWork, DatasetState, Stream};
use rand::Rng;

const ROOMY_BYTES: u64 = 16 << 20;
/// 16 segments, the fewest there can be, of which 5 are kept back.
const TINY_BYTES: u64 = (4 << 20) + (512 << 10);

pub(super) fn scripts() -> Vec<Script> {
    let script = |name, size_bytes, prepare, run| Script {
        name,
        size_bytes,
        content: Content::Records,
        // A full pool takes longer to look at.
        by_chance_of_8: if size_bytes == TINY_BYTES { 2 } else { 8 },
        prepare,
        run,
    };
    vec![
        script("commits", ROOMY_BYTES, nothing, commits),
        script("groups", ROOMY_BYTES, nothing, groups),
        script("large-group", ROOMY_BYTES, nothing, large_group),
        script("checkpoint", ROOMY_BYTES, some_items, checkpoint),
        script(
            "unsynced-checkpoint",
            ROOMY_BYTES,
            some_items,
            unsynced_checkpoint,
        ),
        script("many-checkpoints", ROOMY_BYTES, some_items, many_checkpoints),
        script("datasets", ROOMY_BYTES, some_items, datasets),
        script("segment-end", ROOMY_BYTES, nothing, segment_end),
        script("overwrite", TINY_BYTES, some_items, overwrite),
        script("cleaning", TINY_BYTES, mostly_dead, cleaning),
        script("full", TINY_BYTES, nearly_full, full),
        script("clean-when-full", TINY_BYTES, scattered_and_full, clean_when_full),
        script("reopen", ROOMY_BYTES, some_items, reopen),
        script("reopen-killed", ROOMY_BYTES, some_items, reopen_killed),
    ]
}

fn small(life: &mut Life) -> Option<usize> {
    Some(life.random.random_range(100..1800))
}

fn some_items(life: &mut Life) -> Result<()> {
    for at in 0..32 {
        let length = small(life);
        life.commit(Stream::Data, &[(&format!("old/{at:03}"), length)])?;
    }
    life.checkpoint()
}

fn commits(life: &mut Life) -> Result<()> {
    for round in 0..6 {
        let length = small(life);
        let stream = if round % 2 == 0 {
            Stream::Data
        } else {
            Stream::ShortLived
        };
        life.commit(stream, &[(&format!("key/{}", round % 4), length)])?;
        if round % 3 > 0 {
            life.sync()?;
        }
    }
    life.sync()
}

/// Each group is two batches or three: records of one stream, then of the other, with the operations of all.
fn groups(life: &mut Life) -> Result<()> {
    for round in 0..4 {
        for part in 0..3 {
            let length = small(life);
            let stream = if part == 1 {
                Stream::ShortLived
            } else {
                Stream::Data
            };
            let (key, old) = (format!("key/{round}/{part}"), format!("key/{}/{part}", round - 1));
            life.commit(stream, &[(&key, length), (&old, None)])?;
        }
        life.sync()?;
    }
    Ok(())
}

fn large_group(life: &mut Life) -> Result<()> {
    for round in 0..3 {
        for part in 0..6 {
            let length = Some(life.random.random_range(3000..30_000));
            let stream = if part % 2 == 1 {
                Stream::ShortLived
            } else {
                Stream::Data
            };
            life.commit(stream, &[(&format!("key/{}/{part}", round % 2), length)])?;
        }
        life.sync()?;
    }
    Ok(())
}

fn checkpoint(life: &mut Life) -> Result<()> {
    let length = small(life);
    life.commit(Stream::Data, &[("before", length), ("old/003", None)])?;
    life.sync()?;
    life.checkpoint()?;
    let length = small(life);
    life.commit(Stream::Data, &[("after", length), ("before", None)])?;
    life.sync()
}

/// The checkpoint itself makes the waiting group durable.
fn unsynced_checkpoint(life: &mut Life) -> Result<()> {
    for round in 0..3 {
        let (one, other) = (small(life), small(life));
        life.commit(Stream::Data, &[(&format!("old/{round:03}"), one)])?;
        life.commit(Stream::ShortLived, &[(&format!("new/{round}"), other)])?;
        life.checkpoint()?;
    }
    let length = small(life);
    life.commit(Stream::Data, &[("last", length)])?;
    life.sync()
}

/// So many that segments freed by one are written by a later one.
fn many_checkpoints(life: &mut Life) -> Result<()> {
    for round in 0..12 {
        let length = Some(life.random.random_range(20_000..60_000));
        life.commit(
            Stream::Data,
            &[("large", length), (&format!("old/{round:03}"), None)],
        )?;
        if round % 3 == 0 {
            life.sync()?;
        }
        if round % 2 == 0 {
            life.checkpoint()?;
        }
    }
    Ok(())
}

fn datasets(life: &mut Life) -> Result<()> {
    let properties = [("recordsize".to_owned(), "8K".to_owned())];
    let tree = life.pool.create_dataset("second", properties.into())?.tree;
    life.sync()?;
    let length = small(life);
    life.commit_in(tree, Stream::Data, &[("key", length)])?;
    life.sync()?;
    life.pool.set_dataset_properties("second", Default::default())?;
    life.sync()?;
    life.pool.mark_dataset_destroying("second")?;
    life.sync()?;
    assert_eq!(life.pool.dataset("second")?.state, DatasetState::Destroying);
    life.commit_in(tree, Stream::Data, &[("key", None)])?;
    life.checkpoint()?;
    life.pool.remove_dataset("second")?;
    life.sync()?;
    life.pool.create_dataset("third", Default::default())?;
    life.checkpoint()
}

/// The log of one stream reaches the end of its segment, with small batches around the end.
fn segment_end(life: &mut Life) -> Result<()> {
    for _ in 0..3 {
        life.commit(Stream::Data, &[("large", Some(70_000))])?;
    }
    life.sync()?;
    for round in 0..14 {
        let length = Some(life.random.random_range(2000..9000));
        life.commit(Stream::Data, &[(&format!("key/{round}"), length)])?;
        life.sync()?;
    }
    life.checkpoint()
}

/// Overwritten until every segment was used, in a pool where they are few.
fn overwrite(life: &mut Life) -> Result<()> {
    for round in 0..30 {
        let length = Some(life.random.random_range(50_000..110_000));
        let stream = if round % 3 == 0 {
            Stream::ShortLived
        } else {
            Stream::Data
        };
        life.commit(stream, &[(&format!("large/{}", round % 5), length)])?;
        match round % 8 {
            1 | 5 => life.sync()?,
            3 => life.step(BackgroundWork::Checkpoint)?,
            7 => life.checkpoint()?,
            _ => {}
        }
    }
    life.sync()
}

/// Segments in which little is live any more.
fn mostly_dead(life: &mut Life) -> Result<()> {
    let mut large = 0;
    // Some rounds draw lengths that do not all fit.
    while large < 32 && life.commit_if_room(Stream::Data, &[(&format!("large/{large:02}"), Some(50_000))])? {
        let length = small(life);
        life.commit_if_room(Stream::Data, &[(&format!("kept/{large:02}"), length)])?;
        large += 1;
    }
    life.checkpoint()?;
    for at in (0..large).filter(|at| at % 5 > 0) {
        life.commit(Stream::Data, &[(&format!("large/{at:02}"), None)])?;
    }
    life.checkpoint()
}

fn cleaning(life: &mut Life) -> Result<()> {
    for round in 0..8 {
        let length = small(life);
        life.commit(Stream::Data, &[(&format!("kept/{round:02}"), length)])?;
        life.step(BackgroundWork::Clean)?;
        if round % 2 == 1 {
            life.sync()?;
        }
        life.step(BackgroundWork::Checkpoint)?;
    }
    life.checkpoint()
}

fn nearly_full(life: &mut Life) -> Result<()> {
    let mut at = 0;
    while life.commit_if_room(Stream::Data, &[(&format!("large/{at:03}"), Some(90_000))])? {
        at += 1;
        assert!(at < 1000, "a pool that is never full");
    }
    life.checkpoint()
}

/// The first commit that finds no room ends the filling: making room in vain takes hundreds of writes.
fn full(life: &mut Life) -> Result<()> {
    for part in 0..8 {
        let length = Some(life.random.random_range(500..40_000));
        if !life.commit_if_room(Stream::Data, &[(&format!("more/{part}"), length)])? {
            break;
        }
        life.sync()?;
    }
    for round in 0..4 {
        life.commit(Stream::Data, &[(&format!("large/{:03}", round * 3), None)])?;
        life.sync()?;
    }
    let length = small(life);
    life.commit(Stream::Data, &[("more/1", length)])?;
    life.checkpoint()
}

/// Full, and every segment has some that is dead.
fn scattered_and_full(life: &mut Life) -> Result<()> {
    nearly_full(life)?;
    for at in (0..24).step_by(3) {
        let key = format!("large/{at:03}");
        life.commit(Stream::Data, &[(&key, None)])?;
    }
    life.checkpoint()
}

/// Commits for which room must be made first: the committer cleans.
fn clean_when_full(life: &mut Life) -> Result<()> {
    for round in 0..4 {
        life.commit_if_room(Stream::Data, &[(&format!("new/{round}"), Some(60_000))])?;
        let little = small(life);
        life.commit(Stream::Data, &[(&format!("large/{:03}", round * 3 + 1), little)])?;
        life.sync()?;
        life.step(BackgroundWork::Clean)?;
    }
    life.checkpoint()
}

fn reopen(life: &mut Life) -> Result<()> {
    let length = small(life);
    life.commit(Stream::Data, &[("first", length)])?;
    life.reopen(true)?;
    let length = small(life);
    life.commit(Stream::Data, &[("second", length), ("first", None)])?;
    life.sync()
}

/// The program dies with a group half written, and its successor goes on in the same place.
fn reopen_killed(life: &mut Life) -> Result<()> {
    for round in 0..3 {
        let (one, other) = (small(life), small(life));
        life.commit(Stream::ShortLived, &[(&format!("a/{round}"), one)])?;
        life.sync()?;
        life.commit(Stream::Data, &[(&format!("b/{round}"), other)])?;
        life.step(BackgroundWork::Flush)?;
        life.reopen(false)?;
    }
    let length = small(life);
    life.commit(Stream::Data, &[("last", length)])?;
    life.sync()
}
