//! What can be found out about a pool and a server when something does not start or does not end.
//!
//! All of it is read from outside, without touching the mount, so that looking cannot hang as well: the ends of both logs,
//! whether daemon and server live, and where each of their threads is waiting, in the kernel and, with gdb, in the program.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::cluster::Cluster;
use crate::packstone::Pool;
use crate::process;
use crate::requirements;

/// Last lines shown of the daemon's log.
const LOG_LINES: usize = 40;

/// The state of a pool's daemon and of the server on it, for an error message.
pub fn describe(pool: &Pool, cluster: &Cluster) -> String {
    let mut text = String::from("--- what was found ---\n");
    let daemons = pool.daemon_pids();
    let _ = writeln!(text, "packstone processes: {daemons:?}");
    for pid in &daemons {
        text.push_str(&threads(*pid));
        text.push_str(&backtraces(*pid));
    }
    let servers = cluster.pids();
    let _ = writeln!(text, "server processes: {servers:?}");
    for pid in &servers {
        text.push_str(&threads(*pid));
    }
    let log = pool.state_directory().join(format!("{}.log", pool.name));
    let _ = writeln!(text, "the end of the daemon's log:\n{}", tail(&log, LOG_LINES));
    let _ = writeln!(
        text,
        "the end of the server's log:\n{}",
        cluster.log_tail(LOG_LINES)
    );
    text
}

/// Name, state and place in the kernel of every thread.
fn threads(pid: i32) -> String {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let title = read(format!("/proc/{pid}/cmdline")).replace('\0', " ");
    let mut text = format!("process {pid}: {title}\n");
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return text;
    };
    for entry in entries.flatten() {
        let thread = entry.file_name().to_string_lossy().into_owned();
        let place = |name: &str| read(format!("/proc/{pid}/task/{thread}/{name}"));
        let status = place("status");
        let state = status
            .lines()
            .find_map(|line| line.strip_prefix("State:"))
            .unwrap_or(" gone")
            .trim()
            .to_owned();
        let _ = writeln!(
            text,
            "  {thread} {}: {state}, waits in {}",
            place("comm").trim(),
            place("wchan").trim()
        );
        // Only root may see it, and not on every kernel.
        for line in place("stack").lines().take(8) {
            let _ = writeln!(text, "      {line}");
        }
    }
    text
}

/// Where the threads are in the program, if gdb is here.
fn backtraces(pid: i32) -> String {
    if requirements::program("gdb").is_none() {
        return "  (no gdb here, so no backtraces)\n".to_owned();
    }
    let mut command = Command::new("timeout");
    command.args([
        "60",
        "gdb",
        "-batch",
        "-nx",
        "-ex",
        "set pagination off",
        "-ex",
        "thread apply all backtrace 30",
        "-p",
        &pid.to_string(),
    ]);
    match process::output(&mut command) {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => format!("  (gdb: {error:#})\n"),
    }
}

fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_threads_are_described() {
        let text = threads(std::process::id() as i32);
        assert!(
            text.contains("waits in") && text.contains(": R") || text.contains(": S"),
            "{text}"
        );
    }

    #[test]
    fn a_missing_log_has_no_end() {
        assert_eq!(tail(Path::new("/nonexistent/log"), 3), "");
    }
}
