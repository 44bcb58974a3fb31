//! A user's own program as a workload.
//!
//! The program gets, in its environment:
//!
//! | variable | holds |
//! |---|---|
//! | `PACKSTONE_LAB_DIRECTORY` | an empty directory on the arm's storage; also the working directory |
//! | `PACKSTONE_LAB_SCRATCH` | a directory elsewhere, kept until the run ends |
//! | `PACKSTONE_LAB_SEED` | a number that is the same for all arms of a round |
//!
//! `prepare` runs first and is not measured. `run` is one phase. How many operations it did it may say in a file, or in its
//! last line: `operations=N`. More numbers of its own it may give as lines `figure NAME=VALUE`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Parameters, Workload, make_cold, own_processes, record_stored, record_throughput};
use crate::figure::{Better, Unit};
use crate::requirements;
use crate::scratch::Cleanup;
use crate::supervised;
use crate::turn::{Turn, Work};

/// Parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserCommand {
    /// Command for `sh -c` that makes everything ready.
    #[serde(default)]
    prepare: Option<String>,
    /// Command for `sh -c` that is measured.
    run: String,
    /// File with the number of operations, relative to the arm's directory or absolute.
    #[serde(default)]
    operations_file: Option<PathBuf>,
    /// Whether caches are emptied between `prepare` and `run`.
    #[serde(default)]
    cold: bool,
    /// Bytes of storage that it needs.
    #[serde(default = "default_storage_bytes")]
    storage_bytes: u64,
}

fn default_storage_bytes() -> u64 {
    4 << 30
}

const PHASE: &str = "run";

impl Parameters for UserCommand {
    fn validate(&self) -> Result<()> {
        if self.run.trim().is_empty() {
            bail!("'run' is empty");
        }
        Ok(())
    }
}

impl Workload for UserCommand {
    fn check(&self) -> Result<()> {
        requirements::program("sh").context("there is no 'sh' on the search path")?;
        Ok(())
    }

    fn storage_bytes(&self) -> u64 {
        self.storage_bytes
    }

    fn run(&self, turn: &mut dyn Turn) -> Result<()> {
        if let Some(prepare) = &self.prepare {
            turn.say("preparing");
            Environment::of(turn).execute("prepare", prepare, turn.cleanup())?;
            turn.place().settle()?;
        }
        if self.cold {
            make_cold(turn)?;
        }
        turn.say("running");
        let environment = Environment::of(turn);
        let cleanup = turn.cleanup().cloned();
        let mut finished = None;
        turn.measure(PHASE, &own_processes(), true, &mut || {
            let started = Instant::now();
            let output = environment.execute("run", &self.run, cleanup.as_ref())?;
            let seconds = started.elapsed().as_secs_f64();
            let operations = self.operations(&environment.directory, &output)?;
            finished = Some((output, operations, seconds));
            Ok(Work {
                operations,
                operation: "operation",
            })
        })?;
        if let Some((output, operations, seconds)) = finished {
            turn.record(PHASE, "seconds", Unit::Seconds, Better::Lower, seconds);
            if operations > 0 {
                record_throughput(turn, PHASE, operations, seconds);
            }
            for (name, value) in own_figures(&String::from_utf8_lossy(&output.stdout)) {
                turn.record(PHASE, &name, Unit::Count, Better::Neither, value);
            }
        }
        record_stored(turn, "")
    }
}

impl UserCommand {
    fn operations(&self, directory: &Path, output: &Output) -> Result<u64> {
        let Some(file) = &self.operations_file else {
            return Ok(last_line_operations(&String::from_utf8_lossy(&output.stdout)).unwrap_or(0));
        };
        let path = directory.join(file);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("the command wrote no number of operations to {}", path.display()))?;
        text.trim()
            .parse()
            .with_context(|| format!("{} holds no number of operations: {text:?}", path.display()))
    }
}

/// What a command gets to know.
struct Environment {
    directory: PathBuf,
    scratch: PathBuf,
    seed: u64,
}

impl Environment {
    fn of(turn: &mut dyn Turn) -> Environment {
        Environment {
            directory: turn.place().directory().to_owned(),
            scratch: turn.scratch().to_owned(),
            seed: turn.seed(),
        }
    }

    /// Runs `script`, and adds what it said to `NAME.stdout` and `NAME.stderr` in the scratch directory.
    fn execute(&self, name: &str, script: &str, cleanup: Option<&Cleanup>) -> Result<Output> {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .env("PACKSTONE_LAB_DIRECTORY", &self.directory)
            .env("PACKSTONE_LAB_SCRATCH", &self.scratch)
            .env("PACKSTONE_LAB_SEED", self.seed.to_string())
            .current_dir(&self.directory);
        let output = supervised::output(&mut command, cleanup)?;
        append(&self.scratch.join(format!("{name}.stdout")), &output.stdout)?;
        append(&self.scratch.join(format!("{name}.stderr")), &output.stderr)?;
        supervised::require_success(&command, &output)?;
        Ok(output)
    }
}

fn append(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(bytes))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// `operations=N` in the last line that is not empty.
fn last_line_operations(text: &str) -> Option<u64> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    line.trim().strip_prefix("operations=")?.parse().ok()
}

/// Lines `figure NAME=VALUE`.
fn own_figures(text: &str) -> Vec<(String, f64)> {
    let figure = |line: &str| -> Option<(String, f64)> {
        let (name, value) = line.strip_prefix("figure ")?.rsplit_once('=')?;
        Some((name.trim().to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_figures_are_read_from_what_it_said() {
        assert_eq!(last_line_operations("done\noperations=12\n\n"), Some(12));
        assert_eq!(last_line_operations("operations=12\ndone\n"), None);
        assert_eq!(last_line_operations(""), None);
        assert_eq!(
            own_figures("figure widgets=3.5\nother=2\nfigure bad=x\n"),
            [("widgets".to_owned(), 3.5)]
        );
    }
}
