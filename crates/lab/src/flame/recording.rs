//! `perf record` on running processes.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

/// After this `perf` is taken to hang; it has only a buffer to write.
const STOP_AT_MOST: Duration = Duration::from_secs(20);

/// In this time `perf` has attached itself and begun, or has failed; a machine under load takes long.
const BEGIN_AT_MOST: Duration = Duration::from_secs(10);

/// A running `perf record`.
#[derive(Debug)]
pub struct Recording {
    /// Until it is stopped.
    child: Option<Child>,
    data: PathBuf,
}

impl Recording {
    /// Samples `pids` into the file `data`. The error says why it is not possible and what to do.
    ///
    /// `perf` first reads the symbols and mappings of all it is to sample, which takes part of a second. So it starts without
    /// sampling, is told to begin through its standard input, and says on its standard output that it has.
    pub fn start(pids: &[i32], samples_per_second: u32, data: &Path) -> Result<Recording, String> {
        let list = pids.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        let frequency = samples_per_second.to_string();
        let child = Command::new("perf")
            .args(["record", "-g", "-F", &frequency, "-p", &list])
            .args(["--delay", "-1", "--control", "fd:0,1", "-o"])
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => {
                    "perf is not installed (on Debian: apt-get install linux-perf)".to_owned()
                }
                _ => format!("perf could not be started: {error}"),
            })?;
        let mut recording = Recording {
            child: Some(child),
            data: data.to_owned(),
        };
        recording.enable()?;
        Ok(recording)
    }

    fn enable(&mut self) -> Result<(), String> {
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        if let Some(input) = &mut child.stdin {
            // Where perf has ended, that shows in what it answers.
            let _ = input.write_all(b"enable\n");
        }
        match child.stdout.as_mut().map(acknowledged) {
            Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => {
                let _ = child.wait();
                Err(refused(&said(child)))
            }
            Some(Err(error)) => Err(format!("perf did not begin: {error}")),
            None => Err("perf has no output".to_owned()),
        }
    }

    /// Ends the recording; gives the file of its samples.
    pub fn stop(mut self) -> Result<PathBuf, String> {
        let mut child = self.child.take().ok_or("perf had been stopped")?;
        interrupt(&child);
        let start = Instant::now();
        while let Ok(None) = child.try_wait() {
            if start.elapsed() > STOP_AT_MOST {
                end(&mut child);
                return Err(format!("perf did not stop within {} s", STOP_AT_MOST.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let size = fs::metadata(&self.data)
            .map(|metadata| metadata.len())
            .unwrap_or(0);
        if size == 0 {
            return Err(refused(&said(&mut child)));
        }
        Ok(std::mem::take(&mut self.data))
    }
}

/// Waits for the answer of `perf`: true when it is one, false when there will be none.
fn acknowledged(output: &mut ChildStdout) -> std::io::Result<bool> {
    let limit = Timespec {
        tv_sec: BEGIN_AT_MOST.as_secs() as i64,
        tv_nsec: 0,
    };
    let mut waiting = [PollFd::new(output, PollFlags::IN)];
    loop {
        match poll(&mut waiting, Some(&limit)) {
            Ok(0) => return Err(ErrorKind::TimedOut.into()),
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut answer = [0; 16];
    let length = output.read(&mut answer)?;
    Ok(answer[..length].starts_with(b"ack"))
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            end(child);
        }
        if !self.data.as_os_str().is_empty() {
            remove(&self.data);
        }
    }
}

/// Removes samples; that they are gone already is no error, and that they cannot go costs only room.
pub fn remove(data: &Path) {
    let _ = fs::remove_file(data);
    let mut old = data.as_os_str().to_owned();
    old.push(".old");
    let _ = fs::remove_file(old);
}

fn interrupt(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // Whether it has ended by itself is found by waiting for it.
        let _ = kill_process(pid, Signal::INT);
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// What a process that has ended wrote to its standard error.
fn said(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(stderr) = &mut child.stderr {
        let _ = stderr.take(64 << 10).read_to_string(&mut text);
    }
    text
}

fn refused(said: &str) -> String {
    let permission = ["perf_event_paranoid", "ermission", "not permitted"]
        .iter()
        .any(|word| said.contains(word));
    if permission {
        return "perf is not permitted (run as root, or set kernel.perf_event_paranoid to 1 or less)"
            .to_owned();
    }
    let line = said.lines().map(str::trim).find(|line| !line.is_empty());
    format!("perf failed: {}", line.unwrap_or("it gave no reason"))
}

/// Those of `roots` that are alive, and all that descend from them.
pub fn with_descendants(roots: &[i32]) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    let mut alive: HashSet<i32> = HashSet::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        // A process that has ended meanwhile has no parent to be found.
        let Some(parent) = fs::read_to_string(entry.path().join("stat"))
            .ok()
            .and_then(|stat| parent(&stat))
        else {
            continue;
        };
        alive.insert(pid);
        children.entry(parent).or_default().push(pid);
    }
    let mut found: Vec<i32> = Vec::new();
    let mut next: Vec<i32> = roots.iter().copied().filter(|pid| alive.contains(pid)).collect();
    while let Some(pid) = next.pop() {
        if !found.contains(&pid) {
            found.push(pid);
            next.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found.sort_unstable();
    found
}

/// The parent in a line of `/proc/PID/stat`. The name in parentheses may hold anything, so what counts is behind the last.
fn parent(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent("12 (postgres) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12 (a ) R 99 b) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12 (cut"), None);
    }

    #[test]
    fn descendants_are_found_and_the_dead_are_not() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 30 & wait"])
            .spawn()
            .expect("a shell");
        let own = std::process::id() as i32;
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut found = Vec::new();
        while found.len() < 2 && Instant::now() < deadline {
            found = with_descendants(&[child.id() as i32]);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(found.len(), 2, "the shell and its sleep");
        assert!(with_descendants(&[own]).len() >= 3);
        for pid in &found {
            let _ = Pid::from_raw(*pid).map(|pid| kill_process(pid, Signal::KILL));
        }
        child.wait().expect("the shell has ended");
        assert_eq!(with_descendants(&[child.id() as i32]), Vec::<i32>::new());
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        assert!(refused("Error:\nAccess to performance monitoring and observability operations is limited.\nperf_event_paranoid setting is 4").contains("run as root"));
        assert_eq!(refused("\n bad option\n"), "perf failed: bad option");
        assert_eq!(refused(""), "perf failed: it gave no reason");
    }
}
