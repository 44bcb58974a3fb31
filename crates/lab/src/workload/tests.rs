//! Workloads in small on a plain directory, and the experiments that come with the project.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::*;
use crate::figure::{Distribution, Series, TurnResult};
use crate::requirements;
use crate::turn::{Place, StoredBytes, Work};

/// A directory as a place. Its caches stay, and so it says.
struct Plain {
    directory: PathBuf,
    settings: BTreeMap<&'static str, &'static str>,
}

impl Place for Plain {
    fn directory(&self) -> &Path {
        &self.directory
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).copied()
    }

    fn daemon_pids(&self) -> Vec<i32> {
        Vec::new()
    }

    fn make_cold(&mut self) -> Result<Option<String>> {
        Ok(Some("the caches stayed".to_owned()))
    }

    fn stored_bytes(&self) -> Result<StoredBytes> {
        let mut sum = StoredBytes::default();
        let mut open = vec![self.directory.clone()];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    open.push(entry.path());
                } else {
                    sum.logical_bytes += entry.metadata()?.len();
                }
            }
        }
        sum.stored_bytes = sum.logical_bytes;
        Ok(sum)
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

/// A turn without meters.
struct Rehearsal {
    place: Plain,
    scratch: PathBuf,
    result: TurnResult,
    operations: BTreeMap<String, u64>,
    _home: tempfile::TempDir,
}

impl Rehearsal {
    fn new() -> Rehearsal {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
        std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).expect("a mode");
        let (directory, scratch) = (home.path().join("place"), home.path().join("scratch"));
        std::fs::create_dir(&directory).expect("a directory");
        std::fs::create_dir(&scratch).expect("a directory");
        Rehearsal {
            place: Plain {
                directory,
                settings: BTreeMap::new(),
            },
            scratch,
            result: TurnResult::default(),
            operations: BTreeMap::new(),
            _home: home,
        }
    }

    fn phases(&self) -> Vec<&str> {
        self.operations.keys().map(String::as_str).collect()
    }

    fn figure(&self, phase: &str, name: &str) -> f64 {
        let found = self
            .result
            .figures
            .iter()
            .find(|figure| figure.phase == phase && figure.name == name);
        match found {
            Some(figure) => figure.value,
            None => panic!("no '{name}' of '{phase}' in {:#?}", self.result.figures),
        }
    }

    fn distribution(&self, phase: &str) -> &Distribution {
        let found = self.result.distributions.iter().find(|one| one.phase == phase);
        found.unwrap_or_else(|| panic!("no latencies of '{phase}'"))
    }
}

impl Turn for Rehearsal {
    fn place(&mut self) -> &mut dyn Place {
        &mut self.place
    }

    fn scratch(&self) -> &Path {
        &self.scratch
    }

    fn seed(&self) -> u64 {
        7
    }

    fn say(&mut self, _what: &str) {}

    fn measure(
        &mut self,
        phase: &str,
        processes: &Processes,
        _settled: bool,
        work: &mut dyn FnMut() -> Result<Work>,
    ) -> Result<Duration> {
        assert!(!processes.server_pids.is_empty(), "{phase} is about no process");
        let started = Instant::now();
        let work = work()?;
        let before = self.operations.insert(phase.to_owned(), work.operations);
        assert_eq!(before, None, "{phase} came twice");
        Ok(started.elapsed())
    }

    fn record(&mut self, phase: &str, name: &str, unit: Unit, better: Better, value: f64) {
        assert!(value.is_finite(), "{phase}, {name}: {value}");
        let known = self
            .result
            .figures
            .iter()
            .any(|figure| figure.phase == phase && figure.name == name);
        assert!(!known, "'{name}' of '{phase}' came twice");
        self.result.figures.push(crate::figure::Figure {
            phase: phase.to_owned(),
            name: name.to_owned(),
            unit,
            better,
            value,
        });
    }

    fn record_distribution(&mut self, distribution: Distribution) {
        assert!(distribution.points.len() <= 200);
        self.result.distributions.push(distribution);
    }

    fn record_series(&mut self, series: Series) {
        self.result.series.push(series);
    }

    fn note(&mut self, note: &str) {
        self.result.notes.push(note.to_owned());
    }
}

fn workload(text: &str) -> Result<Box<dyn Workload>> {
    from_table(&toml::from_str(text).expect("TOML"))
}

/// Runs the workload that `text` describes, if what it needs is there.
fn rehearse(name: &str, text: &str) -> Option<Rehearsal> {
    let workload = workload(text).expect("good parameters");
    if let Err(missing) = workload.check() {
        requirements::skip(name, &missing.to_string());
        return None;
    }
    let mut rehearsal = Rehearsal::new();
    workload.run(&mut rehearsal).expect("the workload runs");
    Some(rehearsal)
}

/// No process works below the place any more.
fn assert_nothing_left(rehearsal: &Rehearsal) {
    let home = rehearsal.place.directory.as_path();
    for pid in crate::process::all_pids() {
        let there = crate::process::working_directory(pid).is_some_and(|path| path.starts_with(home));
        assert!(
            !there || !crate::process::is_running(pid),
            "process {pid} still works in {}",
            home.display()
        );
    }
}

#[test]
fn mistakes_in_parameters_are_told_with_what_is_known() {
    let error = |text: &str| format!("{:#}", workload(text).err().expect("a mistake"));
    for (text, parts) in [
        ("scale = 1", ["kind", "pgbench"]),
        ("kind = 'pgbensh'", ["pgbensh", "command"]),
        ("kind = 'pgbench'\nscall = 1", ["scall", "scale"]),
        ("kind = 'pgbench'\nscale = 'big'", ["scale", "u32"]),
        ("kind = 'pgbench'\nscale = 0", ["scale", "at least 1"]),
        ("kind = 'pgbench'\nmode = 'fast'", ["fast", "prepared"]),
        ("kind = 'command'", ["command", "run"]),
    ] {
        let message = error(text);
        for part in parts {
            assert!(message.contains(part), "{part} is missing in: {message}");
        }
    }
}

#[test]
fn pgbench_yields_throughput_latencies_and_sizes() {
    let text = "kind = 'pgbench'\nscale = 1\nclients = [2]\nseconds = 2\nwarm_up_seconds = 0\n\
                [server_settings]\nwork_mem = '8MB'\nrandom_page_cost = 1.5\nfull_page_writes = false\n";
    let Some(rehearsal) = rehearse("pgbench_yields_throughput_latencies_and_sizes", text) else {
        return;
    };
    assert_nothing_left(&rehearsal);
    assert_eq!(
        rehearsal.phases(),
        ["2 clients", "cold scan", "load", "reading", "warm scan"]
    );
    assert_eq!(rehearsal.operations["cold scan"], 100_000);
    let throughput = rehearsal.figure("2 clients", "throughput");
    let transactions = rehearsal.operations["2 clients"] as f64;
    assert!(
        (transactions / 2.0 / throughput - 1.0).abs() < 0.3,
        "{throughput}"
    );
    let middle = rehearsal.figure("2 clients", "latency p50");
    assert!(middle > 0.0 && middle <= rehearsal.figure("2 clients", "latency max"));
    assert!(rehearsal.figure("2 clients", "server log bytes per transaction") > 50.0);
    assert!(rehearsal.figure("load", "COPY seconds") > 0.0);
    assert!(rehearsal.figure("", "stored bytes") > 15e6);
    assert!(!rehearsal.distribution("2 clients").from_intended_start);
    let progress = &rehearsal.result.series[0];
    assert!((1..=2).contains(&progress.points.len()), "{progress:?}");
    assert!(rehearsal.scratch.join("postgresql.log").is_file());
}

#[test]
fn command_says_what_it_did() {
    let text = r#"
        kind = "command"
        prepare = "echo ready > $PACKSTONE_LAB_DIRECTORY/ready"
        run = "cat ready; echo figure seed=$PACKSTONE_LAB_SEED; sleep 30 & echo operations=3"
    "#;
    let rehearsal = rehearse("command_says_what_it_did", text).expect("there is a shell");
    assert_nothing_left(&rehearsal);
    assert_eq!(rehearsal.operations["run"], 3);
    assert_eq!(rehearsal.figure("run", "seed"), 7.0);
    assert!(rehearsal.figure("run", "throughput") > 0.0);
    let said = std::fs::read_to_string(rehearsal.scratch.join("run.stdout")).expect("what it said");
    assert!(said.starts_with("ready\n"));
}

#[test]
fn failed_command_is_an_error_with_the_end_of_what_it_said() {
    let failing = workload("kind = 'command'\nrun = 'echo broken widget >&2; exit 3'").expect("parameters");
    let mut rehearsal = Rehearsal::new();
    let error = failing
        .run(&mut rehearsal)
        .expect_err("exit status 3 is a failure");
    let message = format!("{error:#}");
    assert!(
        message.contains("broken widget") && message.contains('3'),
        "{message}"
    );
    let said = std::fs::read_to_string(rehearsal.scratch.join("run.stderr")).expect("what it said");
    assert_eq!(said, "broken widget\n");
}
