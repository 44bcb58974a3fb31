//! The benchmark: pgbench on an ext4 directory and on Packstone, on the same disk, in turns A B B A.
//!
//! One turn loads pgbench's tables anew, runs it with one and with eight clients, reads with eight, and scans the largest
//! table with cold caches. Turns alternate because a machine's speed drifts; the middle of each arm's turns is reported.
//! A benchmark reports times and never asserts one.
//!
//! Leaves out: comparison with other file systems, which have their own place.

mod arm;
mod meter;
mod report;
mod turn;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use crate::requirements;
use crate::scratch::{self, Cleanup};
use arm::{Arm, Kind};

/// What to measure and where.
#[derive(Args, Clone, Debug, Serialize)]
pub struct Options {
    /// Directory on the disk to measure; both arms lie in it
    #[arg(long, env = "BENCH_DIR", default_value = "/var/tmp")]
    pub directory: PathBuf,
    /// pgbench scale: 100,000 accounts each
    #[arg(long, default_value_t = 50)]
    pub scale: u32,
    /// Length of each timed run
    #[arg(long, default_value_t = 20)]
    pub seconds: u32,
    /// Rounds of four turns: directory, Packstone, Packstone, directory
    #[arg(long, default_value_t = 1)]
    pub rounds: u32,
    /// Size of the pool's file
    #[arg(long, default_value = "12G")]
    pub pool_size: String,
    /// Only this arm: directory or packstone
    #[arg(long)]
    pub only: Option<String>,
    /// Where the figures are written as JSON
    #[arg(long, default_value = "target/bench/result.json")]
    pub output: PathBuf,
}

/// Measures and reports.
pub fn run(options: &Options) -> Result<()> {
    if let Some(reason) = requirements::missing_for_postgres() {
        bail!("the benchmark cannot run: {reason}");
    }
    let cleanup = Cleanup::new();
    cleanup.on_signals()?;
    let outcome = measure(options, &cleanup);
    cleanup.run();
    let turns = outcome?;
    report::print(&turns);
    report::write(options, &turns)
}

fn measure(options: &Options, cleanup: &Cleanup) -> Result<Vec<turn::Turn>> {
    let home = scratch::directory(&options.directory, "packstone-bench-", cleanup)?;
    let mut arms = Vec::new();
    for kind in [Kind::Directory, Kind::Packstone] {
        if options.only.as_deref().is_none_or(|only| only == kind.name()) {
            arms.push(Arm::set_up(kind, &home, options, cleanup)?);
        }
    }
    let mut turns = Vec::new();
    for index in turn_order(arms.len(), options.rounds) {
        println!("- turn {}: {}", turns.len() + 1, arms[index].kind().name());
        turns.push(turn::run(&mut arms[index], options)?);
    }
    Ok(turns)
}

/// A B B A for two arms, so that a steady drift of the machine's speed falls on both alike.
fn turn_order(arms: usize, rounds: u32) -> Vec<usize> {
    let round: Vec<usize> = (0..arms).chain((0..arms).rev()).collect();
    round.repeat(rounds as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_there_and_back() {
        assert_eq!(turn_order(2, 2), [0, 1, 1, 0, 0, 1, 1, 0]);
        assert_eq!(turn_order(1, 1), [0, 0]);
        assert!(turn_order(0, 3).is_empty());
    }
}
