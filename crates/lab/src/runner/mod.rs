//! Runs an experiment: plan, storage, turns, journal.
//!
//! ```text
//!  plan: control control │ A B B A │ A B B A │ ...        (the first pair sets the noise floor)
//!         │
//!         └─ turn: limits ─► fresh storage ─► workload ─► figures ─► a line in the journal ─► storage taken down
//! ```
//!
//! Invariants:
//! - A turn is in the journal exactly when it was finished; a run that was cut short goes on with the first turn that is not.
//! - Whatever a turn made is taken down before the next one begins, and before an error is returned.

mod directory;
mod journal;
mod plan;
mod progress;
mod turn_context;
mod work_directory;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::confinement::{self, Confinement};
use crate::experiment::{Arm, Experiment};
use crate::figure::TurnResult;
use crate::interrupt;
use crate::machine;
use crate::place::{self, Backing, Storage};
use crate::probe;
use crate::run_information::{ArmInformation, RunInformation};
use crate::workload::{self, Workload};
use directory::RunDirectory;
pub use directory::read as read_run;
pub use plan::{PlannedTurn, plan};
use progress::Progress;
use turn_context::{Given, TurnContext};
use work_directory::WorkDirectory;

/// How a run is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The experiment with all changes from the command line.
    pub table: toml::Table,
    /// Where the run's directory is made.
    pub output: PathBuf,
    /// A run that is to be finished.
    pub resume: Option<PathBuf>,
    /// Overwrite what a given device holds.
    pub force: bool,
    /// The program `packstone`.
    pub packstone: PathBuf,
}

/// A finished run.
#[derive(Debug)]
pub struct Finished {
    /// Its directory.
    pub directory: PathBuf,
    /// What it was about.
    pub information: RunInformation,
    /// Its turns in the order in which they were made.
    pub turns: Vec<TurnResult>,
}

/// What an experiment would do and need.
#[derive(Clone, Debug)]
pub struct Preview {
    /// Turns in order.
    pub turns: Vec<PlannedTurn>,
    /// Bytes of the backing file, or of the largest directory.
    pub room_bytes: u64,
    /// Where they are needed.
    pub room_directory: PathBuf,
    /// Bytes that are free there.
    pub free_bytes: u64,
    /// Seconds that the workload expects for all turns, if it can say.
    pub seconds: Option<u64>,
    /// What is missing on this machine; empty when the run can begin.
    pub missing: Vec<String>,
}

/// Says what an experiment would do, and what is missing for it. Changes nothing.
pub fn preview(options: &Options) -> Result<Preview> {
    let experiment = Experiment::from_table(&options.table)?;
    let workload = workload::from_table(&experiment.workload).context("the table [workload]")?;
    refuse_unknown_settings(&experiment, &*workload)?;
    let turns = plan(&experiment);
    let mut missing = Vec::new();
    for arm in &experiment.arms {
        for what in place::missing(arm, &options.packstone) {
            missing.push(format!("arm '{}': {what}", arm.name));
        }
    }
    if let Err(error) = workload.check() {
        missing.push(format!("workload: {error:#}"));
    }
    let limits = experiment.profile.limits()?;
    if let Err(error) = confinement::describe(limits, wants_memory_limit(&experiment)) {
        missing.push(format!("{error:#}"));
    }
    let needs_backing = experiment.arms.iter().any(|arm| arm.kind.uses_backing());
    let needs_file = needs_backing && experiment.backing.device.is_none();
    let room_bytes = match needs_file {
        true => experiment.backing.size_bytes(),
        false => workload.storage_bytes(),
    };
    if needs_file && workload.storage_bytes() > experiment.backing.size_bytes() {
        missing.push(format!(
            "backing.size: the workload needs some {} MiB, and {} MiB are given",
            workload.storage_bytes() >> 20,
            experiment.backing.size_bytes() >> 20
        ));
    }
    if let Err(error) = place::check_device(&experiment.backing, options.force) {
        missing.push(format!("{error:#}"));
    }
    let room_directory = experiment.backing.directory.clone();
    let free_bytes = free_bytes(&room_directory)?;
    if free_bytes < room_bytes.saturating_add(SPARE_BYTES) {
        missing.push(format!(
            "{}: {} MiB are free, and {} MiB are needed with {} MiB to spare: choose another backing.directory",
            room_directory.display(),
            free_bytes >> 20,
            room_bytes >> 20,
            SPARE_BYTES >> 20
        ));
    }
    let each = workload.expected_seconds();
    Ok(Preview {
        seconds: each.map(|seconds| seconds * turns.len() as u64),
        turns,
        room_bytes,
        room_directory,
        free_bytes,
        missing,
    })
}

fn refuse_unknown_settings(experiment: &Experiment, workload: &dyn Workload) -> Result<()> {
    let known = workload.arm_settings();
    for arm in &experiment.arms {
        for name in arm.settings().keys() {
            ensure!(
                known.contains(&name.as_str()),
                "arm '{}': the workload knows no setting '{name}', {}",
                arm.name,
                match known {
                    [] => "it has none".to_owned(),
                    known => format!("only {}", known.join(", ")),
                }
            );
        }
    }
    Ok(())
}

/// What must stay free beside the backing, for logs and for everybody else on the machine.
const SPARE_BYTES: u64 = 256 << 20;

fn free_bytes(directory: &Path) -> Result<u64> {
    let figures = rustix::fs::statvfs(directory)
        .with_context(|| format!("backing.directory: cannot look at {}", directory.display()))?;
    Ok(figures.f_bavail * figures.f_frsize)
}

fn wants_memory_limit(experiment: &Experiment) -> bool {
    experiment
        .arms
        .iter()
        .any(|arm| experiment.memory_limit_bytes(arm).is_some())
}

/// Runs an experiment, or finishes a run.
pub fn run(options: &Options) -> Result<Finished> {
    let preview = preview(options)?;
    ensure!(
        preview.missing.is_empty(),
        "this machine lacks what the experiment needs:\n  {}",
        preview.missing.join("\n  ")
    );
    interrupt::watch()?;
    let experiment = Experiment::from_table(&options.table)?;
    let workload = workload::from_table(&experiment.workload)?;
    let information = information(&experiment, options)?;
    let (mut run, turns) = match &options.resume {
        Some(directory) => RunDirectory::resume(directory, &options.table)?,
        None => (
            RunDirectory::create(&options.output, &options.table, &information)?,
            Vec::new(),
        ),
    };
    let progress = Progress::new();
    progress.line(&format!("results go to {}", run.path().display()));
    let mut laboratory = Laboratory::set_up(&experiment, &*workload, options, progress)?;
    let outcome = laboratory.run_all(&mut run, turns);
    if outcome.is_err() {
        laboratory.say_how_to_go_on(run.path());
    }
    drop(laboratory);
    let turns = outcome?;
    Ok(Finished {
        directory: run.path().to_owned(),
        information: run.information().clone(),
        turns,
    })
}

fn information(experiment: &Experiment, options: &Options) -> Result<RunInformation> {
    let arms = experiment.arms.iter().map(|arm| ArmInformation {
        name: arm.name.clone(),
        kind: arm.kind.name().to_owned(),
        summary: arm.summary(),
    });
    let held = confinement::describe(experiment.profile.limits()?, wants_memory_limit(experiment))?;
    let profile = experiment.profile.describe();
    Ok(RunInformation {
        experiment_name: experiment.name.clone(),
        description: experiment.description.clone(),
        control: experiment.control.clone(),
        arms: arms.collect(),
        machine: machine::information(&experiment.arms, &options.packstone),
        profile: held.map_or(profile.clone(), |held| format!("{profile}; {held}")),
        workload: toml::to_string(&experiment.workload).context("the workload cannot be written as TOML")?,
        rounds: experiment.rounds,
        started_unix_seconds: now(),
    })
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |duration| duration.as_secs())
}

/// Everything that turns share.
struct Laboratory<'a> {
    experiment: &'a Experiment,
    workload: &'a dyn Workload,
    // Fields are dropped in this order: the backing lies in the directory.
    backing: Option<Backing>,
    directory: WorkDirectory,
    packstone: PathBuf,
    progress: Progress,
}

impl<'a> Laboratory<'a> {
    fn set_up(
        experiment: &'a Experiment,
        workload: &'a dyn Workload,
        options: &Options,
        progress: Progress,
    ) -> Result<Laboratory<'a>> {
        let directory = WorkDirectory::create(&experiment.backing.directory)?;
        let needs_backing = experiment.arms.iter().any(|arm| arm.kind.uses_backing());
        let prepare = || {
            let mut say = |what: &str| progress.say(what);
            Backing::prepare(&experiment.backing, directory.path(), options.force, &mut say)
        };
        let backing = needs_backing.then(prepare).transpose()?;
        Ok(Laboratory {
            experiment,
            workload,
            backing,
            directory,
            packstone: options.packstone.clone(),
            progress,
        })
    }

    fn run_all(&mut self, run: &mut RunDirectory, mut turns: Vec<TurnResult>) -> Result<Vec<TurnResult>> {
        let planned = plan(self.experiment);
        if self.experiment.meters.probe {
            self.probe_arms(run)?;
        }
        let done = turns.len();
        self.progress.begin(planned.len(), done);
        for turn in &planned {
            interrupt::check()?;
            if turns.iter().any(|result| turn.is(result)) {
                continue;
            }
            let arm = self.experiment.arm(&turn.arm)?;
            self.progress.turn(turn);
            let mut result = self
                .turn(turn, arm, run.path())
                .with_context(|| format!("the turn {turn} failed"))?;
            // With a turn of the rounds, because the analysis compares only those.
            let is_first = turn.round.is_some()
                && !turns
                    .iter()
                    .any(|earlier| earlier.arm == turn.arm && earlier.round.is_some());
            if is_first && let Some(probed) = run.probed(&turn.arm) {
                result.figures.extend(probed.figures.iter().cloned());
                let warnings = probed.warnings.iter();
                result
                    .notes
                    .extend(warnings.map(|warning| format!("probe: {warning}")));
            }
            run.append(&result)?;
            turns.push(result);
            self.progress.finished();
        }
        self.progress.end();
        Ok(turns)
    }

    fn turn(&mut self, planned: &PlannedTurn, arm: &Arm, run: &Path) -> Result<TurnResult> {
        let started_unix_seconds = now();
        let profiled = self.experiment.flame_graphs.enabled && planned.is_profiled();
        let mut refilled = false;
        if let Some(backing) = &self.backing {
            let mut say = |what: &str| self.progress.say(what);
            refilled = backing.fill_holes(&mut say)?;
        }
        let mut result = self.with_storage(arm, |laboratory, storage| {
            let interval = Duration::from_millis(laboratory.experiment.meters.memory_interval_milliseconds);
            let given = Given {
                scratch: laboratory.directory.scratch(),
                seed: planned.seed(),
                memory_interval: interval,
                flame_graphs: profiled.then(|| (run, format!("flame-{}", planned.arm))),
                progress: &laboratory.progress,
            };
            let mut context = TurnContext::new(storage, given);
            laboratory.workload.run(&mut context)?;
            // A workload that took an ended child for a finished one must not be believed.
            interrupt::check()?;
            Ok(context.into_result())
        })?;
        if refilled {
            result
                .notes
                .push("the backing file had got holes, and was written anew".to_owned());
        }
        Ok(TurnResult {
            arm: arm.name.clone(),
            round: planned.round,
            position: planned.position,
            started_unix_seconds,
            ..result
        })
    }

    /// Runs `work` on fresh storage under the arm's limits, and takes everything down.
    fn with_storage<T>(
        &mut self,
        arm: &Arm,
        work: impl FnOnce(&mut Laboratory<'a>, &mut dyn Storage) -> Result<T>,
    ) -> Result<T> {
        // A directory has no device of its own, and its experiment no limits.
        let limits = self
            .experiment
            .profile
            .limits()?
            .filter(|_| arm.kind.uses_backing());
        let mut confinement = Confinement::enter(limits, self.experiment.memory_limit_bytes(arm))?;
        let surroundings = self.directory.surroundings(&self.packstone);
        let mut storage = place::make(arm, self.backing.as_ref(), &surroundings)?;
        if let Some(limits) = limits {
            confinement.limit_device(storage.device(), limits)?;
        }
        let outcome = work(self, &mut *storage);
        confinement.free_device();
        let taken_down = storage.take_down();
        drop(storage);
        let value = outcome?;
        taken_down.context("the storage could not be taken down")?;
        Ok(value)
    }

    fn probe_arms(&mut self, run: &mut RunDirectory) -> Result<()> {
        let experiment = self.experiment;
        for arm in &experiment.arms {
            if run.probed(&arm.name).is_some() {
                continue;
            }
            self.progress.say(&format!("probing {}", arm.name));
            let limits = experiment.profile.limits()?.filter(|_| arm.kind.uses_backing());
            let room_bytes = match arm.kind.uses_backing() {
                true => experiment.backing.size_bytes(),
                false => free_bytes(&self.experiment.backing.directory)?,
            };
            let probed = self
                .with_storage(arm, |_, storage| probe::run(storage, limits, room_bytes))
                .with_context(|| format!("the probe of arm '{}' failed", arm.name))?;
            self.progress.line(&progress::describe_probe(&arm.name, &probed));
            run.keep_probed(&arm.name, probed)?;
        }
        Ok(())
    }

    /// Keeps the logs of a turn that failed, and says where, and how the run is finished.
    fn say_how_to_go_on(&self, run: &Path) {
        if let Some(kept) = self.directory.keep_scratch(&run.join("failed-turn")) {
            self.progress.line(&format!("logs are in {}", kept.display()));
        }
        self.progress.line(&format!(
            "the run is not finished: 'packstone lab run EXPERIMENT --resume {}' goes on with it",
            run.display()
        ));
    }
}
