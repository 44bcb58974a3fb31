//! What a workload gets to work with during one turn.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::figure::{Better, Distribution, Series, Unit};
use crate::scratch::Cleanup;

/// How many bytes something takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredBytes {
    /// Length of the files, as programs see it.
    pub logical_bytes: u64,
    /// What is stored of them: allocated blocks, or for a pool packed records with their index.
    pub stored_bytes: u64,
}

/// Storage of one arm, freshly made for this turn.
pub trait Place {
    /// An empty directory on the storage; belongs to root.
    fn directory(&self) -> &Path;
    /// The arm's `settings` table for the workload, such as `full_page_writes = "off"`.
    fn setting(&self, name: &str) -> Option<&str>;
    /// Processes that serve the storage in user space, such as a pool's daemon; empty for kernel file systems.
    fn daemon_pids(&self) -> Vec<i32>;
    /// Unmounts and mounts again and drops the kernel's caches, so that the next read comes from the device. Nothing may
    /// use the directory meanwhile. Returns a note when it could not be done fully.
    fn make_cold(&mut self) -> Result<Option<String>>;
    /// What the files below `directory()` take, after everything has been written out.
    fn stored_bytes(&self) -> Result<StoredBytes>;
    /// Writes everything out: `sync`, and for a pool a checkpoint where it has such a thing.
    fn settle(&self) -> Result<()>;
}

/// Which processes a phase is about.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// Root processes of the program under test, such as the PostgreSQL postmaster; their descendants count too.
    pub server_pids: Vec<i32>,
}

/// Work done by a phase, which the meters divide their totals by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// How many operations (transactions, items, messages); 0 when there is nothing to divide by.
    pub operations: u64,
    /// What one is called, such as `transaction`.
    pub operation: &'static str,
}

/// One turn, as the workload sees it.
pub trait Turn {
    /// The storage.
    fn place(&mut self) -> &mut dyn Place;
    /// A scratch directory off the measured storage, for sockets, logs and inputs; kept until the run ends.
    fn scratch(&self) -> &Path;
    /// The same seed for the same position of every arm of one round.
    fn seed(&self) -> u64;
    /// Says on the progress line what is happening.
    fn say(&mut self, what: &str);
    /// Runs `work` as the phase `phase` under all meters (device bytes and operations, CPU seconds of server and daemon,
    /// peak memory, flushes, time) and records their figures, in total and for each operation. Includes the writing out
    /// of what the phase left behind when `settled` is true. A profile for the flame graphs is taken when asked for.
    fn measure(
        &mut self,
        phase: &str,
        processes: &Processes,
        settled: bool,
        work: &mut dyn FnMut() -> Result<Work>,
    ) -> Result<Duration>;
    /// Records a number.
    fn record(&mut self, phase: &str, name: &str, unit: Unit, better: Better, value: f64);
    /// Records latencies.
    fn record_distribution(&mut self, distribution: Distribution);
    /// Records a number over time.
    fn record_series(&mut self, series: Series);
    /// Tells readers of the report something once.
    fn note(&mut self, note: &str);
    /// Steps that run when the run is interrupted, before the storage is taken down. A workload adds steps that end what
    /// it has started, because its own clean-up does not run then. The steps may run when that has ended already.
    fn cleanup(&self) -> Option<&Cleanup> {
        None
    }
}
