//! Threads that drive background work in small steps.
//!
//! Each thread repeats one kind of step: after progress it goes on at once, when idle it rests, after an error it
//! rests longer and longer. An error is logged when it first appears or changes, and so is its end, so that a full disk
//! does not fill the log too.

use super::Daemon;
use crate::failure::describe;
use crate::operations;
use anyhow::Context;
use packstone_pool::{BackgroundWork, DatasetState, StepOutcome};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rest after a step that found nothing to do: the write-out of old commits is the most pressing.
const FLUSH_REST: Duration = Duration::from_millis(50);
const OTHER_REST: Duration = Duration::from_millis(100);
/// Longest rest after repeated errors.
const ERROR_REST_MAX: Duration = Duration::from_secs(5);

/// The threads, until stopped.
pub struct Background {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    requested: Mutex<bool>,
    wake: Condvar,
}

impl Stop {
    fn is_requested(&self) -> bool {
        *self.requested.lock()
    }

    fn rest(&self, time: Duration) {
        let mut requested = self.requested.lock();
        if !*requested {
            self.wake.wait_for(&mut requested, time);
        }
    }
}

impl Background {
    /// Starts every thread.
    pub fn start(daemon: Arc<Daemon>) -> anyhow::Result<Background> {
        let mut background = Background {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        let started = daemon.started;
        for (name, work, rest) in [
            ("flush", BackgroundWork::Flush, FLUSH_REST),
            ("checkpoint", BackgroundWork::Checkpoint, OTHER_REST),
            ("clean", BackgroundWork::Clean, OTHER_REST),
        ] {
            let pool = daemon.pool.clone();
            background.spawn(name, rest, move || {
                let outcome = pool
                    .step(work, monotonic_ms(started))
                    .map_err(anyhow::Error::from);
                let outcome =
                    outcome.inspect_err(|error| operations::note_failed_work(&pool, name, error))?;
                Ok(outcome == StepOutcome::Progress)
            })?;
        }
        background.spawn("files", OTHER_REST, move || {
            step_files(&daemon)
                .inspect_err(|error| operations::note_failed_work(&daemon.pool, "files", error))
        })?;
        Ok(background)
    }

    fn spawn(
        &mut self,
        name: &'static str,
        rest: Duration,
        mut step: impl FnMut() -> anyhow::Result<bool> + Send + 'static,
    ) -> anyhow::Result<()> {
        let stop = self.stop.clone();
        let thread = std::thread::Builder::new()
            .name(name.to_string())
            .spawn(move || repeat(name, rest, &stop, &mut step))
            .with_context(|| format!("start the {name} thread"))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Waits until every thread has finished the step it is in.
    pub fn stop(self) {
        *self.stop.requested.lock() = true;
        self.stop.wake.notify_all();
        for thread in self.threads {
            // A thread that panicked has taken the process with it.
            let _ = thread.join();
        }
    }
}

fn monotonic_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn repeat(name: &str, rest: Duration, stop: &Stop, step: &mut impl FnMut() -> anyhow::Result<bool>) {
    let mut last_error: Option<String> = None;
    let mut error_rest = rest;
    while !stop.is_requested() {
        match step() {
            Ok(more) => {
                if last_error.take().is_some() {
                    tracing::info!(work = name, "background work goes on");
                }
                error_rest = rest;
                if !more {
                    stop.rest(rest);
                }
            }
            Err(error) => {
                let text = describe(&error);
                if last_error.as_ref() != Some(&text) {
                    tracing::error!(
                        work = name,
                        error = text,
                        "background work failed; it will be tried again"
                    );
                    last_error = Some(text);
                }
                error_rest = (error_rest * 2).min(ERROR_REST_MAX);
                stop.rest(error_rest);
            }
        }
    }
}

/// A step of every mounted file system and of every dataset that is being destroyed.
fn step_files(daemon: &Daemon) -> anyhow::Result<bool> {
    let now = operations::timestamp_now();
    let mounted = daemon.mounts.file_systems();
    let steps = mounted
        .iter()
        .map(|file_system| file_system.step(now).map_err(anyhow::Error::from));
    take_all(steps.chain(std::iter::once_with(|| destroy_pieces(daemon))))
}

/// A piece of each dataset that is being destroyed.
fn destroy_pieces(daemon: &Daemon) -> anyhow::Result<bool> {
    let datasets = daemon.pool.datasets()?.into_iter();
    let destroying = datasets.filter(|dataset| dataset.state == DatasetState::Destroying);
    take_all(destroying.map(|dataset| operations::destroy_step(&daemon.pool, &dataset.name)))
}

/// Takes every step, also those behind one that fails, and tells the first failure at the end. True if there was progress
/// that may go on.
fn take_all(steps: impl Iterator<Item = anyhow::Result<bool>>) -> anyhow::Result<bool> {
    let (mut going_on, mut failed) = (false, None);
    for step in steps {
        match step {
            Ok(more) => going_on |= more,
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(going_on), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn progress_repeats_at_once_and_stop_ends_a_rest() {
        let mut background = Background {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        let steps = Arc::new(AtomicU32::new(0));
        let counted = steps.clone();
        // Three steps with progress, then a rest far longer than the test.
        background
            .spawn("test", Duration::from_secs(600), move || {
                Ok(counted.fetch_add(1, Ordering::SeqCst) < 2)
            })
            .unwrap();
        let begun = Instant::now();
        while steps.load(Ordering::SeqCst) < 3 && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        background.stop();
        assert_eq!(steps.load(Ordering::SeqCst), 3);
        assert!(begun.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_step_that_fails_keeps_none_behind_it_from_its_turn() {
        let mut taken = Vec::new();
        let outcome = take_all((0..4).map(|step| {
            taken.push(step);
            match step {
                1 | 2 => Err(anyhow::anyhow!("step {step} failed")),
                _ => Ok(true),
            }
        }));
        assert_eq!(outcome.unwrap_err().to_string(), "step 1 failed");
        assert_eq!(taken, [0, 1, 2, 3]);
        assert!(take_all([Ok(false), Ok(true), Ok(false)].into_iter()).unwrap());
        assert!(!take_all(std::iter::empty()).unwrap());
    }

    #[test]
    fn errors_are_tried_again() {
        let mut background = Background {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        let steps = Arc::new(AtomicU32::new(0));
        let counted = steps.clone();
        background
            .spawn("test", Duration::from_millis(1), move || {
                match counted.fetch_add(1, Ordering::SeqCst) {
                    0..3 => Err(anyhow::anyhow!("no luck")),
                    _ => Ok(false),
                }
            })
            .unwrap();
        let begun = Instant::now();
        while steps.load(Ordering::SeqCst) < 5 && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        background.stop();
        assert!(steps.load(Ordering::SeqCst) >= 5);
    }
}
