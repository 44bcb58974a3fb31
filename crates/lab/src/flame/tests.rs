//! A profile of a process of our own, where `perf` is allowed here; and what happens where it is not.

use std::io::Write;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::*;

/// A process whose children keep a processor busy until it is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Busy {
        let copying = "while :; do dd if=/dev/zero of=/dev/null bs=64k count=20000 2>/dev/null; done";
        Busy(Command::new("sh").args(["-c", copying]).spawn().expect("a shell"))
    }

    /// Processor time of its children that have ended, in hundredths of a second: fields 16 and 17 of `proc(5)`'s `stat`.
    fn children_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it runs");
        let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
        let fields = fields.split_whitespace().skip(13).take(2);
        fields.map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }

    /// Waits until children have had a fifth of a second: on a busy machine that takes longer than a fifth of a second.
    fn work(&self) {
        let (before, start) = (self.children_ticks(), Instant::now());
        while self.children_ticks() < before + 20 && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_busy_process_gets_a_graph_or_a_note_that_says_why_not() {
    let directory = tempfile::tempdir().expect("scratch");
    let busy = Busy::start();
    let targets = [Target::new("server", &[busy.pid()]), Target::new("daemon", &[])];
    let profiler = Profiler::start("8 clients", &targets, directory.path(), "turn 3/8 clients");
    busy.work();
    let Profiled { graphs, notes } = profiler.finish();
    let left: Vec<_> = std::fs::read_dir(directory.path())
        .expect("scratch")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    match graphs.as_slice() {
        [graph] => {
            assert_eq!(
                (graph.phase.as_str(), graph.process.as_str()),
                ("8 clients", "server")
            );
            assert_eq!(graph.file, "turn-3-8-clients-server.svg");
            let svg = std::fs::read_to_string(directory.path().join(&graph.file)).expect("the graph");
            assert!(
                svg.contains("<svg") && svg.contains("server, 8 clients"),
                "{}",
                &svg[..svg.len().min(400)]
            );
            assert!(
                svg.contains("<title>dd ("),
                "children that were started later are sampled too"
            );
            assert!(notes.is_empty(), "{notes:?}");
            assert_eq!(left.len(), 1, "the samples are gone: {left:?}");
        }
        [] => {
            // Past the capture of the test framework: `make test` counts these lines.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED {}: {}",
                std::thread::current().name().unwrap_or("a test"),
                notes.join("; ")
            );
            assert_eq!(notes.len(), 1, "{notes:?}");
            assert!(notes[0].starts_with("no flame graph: "), "{notes:?}");
            assert!(
                !notes[0].contains("no samples"),
                "the processes were busy: {notes:?}"
            );
            assert!(left.is_empty(), "{left:?}");
        }
        _ => panic!("more graphs than targets: {graphs:?}"),
    }
}

#[test]
fn targets_without_processes_are_passed_over() {
    let directory = tempfile::tempdir().expect("scratch");
    let targets = [Target::new("server", &[]), Target::new("daemon", &[i32::MAX])];
    let profiler = Profiler::start("load", &targets, directory.path(), "turn-0");
    assert_eq!(profiler.finish(), Profiled::default());
}

#[test]
fn a_directory_that_cannot_be_written_gives_a_note_and_no_graph() {
    let busy = Busy::start();
    let targets = [Target::new("server", &[busy.pid()])];
    let profiler = Profiler::start("load", &targets, Path::new("/nonexistent/run"), "turn-0");
    let Profiled { graphs, notes } = profiler.finish();
    assert!(graphs.is_empty());
    assert!(
        notes.len() == 1 && notes[0].starts_with("no flame graph: "),
        "{notes:?}"
    );
}

#[test]
fn a_profiler_that_is_dropped_leaves_nothing() {
    let directory = tempfile::tempdir().expect("scratch");
    let busy = Busy::start();
    drop(Profiler::start(
        "load",
        &[Target::new("server", &[busy.pid()])],
        directory.path(),
        "turn-0",
    ));
    assert_eq!(std::fs::read_dir(directory.path()).expect("scratch").count(), 0);
}
