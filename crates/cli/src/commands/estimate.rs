//! `packstone estimate`: what a directory would take, by reading it. The work is in `crate::estimate`.

use crate::estimate::{self, EstimateOptions, SampleMode};
use crate::failure::Failure;
use crate::names::parse_size;
use crate::output::emit_json;
use std::io;
use std::path::PathBuf;

/// What `estimate` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone estimate /var/lib/postgresql/15/main
  packstone estimate /var/lib/postgresql/15/main --all --json
  packstone estimate ~/Maildir --jobs 2

Nothing is written, and a running server does not notice. By default a sample is read; --all reads everything.")]
pub struct Arguments {
    /// What to read
    directory: PathBuf,
    /// Read everything
    #[arg(long)]
    all: bool,
    /// Read about this much, spread over all files: bytes, or with K, M, G, T
    #[arg(long, value_name = "SIZE", conflicts_with = "all")]
    sample: Option<String>,
    /// Threads that read and compress; one for each processor when left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Print facts as JSON
    #[arg(long)]
    json: bool,
}

/// Estimates.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let sample = match (&arguments.sample, arguments.all) {
        (_, true) => SampleMode::All,
        (None, false) => SampleMode::default(),
        (Some(size), false) => match parse_size(size)? {
            0 => return Err(Failure::usage("--sample 0 would read nothing")),
            bytes => SampleMode::Budget { bytes },
        },
    };
    let options = EstimateOptions {
        directory: arguments.directory.clone(),
        sample,
        jobs: arguments.jobs.map_or(0, usize::from),
        json: arguments.json,
        quiet: false,
    };
    let estimate = estimate::run(&options)?;
    if arguments.json {
        return emit_json(&estimate);
    }
    match estimate::print_table(&estimate) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
