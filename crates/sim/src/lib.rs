//! Whole lives of a pool and its files, driven from one seed over a device that crashes and fails.
//!
//! ```text
//!   world       random life: clients, background work, faults, crashes; compared with a model that knows what was promised
//!   exhaustive  short scripts: a crash at every call of the device, and every subset of what was not yet flushed
//! ```
//!
//! Nothing here is published or linked into the product. Nothing here reads a clock to decide anything: the same seed
//! gives the same life.

pub mod exhaustive;
pub mod world;
