//! Workloads: what is run on every arm.

mod command;

use anyhow::{Result, bail};

use crate::turn::Turn;

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
    /// One turn: prepares, warms up, measures its phases. Stops what it started, also when it fails.
    fn run(&self, turn: &mut dyn Turn) -> Result<()>;
}

/// The workload that the table's `kind` names, with the table's other keys as its parameters.
pub fn from_table(table: &toml::Table) -> Result<Box<dyn Workload>> {
    match table.get("kind").and_then(toml::Value::as_str) {
        Some("command") => command::from_table(table),
        Some(other) => bail!("kind = \"{other}\" is unknown: choose \"command\""),
        None => bail!("kind is missing"),
    }
}
