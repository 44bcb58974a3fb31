//! The tests that are tried on each deliberate bug, in the order of how quick they usually are.
//!
//! All run in the `sim` profile: optimised, with assertions and overflow checks.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use crate::process;

/// What one catcher made of one bug.
#[derive(Debug, Serialize)]
pub(super) struct Catch {
    pub(super) catcher: String,
    /// Test or message that complained; nothing when it noticed nothing.
    pub(super) caught_by: Option<String>,
    /// From the start to the first complaint, or to the end.
    pub(super) seconds: f64,
}

impl Catch {
    pub(super) fn in_words(&self) -> String {
        match &self.caught_by {
            Some(by) => format!("{}: caught after {:.1} s by {by}", self.catcher, self.seconds),
            None => format!("{}: noticed nothing in {:.1} s", self.catcher, self.seconds),
        }
    }
}

/// A program that should notice.
pub(super) struct Catcher {
    name: &'static str,
    /// Arguments of cargo that build it.
    build: &'static [&'static str],
    /// Arguments of cargo that run it.
    run: &'static [&'static str],
}

pub(super) const CATCHERS: [Catcher; 4] = [
    Catcher {
        name: "crash points",
        build: &["build", "--profile", "sim", "-p", "packstone-sim"],
        run: &[
            "run",
            "--profile",
            "sim",
            "-p",
            "packstone-sim",
            "--",
            "exhaustive",
            "--threads",
            "2",
        ],
    },
    Catcher {
        name: "random lives",
        build: &["build", "--profile", "sim", "-p", "packstone-sim"],
        run: &[
            "run",
            "--profile",
            "sim",
            "-p",
            "packstone-sim",
            "--",
            "run",
            "--seeds",
            "0..100000",
            "--threads",
            "2",
            "--until-failure",
            "--shrink-seconds",
            "0",
        ],
    },
    Catcher {
        name: "pool tests",
        build: &[
            "test",
            "--profile",
            "sim",
            "-p",
            "packstone-pool",
            "--lib",
            "--no-run",
        ],
        run: &["test", "--profile", "sim", "-p", "packstone-pool", "--lib"],
    },
    Catcher {
        name: "fs tests",
        build: &["test", "--profile", "sim", "-p", "packstone-fs", "--no-run"],
        run: &["test", "--profile", "sim", "-p", "packstone-fs", "--no-fail-fast"],
    },
];

impl Catcher {
    pub(super) fn run(&self, tree: &Path, limit: Duration) -> Result<Catch> {
        process::run(cargo(tree).args(self.build)).with_context(|| format!("build {}", self.name))?;
        let started = Instant::now();
        let mut command = cargo(tree);
        command.args(self.run).stdin(Stdio::null()).process_group(0);
        let (reader, writer) = rustix::pipe::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn().context("cannot run cargo")?;
        drop(command);
        let lines = lines_of(std::fs::File::from(reader));
        let mut caught_by = None;
        while caught_by.is_none() {
            match lines.recv_timeout(limit.saturating_sub(started.elapsed())) {
                Ok(line) => caught_by = complaint(&line),
                Err(_) => break,
            }
        }
        let (seconds, timed_out) = (started.elapsed().as_secs_f64(), started.elapsed() >= limit);
        if caught_by.is_some() || timed_out {
            if let Some(group) = Pid::from_raw(child.id() as i32) {
                // The group was made for this run, and may be gone already.
                let _ = kill_process_group(group, Signal::KILL);
            }
            child.wait()?;
        } else if !child.wait()?.success() {
            caught_by = Some("it ended with an error".to_owned());
        }
        Ok(Catch {
            catcher: self.name.to_owned(),
            caught_by,
            seconds,
        })
    }
}

fn cargo(tree: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", tree.with_file_name("target"))
        .env("CARGO_TERM_COLOR", "never");
    command
}

/// The words of a line in which a test or the simulation says that something is wrong.
fn complaint(line: &str) -> Option<String> {
    if let Some(test) = line
        .strip_prefix("test ")
        .and_then(|rest| rest.strip_suffix(" ... FAILED"))
    {
        return Some(test.to_owned());
    }
    let failure = line.strip_prefix("FAILED ").or_else(|| {
        let (seed, failure) = line.split_once(" fails at operation ")?;
        seed.starts_with("seed ").then_some(failure)
    })?;
    Some(failure.chars().take(100).collect())
}

fn lines_of(pipe: std::fs::File) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(std::io::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
