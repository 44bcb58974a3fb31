//! `fio` with a checksum in every block: sizes that are less, equal and more than a record, through the page cache, past
//! it and through a mapping; read back at once and again after the place was opened anew.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Case, Effort, Place, Suite, tool};

pub(super) const SUITE: Suite = Suite {
    name: "fio",
    programs: &["fio"],
    record_sizes: [&["8K"], &["8K", "128K"]],
    run,
};

const LIMIT: Duration = Duration::from_secs(900);

/// How blocks get to the file.
struct Way {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Direct I/O wants whole sectors.
    blocks: &'static [&'static str],
}

const WAYS: &[Way] = &[
    Way {
        name: "buffered",
        arguments: &["--ioengine=psync"],
        blocks: &["512", "3000", "4k", "8k", "100k", "1m"],
    },
    Way {
        name: "buffered, synced every 16 blocks",
        arguments: &["--ioengine=psync", "--fdatasync=16"],
        blocks: &["4k", "8k", "64k"],
    },
    Way {
        name: "direct",
        arguments: &["--ioengine=libaio", "--direct=1", "--iodepth=8"],
        blocks: &["512", "4k", "8k", "12k", "128k", "1m"],
    },
    Way {
        name: "mapped",
        arguments: &["--ioengine=mmap"],
        blocks: &["4k", "64k"],
    },
];

/// Blocks of the quick subset: one below, one at, one above a record.
const QUICK_BLOCKS: [&str; 4] = ["512", "8k", "64k", "128k"];

struct Job {
    way: &'static Way,
    block: &'static str,
    pattern: &'static str,
    size: &'static str,
}

impl Job {
    fn name(&self) -> String {
        format!("{}, {}, blocks of {}", self.way.name, self.pattern, self.block)
    }
}

fn run(place: &Place, effort: Effort) -> Result<Vec<Case>> {
    let work = place.directory("fio")?;
    let jobs = jobs(effort);
    let mut cases: Vec<Case> = Vec::new();
    for (number, job) in jobs.iter().enumerate() {
        let written = || -> Result<u64> {
            let said = fio(place, &work, number, job, &["--do_verify=1"])?;
            ensure!(blocks(&said, "write") > 0, "it wrote nothing");
            ensure!(blocks(&said, "read") > 0, "it read nothing back");
            Ok(blocks(&said, "write") + blocks(&said, "read"))
        };
        cases.push(Case::measured(job.name(), written));
    }
    place.reopen()?;
    for (number, job) in jobs.iter().enumerate() {
        // A file that was never written cannot be read back; that it was not is a failure already.
        if cases[number].has_failed() {
            continue;
        }
        let name = format!("{}, after opening again", job.name());
        cases.push(Case::measured(name, || {
            let said = fio(place, &work, number, job, &["--verify_only=1"])?;
            ensure!(blocks(&said, "read") > 0, "it read nothing back");
            Ok(blocks(&said, "read"))
        }));
    }
    Ok(cases)
}

fn jobs(effort: Effort) -> Vec<Job> {
    let mut jobs = Vec::new();
    for way in WAYS {
        for block in way.blocks {
            let small = matches!(*block, "512" | "3000" | "4k");
            let patterns: &[&str] = effort.choose(&["randwrite"], &["randwrite", "write"]);
            let wanted = effort == Effort::Full || QUICK_BLOCKS.contains(block);
            for pattern in patterns.iter().filter(|_| wanted) {
                let size = match (effort, small) {
                    (Effort::Quick, true) => "2m",
                    (Effort::Quick, false) => "16m",
                    (Effort::Full, true) => "16m",
                    (Effort::Full, false) => "128m",
                };
                jobs.push(Job {
                    way,
                    block,
                    pattern,
                    size,
                });
            }
        }
    }
    jobs
}

fn fio(place: &Place, work: &Path, number: usize, job: &Job, more: &[&str]) -> Result<Value> {
    let mut command: Command = tool::command("fio")?;
    command.args([
        "--name=blocks",
        "--output-format=json",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--randrepeat=1",
    ]);
    // Without it the state of a verification would be left in the working directory.
    command.args(["--verify_state_save=0", "--thread"]);
    command.arg(format!(
        "--filename={}",
        work.join(format!("file-{number}")).display()
    ));
    command.args([
        format!("--rw={}", job.pattern),
        format!("--bs={}", job.block),
        format!("--size={}", job.size),
    ]);
    command
        .args(job.way.arguments)
        .args(more)
        .current_dir(&place.home);
    let output = tool::run(&mut command, &place.home.join("fio.log"), LIMIT)?.well()?;
    // Notes may come before and after the JSON.
    let (from, to) = output
        .find('{')
        .zip(output.rfind('}'))
        .context("fio said nothing in JSON")?;
    let said: Value = serde_json::from_str(&output[from..=to]).context("cannot understand fio's JSON")?;
    ensure!(
        said["jobs"][0]["error"] == 0,
        "fio ended with error {}",
        said["jobs"][0]["error"]
    );
    Ok(said)
}

fn blocks(said: &Value, direction: &str) -> u64 {
    said["jobs"][0][direction]["total_ios"].as_u64().unwrap_or(0)
}
