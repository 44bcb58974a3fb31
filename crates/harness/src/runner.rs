//! Runs every test of the workspace and adds up what the suites say into one honest line.
//!
//! The last line is `N passed, N failed, N skipped`. Counted as failed: every failed test, every suite that ended without
//! saying its result (a crash), a build that failed, and a run that was ended because nothing happened for long. Counted
//! as skipped: ignored tests, and tests that said so with [`crate::requirements::skip`]; the latter are not counted as
//! passed, although the test framework does.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::render;
use crate::requirements::SKIP_PREFIX;

/// A hanging test would block for ever; the longest one takes far less than this without a word.
const SILENCE_LIMIT: Duration = Duration::from_secs(600);

/// What the output of `cargo test` has said so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that ran and succeeded.
    pub passed: u64,
    /// Tests that failed, and suites without a result.
    pub failed: u64,
    /// Tests that did not run.
    pub skipped: u64,
    /// Why tests did not run.
    pub skip_reasons: Vec<String>,
    /// Suites that have said their result.
    pub suites: u64,
    open_suite: Option<String>,
}

impl Tally {
    /// Takes in one line of the output; returns text for a person watching, if the line ends or begins something.
    pub fn take(&mut self, line: &str) -> Option<String> {
        let trimmed = line.trim();
        if let Some(reason) = trimmed.strip_prefix(SKIP_PREFIX) {
            self.skip_reasons.push(reason.to_owned());
            self.skipped += 1;
            return Some(format!("  skipped {reason}"));
        }
        if let Some(suite) = suite_name(trimmed) {
            let lost = self.close_suite();
            self.open_suite = Some(suite);
            return lost;
        }
        if let Some(counts) = trimmed.strip_prefix("test result: ") {
            return Some(self.take_result(counts));
        }
        trimmed.ends_with("... FAILED").then(|| format!("  {trimmed}"))
    }

    fn take_result(&mut self, counts: &str) -> String {
        let number = |what: &str| -> u64 {
            let before = counts.split(what).next().unwrap_or_default();
            before
                .rsplit([' ', '.', ';'])
                .find_map(|word| word.parse().ok())
                .unwrap_or(0)
        };
        let (passed, failed, ignored) = (number(" passed"), number(" failed"), number(" ignored"));
        self.passed += passed;
        self.failed += failed;
        self.skipped += ignored;
        self.suites += 1;
        let suite = self.open_suite.take().unwrap_or_else(|| "?".to_owned());
        format!("{suite}: {passed} passed, {failed} failed, {ignored} ignored")
    }

    /// A suite that was begun and never said its result has crashed.
    fn close_suite(&mut self) -> Option<String> {
        let suite = self.open_suite.take()?;
        self.failed += 1;
        Some(format!("{suite}: ended without a result, counted as failed"))
    }

    /// Takes in how the run ended. A test that said it was skipped was reported as passed by the framework.
    fn finish(&mut self, succeeded: bool, why: &str) -> Option<String> {
        let lost = self.close_suite();
        self.passed = self.passed.saturating_sub(self.skip_reasons.len() as u64);
        if !succeeded && self.failed == 0 {
            self.failed = 1;
            return Some(format!(
                "the run failed without a failed test ({why}), counted as one failure"
            ));
        }
        lost
    }
}

/// Cargo announces a suite with `Running unittests src/lib.rs (target/...)` or `Doc-tests name`.
fn suite_name(line: &str) -> Option<String> {
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(format!("{name} (examples in the documentation)"));
    }
    let rest = line.strip_prefix("Running ")?;
    let (source, program) = rest.rsplit_once(" (")?;
    let file = Path::new(program.trim_end_matches(')')).file_name()?.to_str()?;
    let name = file.rsplit_once('-').map_or(file, |(name, _)| name);
    Some(if source.starts_with("unittests") {
        format!("{name} (unit)")
    } else {
        name.to_owned()
    })
}

/// Runs the tests; true when all passed.
pub fn run(cargo_arguments: &[String]) -> Result<bool> {
    let started = Instant::now();
    let (log_path, mut log) = create_log()?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--locked", "--no-fail-fast"]);
    if cargo_arguments.is_empty() {
        command.arg("--workspace");
    } else {
        command.args(cargo_arguments);
    }
    // A group of its own, so that a run that hangs can be ended with everything in it.
    command
        .env("CARGO_TERM_COLOR", "never")
        .stdin(Stdio::null())
        .process_group(0);
    // One pipe for both streams: cargo names a suite on one and the suite says its result on the other, in this order.
    let (reader, writer) = rustix::pipe::pipe().context("cannot make a pipe")?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("cannot run cargo")?;
    // It holds the writing end, which would keep the pipe open after the child's end.
    drop(command);
    let group = child.id() as i32;
    let lines = read_lines(File::from(reader));

    let mut tally = Tally::default();
    let mut hung = false;
    loop {
        match lines.recv_timeout(SILENCE_LIMIT) {
            Ok(line) => {
                writeln!(log, "{line}")?;
                if let Some(text) = tally.take(&line) {
                    println!("{text}");
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                println!(
                    "nothing happened for {} s: ending the run",
                    SILENCE_LIMIT.as_secs()
                );
                hung = true;
                end_group(group);
                break;
            }
        }
    }
    let status = child.wait().context("cannot wait for cargo")?;
    let succeeded = status.success() && !hung;
    if let Some(text) = tally.finish(succeeded, &status.to_string()) {
        println!("{text}");
    }
    if tally.failed > 0 {
        println!("\n{}", failure_details(&std::fs::read_to_string(&log_path)?));
    }
    println!(
        "\n{} suites in {}, everything they said: {}",
        tally.suites,
        render::duration(started.elapsed()),
        log_path.display()
    );
    println!(
        "{} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    Ok(succeeded && tally.failed == 0 && tally.passed > 0)
}

fn create_log() -> Result<(PathBuf, File)> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let directory = target.join("test-logs");
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let path = directory.join("test.log");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok((path, file))
}

/// What arrives in `pipe`, line by line, from a thread of its own so that silence can be noticed.
fn read_lines(pipe: File) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    receiver
}

fn end_group(group: i32) {
    if let Some(group) = Pid::from_raw(group).filter(|_| group > 1) {
        // The group was made for this run; it may be gone already.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The part of the log that a person wants after a failure.
fn failure_details(log: &str) -> String {
    const LINES_AT_MOST: usize = 200;
    let mut kept = Vec::new();
    let mut inside = false;
    for line in log.lines() {
        if line.trim() == "failures:" || line.starts_with("---- ") || line.starts_with("error") {
            inside = true;
        } else if line.starts_with("test result: ") || line.trim_start().starts_with("Running ") {
            inside = false;
        }
        if inside {
            kept.push(line);
        }
    }
    kept.truncate(LINES_AT_MOST);
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str, succeeded: bool) -> Tally {
        let mut tally = Tally::default();
        for line in output.lines() {
            tally.take(line);
        }
        tally.finish(succeeded, "exit status: 101");
        tally
    }

    const PASSING: &str =
        "     Running unittests src/lib.rs (target/debug/deps/packstone_codec-0123456789abcdef)
test frames::tests::round_trip ... ok
test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.03s
   Doc-tests packstone_codec
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    #[test]
    fn suites_are_added_up() {
        let tally = tally(PASSING, true);
        assert_eq!(
            (tally.passed, tally.failed, tally.skipped, tally.suites),
            (14, 0, 1, 2)
        );
    }

    #[test]
    fn skipped_test_is_not_a_passed_one() {
        let output = format!("{PASSING}\nSKIPPED postgres_crash: /dev/fuse is missing\n");
        let tally = tally(&output, true);
        assert_eq!((tally.passed, tally.skipped), (13, 2));
        assert_eq!(tally.skip_reasons, ["postgres_crash: /dev/fuse is missing"]);
    }

    #[test]
    fn failed_tests_count() {
        let output = "     Running tests/life.rs (target/debug/deps/life-0123456789abcdef)
test unmount ... FAILED
test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 9.03s";
        let tally = tally(output, false);
        assert_eq!((tally.passed, tally.failed), (3, 2));
    }

    #[test]
    fn suite_without_a_result_counts_as_failed() {
        let crashed =
            "     Running unittests src/lib.rs (target/debug/deps/packstone_pool-0123456789abcdef)\n";
        let output = format!("{crashed}{PASSING}");
        let tally = tally(&output, false);
        assert_eq!((tally.passed, tally.failed), (14, 1));
    }

    #[test]
    fn failed_build_counts_as_failed() {
        let tally = tally("error: could not compile `packstone-pool`", false);
        assert_eq!((tally.passed, tally.failed), (0, 1));
    }

    #[test]
    fn suites_are_named() {
        let unit = suite_name("Running unittests src/lib.rs (target/debug/deps/packstone_codec-01ab)");
        assert_eq!(unit.as_deref(), Some("packstone_codec (unit)"));
        let whole = suite_name("Running tests/postgres_crash.rs (target/debug/deps/postgres_crash-01ab)");
        assert_eq!(whole.as_deref(), Some("postgres_crash"));
        assert_eq!(suite_name("Running late"), None);
    }
}
