//! `packstone check`: offline verification of every structure and every checksum.
//!
//! Two passes: what the pool knows (labels, checkpoints, table, trees, usage, every record), then what `fs` keeps in the
//! tree of each dataset; at the end, whether every record belongs to exactly one file. Writes only with `--repair`, which is in
//! `check/repair.rs`. Exit code 5 when anything is wrong, with one problem a line.

mod repair;

use crate::failure::{Failure, FailureKind, describe};
use crate::names::PoolName;
use crate::open_pool::OpenPool;
use crate::output::{Table, byte_progress, emit, emit_json, format_bytes, record_progress};
use crate::state::StateDirectory;
use anyhow::Context;
use packstone_media::Access;
use packstone_pool::{DatasetState, Owners, PoolRepair, RecordId};
use serde::Serialize;
use std::collections::HashSet;
use std::fmt::Write;

/// What `check` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone check tank
  packstone check tank --json
  packstone check tank --repair --dry-run
  packstone check tank --repair

The pool must not be open: unmount its datasets first. Without --repair nothing is written.
Exit code 5 says that something is wrong, or still is after the repair.")]
pub struct Arguments {
    /// Name of the pool
    pool: PoolName,
    /// Mend what can be mended without guessing, and check again
    #[arg(long)]
    repair: bool,
    /// With --repair: only say what would be done
    #[arg(long, requires = "repair")]
    dry_run: bool,
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
    /// What `--repair` would do, or, after one, what it did.
    repairs: Vec<String>,
    /// Whether that was done.
    repaired: bool,
    damaged_files: Vec<DamagedFile>,
    #[serde(skip)]
    pool_repair: PoolRepair,
    /// Deleted files that wait: no problem, and the next mount reclaims them, but a repair does it too.
    #[serde(skip)]
    reclaims: Vec<String>,
}

/// A part of a file that cannot be read.
#[derive(Serialize)]
struct DamagedFile {
    dataset: String,
    path: String,
    inode: u64,
    start_bytes: u64,
    end_bytes: u64,
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
    if arguments.repair && !arguments.dry_run {
        return report(&repair::run(&state, &arguments.pool)?, arguments.json);
    }
    let open = OpenPool::open_by_name(&state, &arguments.pool, Access::ReadOnly).with_context(|| {
        format!(
            "check pool '{}' (a pool is checked while no daemon has it open)",
            arguments.pool
        )
    })?;
    let checked = check(&open)?;
    open.close()?;
    report(&checked, arguments.json)
}

/// Prints, and chooses the exit code.
fn report(checked: &Checked, json: bool) -> anyhow::Result<()> {
    match json {
        true => emit_json(checked)?,
        false => emit(&render(checked))?,
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
        repairs: Vec::new(),
        repaired: false,
        damaged_files: Vec::new(),
        pool_repair: PoolRepair::default(),
        reclaims: Vec::new(),
    };
    let mut owners = Some(Owners::new());
    let damaged: HashSet<RecordId> = report.damaged.iter().copied().collect();
    let mut references = Some(HashSet::new());
    for dataset in open.pool.datasets().context("list the datasets")? {
        // One that is being destroyed has lost its superblock, and with it its sense; only its records matter.
        let found = match dataset.state {
            DatasetState::Active => check_dataset(open, &dataset.name, &damaged, &mut checked),
            DatasetState::Destroying => None,
        };
        // A file with a problem may refer to more than can be seen: then no record is called unwanted, nor are totals counted.
        let sound = checked
            .datasets
            .last()
            .is_some_and(|last| last.problem_count == 0);
        owners = owners
            .zip(found.clone().filter(|_| sound))
            .map(|(mut all, found)| {
                all.insert(dataset.tree, found);
                all
            });
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
    let repair = PoolRepair::plan(&open.pool, &report, owners.as_ref());
    checked.problems.extend(repair.problems.iter().cloned());
    checked.repairs.splice(0..0, repair.lines.iter().cloned());
    checked.pool_repair = repair;
    Ok(checked)
}

/// Records that take room but belong to no file. Harmless, but not as it should be: they are told once, with their number.
fn find_leaks(records: &[RecordId], references: &HashSet<RecordId>, checked: &mut Checked) {
    let mut leaked = records.iter().filter(|record| !references.contains(record));
    if let Some(first) = leaked.next() {
        let count = 1 + leaked.count();
        checked.problems.push(format!(
            "{count} records belong to no file, the first is {}; packstone check --repair frees them",
            first.0
        ));
    }
}

/// A dataset that cannot be walked at all is one problem, and no reason to leave the others unchecked.
fn check_dataset(
    open: &OpenPool,
    dataset: &str,
    damaged: &HashSet<RecordId>,
    checked: &mut Checked,
) -> Option<Vec<RecordId>> {
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
    let repairs = report.repairs();
    checked
        .repairs
        .extend(repairs.iter().map(|line| format!("{name}: {line}")));
    if report.orphans > 0 {
        let orphans = report.orphans;
        checked
            .reclaims
            .push(format!("{name}: reclaim {orphans} deleted files"));
    }
    if !damaged.is_empty() || report.problem_count > 0 {
        list_damaged_files(open, dataset, &name, damaged, checked);
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

/// Which files the damaged records belong to.
fn list_damaged_files(
    open: &OpenPool,
    dataset: &str,
    name: &str,
    damaged: &HashSet<RecordId>,
    checked: &mut Checked,
) {
    match packstone_fs::name_damage(&open.pool, dataset, damaged) {
        Ok(ranges) => checked
            .damaged_files
            .extend(ranges.into_iter().map(|range| DamagedFile {
                dataset: name.to_string(),
                path: range.path,
                inode: range.ino.0,
                start_bytes: range.start_bytes,
                end_bytes: range.end_bytes,
            })),
        Err(error) => checked
            .problems
            .push(format!("{name}: {}", describe(&error.into()))),
    }
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
    for file in &checked.damaged_files {
        let _ = writeln!(
            text,
            "damaged file: {}:{} bytes {} to {}; restore it from a backup",
            file.dataset, file.path, file.start_bytes, file.end_bytes
        );
    }
    let done = if checked.repaired { "repaired" } else { "repair" };
    for repair in &checked.repairs {
        let _ = writeln!(text, "{done}: {repair}");
    }
    if !checked.repairs.is_empty() && !checked.repaired {
        let _ = writeln!(text, "'packstone check {} --repair' would do this", checked.pool);
    }
    text
}
