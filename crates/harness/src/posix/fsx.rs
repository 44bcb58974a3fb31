//! `fsx`: random reads, writes, mappings, truncations, holes and copies of one file, each byte compared with what it
//! should be.
//!
//! Every profile allows an operation at any moment, so that copies, holes and mappings meet data that nobody has flushed.
//! Afterwards the place is opened again, and the file must hold what it held.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Case, Effort, Place, Suite, tool};

pub(super) const SUITE: Suite = Suite {
    name: "fsx",
    programs: &["fsx"],
    record_sizes: [&["4K", "8K", "128K"], &["4K", "8K", "128K"]],
    run,
};

const LIMIT: Duration = Duration::from_secs(1800);

/// Files exercised at the same moment; most of a run is waiting for the media.
const AT_ONCE: usize = 4;

/// A mix of operations, as `fsx` reads it from its configuration.
struct Profile {
    name: &'static str,
    configuration: &'static str,
}

const PROFILES: &[Profile] = &[
    Profile {
        name: "everything",
        configuration: "flen = 1048576\n[opsize]\nmax = 131072\n[weights]\n\
            close_open = 1\nread = 10\nwrite = 10\nmapread = 10\nmapwrite = 5\ninvalidate = 1\ntruncate = 3\nfsync = 1\n\
            fdatasync = 1\nposix_fallocate = 3\npunch_hole = 5\nsendfile = 3\nposix_fadvise = 2\ncopy_file_range = 5\n",
    },
    // Nothing is flushed but by the kernel and the daemon themselves.
    Profile {
        name: "unflushed mappings",
        configuration: "flen = 393216\nnomsyncafterwrite = true\n[opsize]\nmax = 40000\n[weights]\n\
            close_open = 1\nread = 10\nwrite = 10\nmapread = 10\nmapwrite = 15\ninvalidate = 0\ntruncate = 4\n\
            posix_fallocate = 2\npunch_hole = 6\nsendfile = 3\nposix_fadvise = 4\ncopy_file_range = 8\n",
    },
    Profile {
        name: "no mappings",
        configuration: "flen = 2097152\n[opsize]\nmax = 200000\n[weights]\n\
            close_open = 1\nread = 10\nwrite = 10\nmapread = 0\nmapwrite = 0\ninvalidate = 0\ntruncate = 4\nfsync = 1\n\
            fdatasync = 1\nposix_fallocate = 3\npunch_hole = 5\nsendfile = 3\nposix_fadvise = 2\ncopy_file_range = 6\n",
    },
    // Many operations meet in the same few records.
    Profile {
        name: "small pieces",
        configuration: "flen = 50000\nnomsyncafterwrite = true\n[opsize]\nmax = 5000\n[weights]\n\
            close_open = 2\nread = 10\nwrite = 15\nmapread = 5\nmapwrite = 5\ninvalidate = 0\ntruncate = 6\n\
            fdatasync = 0.1\nposix_fallocate = 3\npunch_hole = 8\nsendfile = 3\nposix_fadvise = 2\ncopy_file_range = 8\n",
    },
];

/// What one run of `fsx` does.
struct Run<'a> {
    profile: &'a Profile,
    seed: u64,
    operations: u64,
}

impl Run<'_> {
    fn name(&self) -> String {
        format!("{}, seed {}", self.profile.name, self.seed)
    }

    fn file_name(&self) -> String {
        format!("{}-{}", self.profile.name.replace(' ', "-"), self.seed)
    }
}

fn run(place: &Place, effort: Effort) -> Result<Vec<Case>> {
    let work = place.directory("fsx")?;
    let (seeds, operations) = effort.choose((1..=1, 1_500), (1..=6, 10_000));
    let runs: Vec<Run> = PROFILES
        .iter()
        .flat_map(|profile| seeds.clone().map(move |seed| (profile, seed)))
        .map(|(profile, seed)| Run {
            profile,
            seed,
            operations,
        })
        .collect();
    let mut cases = Vec::new();
    for several in runs.chunks(AT_ONCE) {
        let done: Vec<Case> = std::thread::scope(|scope| {
            let started: Vec<_> = several
                .iter()
                .map(|run| scope.spawn(|| Case::measured(run.name(), || exercise(place, &work, run))))
                .collect();
            let ended = started.into_iter().map(|thread| thread.join());
            ended
                .map(|case| case.expect("a case catches its own errors"))
                .collect()
        });
        cases.extend(done);
    }
    cases.push(Case::measured(
        "the files are the same after opening again",
        || same_after_opening_again(place, &work),
    ));
    Ok(cases)
}

fn exercise(place: &Place, work: &Path, run: &Run) -> Result<u64> {
    let configuration = place.home.join(format!("{}.toml", run.file_name()));
    std::fs::write(&configuration, run.profile.configuration).context("cannot write the configuration")?;
    let mut command = tool::command("fsx")?;
    command.arg("-f").arg(&configuration).arg("-P").arg(&place.home);
    command.arg("-N").arg(run.operations.to_string());
    command
        .arg("-S")
        .arg(run.seed.to_string())
        .arg(work.join(run.file_name()));
    let log = place.home.join(format!("{}.log", run.file_name()));
    tool::run(&mut command, &log, LIMIT)?.well()?;
    Ok(run.operations)
}

fn same_after_opening_again(place: &Place, work: &Path) -> Result<u64> {
    let read_all = || -> Result<Vec<(std::ffi::OsString, Vec<u8>)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(work)? {
            let entry = entry?;
            found.push((entry.file_name(), std::fs::read(entry.path())?));
        }
        found.sort();
        Ok(found)
    };
    let before = read_all()?;
    place.reopen()?;
    let after = read_all()?;
    ensure!(
        before.len() == after.len(),
        "there were {} files, now {}",
        before.len(),
        after.len()
    );
    for ((name, old), (new_name, new)) in before.iter().zip(&after) {
        ensure!(name == new_name, "{name:?} was there, now {new_name:?}");
        let length = (old.len(), new.len());
        let difference = old.iter().zip(new).position(|(old, new)| old != new);
        ensure!(
            old == new,
            "{name:?}: lengths {length:?}, the first difference is at {difference:?}"
        );
    }
    Ok(before.len() as u64)
}
