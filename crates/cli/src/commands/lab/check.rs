//! `packstone lab check`: what an experiment would do, and what this machine lacks for it.

use super::{ExperimentArguments, preview, refuse_missing, render_preview};
use crate::output::emit;
use std::path::Path;

/// What `lab check` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone lab check experiments/pgbench.toml
  packstone lab check experiments/pgbench.toml --arms ext4,packstone

Nothing is changed. The exit code is 3 when something is missing.")]
pub struct Arguments {
    #[command(flatten)]
    experiment: ExperimentArguments,
}

/// Checks.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let options = arguments.experiment.options(Path::new("runs"), None)?;
    let preview = preview(&options)?;
    emit(&render_preview(&preview))?;
    refuse_missing(&preview)?;
    emit("the experiment can run here\n")
}
