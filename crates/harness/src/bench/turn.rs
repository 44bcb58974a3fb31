//! One turn of one arm: load, timed runs, sizes, cold scan.

use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;

use super::Options;
use super::arm::{Arm, Kind};
use super::meter::{Costs, Meter};
use crate::process;
use crate::relations::{self, Sizes};

/// pgbench's figures of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Transactions in a second, connecting left out.
    pub tps: f64,
    /// Mean latency of a transaction.
    pub latency_ms: f64,
    /// Transactions in the run.
    pub transactions: u64,
    /// What it cost, with the checkpoint after it.
    pub costs: Costs,
}

/// Sizes after the timed runs and a checkpoint.
#[derive(Clone, Debug, Serialize)]
pub struct Stored {
    /// pgbench's tables and indexes, as their files say.
    pub relations_logical_bytes: u64,
    /// What is stored of them.
    pub relations_stored_bytes: u64,
    /// The whole data directory with its log, as its files say.
    pub directory_logical_bytes: u64,
    /// What is stored of it; for a pool, records and index of the whole pool.
    pub directory_stored_bytes: u64,
    /// What a pool's segments take that are not free.
    pub allocated_bytes: Option<u64>,
}

/// All figures of one turn.
#[derive(Clone, Debug, Serialize)]
pub struct Turn {
    /// Which arm.
    pub arm: String,
    /// Time to fill pgbench's tables and make their indexes.
    pub load_seconds: f64,
    /// What loading cost, with the checkpoint after it.
    pub load_costs: Costs,
    /// One client, reading and writing.
    pub one_client: Run,
    /// Eight clients, reading and writing.
    pub eight_clients: Run,
    /// Eight clients, only reading.
    pub read_only: Run,
    /// Sizes.
    pub stored: Stored,
    /// Time to read the whole accounts table with cold caches.
    pub cold_scan_seconds: f64,
}

/// Runs one turn. The arm's server is stopped before and after.
pub fn run(arm: &mut Arm, options: &Options) -> Result<Turn> {
    arm.cluster().start()?;
    let meter = Meter::start(arm)?;
    let load_seconds = load(arm, options)?;
    checkpoint(arm)?;
    let load_costs = meter.stop(arm)?;
    println!("  loaded in {load_seconds:.1} s");
    let one_client = timed(arm, options, 1, false)?;
    let eight_clients = timed(arm, options, 8, false)?;
    let read_only = timed(arm, options, 8, true)?;
    let stored = stored(arm)?;
    arm.cluster().stop()?;
    arm.make_cold()?;
    arm.cluster().start()?;
    let cold_scan_seconds = scan(arm)?;
    println!("  cold scan in {cold_scan_seconds:.2} s");
    arm.cluster().stop()?;
    let arm = arm.kind().name().to_owned();
    Ok(Turn {
        arm,
        load_seconds,
        load_costs,
        one_client,
        eight_clients,
        read_only,
        stored,
        cold_scan_seconds,
    })
}

fn load(arm: &Arm, options: &Options) -> Result<f64> {
    let started = Instant::now();
    let mut command = arm.cluster().program("pgbench");
    process::run(command.args(["-i", "-q", "-s", &options.scale.to_string()]))?;
    Ok(started.elapsed().as_secs_f64())
}

/// Everything that is dirty in the server and in the kernel goes to the disk, so that nobody else pays for it later.
fn checkpoint(arm: &Arm) -> Result<()> {
    arm.cluster().connect("postgres")?.batch_execute("CHECKPOINT")?;
    rustix::fs::sync();
    Ok(())
}

fn timed(arm: &Arm, options: &Options, clients: u32, read_only: bool) -> Result<Run> {
    checkpoint(arm)?;
    let meter = Meter::start(arm)?;
    let mut command = arm.cluster().program("pgbench");
    command.args([
        "-n",
        "-M",
        "prepared",
        "-c",
        &clients.to_string(),
        "-j",
        &clients.min(2).to_string(),
    ]);
    command.args(["-T", &options.seconds.to_string()]);
    if read_only {
        command.arg("-S");
    }
    let text = process::run(&mut command)?;
    checkpoint(arm)?;
    let costs = meter.stop(arm)?;
    let Figures {
        tps,
        latency_ms,
        transactions,
    } = figures(&text).with_context(|| format!("cannot understand pgbench: {text}"))?;
    let what = if read_only {
        "reading"
    } else {
        "reading and writing"
    };
    println!("  {clients} clients, {what}: {tps:.0} tps");
    Ok(Run {
        tps,
        latency_ms,
        transactions,
        costs,
    })
}

/// What pgbench says of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    tps: f64,
    latency_ms: f64,
    transactions: u64,
}

fn figures(text: &str) -> Option<Figures> {
    let number = |start: &str| -> Option<&str> {
        let line = text.lines().find(|line| line.starts_with(start))?;
        line[start.len()..].split_whitespace().next()
    };
    Some(Figures {
        tps: number("tps = ")?.parse().ok()?,
        latency_ms: number("latency average = ")?.parse().ok()?,
        transactions: number("number of transactions actually processed: ")?
            .parse()
            .ok()?,
    })
}

fn stored(arm: &Arm) -> Result<Stored> {
    let mut database = arm.cluster().connect("postgres")?;
    let mut sum = Sizes::default();
    for relation in relations::relations(&mut database, arm.cluster().data_directory())? {
        sum.add(relation.sizes);
    }
    let whole = relations::directory_sizes(arm.cluster().data_directory())?;
    let status = arm.status()?;
    Ok(Stored {
        relations_logical_bytes: sum.logical_bytes,
        relations_stored_bytes: sum.stored_bytes,
        directory_logical_bytes: whole.logical_bytes,
        directory_stored_bytes: match (arm.kind(), &status) {
            (Kind::Packstone, Some(status)) => status.stored_bytes,
            _ => whole.stored_bytes,
        },
        allocated_bytes: status.map(|status| status.allocated_bytes),
    })
}

fn scan(arm: &Arm) -> Result<f64> {
    let mut database = arm.cluster().connect("postgres")?;
    let started = Instant::now();
    database.query_one("SELECT count(*), sum(abalance) FROM pgbench_accounts", &[])?;
    Ok(started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::{Figures, figures};

    #[test]
    fn figures_are_found_in_what_pgbench_prints() {
        let text = "scaling factor: 50\nnumber of transactions actually processed: 121951\nlatency average = 1.312 ms\n\
                    initial connection time = 5.000 ms\ntps = 6097.560976 (without initial connection time)\n";
        assert_eq!(
            figures(text),
            Some(Figures {
                tps: 6097.560976,
                latency_ms: 1.312,
                transactions: 121_951
            })
        );
        assert_eq!(figures("pgbench: error"), None);
    }
}
