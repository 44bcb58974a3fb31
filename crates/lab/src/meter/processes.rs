//! Looking at processes in `/proc` (proc(5)).

use std::collections::{BTreeSet, HashMap};

/// What `/proc/PID/stat` says, as far as it is used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: i32,
    /// User and kernel time of the process and of the children that it has waited for, in ticks.
    ticks: u64,
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The program's name may hold spaces and brackets itself.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // utime, stime, cutime, cstime; the first field here is number 3 of proc(5).
    let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok());
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        ticks: ticks.sum::<Option<u64>>()?,
    })
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// True while `pid` or a thread of it runs; a zombie counts as ended.
pub(crate) fn is_running(pid: i32) -> bool {
    match stat(pid) {
        // The first thread may have ended before the others.
        Some(Stat { state: 'Z' | 'X', .. }) => {
            std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1)
        }
        Some(_) => true,
        None => false,
    }
}

/// Processor time that `pid` has used, in seconds; 0 when it is gone. Children that it has waited for are included.
pub(crate) fn cpu_seconds(pid: i32) -> f64 {
    stat(pid).map_or(0.0, |stat| seconds(stat.ticks))
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Processor time of `roots` and their descendants. A child's time moves to its parent when the parent waits for it, so
/// the sum keeps what children that have ended used.
pub(crate) fn tree_cpu_seconds(roots: &[i32]) -> f64 {
    if roots.is_empty() {
        return 0.0;
    }
    tree(roots).into_iter().map(cpu_seconds).sum()
}

/// Processes whose parent is `parent`.
pub(crate) fn children_of(parent: i32) -> Vec<i32> {
    match children_listed(parent) {
        Some(children) => children,
        None => {
            let is_child = |pid: &i32| stat(*pid).is_some_and(|stat| stat.parent == parent);
            all_pids().into_iter().filter(is_child).collect()
        }
    }
}

/// `roots` and all their descendants.
pub(crate) fn tree(roots: &[i32]) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut open = roots.to_vec();
    let mut parents: Option<HashMap<i32, Vec<i32>>> = None;
    while let Some(pid) = open.pop() {
        if !found.insert(pid) {
            continue;
        }
        match children_listed(pid) {
            Some(children) => open.extend(children),
            // The kernel keeps no lists of children: everybody's parent is looked at, once.
            None => {
                let children = parents.get_or_insert_with(children_by_parent).get(&pid);
                open.extend(children.into_iter().flatten());
            }
        }
    }
    found
}

fn children_by_parent() -> HashMap<i32, Vec<i32>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for pid in all_pids() {
        if let Some(stat) = stat(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    children
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

fn all_pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
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

    #[test]
    fn stat_is_read_past_odd_names() {
        let text = "4242 (a) b (c)) S 17 4242 4242 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5 6 7";
        let wanted = Stat {
            state: 'S',
            parent: 17,
            ticks: 100,
        };
        assert_eq!(parse_stat(text), Some(wanted));
        assert_eq!(parse_stat("4242 (short) S 17"), None);
        assert_eq!(parse_stat(""), None);
    }

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
