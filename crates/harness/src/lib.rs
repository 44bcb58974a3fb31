//! Drives a finished Packstone from outside, as a user would: through the `packstone` command, a mount and PostgreSQL.
//!
//! ```text
//! main ──► demo    one million click events on a compressed pool, then a table of sizes
//!     ├──► posix   test suites of others, through the mount
//!     ├──► runner  every test of the workspace, one summary line
//!     ├──► bugs    deliberate bugs in a copy of the sources, and which test catches each
//!     ├──► soak    power cuts under PostgreSQL, as long as told
//!     └──► layout  the rules of house style that a program can check
//! tests/           end-to-end tests: crashes, full pools, life of daemons and mounts
//!
//! below them: fixture (what a test starts with), packstone (the command), ledger and bulk (what clients saw committed),
//!             power_cuts (cycles of load, death and recovery), diagnosis (why something hangs), relations (sizes of tables
//!             and indexes), render
//! from the lab, which needs them too: cluster (a PostgreSQL server), events (generated click events), process, scratch,
//!             requirements
//! ```
//!
//! Invariants:
//! - Nothing here links `pool`, `fs` or `fuse`: what is measured and crashed is the program that users get.
//! - Only processes that this crate started are signalled, and everything it mounts or creates it removes again.
//! - Every pool made here has a state directory of its own, so a user's pools are never touched.

pub mod bugs;
pub mod bulk;
pub mod demo;
pub mod diagnosis;
pub mod fixture;
pub mod layout;
pub mod ledger;
pub mod packstone;
pub mod posix;
pub mod power_cuts;
pub mod relations;
pub mod render;
pub mod runner;
pub mod soak;

pub use packstone_lab::{cluster, events, process, requirements, scratch};
