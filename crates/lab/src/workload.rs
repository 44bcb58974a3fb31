//! Workloads: what is run on every arm.

use anyhow::Result;

use crate::turn::Turn;

/// A workload with its parameters, read from the experiment's `[workload]` table.
pub trait Workload {
    /// Whether everything it needs is there (programs, input files); the error says how to get what is missing.
    fn check(&self) -> Result<()>;
    /// Bytes of storage that one turn needs, roughly.
    fn storage_bytes(&self) -> u64;
    /// Names that an arm's `settings` may have for this workload; any other is a mistake.
    fn arm_settings(&self) -> &'static [&'static str] {
        &[]
    }
    /// One turn: prepares, warms up, measures its phases. Stops what it started, also when it fails.
    fn run(&self, turn: &mut dyn Turn) -> Result<()>;
}
