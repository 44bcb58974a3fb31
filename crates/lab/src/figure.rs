//! What a turn yields: named numbers with a unit and a direction.

use serde::{Deserialize, Serialize};

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Such as throughput.
    Higher,
    /// Such as time and bytes.
    Lower,
    /// Says nothing about good and bad, such as the number of operations.
    Neither,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Operations, transactions or items in a second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    BytesPerSecond,
    /// Plain numbers.
    Count,
    /// A proportion, 1 being all.
    Ratio,
}

/// One number of one turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Part of the workload it belongs to, such as `load` or `8 clients`; empty for the whole turn.
    pub phase: String,
    /// What it is, such as `throughput` or `device bytes written per operation`.
    pub name: String,
    /// What is counted.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// The number.
    pub value: f64,
}

/// Latencies of one phase of one turn: how many operations took at most how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Phase as in [`Figure::phase`].
    pub phase: String,
    /// What took the time, such as `transaction`.
    pub name: String,
    /// Whether times count from the intended start (open loop, at a rate) or from the real one.
    pub from_intended_start: bool,
    /// Pairs of seconds and the share of operations that took at most so long, rising; at most some 200.
    pub points: Vec<(f64, f64)>,
}

/// A number over time within a phase, such as the throughput of each second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Phase as in [`Figure::phase`].
    pub phase: String,
    /// What it is.
    pub name: String,
    /// What is counted.
    pub unit: Unit,
    /// Pairs of seconds since the phase began and the number.
    pub points: Vec<(f64, f64)>,
}

/// Everything that one turn yielded; what the journal keeps and the analysis reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnResult {
    /// Name of the arm.
    pub arm: String,
    /// Number of the round, from 0; turns of the A/A pair that sets the noise floor have none.
    pub round: Option<u32>,
    /// Position within the round (A B B A: 0 to 3) or within the A/A pair (0, 1).
    pub position: u32,
    /// When the turn began, seconds since 1970.
    pub started_unix_seconds: u64,
    /// Its numbers.
    pub figures: Vec<Figure>,
    /// Its latencies.
    pub distributions: Vec<Distribution>,
    /// Its numbers over time.
    pub series: Vec<Series>,
    /// Flame graphs made in this turn: phase, which process, and the file relative to the run's directory.
    pub flame_graphs: Vec<FlameGraph>,
    /// What a reader should know, such as "the page cache could not be dropped".
    pub notes: Vec<String>,
}

/// A flame graph kept as a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlameGraph {
    /// Phase as in [`Figure::phase`].
    pub phase: String,
    /// `server`, `daemon` or `kernel`.
    pub process: String,
    /// File name relative to the run's directory.
    pub file: String,
}
