//! Workloads in small on a plain directory, and the experiments that come with the project.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::*;
use crate::experiment::{Experiment, Kind};
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
        ("kind = 'pgbensh'", ["pgbensh", "pg-load"]),
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

#[test]
fn load_takes_generated_events_and_lines_of_a_file() {
    let Some(rehearsal) = rehearse(
        "load_takes_generated_events_and_lines_of_a_file",
        "kind = 'pg-load'\nrows = 3000",
    ) else {
        return;
    };
    assert_nothing_left(&rehearsal);
    assert_eq!(rehearsal.phases(), ["GIN index", "btree indexes", "copy"]);
    assert_eq!(rehearsal.operations["copy"], 3000);
    assert!(rehearsal.figure("GIN index", "statement seconds") > 0.0);

    let file = rehearsal.scratch.join("lines.jsonl");
    let lines: String = (0..50)
        .map(|number| format!("{{\"number\": {number}, \"text\": \"a\\tb\"}}\n"))
        .collect();
    std::fs::write(&file, lines + "{\"zero\": \"\\u0000\"}\n").expect("a file");
    let text = format!("kind = 'pg-load'\ndata_file = '{}'", file.display());
    let from_file = rehearse("pg-load from a file", &text).expect("PostgreSQL is there");
    assert_eq!(from_file.operations["copy"], 50);
    assert_eq!(from_file.result.notes.len(), 1, "{:?}", from_file.result.notes);
}

#[test]
fn events_are_inserted_singly_and_in_batches() {
    let text = "kind = 'events'\ntables = 2\ndefinitions = 8\nclients = 2\n\
                single_events = 101\nbatched_events = 500\nbatch_sizes = [1, 50]";
    let Some(rehearsal) = rehearse("events_are_inserted_singly_and_in_batches", text) else {
        return;
    };
    assert_nothing_left(&rehearsal);
    assert_eq!(rehearsal.phases(), ["batches of 50", "one by one"]);
    assert_eq!(rehearsal.operations["one by one"], 102);
    assert_eq!(rehearsal.operations["batches of 50"], 500);
    let single = rehearsal.figure("one by one", "server log bytes per event");
    let batched = rehearsal.figure("batches of 50", "server log bytes per event");
    assert!(batched > 500.0 && single > batched, "{single} and {batched}");
    assert!(rehearsal.figure("batches of 50", "latency p50") > 0.0);
}

#[test]
fn scans_read_every_row() {
    let text = "kind = 'scan'\ntable_mib = 4\nindex_rows = 500\nwarm_scans = 3";
    let Some(rehearsal) = rehearse("scans_read_every_row", text) else {
        return;
    };
    assert_nothing_left(&rehearsal);
    let rows = rehearsal.operations["load"];
    assert_eq!(rehearsal.operations["cold scan"], rows);
    assert_eq!(rehearsal.operations["warm scan"], 3 * rows);
    assert_eq!(rehearsal.operations["cold index scan"], 500);
    // A fifth, by chance; some rows are drawn in two rounds.
    let updated = rehearsal.operations["updates"] as f64 / rows as f64;
    assert!(
        (0.17..0.23).contains(&updated),
        "{updated} of the rows were updated"
    );
    let table_bytes = rehearsal.figure("", "stored bytes");
    assert!(table_bytes > 4e6, "{table_bytes}");
    assert_eq!(rehearsal.result.notes, ["the caches stayed", "the caches stayed"]);
}

#[test]
fn fio_jobs_are_phases() {
    let text = "kind = 'fio'\n\
                [jobs.writes]\nrw = 'randwrite'\nbs = '8k'\nsize = '512k'\nfsync = 1\n\
                [jobs.reads]\nrw = 'read'\nbs = '64k'\nsize = '1m'\ninvalidate = false\n";
    let Some(rehearsal) = rehearse("fio_jobs_are_phases", text) else {
        return;
    };
    assert_eq!(rehearsal.phases(), ["reads", "writes"]);
    assert_eq!(rehearsal.operations["writes"], 64);
    assert_eq!(rehearsal.operations["reads"], 16);
    assert!(rehearsal.figure("writes", "sync latency p50") > 0.0);
    assert_eq!(rehearsal.distribution("reads").name, "read");
    assert_eq!(
        std::fs::read_dir(&rehearsal.place.directory)
            .expect("the place")
            .count(),
        0
    );
}

#[test]
fn options_of_fio_that_the_lab_sets_are_refused() {
    let error = workload("kind = 'fio'\n[jobs.one]\nfilename = '/dev/vda'\n").err();
    assert!(error.is_some_and(|error| format!("{error:#}").contains("filename")));
}

#[test]
fn mail_is_delivered_read_flagged_and_deleted() {
    let text = "kind = 'files'\nmessages = 101\nthreads = 2\nlargest_bytes = 100000";
    let rehearsal = rehearse("mail_is_delivered_read_flagged_and_deleted", text).expect("it needs nothing");
    assert_eq!(rehearsal.phases(), ["delete", "deliver", "flag", "list", "read"]);
    for phase in ["deliver", "flag", "list", "read"] {
        assert_eq!(rehearsal.operations[phase], 101, "{phase}");
    }
    assert_eq!(rehearsal.operations["delete"], 17 + 17);
    let cur = rehearsal.place.directory.join("user-0/Maildir/cur");
    assert_eq!(std::fs::read_dir(cur).expect("a directory").count(), 51 - 17);
    assert!(rehearsal.figure("", "stored bytes") > 101.0 * 600.0);
    assert!(rehearsal.figure("deliver", "latency p99") > 0.0);
}

#[test]
fn numbers_of_the_key_value_program_become_figures() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir_in("/var/tmp").expect("a temporary directory");
    let program = directory.path().join("kv");
    // Says what it was asked for, as the real one does.
    let script = r#"#!/bin/sh
        for option; do case "$option" in
            --engines=*) engine=${option#*=} ;;
            --orders=*) order=${option#*=} ;;
            --items=*) items=${option#*=} ;;
        esac; done
        echo "{\"engine\": \"$engine\", \"order\": \"$order\", \"round\": 0, \"items\": $items, \"items_per_second\": 4.5, \"stored_bytes\": null}"
    "#;
    std::fs::write(&program, script).expect("a script");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("a mode");
    let text = format!(
        "kind = 'kv'\nitems = 12\nengines = ['lmdb']\nprogram = '{}'",
        program.display()
    );
    let rehearsal = rehearse("kv", &text).expect("the program is there");
    assert_eq!(rehearsal.phases(), ["lmdb, random", "lmdb, sequential"]);
    assert_eq!(rehearsal.operations["lmdb, random"], 12);
    assert_eq!(rehearsal.figure("lmdb, sequential", "throughput"), 4.5);

    let mut chosen = Rehearsal::new();
    chosen.place.settings.insert("engine", "redb");
    workload(&text)
        .and_then(|workload| workload.run(&mut chosen))
        .expect("it runs");
    assert_eq!(chosen.phases(), ["random", "sequential"]);
}

/// Experiments that come with the project.
fn experiments() -> Vec<(PathBuf, Experiment)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("the directory of experiments") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        match Experiment::parse(&text) {
            Ok(experiment) => found.push((path, experiment)),
            Err(error) => panic!("{}: {error:#}", path.display()),
        }
    }
    assert!(found.len() >= 9, "{} experiments", found.len());
    found
}

#[test]
fn experiments_that_come_with_the_project_are_good() {
    for (path, experiment) in experiments() {
        let name = path.display();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        assert_eq!(stem, experiment.name, "{name} is called otherwise");
        assert!(
            !experiment.description.is_empty(),
            "{name} says not what it is for"
        );
        let workload = match from_table(&experiment.workload) {
            Ok(workload) => workload,
            Err(error) => panic!("{name}: {error:#}"),
        };
        assert!(
            workload.storage_bytes() <= experiment.backing.size_bytes(),
            "{name}: the workload needs {} bytes",
            workload.storage_bytes()
        );
        for arm in &experiment.arms {
            for setting in arm.settings().keys() {
                assert!(
                    workload.arm_settings().contains(&setting.as_str()),
                    "{name}: the workload knows no '{setting}'"
                );
            }
            assert_eq!(
                arm.settings().get("full_page_writes").map(String::as_str) == Some("off"),
                arm.settings().contains_key("full_page_writes")
                    && arm.kind == Kind::Packstone
                    && !arm.name.contains("full-pages"),
                "{name}: only Packstone is safe without full pages"
            );
        }
        let text = std::fs::read_to_string(&path).expect("a text");
        for part in ["packstone lab run experiments/", "Takes "] {
            assert!(text.contains(part), "{name} does not say '{part}'");
        }
    }
}
