//! The figures of all turns as one table and as JSON.

use anyhow::{Context, Result};
use serde::Serialize;

use super::Options;
use super::arm::Kind;
use super::turn::Turn;
use crate::render;

/// A figure of a turn, in words and as a number.
type Figure = (&'static str, fn(&Turn) -> Option<f64>);

const MEBIBYTE: f64 = 1024.0 * 1024.0;

fn mebibytes(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64 / MEBIBYTE)
}

const FIGURES: [Figure; 17] = [
    ("load, s", |turn| Some(turn.load_seconds)),
    ("load: device MiB written", |turn| {
        mebibytes(turn.load_costs.device_written_bytes)
    }),
    ("tps, 1 client", |turn| Some(turn.one_client.tps)),
    ("tps, 8 clients", |turn| Some(turn.eight_clients.tps)),
    ("tps, 8 clients reading", |turn| Some(turn.read_only.tps)),
    ("latency with 8 clients, ms", |turn| {
        Some(turn.eight_clients.latency_ms)
    }),
    ("8 clients: device MiB written", |turn| {
        mebibytes(turn.eight_clients.costs.device_written_bytes)
    }),
    ("8 clients: pool MiB written", |turn| {
        mebibytes(turn.eight_clients.costs.pool_written_bytes)
    }),
    ("8 clients: server CPU s", |turn| {
        Some(turn.eight_clients.costs.server_cpu_seconds)
    }),
    ("8 clients: daemon CPU s", |turn| {
        turn.eight_clients.costs.daemon_cpu_seconds
    }),
    ("8 clients: device KiB / transaction", |turn| {
        device_kib_per_transaction(turn)
    }),
    ("relations, logical MiB", |turn| {
        mebibytes(Some(turn.stored.relations_logical_bytes))
    }),
    ("relations, stored MiB", |turn| {
        mebibytes(Some(turn.stored.relations_stored_bytes))
    }),
    ("data directory, logical MiB", |turn| {
        mebibytes(Some(turn.stored.directory_logical_bytes))
    }),
    ("data directory, stored MiB", |turn| {
        mebibytes(Some(turn.stored.directory_stored_bytes))
    }),
    ("segments in use, MiB", |turn| {
        mebibytes(turn.stored.allocated_bytes)
    }),
    ("cold scan, s", |turn| Some(turn.cold_scan_seconds)),
];

fn device_kib_per_transaction(turn: &Turn) -> Option<f64> {
    let bytes = turn.eight_clients.costs.device_written_bytes? as f64;
    let transactions = turn.eight_clients.transactions;
    (transactions > 0).then(|| bytes / 1024.0 / transactions as f64)
}

/// Middle of `figure` over the turns of `kind`; nothing where no turn has it.
fn middle(turns: &[Turn], kind: Kind, figure: fn(&Turn) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = turns
        .iter()
        .filter(|turn| turn.arm == kind.name())
        .filter_map(figure)
        .collect();
    (!values.is_empty()).then(|| render::median(&values))
}

/// Prints the middle of each figure for both arms and their ratio.
pub fn print(turns: &[Turn]) {
    let show = |value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.2}"),
    };
    let mut rows = Vec::new();
    for (name, figure) in FIGURES {
        let directory = middle(turns, Kind::Directory, figure);
        let packstone = middle(turns, Kind::Packstone, figure);
        let ratio = directory
            .zip(packstone)
            .filter(|(directory, _)| *directory > 0.0)
            .map(|(d, p)| p / d);
        rows.push(vec![
            name.to_owned(),
            show(directory),
            show(packstone),
            show(ratio),
        ]);
    }
    println!("\nMiddle of the turns; the ratio is Packstone / directory");
    println!(
        "{}",
        render::table(&["figure", "directory", "packstone", "ratio"], 1, &rows)
    );
    println!(
        "Device MiB count everything that was written to the disk in that time, by whomever, and the checkpoint after it."
    );
}

#[derive(Serialize)]
struct Summary {
    figure: &'static str,
    directory: Option<f64>,
    packstone: Option<f64>,
}

#[derive(Serialize)]
struct Document<'a> {
    options: &'a Options,
    kernel: String,
    processors: usize,
    medians: Vec<Summary>,
    turns: &'a [Turn],
}

/// Writes everything as JSON.
pub fn write(options: &Options, turns: &[Turn]) -> Result<()> {
    let medians = FIGURES.iter().map(|(name, figure)| Summary {
        figure: name,
        directory: middle(turns, Kind::Directory, *figure),
        packstone: middle(turns, Kind::Packstone, *figure),
    });
    let document = Document {
        options,
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        medians: medians.collect(),
        turns,
    };
    if let Some(parent) = options.output.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    }
    let text = serde_json::to_string_pretty(&document)?;
    std::fs::write(&options.output, text)
        .with_context(|| format!("cannot write {}", options.output.display()))?;
    println!("All figures: {}", options.output.display());
    Ok(())
}
