//! `packstone lab report`: what a run found, finished or not.

use crate::failure::Failure;
use crate::output::emit;
use anyhow::Context;
use packstone_lab::analysis::analyse;
use packstone_lab::figure::TurnResult;
use packstone_lab::report::{TableOptions, print_table, write_html, write_json};
use packstone_lab::run_information::RunInformation;
use packstone_lab::runner::read_run;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// What `lab report` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone lab report runs/pgbench-20260131-120000
  packstone lab report runs/pgbench-20260131-120000 --all
  packstone lab report runs/pgbench-20260131-120000 --html report.html
  packstone lab report runs/pgbench-20260131-120000 --json | jq .analysis

A run that is not finished is reported as far as it went.")]
pub struct Arguments {
    /// Directory of the run
    #[arg(value_name = "DIRECTORY")]
    run: PathBuf,
    /// Write one HTML page that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Print all figures, not only the most telling ones
    #[arg(long)]
    all: bool,
}

/// Reports.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (information, turns) =
        read_run(&arguments.run).map_err(|error| Failure::not_found(format!("{error:#}")))?;
    if let Some(path) = &arguments.html {
        write_page(path, &arguments.run, &information, &turns)?;
        eprintln!("wrote {}", path.display());
        if !arguments.json {
            return Ok(());
        }
    }
    show(&information, &turns, arguments.json, arguments.all)
}

/// Prints the table, or JSON.
pub(super) fn show(
    information: &RunInformation,
    turns: &[TurnResult],
    json: bool,
    all: bool,
) -> anyhow::Result<()> {
    let analysis = analyse(information, turns);
    let mut text = Vec::new();
    match json {
        true => write_json(&mut text, information, turns, &analysis)?,
        false => print_table(
            &mut text,
            information,
            &analysis,
            TableOptions {
                all,
                ..TableOptions::default()
            },
        )?,
    }
    emit(&String::from_utf8_lossy(&text))
}

/// Writes the page to `path`.
pub(super) fn write_page(
    path: &Path,
    run: &Path,
    information: &RunInformation,
    turns: &[TurnResult],
) -> anyhow::Result<()> {
    let write = || -> anyhow::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        write_html(&mut file, run, information, turns, &analyse(information, turns))?;
        Ok(file.flush()?)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Writes everything as JSON to `path`.
pub(super) fn write_data(
    path: &Path,
    information: &RunInformation,
    turns: &[TurnResult],
) -> anyhow::Result<()> {
    let write = || -> anyhow::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        write_json(&mut file, information, turns, &analyse(information, turns))?;
        Ok(file.flush()?)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
