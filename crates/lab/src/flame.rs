//! Flame graphs of a measured phase: where the processor time of a server and of a storage daemon went.
//!
//! ```no_run
//! # use packstone_lab::flame::{Profiled, Profiler, Target};
//! # fn phase() {}
//! # let run_directory = std::path::Path::new(".");
//! let targets = [Target::new("server", &[4711]), Target::new("daemon", &[4712])];
//! let profiler = Profiler::start("8 clients", &targets, run_directory, "turn-07-8-clients");
//! phase();
//! let Profiled { graphs, notes } = profiler.finish();
//! ```
//!
//! The runner starts a [`Profiler`] just before a phase and finishes it just after; graphs and notes belong into the
//! turn's result. `perf record` samples each target's processes, all that descend from them, and what these start later,
//! with their time in the kernel. One graph is made of each target, as `STEM-PROCESS.svg` in the run's directory.
//!
//! A profile is never a reason for a turn to fail. Where `perf` or the renderer is missing, not permitted or fails, there
//! is no graph and a note that says why and what to do. With no targets, or none alive, nothing happens.
//!
//! Sampling costs a little time, on all arms alike. Stacks follow frame pointers: programs built without them, as most
//! distributions build PostgreSQL, have shallow stacks in user space; those of the kernel are whole. Where a virtual machine has
//! no hardware counters `perf` uses a timer that each process starts anew, so processes that live less than 5 ms are missed.
//!
//! Rendering is done by the programs of `inferno` (`inferno-collapse-perf`, `inferno-flamegraph`), which are run, not
//! linked; why, in decision 0007.

mod recording;
mod render;

use std::path::{Path, PathBuf};

use crate::figure::FlameGraph;
use recording::Recording;

/// Samples a second: high enough for a phase of some seconds, and no divisor of the kernel's clock ticks.
const SAMPLES_PER_SECOND: u32 = 199;

/// After so many times a failure to attach has another reason than processes that came and went.
const MOST_TRIES: u32 = 5;

/// Processes that get a graph of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    process: String,
    pids: Vec<i32>,
}

impl Target {
    /// `process` is `server` or `daemon`; `pids` are its root processes.
    pub fn new(process: &str, pids: &[i32]) -> Target {
        Target {
            process: process.to_owned(),
            pids: pids.to_vec(),
        }
    }
}

/// What a profile yielded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profiled {
    /// Graphs, at most one of each target.
    pub graphs: Vec<FlameGraph>,
    /// Why there are fewer.
    pub notes: Vec<String>,
}

/// Samples processes until it is finished. Dropped unfinished, it stops and removes what it recorded.
#[derive(Debug)]
pub struct Profiler {
    phase: String,
    directory: PathBuf,
    stem: String,
    recordings: Vec<(String, Recording)>,
    notes: Vec<String>,
}

impl Profiler {
    /// Starts to sample `targets`. Files go to `directory`, the run's, and their names begin with `stem`, of which
    /// everything but letters, digits and `-` becomes `-`.
    pub fn start(phase: &str, targets: &[Target], directory: &Path, stem: &str) -> Profiler {
        let mut profiler = Profiler {
            phase: phase.to_owned(),
            directory: directory.to_owned(),
            stem: file_name(stem),
            recordings: Vec::new(),
            notes: Vec::new(),
        };
        for target in targets {
            let data = directory.join(format!("{}-{}.perf", profiler.stem, file_name(&target.process)));
            match record(&target.pids, &data) {
                Ok(Some(recording)) => profiler.recordings.push((target.process.clone(), recording)),
                Ok(None) => {}
                Err(reason) => profiler.note(&reason),
            }
        }
        profiler
    }

    /// Stops sampling and renders. Takes some seconds after a long phase, so call it when nothing is measured.
    pub fn finish(mut self) -> Profiled {
        let mut graphs = Vec::new();
        // All stop first: rendering one must not show up in the samples of another.
        let stopped: Vec<(String, Result<PathBuf, String>)> = self
            .recordings
            .drain(..)
            .map(|(process, recording)| (process, recording.stop()))
            .collect();
        for (process, data) in stopped {
            let file = format!("{}-{}.svg", self.stem, file_name(&process));
            let title = format!("{process}, {}", self.phase);
            let rendered = data.and_then(|data| {
                let rendered = render::render(&data, &self.directory.join(&file), &title);
                recording::remove(&data);
                rendered
            });
            match rendered {
                Ok(()) => graphs.push(FlameGraph {
                    phase: self.phase.clone(),
                    process,
                    file,
                }),
                Err(reason) => self.note(&format!("{process}: {reason}")),
            }
        }
        Profiled {
            graphs,
            notes: self.notes,
        }
    }

    fn note(&mut self, reason: &str) {
        let note = format!("no flame graph: {reason}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// Samples `roots` and their descendants; nothing when none is alive. A process that ends while `perf` attaches itself makes
/// it give up, so it is tried again as long as that may have been the reason.
fn record(roots: &[i32], data: &Path) -> Result<Option<Recording>, String> {
    let mut pids = recording::with_descendants(roots);
    let mut tries = 1;
    while !pids.is_empty() {
        let failed = match Recording::start(&pids, SAMPLES_PER_SECOND, data) {
            Ok(recording) => return Ok(Some(recording)),
            Err(reason) => reason,
        };
        let now = recording::with_descendants(roots);
        if now == pids || tries == MOST_TRIES {
            return Err(failed);
        }
        pids = now;
        tries += 1;
    }
    Ok(None)
}

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

#[cfg(test)]
mod tests;
