//! Processor time and memory of a server with all that it has started, from `/proc` (proc(5)).

use std::collections::BTreeSet;

use crate::process::{self, cpu_seconds};

/// Processor time of `roots` and their descendants. A child's time moves to its parent when the parent waits for it, so
/// the sum keeps what children that have ended used.
pub(crate) fn tree_cpu_seconds(roots: &[i32]) -> f64 {
    if roots.is_empty() {
        return 0.0;
    }
    tree(roots).into_iter().map(cpu_seconds).sum()
}

/// Processes whose parent is `parent`. The kernel's own lists, where it keeps them, spare a look at every process.
pub(crate) fn children_of(parent: i32) -> Vec<i32> {
    children_listed(parent).unwrap_or_else(|| process::children_of(parent))
}

/// `roots` and all their descendants.
pub(crate) fn tree(roots: &[i32]) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut open = roots.to_vec();
    while let Some(pid) = open.pop() {
        if found.insert(pid) {
            open.extend(children_of(pid));
        }
    }
    found
}

/// The children of all threads of `pid` as the kernel lists them, where it does.
fn children_listed(pid: i32) -> Option<Vec<i32>> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let listed = std::fs::read_to_string(thread.path().join("children")).ok()?;
        children.extend(
            listed
                .split_whitespace()
                .filter_map(|child| child.parse::<i32>().ok()),
        );
    }
    Some(children)
}

/// Memory of a process by kind, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Its own.
    pub private_bytes: u64,
    /// Shared with other processes, such as PostgreSQL's buffers.
    pub shared_bytes: u64,
}

/// What `pid` has in memory now; nothing when it is gone. Pages of files, such as programs, are left out.
pub(crate) fn memory(pid: i32) -> Memory {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    parse_memory(&text)
}

fn parse_memory(status: &str) -> Memory {
    let bytes_of = |key: &str| {
        let line = status.lines().find(|line| line.starts_with(key));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kilobytes.unwrap_or(0) * 1024
    };
    Memory {
        private_bytes: bytes_of("RssAnon:"),
        shared_bytes: bytes_of("RssShmem:"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::is_running;

    #[test]
    fn memory_is_read_from_status() {
        let text = "Name:\tpostgres\nVmRSS:\t  9000 kB\nRssAnon:\t    1000 kB\nRssFile:\t  3000 kB\nRssShmem:\t    5000 kB\n";
        let wanted = Memory {
            private_bytes: 1000 * 1024,
            shared_bytes: 5000 * 1024,
        };
        assert_eq!(parse_memory(text), wanted);
        assert_eq!(parse_memory(""), Memory::default());
    }

    #[test]
    fn children_are_found_and_their_time_stays_when_they_have_ended() {
        let own = std::process::id() as i32;
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 30 & wait"])
            .spawn()
            .expect("sh starts");
        let pid = child.id() as i32;
        let start = std::time::Instant::now();
        while tree(&[pid]).len() < 2 {
            assert!(start.elapsed().as_secs() < 10, "the shell starts its child");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(children_of(own).contains(&pid) && is_running(pid));
        for descendant in tree(&[pid]) {
            let target = rustix::process::Pid::from_raw(descendant).expect("a process");
            rustix::process::kill_process(target, rustix::process::Signal::KILL).expect("it is ours");
        }
        child.wait().expect("it has ended");
        assert!(!is_running(pid));
        assert_eq!(cpu_seconds(pid), 0.0);
        let before = tree_cpu_seconds(&[own]);
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh").args(["-c", busy]).status();
        assert!(status.expect("sh runs").success());
        assert!(
            tree_cpu_seconds(&[own]) > before,
            "its time has come to this process"
        );
    }
}
