//! `packstone-kv-bench`: arguments, the order of runs, and printing.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use packstone_kv_bench::engines::Engine;
use packstone_kv_bench::items::{Items, Order};
use packstone_kv_bench::measure::{Outcome, Plan, run};
use packstone_kv_bench::report;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare Packstone's trees with embedded key-value stores of others: durable transactions, bytes written, reading back
#[derive(Parser)]
#[command(after_help = "Examples:
  packstone-kv-bench
  packstone-kv-bench --directory /mnt/disk --rounds 4 --json > kv.jsonl
  packstone-kv-bench --engines packstone,lmdb --orders random --items 100000

Every transaction is durable when it returns. Settings of each engine go to standard error. With --json
each engine, order and round gives one line with these fields: engine, order, round, items,
items_per_transaction, value_bytes, items_per_second, close_seconds, device_written_bytes,
own_written_bytes, file_bytes, preallocated_bytes, stored_bytes, gets_per_second, scan_items_per_second.
Device bytes are all that reached the disk meanwhile, so let nothing else write to it.")]
struct Arguments {
    /// Items to write
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1..))]
    items: u64,
    /// Items of one durable transaction
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    per_transaction: u64,
    /// Bytes of a value; keys have 16
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=65536))]
    value_bytes: u32,
    /// Keys to look up afterwards
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    gets: u64,
    /// Where stores are made, each in a directory of its own that is removed afterwards
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Engines, in the order of the first round; all there are by default
    #[arg(long, value_enum, value_delimiter = ',')]
    engines: Vec<Engine>,
    /// Orders of keys
    #[arg(long, value_enum, value_delimiter = ',', default_value = "sequential,random")]
    orders: Vec<Order>,
    /// Rounds; every second one takes the engines in reverse
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Print a JSON object for each run instead of a table
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match bench(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(arguments: &Arguments) -> Result<()> {
    let engines = match arguments.engines.as_slice() {
        [] => Engine::available(),
        chosen => chosen,
    };
    for engine in engines {
        ensure!(
            Engine::available().contains(engine),
            "this program was built without {}: use `make kv-bench`, or build it with `--features peers`",
            engine.name()
        );
        eprintln!("{}: {}", engine.name(), engine.settings());
    }
    let mut outcomes: Vec<Outcome> = Vec::new();
    for round in 1..=arguments.rounds {
        for order in &arguments.orders {
            let mut turn = engines.to_vec();
            if round % 2 == 0 {
                turn.reverse();
            }
            for engine in turn {
                let plan = Plan {
                    items: Items {
                        order: *order,
                        count: arguments.items,
                        value_bytes: arguments.value_bytes as usize,
                    },
                    per_transaction: arguments.per_transaction,
                    gets: arguments.gets,
                };
                let outcome = one(arguments, engine, &plan, round)
                    .with_context(|| format!("{} in {order:?} order, round {round}", engine.name()))?;
                eprintln!(
                    "round {round}/{} {:<10} {:<9} {:>9.0} items/s",
                    arguments.rounds,
                    format!("{order:?}").to_lowercase(),
                    engine.name(),
                    outcome.items_per_second
                );
                if arguments.json {
                    println!("{}", serde_json::to_string(&outcome)?);
                }
                outcomes.push(outcome);
            }
        }
    }
    if !arguments.json {
        print!("{}", report::table(&outcomes));
    }
    Ok(())
}

fn one(arguments: &Arguments, engine: Engine, plan: &Plan, round: u32) -> Result<Outcome> {
    let directory = tempfile::Builder::new()
        .prefix("packstone-kv-bench-")
        .tempdir_in(&arguments.directory)
        .with_context(|| format!("make a directory in {}", arguments.directory.display()))?;
    run(engine, plan, round, directory.path())
}
