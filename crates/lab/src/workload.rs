//! Workloads: what is run on every arm.
//!
//! | kind | does | in |
//! |---|---|---|
//! | `pgbench` | PostgreSQL's own benchmark: load, timed runs, scans | `workload/pgbench.rs` |
//! | `pg-load` | COPY of events or of a file of JSON, then indexes | `workload/pg_load.rs` |
//! | `events` | inserts of jsonb events, single and in batches, under many partial indexes | `workload/event_inserts.rs` |
//! | `scan` | a table read in order and by index, cold and warm | `workload/scan.rs` |
//! | `fio` | jobs of fio | `workload/fio.rs` |
//! | `files` | many small files, as a mail server has them | `workload/files.rs` |
//! | `kv` | the pool's trees and other embedded stores | `workload/kv.rs` |
//! | `command` | a user's own program | `workload/command.rs` |
//!
//! Invariant: a workload gives the same input for the same seed on every arm.

mod command;
mod event_inserts;
mod files;
mod fio;
mod kv;
mod pg_load;
mod pgbench;
mod scan;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;

use crate::figure::{Better, Unit};
use crate::turn::{Processes, Turn};

/// A workload with its parameters, read from the experiment's `[workload]` table.
pub trait Workload {
    /// Whether everything it needs is there (programs, input files); the error says how to get what is missing.
    fn check(&self) -> Result<()>;
    /// Bytes of storage that one turn needs, roughly.
    fn storage_bytes(&self) -> u64;
    /// Seconds that one turn takes, roughly, where that can be known before.
    fn expected_seconds(&self) -> Option<u64> {
        None
    }
    /// Names that an arm's `settings` may have for this workload; any other is a mistake.
    fn arm_settings(&self) -> &'static [&'static str] {
        &[]
    }
    /// One turn: prepares, warms up, measures its phases. Stops what it started, also when it fails.
    fn run(&self, turn: &mut dyn Turn) -> Result<()>;
}

/// Makes a workload of its parameters.
type Make = fn(toml::Table) -> Result<Box<dyn Workload>>;

const KINDS: [(&str, Make); 8] = [
    ("pgbench", read::<pgbench::Pgbench>),
    ("pg-load", read::<pg_load::PgLoad>),
    ("events", read::<event_inserts::EventInserts>),
    ("scan", read::<scan::Scan>),
    ("fio", read::<fio::Fio>),
    ("files", read::<files::Files>),
    ("kv", read::<kv::KeyValue>),
    ("command", read::<command::UserCommand>),
];

/// The workload that an experiment's `[workload]` table describes: its `kind`, and the parameters of that kind, all of
/// which have defaults unless there can be none.
///
/// # Errors
/// A kind or parameter that is not known (the error lists the known ones), or a value that makes no sense.
pub fn from_table(table: &toml::Table) -> Result<Box<dyn Workload>> {
    let known = || KINDS.map(|(name, _)| name).join(", ");
    let mut parameters = table.clone();
    let kind = match parameters.remove("kind") {
        Some(toml::Value::String(kind)) => kind,
        Some(_) => bail!("the workload's 'kind' has to be a string, one of: {}", known()),
        None => bail!("the workload needs a 'kind', one of: {}", known()),
    };
    let (_, make) = KINDS
        .into_iter()
        .find(|(name, _)| *name == kind)
        .with_context(|| format!("there is no workload '{kind}'; there are: {}", known()))?;
    make(parameters).with_context(|| format!("parameters of the workload '{kind}'"))
}

/// Parameters whose values have limits.
trait Parameters: Workload + DeserializeOwned + 'static {
    /// Says what is wrong with a value.
    fn validate(&self) -> Result<()>;
}

fn read<P: Parameters>(parameters: toml::Table) -> Result<Box<dyn Workload>> {
    let parameters: P = toml::Value::Table(parameters).try_into()?;
    parameters.validate()?;
    Ok(Box::new(parameters))
}

/// Fails unless `value` of the parameter `name` is at least 1.
fn at_least_one(name: &str, value: u64) -> Result<()> {
    if value == 0 {
        bail!("'{name}' has to be at least 1");
    }
    Ok(())
}

/// For workloads that run in this process or as its children: what the meters are to look at.
fn own_processes() -> Processes {
    Processes {
        server_pids: vec![std::process::id() as i32],
    }
}

/// Makes the storage cold, and tells readers when that could not be done fully.
pub(crate) fn make_cold(turn: &mut dyn Turn) -> Result<()> {
    turn.say("emptying caches");
    if let Some(note) = turn.place().make_cold()? {
        turn.note(&note);
    }
    Ok(())
}

/// Records what the files of the place take.
pub(crate) fn record_stored(turn: &mut dyn Turn, phase: &str) -> Result<()> {
    let stored = turn.place().stored_bytes()?;
    for (name, bytes, better) in [
        ("stored bytes", stored.stored_bytes, Better::Lower),
        ("logical bytes", stored.logical_bytes, Better::Neither),
    ] {
        turn.record(phase, name, Unit::Bytes, better, bytes as f64);
    }
    if stored.stored_bytes > 0 {
        let ratio = stored.logical_bytes as f64 / stored.stored_bytes as f64;
        turn.record(
            phase,
            "logical bytes per stored byte",
            Unit::Ratio,
            Better::Higher,
            ratio,
        );
    }
    Ok(())
}

/// Records `operations` done in `seconds` as throughput.
fn record_throughput(turn: &mut dyn Turn, phase: &str, operations: u64, seconds: f64) {
    if seconds > 0.0 {
        let each_second = operations as f64 / seconds;
        turn.record(phase, "throughput", Unit::PerSecond, Better::Higher, each_second);
    }
}
