//! One turn, as the workload sees it: meters around each phase, and a place for numbers.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::progress::Progress;
use crate::figure::{Better, Distribution, Figure, Series, TurnResult, Unit};
use crate::flame::{Profiled, Profiler, Target};
use crate::interrupt;
use crate::meter::Reading;
use crate::meter::memory::Sampler;
use crate::place::Storage;
use crate::scratch::Cleanup;
use crate::turn::{Place, Processes, Turn, Work};

/// What a turn is given besides its storage.
pub(super) struct Given<'a> {
    /// Directory off the storage, see [`Turn::scratch`].
    pub scratch: &'a Path,
    /// See [`Turn::seed`].
    pub seed: u64,
    /// Time between two looks at the memory of server and daemon.
    pub memory_interval: Duration,
    /// Where flame graphs go and how their names begin, when this turn is profiled.
    pub flame_graphs: Option<(&'a Path, String)>,
    /// Where what happens is said.
    pub progress: &'a Progress,
}

pub(super) struct TurnContext<'a> {
    storage: &'a mut dyn Storage,
    given: Given<'a>,
    result: TurnResult,
    steps: interrupt::Steps,
}

impl<'a> TurnContext<'a> {
    pub(super) fn new(storage: &'a mut dyn Storage, given: Given<'a>) -> TurnContext<'a> {
        TurnContext {
            storage,
            given,
            result: TurnResult::default(),
            steps: interrupt::Steps::new(),
        }
    }

    fn start_profile(&self, phase: &str, servers: &[i32], daemons: &[i32]) -> Option<Profiler> {
        let (directory, stem) = self.given.flame_graphs.as_ref()?;
        let targets = [Target::new("server", servers), Target::new("daemon", daemons)];
        let stem = file_name(&format!("{stem}-{phase}"));
        Some(Profiler::start(phase, &targets, directory, &stem))
    }

    fn finish_profile(&mut self, profiler: Option<Profiler>) {
        let Some(profiler) = profiler else { return };
        self.given.progress.say("drawing flame graphs");
        let Profiled { graphs, notes } = profiler.finish();
        self.result.flame_graphs.extend(graphs);
        for note in notes {
            self.note(&note);
        }
    }

    /// All that was recorded.
    pub(super) fn into_result(self) -> TurnResult {
        self.result
    }
}

impl Turn for TurnContext<'_> {
    fn place(&mut self) -> &mut dyn Place {
        self.storage.as_place()
    }

    fn scratch(&self) -> &Path {
        self.given.scratch
    }

    fn seed(&self) -> u64 {
        self.given.seed
    }

    fn say(&mut self, what: &str) {
        self.given.progress.say(what);
    }

    fn measure(
        &mut self,
        phase: &str,
        processes: &Processes,
        settled: bool,
        work: &mut dyn FnMut() -> Result<Work>,
    ) -> Result<Duration> {
        interrupt::check()?;
        self.given.progress.say(phase);
        let servers = &processes.server_pids;
        let daemons = self.storage.daemon_pids();
        let profiler = self.start_profile(phase, servers, &daemons);
        let before = Reading::before(self.storage, servers)?;
        let sampler = Sampler::start(servers.clone(), daemons, self.given.memory_interval)?;
        let serving = interrupt::Serving::new(servers);
        let start = Instant::now();
        let mut outcome = work();
        let mut elapsed = start.elapsed();
        if settled && outcome.is_ok() {
            if let Err(error) = self.storage.settle() {
                outcome = Err(error);
            }
            elapsed = start.elapsed().saturating_sub(self.storage.settle_waits());
        }
        drop(serving);
        let peak = sampler.finish();
        let work = outcome?;
        interrupt::check()?;
        let after = Reading::after(self.storage, servers)?;
        self.finish_profile(profiler);
        self.record(phase, "time", Unit::Seconds, Better::Lower, elapsed.as_secs_f64());
        let costs = before.figures_until(&after, phase, work, &peak);
        self.result.figures.extend(costs.figures);
        for note in costs.notes {
            self.note(&note);
        }
        Ok(elapsed)
    }

    fn record(&mut self, phase: &str, name: &str, unit: Unit, better: Better, value: f64) {
        self.result.figures.push(Figure {
            phase: phase.to_owned(),
            name: name.to_owned(),
            unit,
            better,
            value,
        });
    }

    fn record_distribution(&mut self, distribution: Distribution) {
        self.result.distributions.push(distribution);
    }

    fn record_series(&mut self, series: Series) {
        self.result.series.push(series);
    }

    fn note(&mut self, note: &str) {
        if !self.result.notes.iter().any(|known| known == note) {
            self.result.notes.push(note.to_owned());
        }
    }

    fn cleanup(&self) -> Option<&Cleanup> {
        Some(self.steps.cleanup())
    }
}

/// `text` with nothing in it that file names or pages would trip over.
fn file_name(text: &str) -> String {
    text.chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .collect()
}
