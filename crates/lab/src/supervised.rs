//! Running a program of somebody else within a turn, so that nothing of it is left when the turn ends in whatever way.
//!
//! The program gets a process group of its own. When it has ended, failed, or the run is interrupted, the whole group is
//! ended, and with it what the program started in the background.
//!
//! Leaves out: what a program puts into a session of its own.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

use crate::scratch::Cleanup;
use crate::{interrupt, process};

/// How long killed processes may take to end; those that wait for a file system end when it answers.
const END_LIMIT: Duration = Duration::from_secs(30);

/// Ends the group when it goes out of scope; shared with the step for an interrupt.
struct Group(Arc<Mutex<Option<Pid>>>);

impl Group {
    fn of(child: &Child, cleanup: Option<&Cleanup>) -> Group {
        let group = Group(Arc::new(Mutex::new(Pid::from_raw(child.id() as i32))));
        if let Some(cleanup) = cleanup {
            let shared = Group(group.0.clone());
            cleanup.push("end a program", move || {
                shared.end();
                Ok(())
            });
        }
        group
    }

    fn end(&self) {
        let mut pid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pid) = pid.take() {
            // The usual failure is that the group is empty already.
            if rustix::process::kill_process_group(pid, Signal::KILL).is_ok() {
                // The storage is about to be taken down: nothing may still have files open there. Whatever does not end
                // in time will show then.
                let _ = process::wait_until(END_LIMIT, "a program's background", || {
                    rustix::process::test_kill_process_group(pid).is_err()
                });
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs `command` to its end, with nothing on standard input, and returns what it wrote, whatever its exit status is.
/// What it wrote is kept in files, not pipes: a background process that holds them open makes nobody wait.
pub fn output(command: &mut Command, cleanup: Option<&Cleanup>) -> Result<Output> {
    use std::io::{Read, Seek};
    let mut stdout = tempfile::tempfile().context("cannot create a temporary file")?;
    let mut stderr = tempfile::tempfile().context("cannot create a temporary file")?;
    command
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .process_group(0);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
    let group = Group::of(&child, cleanup);
    let status = child.wait().context("cannot wait for the program")?;
    drop(group);
    let mut output = Output {
        status,
        stdout: Vec::new(),
        stderr: Vec::new(),
    };
    for (file, bytes) in [
        (&mut stdout, &mut output.stdout),
        (&mut stderr, &mut output.stderr),
    ] {
        file.rewind()?;
        file.read_to_end(bytes)?;
    }
    Ok(output)
}

/// As [`output`]; a failure is an error with the command and the end of what it said.
pub fn run(command: &mut Command, cleanup: Option<&Cleanup>) -> Result<Output> {
    let output = output(command, cleanup)?;
    require_success(command, &output)?;
    Ok(output)
}

/// An error with the command and the end of what it said, unless it succeeded.
pub fn require_success(command: &Command, output: &Output) -> Result<()> {
    const TAIL_BYTES: usize = 4000;
    if output.status.success() {
        return Ok(());
    }
    // Ended by an interrupt, it has nothing to say that anybody wants to read.
    interrupt::check()?;
    let tail = |bytes: &[u8]| bytes[bytes.len().saturating_sub(TAIL_BYTES)..].to_vec();
    let short = Output {
        status: output.status,
        stdout: tail(&output.stdout),
        stderr: tail(&output.stderr),
    };
    bail!("{}", process::describe_failure(command, &short));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn background_of_a_program_ends_with_it() {
        let started = Instant::now();
        let output = run(Command::new("sh").args(["-c", "sleep 60 & echo $!"]), None).expect("it runs");
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "the background was waited for"
        );
        let pid: i32 = String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse()
            .expect("a process id");
        assert!(!process::is_running(pid), "the background lives on");
    }

    #[test]
    fn interrupt_ends_a_running_program() {
        let cleanup = Cleanup::new();
        let other = cleanup.clone();
        let thread = std::thread::spawn(move || output(Command::new("sleep").arg("60"), Some(&other)));
        std::thread::sleep(Duration::from_millis(200));
        cleanup.run();
        let output = thread.join().expect("no panic").expect("it ran");
        assert!(!output.status.success());
    }

    #[test]
    fn failure_shows_the_end_of_what_was_said() {
        let error = run(
            Command::new("sh").args(["-c", "seq 100000; echo at the end >&2; exit 4"]),
            None,
        )
        .expect_err("it fails")
        .to_string();
        assert!(error.contains("at the end") && error.contains("100000") && error.contains('4'));
        assert!(error.len() < 10_000);
    }
}
