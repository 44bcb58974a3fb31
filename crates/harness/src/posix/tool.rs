//! Programs of others: where they are, and running one to its end with a limit of time.
//!
//! `pjdfstest` and `fsx` are built by `scripts/setup.sh --suites` into `tools/bin` of the build directory; the rest are
//! Debian packages on the search path.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::requirements;

/// Lines of a program's output that go into the report of a failure.
const LINES_SHOWN: usize = 60;

/// How a program ended, and what it said on both streams.
pub struct Ended {
    /// Exit status.
    pub status: ExitStatus,
    /// Everything it wrote.
    pub output: String,
}

impl Ended {
    /// The last lines of the output.
    pub fn tail(&self) -> String {
        let lines: Vec<&str> = self.output.lines().collect();
        lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
    }

    /// An error with the end of the output, unless it ended well.
    pub fn well(self) -> Result<String> {
        if !self.status.success() {
            bail!("{}\n{}", self.status, self.tail());
        }
        Ok(self.output)
    }
}

/// Path of the program `name`.
pub fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let mut built = own
        .ancestors()
        .map(|directory| directory.join("tools/bin").join(name));
    built
        .find(|path| path.is_file())
        .or_else(|| requirements::program(name))
}

/// A command for the program `name`, which speaks English without colours.
pub fn command(name: &str) -> Result<Command> {
    let path = find(name).with_context(|| format!("{name} is not installed (scripts/setup.sh --suites)"))?;
    let mut command = Command::new(path);
    command
        .env("LC_ALL", "C.UTF-8")
        .env("NO_COLOR", "1")
        .env("TERM", "dumb");
    Ok(command)
}

/// Runs `command` with its output in `log`. One that is not done within `limit` is ended with all it started.
pub fn run(command: &mut Command, log: &Path, limit: Duration) -> Result<Ended> {
    let file = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .process_group(0);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > limit {
            end_group(child.id());
            child.wait()?;
            let said = Ended {
                status: ExitStatus::default(),
                output: read(log)?,
            };
            bail!(
                "not done after {} s, it said last:\n{}",
                limit.as_secs(),
                said.tail()
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    Ok(Ended {
        status,
        output: read(log)?,
    })
}

/// The group was made for this child, which has not been waited for, so the id is still its own.
fn end_group(id: u32) {
    if let Some(group) = Pid::from_raw(id as i32).filter(|_| id > 1) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Names in the output need not be UTF-8.
fn read(log: &Path) -> Result<String> {
    let bytes = std::fs::read(log).with_context(|| format!("cannot read {}", log.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_both_streams_and_the_status_come_back() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo one; echo two >&2; exit 3"]);
        let ended = run(&mut shell, &directory.path().join("log"), Duration::from_secs(60)).expect("it runs");
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!(ended.output, "one\ntwo\n");
        assert!(ended.well().is_err());
    }

    #[test]
    fn program_that_hangs_is_ended() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo begun; sleep 600"]);
        let outcome = run(
            &mut shell,
            &directory.path().join("log"),
            Duration::from_millis(300),
        );
        let error = outcome.err().expect("it hangs").to_string();
        assert!(error.contains("begun"), "{error}");
    }
}
