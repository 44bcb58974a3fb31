//! POSIX files and directories on the trees of a pool.
//!
//! ```text
//!   fuse ──► FileSystem: names, attributes, data, xattrs       cli ──► properties, check, destroy_step
//!                │                                                       │
//!                │ Inode in memory: attributes, one buffered record      │
//!                ▼                                                       ▼
//!            Transaction { records, keys } ──► packstone_pool: one tree and the records of a dataset
//! ```
//!
//! Invariants:
//! - Every operation that changes names or attributes is one transaction; long removals are several, each of which
//!   leaves a file system that makes sense.
//! - What a crash leaves is a prefix of the transactions, so names and data never tell of something that never was.
//! - Nothing that a caller, the kernel, or the media supply makes this crate panic.
//!
//! Left out: permission checks (the kernel does them), locks of flock and fcntl (likewise), quotas, snapshots.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

mod acl;
mod allocate;
mod attributes;
mod cache;
mod check;
mod copy;
mod destroy;
mod directory;
mod error;
mod filesystem;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod inode;
mod layout;
mod locked;
mod names;
mod orphans;
mod properties;
mod read;
mod remove;
mod rename;
mod repair;
mod seek;
mod staged;
mod streams;
mod sync;
mod truncate;
mod types;
mod write;
mod xattrs;

pub use check::{FsCheckReport, check};
pub use destroy::destroy_step;
pub use filesystem::{FileSystem, MountOptions};
pub use properties::{AccessTime, DatasetProperties};
pub use repair::{DamagedRange, name_damage, repair};
pub use types::*;
