//! What a directory would take under Packstone, and under file systems that round records to sectors.
//!
//! ```text
//!   collect (walk, family of each file) ──► sample (which chunks) ──► measure (read, compress) ──► report ──► table
//! ```
//!
//! Invariants:
//! - Nothing is ever written, no access time is changed where the kernel lets us say so, and nothing of the
//!   directory is locked: a running database does not notice.
//! - Files may vanish, shrink, grow and change at any moment. What could not be read is counted and said,
//!   never guessed.
//! - Everything is deterministic for a directory that stands still: the sample is systematic, not random.
//!
//! The sizes are of data only. What a file system adds for its own trees is left out on every side, except
//! for the [`INDEX_BYTES`] that Packstone keeps for each record. Snapshots and what overwriting leaves to be
//! cleaned are left out too. Dictionaries do not exist yet, so no column has them.

mod collect;
mod family;
mod measure;
mod report;
mod sample;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub use report::Estimate;
pub use table::print_table;

/// Sectors that the compared file systems round records up to.
pub const SECTOR_BYTES: u64 = 4096;
/// What one packed record costs besides its frame: its entries in the record table and in the file's extents.
pub const INDEX_BYTES: u64 = 24;
/// The small record: a PostgreSQL page.
pub const SMALL_RECORD_BYTES: usize = 8 * 1024;
/// The large record, and the unit of reading and sampling.
pub const LARGE_RECORD_BYTES: usize = 128 * 1024;
/// What is read at most by default.
pub const SAMPLE_BYTES_DEFAULT: u64 = 256 * 1024 * 1024;

/// How much of the data is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleMode {
    /// Everything.
    All,
    /// Chunks at even distances in every family, about this much in all; at least one chunk of every family.
    Budget {
        /// Bytes to read.
        bytes: u64,
    },
}

impl Default for SampleMode {
    fn default() -> Self {
        SampleMode::Budget {
            bytes: SAMPLE_BYTES_DEFAULT,
        }
    }
}

/// What to estimate and how.
#[derive(Clone, Debug, Default)]
pub struct EstimateOptions {
    /// The directory. When it is a symbolic link, what it points to.
    pub directory: PathBuf,
    /// How much of the data is read.
    pub sample: SampleMode,
    /// Threads that read and compress; 0 for one per processor.
    pub jobs: usize,
    /// The result is for a program: no progress either.
    pub json: bool,
    /// No progress on standard error.
    pub quiet: bool,
}

/// Reads the directory and estimates its sizes. Fails only when the directory itself cannot be read.
pub fn run(options: &EstimateOptions) -> Result<Estimate> {
    let directory = std::fs::canonicalize(&options.directory)
        .with_context(|| format!("cannot find the directory {}", options.directory.display()))?;
    let progress = progress(options);
    let collected = collect::collect(&directory, &progress)?;
    let plan = sample::plan(&collected, options.sample);
    progress.set_style(style("{msg} {wide_bar} {bytes}/{total_bytes}, {eta} left"));
    progress.set_message("reading");
    progress.set_position(0);
    progress.set_length(plan.bytes);
    let measured = measure::measure(&collected, &plan, job_count(options.jobs), &progress);
    progress.finish_and_clear();
    Ok(report::build(&directory, options.sample, collected, measured))
}

fn job_count(jobs: usize) -> usize {
    match jobs {
        0 => std::thread::available_parallelism().map_or(1, |count| count.get()),
        jobs => jobs,
    }
}

/// On standard error, and only where a person looks at it: indicatif draws nothing when that is not a
/// terminal.
fn progress(options: &EstimateOptions) -> ProgressBar {
    let target = if options.quiet || options.json {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let progress = ProgressBar::with_draw_target(None, target);
    progress.set_style(style("{spinner} {msg}"));
    progress.set_message("looking for files");
    progress
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests;
