//! Makes a PostgreSQL cluster whose settings suit a Packstone dataset.
//!
//! Layout under the mountpoint:
//!
//! | path | holds |
//! |---|---|
//! | `data` | the data directory (PGDATA); a mountpoint itself should not be one, lest the server start on an empty directory when nothing is mounted |
//! | `log` | what `pg_ctl` and the server log |
//!
//! The cluster is the user's from then on: nothing here runs or watches it.

mod cluster;
mod programs;
mod settings;

pub use cluster::{ClusterOptions, Owner, make};
pub use programs::find;
