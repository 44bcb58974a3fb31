//! Running programs: as another user, with an error that shows what the program said, and looking at `/proc`.
//!
//! Leaves out: streaming the output of a long run.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

/// An account that programs can be run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: String,
    /// Numeric user id.
    pub uid: u32,
    /// Numeric id of the primary group.
    pub gid: u32,
}

impl User {
    /// Looks `name` up in `/etc/passwd`.
    pub fn named(name: &str) -> Option<User> {
        Self::find(|fields| fields[0] == name)
    }

    /// The user that this process runs as.
    pub fn current() -> Result<User> {
        let uid = rustix::process::geteuid().as_raw();
        let user = Self::find(|fields| fields[2] == uid.to_string());
        user.with_context(|| format!("user id {uid} has no entry in /etc/passwd"))
    }

    /// The user that PostgreSQL is to run as: it refuses root, so root uses the account of Debian's package.
    pub fn for_postgres() -> Result<User> {
        if is_root() {
            User::named("postgres").context("there is no user 'postgres': run scripts/setup.sh")
        } else {
            User::current()
        }
    }

    fn find(matches: impl Fn(&[&str]) -> bool) -> Option<User> {
        let table = std::fs::read_to_string("/etc/passwd").ok()?;
        table.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            if fields.len() < 7 || !matches(&fields) {
                return None;
            }
            Some(User {
                name: fields[0].to_owned(),
                uid: fields[2].parse().ok()?,
                gid: fields[3].parse().ok()?,
            })
        })
    }

    /// Makes `command` run as this user. No change when this process is that user already.
    pub fn apply(&self, command: &mut Command) {
        if rustix::process::geteuid().as_raw() != self.uid {
            // Setting the user as root also empties the list of supplementary groups.
            command.gid(self.gid).uid(self.uid);
        }
        command.env("USER", &self.name).env("LOGNAME", &self.name);
    }
}

/// True when this process may do everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs `command` to its end and returns what it wrote to standard output; a failure shows the command and what it said.
pub fn run(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    if !output.status.success() {
        bail!("{}", describe_failure(command, &output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `command` to its end with nothing on standard input, whatever its exit status is.
pub fn output(command: &mut Command) -> Result<Output> {
    command.stdin(std::process::Stdio::null());
    command
        .output()
        .with_context(|| format!("cannot run {}", show(command)))
}

/// The command and what it printed, for an error message or a failed assertion.
pub fn describe_failure(command: &Command, output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let said = [stderr.trim(), stdout.trim()]
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join("\n");
    format!("{}: {}\n{said}", show(command), output.status)
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Ends `pid` at once, without a chance to tidy up. A process that is gone already is no error.
pub fn kill_hard(pid: i32) {
    signal(pid, Signal::KILL);
}

/// Asks `pid` to end.
pub fn terminate(pid: i32) {
    signal(pid, Signal::TERM);
}

/// Stops `pid` from running until it is killed or continued.
pub fn freeze(pid: i32) {
    signal(pid, Signal::STOP);
}

fn signal(pid: i32, signal: Signal) {
    // Never 1, and never a negative number, which would be a whole process group.
    if let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 1) {
        // The one failure that matters, that the process lives on, shows where its end is waited for.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// True while `pid` or a thread of it runs; a zombie counts as ended.
pub fn is_running(pid: i32) -> bool {
    match stat_fields(pid) {
        // The first thread may have ended before the others.
        Some(fields) if matches!(fields.first().map(String::as_str), Some("Z" | "X")) => {
            std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1)
        }
        Some(_) => true,
        None => false,
    }
}

/// True while `pid` answers signals, be it only as a zombie.
pub fn exists(pid: i32) -> bool {
    stat_fields(pid).is_some()
}

/// Waits until none of `pids` runs, and a little longer until their parents have taken note of their end: until then
/// the id still answers signals, and PostgreSQL takes a lock file with it for one of a living server.
pub fn wait_ended(pids: &[i32], limit: Duration) -> Result<()> {
    const PARENTS_TAKE: Duration = Duration::from_secs(10);
    wait_until(limit, "processes to end", || {
        pids.iter().all(|pid| !is_running(*pid))
    })?;
    // A parent that never takes note is its own trouble; the process has ended all the same.
    let _ = wait_until(PARENTS_TAKE, "zombies to vanish", || {
        !pids.iter().any(|pid| exists(*pid))
    });
    Ok(())
}

/// Calls `done` every few milliseconds until it holds.
pub fn wait_until(limit: Duration, what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > limit {
            bail!("waited {} s in vain for {what}", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Ids of all processes at this moment.
pub fn all_pids() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Processes whose parent is `parent`.
pub fn children_of(parent: i32) -> Vec<i32> {
    let is_child =
        |pid: &i32| stat_fields(*pid).and_then(|fields| fields.get(1)?.parse::<i32>().ok()) == Some(parent);
    all_pids().into_iter().filter(is_child).collect()
}

/// The program file that `pid` runs, if this user may know.
pub fn executable(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The directory that `pid` works in, if this user may know. Known also when the file system there is dead.
pub fn working_directory(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// True when `pid` was started with `key=value` in its environment.
pub fn has_environment(pid: i32, key: &str, value: &Path) -> bool {
    let wanted = [key.as_bytes(), b"=", value.as_os_str().as_encoded_bytes()].concat();
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == wanted))
}

/// Processor time that `pid` has used, in seconds; 0 when it is gone. Includes children it has waited for.
pub fn cpu_seconds(pid: i32) -> f64 {
    let Some(fields) = stat_fields(pid) else {
        return 0.0;
    };
    // utime, stime, cutime, cstime; `stat_fields` starts at field 3 of proc(5).
    let ticks: u64 = fields
        .iter()
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Memory of `pid` that is in RAM and its own: anonymous pages, in bytes.
pub fn resident_bytes(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// The fields of `/proc/PID/stat` after the program's name, which may itself hold spaces and brackets.
fn stat_fields(pid: i32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_shows_command_and_both_outputs() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo to-out; echo to-err >&2; exit 3"]);
        let message = run(&mut command)
            .expect_err("exit status 3 is a failure")
            .to_string();
        for part in ["sh -c", "to-out", "to-err", "3"] {
            assert!(message.contains(part), "{part} is missing in: {message}");
        }
    }

    #[test]
    fn own_process_is_seen_in_proc() {
        let own = std::process::id() as i32;
        assert!(is_running(own));
        assert!(resident_bytes(own).is_some_and(|bytes| bytes > 100_000));
        assert!(
            children_of(rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get()))
                .contains(&own)
        );
    }

    #[test]
    fn killed_child_counts_as_ended_before_it_is_reaped() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let pid = child.id() as i32;
        assert!(is_running(pid));
        kill_hard(pid);
        wait_until(Duration::from_secs(5), "the child", || !is_running(pid)).expect("a zombie has ended");
        assert!(stat_fields(pid).is_some(), "nobody has waited for it yet");
        child.wait().expect("the child can be waited for");
        wait_ended(&[pid], Duration::from_secs(5)).expect("it is gone");
    }
}
