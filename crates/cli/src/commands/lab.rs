//! `packstone lab`: runs experiments, and reports what they found. The work is done by `packstone_lab`.

mod check;
mod report;
mod run;

use crate::failure::Failure;
use packstone_lab::experiment::{apply_override, keep_arms};
use packstone_lab::runner::{Options, Preview};
use std::path::{Path, PathBuf};

/// What `lab` takes.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:
  packstone lab check experiments/pgbench.toml
  packstone lab run experiments/pgbench.toml
  packstone lab report runs/pgbench-20260131-120000 --html report.html

An experiment runs one workload on several kinds of storage in turns, with the same fresh storage below each, and says
what differs. Experiments are described in docs/lab.md.",
    disable_help_subcommand = true
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run an experiment, or finish one that was cut short
    Run(run::Arguments),
    /// Show what a run found
    Report(report::Arguments),
    /// Say what an experiment would do, and what is missing for it
    Check(check::Arguments),
}

/// Runs the subcommand.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Check(arguments) => check::run(arguments),
    }
}

/// The experiment, and what changes it.
#[derive(clap::Args)]
struct ExperimentArguments {
    /// File with the experiment
    #[arg(value_name = "EXPERIMENT.toml")]
    experiment: PathBuf,
    /// Rounds instead of the experiment's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Only these arms, and the control
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    arms: Vec<String>,
    /// Change a key of the experiment, such as workload.scale=10 or arm.ext4.mount_options=noatime; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// Overwrite whatever a given backing.device holds
    #[arg(long)]
    force: bool,
    /// The packstone program to measure [default: this one]
    #[arg(long, value_name = "PROGRAM")]
    packstone: Option<PathBuf>,
}

impl ExperimentArguments {
    fn options(&self, output: &Path, resume: Option<&Path>) -> anyhow::Result<Options> {
        let path = self.experiment.display();
        let text = std::fs::read_to_string(&self.experiment).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Failure::not_found(format!("there is no experiment {path}")),
            _ => anyhow::Error::new(error).context(format!("cannot read {path}")),
        })?;
        // Read as it stands first: errors then show the lines of the user's own file.
        packstone_lab::experiment::Experiment::parse(&text)
            .map_err(|error| Failure::usage(format!("{path}: {error:#}")))?;
        let mut table: toml::Table = text.parse()?;
        self.change(&mut table)
            .map_err(|error| Failure::usage(format!("{error:#}")))?;
        let packstone = match &self.packstone {
            Some(program) => std::path::absolute(program)?,
            None => std::env::current_exe()?,
        };
        Ok(Options {
            table,
            output: output.to_owned(),
            resume: resume.map(Path::to_owned),
            force: self.force,
            packstone,
        })
    }

    fn change(&self, table: &mut toml::Table) -> anyhow::Result<()> {
        for assignment in &self.changes {
            apply_override(table, assignment)?;
        }
        if let Some(rounds) = self.rounds {
            table.insert("rounds".to_owned(), toml::Value::Integer(i64::from(rounds)));
        }
        if !self.arms.is_empty()
            && let Some(control) = keep_arms(table, &self.arms)?
        {
            eprintln!("note: the control '{control}' runs too");
        }
        packstone_lab::experiment::Experiment::from_table(table).map(drop)
    }
}

/// The plan in lines.
fn render_preview(preview: &Preview) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for (number, turn) in preview.turns.iter().enumerate() {
        let _ = writeln!(text, "{:>4}  {turn}", number + 1);
    }
    let mib = |bytes: u64| bytes >> 20;
    let _ = writeln!(
        text,
        "room: {} MiB in {}, where {} MiB are free",
        mib(preview.room_bytes),
        preview.room_directory.display(),
        mib(preview.free_bytes)
    );
    let _ = match preview.seconds {
        Some(seconds) => writeln!(text, "time: about {}", crate::output::format_duration(seconds)),
        None => writeln!(
            text,
            "time: the workload cannot say; the progress line can after the first turn"
        ),
    };
    for missing in &preview.missing {
        let _ = writeln!(text, "missing: {missing}");
    }
    text
}

/// What an experiment would do; what cannot be meant is a wrong usage.
fn preview(options: &Options) -> anyhow::Result<Preview> {
    packstone_lab::runner::preview(options).map_err(|error| Failure::usage(format!("{error:#}")))
}

/// Fails when something is missing, after it has been shown.
fn refuse_missing(preview: &Preview) -> anyhow::Result<()> {
    match preview.missing.as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::not_found(format!(
            "the experiment cannot run here: {one}"
        ))),
        several => Err(Failure::not_found(format!(
            "the experiment cannot run here: {} things are missing, as listed",
            several.len()
        ))),
    }
}
