//! Jobs of fio, each a phase.
//!
//! ```toml
//! [workload]
//! kind = "fio"
//! [workload.jobs."8K random writes, fsync each"]
//! rw = "randwrite"
//! bs = "8k"
//! size = "1g"
//! fsync = 1
//! runtime = 20
//! ```
//!
//! A job's options are those of fio, with fio's defaults. Each job has a directory of its own; files that it reads are laid
//! out before the phase begins.
//!
//! fio writes random bytes unless told otherwise, and no storage can compress those: where it matters, give
//! `buffer_compress_percentage`, `buffer_compress_chunk` and `refill_buffers`.
//!
//! Leaves out: options that lead out of the arm's directory, which are refused.

mod output;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Parameters, Workload, make_cold, own_processes, record_stored};
use crate::figure::{Better, Distribution, Unit};
use crate::postgres_server::SettingValue;
use crate::requirements;
use crate::supervised;
use crate::turn::{Turn, Work};

/// Parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fio {
    /// Options of each job by its name, which is the name of the phase. Jobs run one after the other, sorted by name.
    jobs: BTreeMap<String, BTreeMap<String, SettingValue>>,
    /// Whether caches are emptied between laying out a job's files and running it.
    #[serde(default)]
    cold: bool,
    /// Bytes of storage that the jobs need together.
    #[serde(default = "default_storage_bytes")]
    storage_bytes: u64,
}

fn default_storage_bytes() -> u64 {
    8 << 30
}

/// Options that would take a job out of its directory, or its output away from here.
const REFUSED: [&str; 8] = [
    "directory",
    "filename",
    "output",
    "output-format",
    "name",
    "exec_prerun",
    "exec_postrun",
    "write_lat_log",
];

impl Parameters for Fio {
    fn validate(&self) -> Result<()> {
        if self.jobs.is_empty() {
            bail!(
                "'jobs' is empty: name a job with options of fio, such as [workload.jobs.\"random reads\"]"
            );
        }
        for (job, options) in &self.jobs {
            if let Some(option) = options.keys().find(|key| REFUSED.contains(&key.as_str())) {
                bail!("the job '{job}' has the option '{option}', which the lab sets itself");
            }
        }
        Ok(())
    }
}

impl Workload for Fio {
    fn check(&self) -> Result<()> {
        requirements::program("fio").context("this workload needs fio: apt-get install fio")?;
        Ok(())
    }

    fn storage_bytes(&self) -> u64 {
        self.storage_bytes
    }

    fn run(&self, turn: &mut dyn Turn) -> Result<()> {
        for (number, (name, options)) in self.jobs.iter().enumerate() {
            let directory = turn.place().directory().join(format!("job-{number}"));
            std::fs::create_dir(&directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
            self.run_job(turn, name, options, &directory)?;
            record_stored(turn, name)?;
            std::fs::remove_dir_all(&directory)
                .with_context(|| format!("cannot remove {}", directory.display()))?;
        }
        Ok(())
    }
}

impl Fio {
    fn run_job(
        &self,
        turn: &mut dyn Turn,
        name: &str,
        options: &BTreeMap<String, SettingValue>,
        directory: &Path,
    ) -> Result<()> {
        turn.say(&format!("{name}: laying out files"));
        let mut lay_out = command(turn, options, directory);
        supervised::run(lay_out.arg("--create_only=1"), turn.cleanup())?;
        turn.place().settle()?;
        if self.cold {
            make_cold(turn)?;
        }
        turn.say(name);
        let mut command = command(turn, options, directory);
        let cleanup = turn.cleanup().cloned();
        let mut sides = Vec::new();
        turn.measure(name, &own_processes(), true, &mut || {
            let output = supervised::run(&mut command, cleanup.as_ref())?;
            let text = String::from_utf8_lossy(&output.stdout);
            sides =
                output::read(&text).with_context(|| format!("cannot understand what fio says: {text}"))?;
            Ok(Work {
                operations: sides.iter().map(|side| side.operations).sum(),
                operation: "operation",
            })
        })?;
        for side in &sides {
            record(turn, name, side);
        }
        let total = sides.iter().map(|side| side.each_second).sum();
        turn.record(name, "throughput", Unit::PerSecond, Better::Higher, total);
        Ok(())
    }
}

fn command(turn: &dyn Turn, options: &BTreeMap<String, SettingValue>, directory: &Path) -> Command {
    let mut command = Command::new("fio");
    command
        .current_dir(turn.scratch())
        .args(["--output-format=json", "--name=job", "--group_reporting"])
        // fio takes no seed of more than 63 bits.
        .arg(format!("--randseed={}", turn.seed() >> 1))
        .arg(format!("--percentile_list={}", output::PERCENTILES))
        .arg("--directory")
        .arg(directory);
    for (option, value) in options {
        match value {
            // Options that are switched on by being there.
            SettingValue::Truth(true) => command.arg(format!("--{option}")),
            SettingValue::Truth(false) => command.arg(format!("--{option}=0")),
            value => command.arg(format!("--{option}={value}")),
        };
    }
    command
}

fn record(turn: &mut dyn Turn, phase: &str, side: &output::Side) {
    let name = side.name;
    if side.each_second > 0.0 {
        turn.record(
            phase,
            &format!("{name}s"),
            Unit::PerSecond,
            Better::Higher,
            side.each_second,
        );
    }
    if side.bytes_each_second > 0.0 {
        turn.record(
            phase,
            &format!("{name} bytes"),
            Unit::BytesPerSecond,
            Better::Higher,
            side.bytes_each_second,
        );
    }
    for (figure, seconds) in &side.latencies {
        turn.record(
            phase,
            &format!("{name} {figure}"),
            Unit::Seconds,
            Better::Lower,
            *seconds,
        );
    }
    if !side.curve.is_empty() {
        turn.record_distribution(Distribution {
            phase: phase.to_owned(),
            name: name.to_owned(),
            from_intended_start: false,
            points: side.curve.clone(),
        });
    }
}
