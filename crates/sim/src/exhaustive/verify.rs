//! What must hold of a crashed device: it opens, holds a state that is allowed, its books balance, and life goes on.
//!
//! | | how often |
//! |---|---|
//! | opens; everything in it equals one allowed state, byte for byte | always |
//! | a commit or a file more, durable | always |
//! | every node, record and segment checked; files checked | the first of each point, and one in 16 |
//! | once more after losing what the further life did not sync | with these |
//! | crashes during the recovery, each opened and compared | the first of every fourth point, and one in 128 |

use super::life::{self, DATASET};
use super::observe::{self, Content};
use super::recorder::{Point, Recorder, Trace};
use super::variants::{Variants, crashed};
use anyhow::{Context, Result, bail, ensure};
use packstone_fs::{FileKind, Ino, Timestamp, check as check_files};
use packstone_media::{Media, SimulatedMedia};
use packstone_pool::{Compression, DatasetState, PackedRecord, Pool, Stream, check as check_pool};
use std::sync::Arc;

/// How thoroughly to look.
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    /// Check everything, and crash once more afterwards.
    pub full: bool,
    /// Crash during recovery.
    pub recovery: bool,
}

/// What was found.
pub struct Verified {
    /// Number of the state that the device holds.
    pub state: usize,
    /// Crash states tried during its recovery.
    pub recovery_states: u64,
}

/// Looks at a crashed device.
pub fn verify(
    device: SimulatedMedia,
    point: &Point,
    states: &[Arc<Vec<u8>>],
    content: Content,
    depth: Depth,
) -> Result<Verified> {
    let recovery = depth.recovery.then(|| device.fork());
    let device = Arc::new(device);
    let pool = life::open(device.clone()).context("the pool does not open")?;
    let found = observe::render(&pool, content).context("the recovered pool cannot be read")?;
    let state = find_state(&found, point, states)?;
    if depth.full {
        check(&pool, content).context("check")?;
    }
    go_on(&pool, content).context("life does not go on")?;
    if depth.full {
        let before = observe::render(&pool, content)?;
        drop(pool);
        device.crash_losing_all();
        let pool = life::open(device).context("the pool does not open a second time")?;
        let after = observe::render(&pool, content)?;
        ensure!(before == after, "what was synced after the recovery is not there");
        check(&pool, content).context("check after the second opening")?;
    }
    let recovery_states = match recovery {
        Some(device) => crash_recovery(device, &found, content).context("crash during recovery")?,
        None => 0,
    };
    Ok(Verified {
        state,
        recovery_states,
    })
}

/// The newest allowed state that equals what was found.
fn find_state(found: &[u8], point: &Point, states: &[Arc<Vec<u8>>]) -> Result<usize> {
    let allowed = point.acknowledged..=point.newest;
    if let Some(state) = allowed.clone().rev().find(|state| *states[*state] == found) {
        return Ok(state);
    }
    match states.iter().position(|state| **state == found) {
        Some(state) if state < point.acknowledged => bail!(
            "acknowledged data is lost: found state {state}, where {} is acknowledged and {} the newest",
            point.acknowledged,
            point.newest
        ),
        Some(state) => bail!(
            "found state {state}, which does not exist yet at {}",
            point.newest
        ),
        None => bail!(
            "what was found is none of the states {} to {}",
            point.acknowledged,
            point.newest
        ),
    }
}

fn check(pool: &Arc<Pool>, content: Content) -> Result<()> {
    let report = check_pool(pool, &mut |_, _| {})?;
    ensure!(report.problems.is_empty(), "{}", report.problems.join("; "));
    if content == Content::Records {
        return Ok(());
    }
    let mut references = Vec::new();
    for dataset in pool.datasets()? {
        if dataset.state != DatasetState::Active {
            // Half emptied; what it owns is as many records as it counts.
            let owned = pool.tree_usage(dataset.tree).records as usize;
            ensure!(
                owned == report.records.len(),
                "{owned} records are counted, {} are there",
                report.records.len()
            );
            return Ok(());
        }
        let files = check_files(pool, &dataset.name, &mut |_, _| {})?;
        ensure!(files.problems.is_empty(), "{}", files.problems.join("; "));
        references.extend(files.references);
    }
    references.sort_unstable();
    ensure!(
        references == report.records,
        "records without a file, or the other way round: {} are referenced, {} are there",
        references.len(),
        report.records.len()
    );
    Ok(())
}

/// A little more life, synced.
fn go_on(pool: &Arc<Pool>, content: Content) -> Result<()> {
    let is_active = |dataset: &packstone_pool::Dataset| dataset.state == DatasetState::Active;
    let dataset = pool.dataset(DATASET).ok().filter(is_active);
    match (content, dataset) {
        (Content::Files, Some(_)) => go_on_with_files(pool),
        (_, Some(dataset)) => go_on_with_records(pool, dataset.tree),
        (_, None) => {
            // It is being destroyed, or gone.
            while pool.dataset(DATASET).is_ok() && packstone_fs::destroy_step(pool, DATASET)? {}
            let tree = pool.create_dataset(DATASET, Default::default())?.tree;
            match content {
                Content::Files => go_on_with_files(pool),
                Content::Records => go_on_with_records(pool, tree),
            }
        }
    }
}

fn go_on_with_records(pool: &Pool, tree: packstone_pool::TreeId) -> Result<()> {
    let mut transaction = pool.begin();
    let content = [9; 700];
    let record = PackedRecord::pack(&content, Compression::default());
    let id = transaction.store(tree, Stream::Data, record);
    transaction.put(tree, b"~after the crash", &id.0.to_le_bytes());
    // A full pool takes what makes room.
    transaction.may_use_reserve();
    pool.sync(pool.commit(transaction)?)?;
    ensure!(
        pool.read_records(&[id])?[0][..] == content,
        "a new record reads as something else"
    );
    Ok(())
}

fn go_on_with_files(pool: &Arc<Pool>) -> Result<()> {
    let fs = life::mount(pool)?;
    let now = life::caller(10_000);
    let mut steps = 0;
    while fs.step(Timestamp {
        seconds: 20_000,
        nanoseconds: 0,
    })? {
        steps += 1;
        ensure!(steps < 10_000, "background work does not end");
    }
    let ino = fs
        .create(&now, Ino::ROOT, b"after the crash", FileKind::Regular, 0o600, 0)?
        .ino;
    fs.write(&now, ino, 0, &[9; 5_000], false)?;
    fs.sync_file(ino, false)?;
    let mut data = Vec::new();
    fs.read(&now, ino, 0, 10_000, &mut data)?;
    ensure!(data == [9; 5_000], "a new file reads as something else");
    fs.close()?;
    Ok(())
}

/// Crashes at every change that recovery makes. Recovery changes nothing that it reads, so the state must be the same.
fn crash_recovery(device: SimulatedMedia, found: &[u8], content: Content) -> Result<u64> {
    /// Sampled at each point where not all are few.
    const VARIANTS_MAX: u64 = 6;
    let device = Arc::new(device);
    let trace = Arc::new(Trace::default());
    trace.start_without_states();
    let member: Arc<dyn Media> = Arc::new(Recorder {
        device: device.clone(),
        trace: trace.clone(),
    });
    drop(life::open(member)?);
    let points = trace.finish(&device).points;
    let mut tried = 0;
    for (number, point) in points.iter().enumerate() {
        let variants = Variants::of(&point.device, number as u64);
        let count = variants.count(VARIANTS_MAX);
        // All lost, all kept, and some between.
        let stride = (count / VARIANTS_MAX).max(1) as usize;
        for variant in (0..count).step_by(stride) {
            let again = || -> Result<()> {
                let pool = life::open(Arc::new(crashed(&point.device, &variants.fates(variant))))
                    .context("the pool does not open")?;
                let after = observe::render(&pool, content)?;
                ensure!(after == found, "another state than without the crash");
                if variant == 0 {
                    check(&pool, content)?;
                }
                Ok(())
            };
            again().with_context(|| format!("at change {number} of the recovery, variant {variant}"))?;
            tried += 1;
        }
    }
    Ok(tried)
}
