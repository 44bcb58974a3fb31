//! A run's directory: what was asked, what it was about, and what came of it.
//!
//! | file | holds |
//! |---|---|
//! | `experiment.toml` | the experiment with all changes from the command line |
//! | `run.json` | [`RunInformation`] |
//! | `probe.json` | what every arm's storage reached before the first turn |
//! | `journal.jsonl` | a finished turn a line |
//! | `failed-turn/` | logs of a turn that failed |

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use toml::Value;

use super::journal::{self, Journal};
use super::now;
use crate::figure::TurnResult;
use crate::probe::Probed;
use crate::run_information::RunInformation;

const EXPERIMENT: &str = "experiment.toml";
const INFORMATION: &str = "run.json";
const PROBE: &str = "probe.json";
const JOURNAL: &str = "journal.jsonl";

/// A run's directory, being written.
#[derive(Debug)]
pub(super) struct RunDirectory {
    path: PathBuf,
    information: RunInformation,
    journal: Journal,
    probed: BTreeMap<String, Probed>,
}

/// What a run was about, and its turns so far.
pub fn read(path: &Path) -> Result<(RunInformation, Vec<TurnResult>)> {
    ensure!(
        path.join(INFORMATION).is_file(),
        "{} is no directory of a run: it has no {INFORMATION}",
        path.display()
    );
    Ok((
        read_json(&path.join(INFORMATION))?,
        journal::read(&path.join(JOURNAL))?,
    ))
}

impl RunDirectory {
    /// Makes `output/NAME-DATE`.
    pub(super) fn create(
        output: &Path,
        table: &toml::Table,
        information: &RunInformation,
    ) -> Result<RunDirectory> {
        std::fs::create_dir_all(output).with_context(|| format!("cannot create {}", output.display()))?;
        let stem = format!("{}-{}", information.experiment_name, date_and_time(now()));
        let path = first_free(output, &stem)?;
        write_durably(
            &path.join(EXPERIMENT),
            toml::to_string_pretty(table)
                .context("the experiment cannot be written as TOML")?
                .as_bytes(),
        )?;
        write_json(&path.join(INFORMATION), information)?;
        let (journal, _) = Journal::open(&path.join(JOURNAL))?;
        Ok(RunDirectory {
            path,
            information: information.clone(),
            journal,
            probed: BTreeMap::new(),
        })
    }

    /// Opens the directory of a run that is not finished, and returns the turns that it has. Refused when the experiment
    /// is not the same any more; but it may have more rounds.
    pub(super) fn resume(path: &Path, table: &toml::Table) -> Result<(RunDirectory, Vec<TurnResult>)> {
        let kept = std::fs::read_to_string(path.join(EXPERIMENT))
            .with_context(|| format!("{} is no directory of a run", path.display()))?;
        let kept: toml::Table = kept
            .parse()
            .with_context(|| format!("{}/{EXPERIMENT}", path.display()))?;
        refuse_changed(&kept, table)?;
        let (journal, turns) = Journal::open(&path.join(JOURNAL))?;
        let mut information: RunInformation = read_json(&path.join(INFORMATION))?;
        if let Some(rounds) = table.get("rounds").and_then(Value::as_integer) {
            information.rounds = u32::try_from(rounds).unwrap_or(information.rounds);
            write_durably(&path.join(EXPERIMENT), toml::to_string_pretty(table)?.as_bytes())?;
            write_json(&path.join(INFORMATION), &information)?;
        }
        let probed = match path.join(PROBE).is_file() {
            true => read_json(&path.join(PROBE))?,
            false => BTreeMap::new(),
        };
        let run = RunDirectory {
            path: path.to_owned(),
            information,
            journal,
            probed,
        };
        Ok((run, turns))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn information(&self) -> &RunInformation {
        &self.information
    }

    /// Adds a finished turn.
    pub(super) fn append(&mut self, turn: &TurnResult) -> Result<()> {
        self.journal.append(turn)
    }

    /// What the probe of `arm` found.
    pub(super) fn probed(&self, arm: &str) -> Option<&Probed> {
        self.probed.get(arm)
    }

    /// Keeps what the probe of `arm` found.
    pub(super) fn keep_probed(&mut self, arm: &str, probed: Probed) -> Result<()> {
        self.probed.insert(arm.to_owned(), probed);
        write_json(&self.path.join(PROBE), &self.probed)
    }
}

fn refuse_changed(kept: &toml::Table, given: &toml::Table) -> Result<()> {
    let keys: std::collections::BTreeSet<&String> = kept.keys().chain(given.keys()).collect();
    for key in keys {
        let (before, now) = (kept.get(key), given.get(key));
        let more_rounds =
            key == "rounds" && now.and_then(Value::as_integer) > before.and_then(Value::as_integer);
        if before != now && !more_rounds {
            bail!(
                "the experiment is not the one of this run: '{key}' has changed. Resume with the same file and the same \
                 options, or begin a new run"
            );
        }
    }
    Ok(())
}

/// Creates `output/stem`, or with a number behind it when that is taken.
fn first_free(output: &Path, stem: &str) -> Result<PathBuf> {
    for number in 1..1000 {
        let name = match number {
            1 => stem.to_owned(),
            _ => format!("{stem}-{number}"),
        };
        let path = output.join(name);
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("cannot create {}", path.display())),
        }
    }
    bail!("{} is full of runs of this second", output.display())
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not as expected", path.display()))
}

fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<()> {
    write_durably(path, &serde_json::to_vec_pretty(value)?)
}

/// Replaces a file as a whole.
fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// `20260131-235959`, in universal time; days by Howard Hinnant's `civil_from_days`.
fn date_and_time(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}{month:02}{day:02}-{:02}{:02}{:02}",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(date_and_time(0), "19700101-000000");
        assert_eq!(date_and_time(951_782_400), "20000229-000000");
        assert_eq!(date_and_time(1_709_251_199), "20240229-235959");
        assert_eq!(date_and_time(1_709_251_200), "20240301-000000");
        assert_eq!(date_and_time(4_107_542_399), "21000228-235959");
    }

    #[test]
    fn a_run_is_resumed_with_the_same_experiment_or_more_rounds() {
        let output = tempfile::tempdir().expect("a directory");
        let table = |text: &str| text.parse::<toml::Table>().expect("a table");
        let information = RunInformation {
            experiment_name: "x".to_owned(),
            rounds: 2,
            ..RunInformation::default()
        };
        let experiment = table("name = 'x'\nrounds = 2\n[workload]\nscale = 1\n");
        let mut run = RunDirectory::create(output.path(), &experiment, &information).expect("a run");
        let result = TurnResult {
            arm: "a".to_owned(),
            ..TurnResult::default()
        };
        run.append(&result).expect("a turn");
        run.keep_probed("a", Probed::default()).expect("a probe");
        let path = run.path().to_owned();
        assert!(
            RunDirectory::resume(&path, &experiment).is_err(),
            "it is still running"
        );
        drop(run);
        let (run, turns) = RunDirectory::resume(&path, &experiment).expect("the run");
        assert_eq!(turns, [result]);
        assert!(run.probed("a").is_some() && run.probed("b").is_none());
        drop(run);
        let more = table("name = 'x'\nrounds = 3\n[workload]\nscale = 1\n");
        let (run, _) = RunDirectory::resume(&path, &more).expect("more rounds");
        assert_eq!(run.information().rounds, 3);
        drop(run);
        assert_eq!(read(&path).expect("the run").0.rounds, 3);
        for other in [
            "name = 'x'\nrounds = 2\n[workload]\nscale = 1\n",
            "name = 'x'\nrounds = 3\n[workload]\nscale = 2\n",
        ] {
            let error = RunDirectory::resume(&path, &table(other)).expect_err("a refusal");
            assert!(error.to_string().contains("has changed"), "{error}");
        }
        assert!(read(output.path()).is_err());
    }
}
