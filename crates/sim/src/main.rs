//! `packstone-sim`: what `make sim` and the explorations of crash states run. See the library for its parts.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use packstone_sim::{exhaustive, world};

#[derive(Parser)]
#[command(about = "Deterministic simulation of Packstone's pool and file system over a device that fails")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Random lives from seeds, compared with a model
    Run(world::Options),
    /// Every crash point of short scripts, with every subset of what was not flushed
    Exhaustive(exhaustive::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Run(options) => world::run(&options),
        Command::Exhaustive(options) => exhaustive::run(&options),
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
