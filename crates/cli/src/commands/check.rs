//! `packstone check`: offline verification of every structure and every checksum.
//!
//! Two passes: what the pool knows (labels, checkpoints, table, trees, usage, every record), then what `fs` keeps in the
//! tree of each dataset; at the end, whether every record belongs to exactly one file. Never writes. Exit code 5 when anything is wrong, with one problem a line.

use crate::failure::{Failure, FailureKind, describe};
use crate::names::PoolName;
use crate::open_pool::OpenPool;
use crate::output::{Table, byte_progress, emit, emit_json, format_bytes, record_progress};
use crate::state::StateDirectory;
use anyhow::Context;
use packstone_media::Access;
use packstone_pool::{DatasetState, RecordId};
use serde::Serialize;
use std::collections::HashSet;
use std::fmt::Write;

/// What `check` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone check tank
  packstone check tank --json

The pool must not be open: unmount its datasets first. Nothing is written. Exit code 5 says that damage was found.")]
pub struct Arguments {
    /// Name of the pool
    pool: PoolName,
    /// Print facts as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Checked {
    pool: String,
    records_checked: u64,
    nodes_checked: u64,
    bytes_checked: u64,
    datasets: Vec<DatasetChecked>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct DatasetChecked {
    name: String,
    files: u64,
    directories: u64,
    others: u64,
    orphans: u64,
    logical_bytes: u64,
    stored_bytes: u64,
    records: u64,
    problem_count: u64,
}

/// Checks.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let state = StateDirectory::locate()?;
    let open = OpenPool::open_by_name(&state, &arguments.pool, Access::ReadOnly).with_context(|| {
        format!(
            "check pool '{}' (a pool is checked while no daemon has it open)",
            arguments.pool
        )
    })?;
    let checked = check(&open)?;
    open.close()?;
    match arguments.json {
        true => emit_json(&checked)?,
        false => emit(&render(&checked))?,
    }
    match checked.problems.len() {
        0 => Ok(()),
        1 => Err(Failure::error(
            FailureKind::Damaged,
            format!("pool '{}' is damaged: 1 problem", checked.pool),
        )),
        count => Err(Failure::error(
            FailureKind::Damaged,
            format!("pool '{}' is damaged: {count} problems", checked.pool),
        )),
    }
}

fn check(open: &OpenPool) -> anyhow::Result<Checked> {
    let bar = byte_progress("checking");
    let report = packstone_pool::check(&open.pool, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report.with_context(|| format!("check pool '{}'", open.name))?;
    let mut checked = Checked {
        pool: open.name.to_string(),
        records_checked: report.records_checked,
        nodes_checked: report.nodes_checked,
        bytes_checked: report.bytes_checked,
        datasets: Vec::new(),
        problems: report.problems.clone(),
    };
    let mut references = Some(HashSet::new());
    for dataset in open.pool.datasets().context("list the datasets")? {
        // One that is being destroyed has lost its superblock, and with it its sense; only its records matter.
        let found = match dataset.state {
            DatasetState::Active => check_dataset(open, &dataset.name, &mut checked),
            DatasetState::Destroying => None,
        };
        // Without the references of every dataset nothing can be said of records that nobody refers to.
        references = references.zip(found).map(|(mut all, found)| {
            for record in found {
                if !all.insert(record) {
                    checked
                        .problems
                        .push(format!("record {} belongs to two datasets", record.0));
                }
            }
            all
        });
    }
    if let Some(references) = references {
        find_leaks(&report.records, &references, &mut checked);
    }
    Ok(checked)
}

/// Records that take room but belong to no file. Harmless, but not as it should be: they are told once, with their number.
fn find_leaks(records: &[RecordId], references: &HashSet<RecordId>, checked: &mut Checked) {
    let mut leaked = records.iter().filter(|record| !references.contains(record));
    if let Some(first) = leaked.next() {
        let count = 1 + leaked.count();
        checked.problems.push(format!(
            "{count} records belong to no file, the first is {}; they take room until the pool is made anew",
            first.0
        ));
    }
}

/// A dataset that cannot be walked at all is one problem, and no reason to leave the others unchecked.
fn check_dataset(open: &OpenPool, dataset: &str, checked: &mut Checked) -> Option<Vec<RecordId>> {
    let name = format!("{}/{dataset}", open.name);
    let bar = record_progress(&format!("checking {name}"));
    let report = packstone_fs::check(&open.pool, dataset, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            checked
                .problems
                .push(format!("{name}: {}", describe(&error.into())));
            return None;
        }
    };
    checked
        .problems
        .extend(report.problems.iter().map(|problem| format!("{name}: {problem}")));
    let untold = report.problem_count.saturating_sub(report.problems.len() as u64);
    if untold > 0 {
        checked.problems.push(format!("{name}: and {untold} more"));
    }
    checked.datasets.push(DatasetChecked {
        name,
        files: report.files,
        directories: report.directories,
        others: report.others,
        orphans: report.orphans,
        logical_bytes: report.logical_bytes,
        stored_bytes: report.stored_bytes,
        records: report.references.len() as u64,
        problem_count: report.problem_count,
    });
    Some(report.references)
}

fn render(checked: &Checked) -> String {
    let mut table = Table::new(&["checked", ">count"]);
    table.row(vec!["records".into(), checked.records_checked.to_string()]);
    table.row(vec!["tree nodes".into(), checked.nodes_checked.to_string()]);
    table.row(vec!["bytes".into(), format_bytes(checked.bytes_checked)]);
    for dataset in &checked.datasets {
        let name = &dataset.name;
        table.row(vec![format!("{name}: files"), dataset.files.to_string()]);
        table.row(vec![
            format!("{name}: directories"),
            dataset.directories.to_string(),
        ]);
        table.row(vec![
            format!("{name}: links, pipes, sockets, devices"),
            dataset.others.to_string(),
        ]);
        table.row(vec![
            format!("{name}: unlinked, to be reclaimed"),
            dataset.orphans.to_string(),
        ]);
    }
    table.row(vec!["problems".into(), checked.problems.len().to_string()]);
    let mut text = table.render();
    for problem in &checked.problems {
        let _ = writeln!(text, "problem: {problem}");
    }
    text
}
