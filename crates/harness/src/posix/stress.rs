//! The file system stressors of `stress-ng`, each checking its own results (`--verify`).
//!
//! Left out are those that do not touch the file system they are pointed at (`procfs`, `sysfs`, `eventfd`, ...), that
//! mount something of their own (`binderfs`, `bind-mount`), that ask for a call which only some file systems have
//! (`verity`, `chattr`), and `io-uring`, whose check of STATX in Debian's version fails on ext4 as well.

use std::time::Duration;

use anyhow::Result;

use super::{Case, Effort, Outcome, Place, Suite, tool};

pub(super) const SUITE: Suite = Suite {
    name: "stress-ng",
    programs: &["stress-ng"],
    record_sizes: [&["8K"], &["8K", "128K"]],
    run,
};

/// Beyond the time that the stressor was given.
const PATIENCE: Duration = Duration::from_secs(120);

/// Those that found the most in other file systems: data, names and sizes under several processes.
const QUICK: &[&str] = &[
    "copy-file",
    "dentry",
    "dir",
    "fallocate",
    "fpunch",
    "hdd",
    "iomix",
    "link",
    "lockofd",
    "open",
    "rename",
    "seek",
    "symlink",
    "utime",
    "xattr",
];

const FULL: &[&str] = &[
    "access",
    "aio",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "dup",
    "fallocate",
    "fcntl",
    "fiemap",
    "file-ioctl",
    "filename",
    "flock",
    "fpunch",
    "fstat",
    "getdent",
    "handle",
    "hdd",
    "inode-flags",
    "inotify",
    "io",
    "iomix",
    "lease",
    "link",
    "locka",
    "lockf",
    "lockofd",
    "mknod",
    "msync",
    "open",
    "readahead",
    "rename",
    "revio",
    "seek",
    "sendfile",
    "splice",
    "symlink",
    "sync-file",
    "touch",
    "utime",
    "xattr",
];

/// Smaller than the defaults of up to 1 GiB: the point is the checking, not the amount.
const SIZES: &[&str] = &[
    "--hdd-bytes",
    "64m",
    "--fallocate-bytes",
    "64m",
    "--iomix-bytes",
    "32m",
    "--copy-file-bytes",
    "128m",
    "--readahead-bytes",
    "64m",
    "--revio-bytes",
    "32m",
    "--seek-size",
    "64m",
    "--sendfile-size",
    "4m",
    "--sync-file-bytes",
    "32m",
    "--msync-bytes",
    "16m",
    "--fiemap-bytes",
    "16m",
    "--splice-bytes",
    "64k",
];

fn run(place: &Place, effort: Effort) -> Result<Vec<Case>> {
    let work = place.directory("stress")?;
    let seconds: u64 = effort.choose(1, 5);
    let mut cases = Vec::new();
    for stressor in effort.choose(QUICK, FULL) {
        let mut command = tool::command("stress-ng")?;
        command.args([format!("--{stressor}"), "2".to_owned()]);
        command.args([
            "--verify",
            "--metrics-brief",
            "--timestamp",
            "--oomable",
            "--timeout",
            &format!("{seconds}s"),
        ]);
        command.args(SIZES).arg("--temp-path").arg(&work);
        let log = place.home.join(format!("{stressor}.log"));
        let start = std::time::Instant::now();
        let ended = tool::run(&mut command, &log, Duration::from_secs(seconds) + PATIENCE);
        let mut case = match ended {
            Ok(ended) => judge(stressor, &ended),
            Err(error) => Case::new(*stressor, Outcome::Failed(format!("{error:#}"))),
        };
        case.elapsed = start.elapsed();
        cases.push(case);
    }
    Ok(cases)
}

/// Statuses of `stress-ng`: 2 something failed, 3 no resources, 4 not possible here, 7 a process was ended from outside, so
/// that its counters say nothing.
fn judge(stressor: &str, ended: &tool::Ended) -> Case {
    let outcome = match ended.status.code() {
        Some(0) => Outcome::Passed,
        Some(3 | 4 | 7) => Outcome::Skipped(last_remark(&ended.output)),
        _ => Outcome::Failed(format!("{}\n{}", ended.status, ended.tail())),
    };
    let mut case = Case::new(stressor, outcome);
    case.operations = operations(stressor, &ended.output);
    case
}

/// The table of metrics has a line `stress-ng: metrc: [PID] STRESSOR OPERATIONS ...`.
fn operations(stressor: &str, output: &str) -> u64 {
    let mut counts = output.lines().filter_map(|line| {
        let mut words = line
            .split_whitespace()
            .skip_while(|word| *word != stressor)
            .skip(1);
        line.contains("metrc")
            .then(|| words.next()?.parse().ok())
            .flatten()
    });
    counts.next_back().unwrap_or(0)
}

fn last_remark(output: &str) -> String {
    let remarks = output
        .lines()
        .filter(|line| line.contains("stress-ng") && !line.contains("metrc"));
    let mut said: Vec<&str> = remarks
        .filter(|line| line.contains("skip") || line.contains("not "))
        .collect();
    said.pop().unwrap_or("it said that it cannot run here").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_from_the_metrics() {
        let output = "stress-ng: info:  [7] dispatching hogs: 2 seek
stress-ng: metrc: [7] stressor       bogo ops real time  usr time  sys time   bogo ops/s
stress-ng: metrc: [7] seek              16448      1.00      0.10      0.20     16435.84
stress-ng: info:  [7] successful run completed in 1.01s";
        assert_eq!(operations("seek", output), 16_448);
        assert_eq!(operations("hdd", output), 0);
    }
}
