//! All of `packstone`: the command, and with the hidden `daemon` subcommand the process that has a pool open.
//!
//! ```text
//!  commands/*      one file per command: arguments, help, what it prints
//!     │
//!  access ──┬── control::client ──► control::server ── daemon ──┐     a daemon has the pool
//!           └── open_pool ──────────────────────────────────────┴──► operations ──► packstone_pool, packstone_fs
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `state`, `lock`, `names` | where pools are found, who has one open, what they may be called |
//! | `member`, `foreign`, `mountpoint` | what stands at a path |
//! | `facts`, `output`, `failure` | what is printed: facts, tables, progress, errors and exit codes |
//! | `operations` | what can be done with an open pool |
//! | `pool_properties`, `dataset_properties` | names and values of properties |
//! | `estimate` | what a directory would take, by reading it |
//! | `postgres` | making a PostgreSQL cluster that suits a dataset |
//!
//! Bad input changes nothing: every command checks all it was given before it writes anything.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")
)]

mod access;
mod commands;
mod control;
mod daemon;
mod dataset_properties;
mod estimate;
mod facts;
mod failpoints;
mod failure;
mod foreign;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod lock;
mod member;
mod mountpoint;
mod names;
mod open_pool;
mod operations;
mod output;
mod pool_properties;
mod postgres;
mod state;
mod transport;

use clap::Parser;
use std::process::ExitCode;

/// What the program `packstone` does, from its arguments to its exit code.
pub fn main() -> ExitCode {
    // clap prints help, versions and usage errors itself, and exits with 0 or 2.
    let arguments = commands::Arguments::parse();
    start_log(arguments.command.is_daemon());
    match arguments.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("packstone: {}", failure::describe(&error));
            ExitCode::from(failure::kind_of(&error).exit_code())
        }
    }
}

/// Logs to standard error: the terminal, or the daemon's log file. `RUST_LOG` chooses what.
fn start_log(is_daemon: bool) {
    use tracing_subscriber::EnvFilter;
    let default = if is_daemon { "info" } else { "warn" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false)
        .init();
}
