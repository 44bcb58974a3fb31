//! One turn, as the workload sees it: meters around each phase, and a place for numbers.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::progress::Progress;
use crate::figure::{Better, Distribution, Figure, Series, TurnResult, Unit};
use crate::interrupt;
use crate::meter::Reading;
use crate::meter::memory::Sampler;
use crate::place::Storage;
use crate::scratch::Cleanup;
use crate::turn::{Place, Processes, Turn, Work};

pub(super) struct TurnContext<'a> {
    storage: &'a mut dyn Storage,
    scratch: &'a Path,
    seed: u64,
    memory_interval: Duration,
    progress: &'a Progress,
    result: TurnResult,
    steps: interrupt::Steps,
}

impl<'a> TurnContext<'a> {
    pub(super) fn new(
        storage: &'a mut dyn Storage,
        scratch: &'a Path,
        seed: u64,
        memory_interval: Duration,
        progress: &'a Progress,
    ) -> TurnContext<'a> {
        TurnContext {
            storage,
            scratch,
            seed,
            memory_interval,
            progress,
            result: TurnResult::default(),
            steps: interrupt::Steps::new(),
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
        self.scratch
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn say(&mut self, what: &str) {
        self.progress.say(what);
    }

    fn measure(
        &mut self,
        phase: &str,
        processes: &Processes,
        settled: bool,
        work: &mut dyn FnMut() -> Result<Work>,
    ) -> Result<Duration> {
        interrupt::check()?;
        self.progress.say(phase);
        let servers = &processes.server_pids;
        let before = Reading::before(self.storage, servers)?;
        let daemons = self.storage.daemon_pids();
        let sampler = Sampler::start(servers.clone(), daemons, self.memory_interval)?;
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
