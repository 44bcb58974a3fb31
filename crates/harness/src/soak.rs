//! `make soak`: power cuts under PostgreSQL for as long as one likes, with a line for each and a summary.
//!
//! The pool's member is lossy unless told otherwise. A run ends after the wanted number of cycles or seconds, whichever
//! is reached last, or with the first difference; what was found and the seed are then in the error.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use crate::packstone::Member;
use crate::power_cuts::{Cycle, Rig, Victims};
use crate::render;
use crate::requirements;

/// Every so many cycles the pool is checked as the cut left it, and everything once more after a clean end.
const CHECK_EVERY: u64 = 10;

/// How long and where.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Power cuts at least
    #[arg(long, env = "SOAK_CYCLES", default_value_t = 50)]
    pub cycles: u64,
    /// Seconds at least
    #[arg(long, env = "SOAK_SECONDS", default_value_t = 0)]
    pub seconds: u64,
    /// Repeats what is done and when; drawn from the clock when left out
    #[arg(long, env = "SOAK_SEED")]
    pub seed: Option<u64>,
    /// Directory in which a scratch directory with the pool's file is made
    #[arg(long, env = "SOAK_DIR", default_value = "/var/tmp")]
    pub directory: PathBuf,
    /// Size of the pool's file
    #[arg(long, default_value = "2G")]
    pub size: String,
    /// A member that loses nothing when only the daemon dies
    #[arg(long)]
    pub plain: bool,
    /// Print the summary, and nothing else, as JSON
    #[arg(long)]
    pub json: bool,
}

/// What a run amounts to.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    seed: u64,
    lossy_member: bool,
    passed: bool,
    cycles: usize,
    daemon_kills: u64,
    server_kills: u64,
    cuts_in_mounts: usize,
    cuts_in_starts: usize,
    transactions: usize,
    adopted: usize,
    bulk_steps: u64,
    checks: usize,
    seconds: f64,
    /// The first difference, with what was found.
    failure: Option<String>,
}

/// Runs it; the result is false when something was lost.
pub fn run(options: &Options) -> Result<bool> {
    if let Some(reason) = requirements::missing_for_mounts().or_else(requirements::missing_for_postgres) {
        bail!("the soak cannot run: {reason}");
    }
    let seed = options.seed.unwrap_or_else(clock_seed);
    let say = |line: String| {
        if !options.json {
            println!("{line}");
        }
    };
    say(format!("seed {seed} (SOAK_SEED={seed} repeats the plan)"));
    let start = Instant::now();
    let member = match options.plain {
        true => Member::Plain,
        // Every other seed has a member that lets some unflushed sectors through.
        false => Member::Lossy((seed % 2 == 0).then_some(seed)),
    };
    let mut rig = Rig::new(&options.directory, &options.size, member, seed)?;
    rig.cleanup().on_signals()?;
    let cleanup = rig.cleanup().clone();
    let mut cycles = Vec::new();
    let mut failure = None;
    while failure.is_none()
        && ((cycles.len() as u64) < options.cycles || start.elapsed().as_secs() < options.seconds)
    {
        match rig.cycle((cycles.len() as u64 + 1) % CHECK_EVERY == 0) {
            Ok(cycle) => {
                say(line(&cycle));
                cycles.push(cycle);
            }
            Err(error) => failure = Some(format!("{error:#}")),
        }
    }
    if failure.is_none() {
        failure = rig.finish().err().map(|error| format!("at the end: {error:#}"));
    }
    cleanup.run();
    let summary = Summary {
        failure,
        ..sum_up(&cycles, seed, member, start.elapsed().as_secs_f64())
    };
    let passed = summary.failure.is_none();
    let summary = Summary { passed, ..summary };
    match options.json {
        true => println!("{}", serde_json::to_string_pretty(&summary)?),
        false => print(&summary),
    }
    Ok(passed)
}

fn clock_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |time| time.as_nanos() as u64)
}

fn line(cycle: &Cycle) -> String {
    let plan = &cycle.plan;
    let mut what = match plan.victims {
        Victims::Server => "server".to_owned(),
        Victims::DaemonThenServer => format!("daemon, {} ms, server", plan.gap_ms),
        Victims::ServerThenDaemon => format!("server, {} ms, daemon", plan.gap_ms),
        Victims::Both => "both".to_owned(),
    };
    if let Some(after_ms) = plan.cut_mount_after_ms {
        what.push_str(&format!("; again {after_ms} ms into the mount"));
    }
    if let Some(after_ms) = plan.cut_start_after_ms {
        what.push_str(&format!("; again {after_ms} ms into the start"));
    }
    let checked = if cycle.checked { ", checked" } else { "" };
    format!(
        "cycle {:>4}  {:>5} ms of load, {} transactions (+{} under way), {} bulk steps; killed: {what}{checked} ({:.1} s)",
        cycle.number, plan.load_ms, cycle.transactions, cycle.adopted, cycle.bulk_steps, cycle.seconds
    )
}

fn sum_up(cycles: &[Cycle], seed: u64, member: Member, seconds: f64) -> Summary {
    Summary {
        seed,
        lossy_member: member != Member::Plain,
        passed: false,
        cycles: cycles.len(),
        daemon_kills: cycles.iter().map(|cycle| cycle.daemon_kills).sum(),
        server_kills: cycles.iter().map(|cycle| cycle.server_kills).sum(),
        cuts_in_mounts: cycles
            .iter()
            .filter(|cycle| cycle.plan.cut_mount_after_ms.is_some())
            .count(),
        cuts_in_starts: cycles
            .iter()
            .filter(|cycle| cycle.plan.cut_start_after_ms.is_some())
            .count(),
        transactions: cycles.iter().map(|cycle| cycle.transactions).sum(),
        adopted: cycles.iter().map(|cycle| cycle.adopted).sum(),
        bulk_steps: cycles.iter().map(|cycle| cycle.bulk_steps).sum(),
        checks: cycles.iter().filter(|cycle| cycle.checked).count(),
        seconds,
        failure: None,
    }
}

fn print(summary: &Summary) {
    let member = if summary.lossy_member { "lossy" } else { "plain" };
    println!(
        "soak: {} cycles on a {member} member in {:.0} s, seed {}: {} daemon kills ({} into a mount), {} server kills \
         ({} into a start), {} transactions and {} bulk steps acknowledged, {} checks",
        summary.cycles,
        summary.seconds,
        summary.seed,
        summary.daemon_kills,
        summary.cuts_in_mounts,
        summary.server_kills,
        summary.cuts_in_starts,
        render::count(summary.transactions as u64),
        render::count(summary.bulk_steps),
        summary.checks
    );
    match &summary.failure {
        None => println!("soak: nothing acknowledged was lost"),
        Some(failure) => println!("soak: FAILED, SOAK_SEED={}\n{failure}", summary.seed),
    }
}
