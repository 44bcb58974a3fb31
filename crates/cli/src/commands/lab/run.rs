//! `packstone lab run`: runs an experiment, then shows what was found.

use super::{ExperimentArguments, preview, refuse_missing, render_preview, report};
use crate::output::emit;
use packstone_lab::runner;
use std::path::PathBuf;

/// What `lab run` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone lab run experiments/pgbench.toml
  packstone lab run experiments/pgbench.toml --dry-run
  packstone lab run experiments/pgbench.toml --rounds 1 --arms ext4,packstone --set workload.scale=10
  packstone lab run experiments/pgbench.toml --resume runs/pgbench-20260131-120000

Most kinds of storage need root. Each finished turn is in the run's journal; a run that was cut short is finished with
--resume, with the same experiment and the same options, or with more rounds.")]
pub struct Arguments {
    #[command(flatten)]
    experiment: ExperimentArguments,
    /// Finish the run in this directory
    #[arg(long, value_name = "DIRECTORY")]
    resume: Option<PathBuf>,
    /// Where the run's directory is made
    #[arg(long, value_name = "DIRECTORY", default_value = "runs")]
    output: PathBuf,
    /// Print everything as JSON at the end, instead of a table
    #[arg(long)]
    json: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// Runs.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let options = arguments
        .experiment
        .options(&arguments.output, arguments.resume.as_deref())?;
    let preview = preview(&options)?;
    if arguments.dry_run {
        return emit(&render_preview(&preview));
    }
    if !preview.missing.is_empty() {
        eprint!("{}", render_preview(&preview));
        refuse_missing(&preview)?;
    }
    let finished = runner::run(&options)?;
    let page = finished.directory.join("report.html");
    let data = finished.directory.join("report.json");
    report::write_data(&data, &finished.information, &finished.turns)?;
    report::write_page(&page, &finished.directory, &finished.information, &finished.turns)?;
    report::show(&finished.information, &finished.turns, arguments.json, false)?;
    eprintln!(
        "the page {} shows more; 'packstone lab report {}' shows this again",
        page.display(),
        finished.directory.display()
    );
    Ok(())
}
