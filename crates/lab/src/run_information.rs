//! What a run is about: kept beside its journal, and read with it by the analysis and the report.

use serde::{Deserialize, Serialize};

/// A run as a whole. Written as `run.json` into the run's directory before the first turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInformation {
    /// Name of the experiment.
    pub experiment_name: String,
    /// What it is to find out, in the words of its author.
    pub description: String,
    /// Name of the arm that all others are compared with.
    pub control: String,
    /// All arms, in the order of the experiment; the control is one of them.
    pub arms: Vec<ArmInformation>,
    /// Where it runs.
    pub machine: MachineInformation,
    /// Device profile in words, such as `gp3: 125 MB/s, 3000 operations/s`, and how it is held.
    pub profile: String,
    /// The experiment's `[workload]` table as TOML.
    pub workload: String,
    /// Rounds that were asked for.
    pub rounds: u32,
    /// When the run began, seconds since 1970.
    pub started_unix_seconds: u64,
}

/// One arm, for readers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmInformation {
    /// Its name, as in [`crate::figure::TurnResult::arm`].
    pub name: String,
    /// Kind of storage, such as `packstone` or `ext4`.
    pub kind: String,
    /// Its options in one line, empty when it has none.
    pub summary: String,
}

/// The machine that a run was made on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineInformation {
    /// Name and release of the kernel.
    pub kernel: String,
    /// Processors that this process may use.
    pub processors: u32,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Programs with their versions, such as `("packstone", "0.1.0")`.
    pub program_versions: Vec<(String, String)>,
}
