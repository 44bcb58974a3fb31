//! The lab: one workload on several kinds of storage, in turns, and a report of what differs.
//!
//! ```text
//!  experiment ─► runner ─► rounds A B B A ─► arm (fresh storage) ─► workload ─► figures ─► journal ─► analysis ─► report
//! ```
//!
//! An *arm* is one kind of storage, one of them the *control*. A *turn* is one run of the workload on one arm, from
//! freshly made storage. A turn yields *figures*; the analysis compares the figures of the arms.

pub mod analysis;
pub mod cluster;
mod confinement;
pub mod events;
pub mod experiment;
pub mod figure;
pub mod flame;
pub mod interrupt;
mod invoke;
pub mod latencies;
mod machine;
mod meter;
mod place;
pub mod postgres_server;
mod probe;
pub mod process;
pub mod report;
pub mod requirements;
pub mod run_information;
pub mod runner;
pub mod scratch;
pub mod supervised;
pub mod turn;
pub mod workload;

#[cfg(test)]
mod sample;
