//! `packstone check --repair`: check, say what will be done, do it, check again.
//!
//! The pool is opened for reading only and written to only when there is something to mend, so a healthy pool is not touched.
//! What one round mends may show more (a dataset whose names are sound again tells which records nobody wants), so rounds
//! go on until there is nothing left to do. Each is crash-safe: it can be run again.

use super::{Checked, check};
use crate::lock::{LockMode, PoolLock};
use crate::names::PoolName;
use crate::open_pool::OpenPool;
use crate::operations;
use crate::state::StateDirectory;
use anyhow::Context;
use packstone_pool::DatasetState;
use std::time::Duration;

/// Rounds of check and repair.
const ROUNDS_MAX: usize = 4;

/// Repairs and returns the last check, with everything that was done.
pub fn run(state: &StateDirectory, name: &PoolName) -> anyhow::Result<Checked> {
    let context = || format!("repair pool '{name}' (a pool is repaired while no daemon has it open)");
    let entry = state.entry(name)?;
    let mut lock =
        PoolLock::acquire(state, name, LockMode::Exclusive, Duration::from_secs(2)).with_context(context)?;
    let mut done = Vec::new();
    for round in 0.. {
        let open = OpenPool::open_unwritten(lock, name, &entry).with_context(context)?;
        let mut checked = check(&open)?;
        if (checked.repairs.is_empty() && checked.reclaims.is_empty()) || round == ROUNDS_MAX {
            if !done.is_empty() {
                (checked.repairs, checked.repaired) = (done, true);
            }
            return Ok(checked);
        }
        let intended = checked.repairs.iter().chain(&checked.reclaims);
        intended.for_each(|line| eprintln!("repairing: {line}"));
        done.extend(apply(&open, &checked).with_context(context)?);
        open.pool.close().with_context(context)?;
        lock = open.into_lock();
    }
    unreachable!("the loop ends with its last round")
}

fn apply(open: &OpenPool, checked: &Checked) -> anyhow::Result<Vec<String>> {
    checked.pool_repair.apply(&open.pool)?;
    let mut done = checked.pool_repair.lines.clone();
    for dataset in open.pool.datasets()? {
        if dataset.state != DatasetState::Active {
            continue;
        }
        let name = format!("{}/{}", open.name, dataset.name);
        let lines = packstone_fs::repair(&open.pool, &dataset.name, &operations::caller_now())
            .with_context(|| format!("repair {name}"))?;
        done.extend(lines.iter().map(|line| format!("{name}: {line}")));
    }
    Ok(done)
}
