//! `packstone-harness`: what `make demo`, `make test`, `make check`, `make posix`, `make soak` and `make bugs` run. See
//! the library for its parts.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use packstone_harness::{bugs, demo, layout, posix, runner, soak};

#[derive(Parser)]
#[command(about = "Demonstration, tests and source rules of Packstone")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// PostgreSQL with click events on a compressed pool, and what they take there
    Demo {
        /// Number of events
        #[arg(long, env = "EVENTS", default_value_t = 1_000_000)]
        events: u64,
        /// Directory in which a scratch directory is made
        #[arg(long, env = "DEMO_DIR", default_value = "/var/tmp")]
        directory: PathBuf,
        /// Size of the pool's file
        #[arg(long, default_value = "6G")]
        size: String,
        /// Leave pool, mount and server running (1, true or yes)
        #[arg(long, env = "KEEP", default_value = "0", num_args = 0..=1, default_missing_value = "1")]
        keep: String,
        /// Use a plain directory in place of a pool
        #[arg(long)]
        plain: bool,
    },
    /// Every test of the workspace, with one summary line
    Test {
        /// Arguments for `cargo test` in place of `--workspace`
        #[arg(last = true)]
        cargo_arguments: Vec<String>,
    },
    /// Deliberate bugs, one at a time, and which test catches each
    Bugs(bugs::Options),
    /// Test suites of others through the mount, with ext4 as the control
    Posix(posix::Options),
    /// Power cuts under PostgreSQL on a mount, as long as told
    Soak(soak::Options),
    /// The rules of house style that a program can check
    Layout,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Demo {
            events,
            directory,
            size,
            keep,
            plain,
        } => {
            let keep = matches!(keep.as_str(), "1" | "true" | "yes");
            demo::run(&demo::Options {
                events,
                directory,
                size,
                keep,
                plain,
            })
            .map(|()| true)
        }
        Command::Test { cargo_arguments } => runner::run(&cargo_arguments),
        Command::Bugs(options) => bugs::run(&options),
        Command::Posix(options) => posix::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Layout => layout::run(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
