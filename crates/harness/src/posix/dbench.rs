//! `dbench`: what a file server's clients do, several at once, from a recorded trace.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Case, Effort, Place, Suite, tool};

pub(super) const SUITE: Suite = Suite {
    name: "dbench",
    programs: &["dbench"],
    record_sizes: [&["8K"], &["8K", "128K"]],
    run,
};

const TRACE: &str = "/usr/share/dbench/client.txt";

/// Beyond the time it was given.
const PATIENCE: Duration = Duration::from_secs(180);

const MODES: &[(&str, &[&str])] = &[
    ("as recorded", &[]),
    ("every write synced", &["--fsync"]),
    ("files opened to sync", &["--sync"]),
];

fn run(place: &Place, effort: Effort) -> Result<Vec<Case>> {
    let (seconds, clients, modes) = effort.choose((4, 4, 1), (30, 8, MODES.len()));
    let modes = MODES.iter().take(modes).enumerate();
    let cases = modes.map(|(number, (name, arguments))| {
        Case::measured(format!("{clients} clients, {name}"), || {
            let work = place.directory(&format!("dbench-{number}"))?;
            let mut command = tool::command("dbench")?;
            command
                .args(["-c", TRACE, "-t", &seconds.to_string()])
                .args(*arguments);
            command.arg("-D").arg(&work).arg(clients.to_string());
            let limit = Duration::from_secs(seconds) + PATIENCE;
            let output = tool::run(&mut command, &place.home.join("dbench.log"), limit)?.well()?;
            // It goes on after an operation with an unexpected result, and only says so.
            let complaint = output
                .lines()
                .find(|line| line.contains("failed") || line.contains("ERROR"));
            ensure!(complaint.is_none(), "it said: {}", complaint.unwrap_or_default());
            operations(&output).context("it did not say how many operations it made")
        })
    });
    Ok(cases.collect())
}

/// Adds up the table of operations, whose lines are `NAME COUNT AVERAGE LONGEST`.
fn operations(output: &str) -> Option<u64> {
    let counts = output.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, count, average, longest] => {
                let times = average.parse::<f64>().is_ok() && longest.parse::<f64>().is_ok();
                times.then(|| count.parse::<u64>().ok()).flatten()
            }
            _ => None,
        }
    });
    let sum = counts.sum();
    (sum > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_added_up() {
        let output = "   4        90   200.00 MB/sec  execute   4 sec  latency 30.5 ms

 Operation      Count    AvgLat    MaxLat
 ----------------------------------------
 NTCreateX       1000     0.050    12.345
 Close            700     0.005     0.111

Throughput 200.12 MB/sec  4 clients  4 procs  max_latency=30.5 ms";
        assert_eq!(operations(output), Some(1_700));
        assert_eq!(operations("nothing"), None);
    }
}
