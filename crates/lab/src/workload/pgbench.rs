//! pgbench: load, runs with several numbers of clients, reading, sizes, scans.
//!
//! Phases: `load`, `N clients` for each number of clients, `reading`, `cold scan`, `warm scan`. Before each timed run
//! there is a checkpoint; the one after it counts as part of what the run cost, but not of its throughput.
//!
//! Leaves out: scripts of the user's own; the workload `command` runs anything.

mod output;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Parameters, Workload, at_least_one, record_throughput};
use crate::figure::{Better, Series, Unit};
use crate::latencies::Latencies;
use crate::postgres_server::{self, ARM_SETTINGS, Server, ServerSettings};
use crate::supervised;
use crate::turn::{Turn, Work};

/// Parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pgbench {
    /// 100,000 accounts each, some 16 MB.
    scale: u32,
    /// Numbers of clients of the runs that write, in this order.
    clients: Vec<u32>,
    /// Number of clients of the run that only reads; 0 for no such run.
    read_only_clients: u32,
    /// Length of each timed run.
    seconds: u32,
    /// Length of the run before each, which does not count.
    warm_up_seconds: u32,
    /// How statements are sent.
    mode: Mode,
    /// Transactions a second that are begun whether or not earlier ones have ended; without it each client begins one
    /// after the other.
    rate: Option<f64>,
    /// Threads of pgbench itself.
    threads: u32,
    /// Scans of the accounts at the end.
    scans: bool,
    /// Settings of the server.
    server_settings: ServerSettings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Prepared,
    Simple,
    Extended,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Prepared => "prepared",
            Mode::Simple => "simple",
            Mode::Extended => "extended",
        }
    }
}

impl Default for Pgbench {
    fn default() -> Pgbench {
        Pgbench {
            scale: 50,
            clients: vec![8, 1],
            read_only_clients: 8,
            seconds: 20,
            warm_up_seconds: 5,
            mode: Mode::Prepared,
            rate: None,
            threads: 2,
            scans: true,
            server_settings: ServerSettings::new(),
        }
    }
}

/// One timed run of pgbench.
struct Run<'a> {
    phase: &'a str,
    clients: u32,
    read_only: bool,
    /// Share of transactions whose time is noted: all, but for runs so quick that noting costs.
    noted_share: f64,
}

/// Share of reading transactions whose time is noted.
const READING_NOTED_SHARE: f64 = 0.1;

impl Parameters for Pgbench {
    fn validate(&self) -> Result<()> {
        at_least_one("scale", self.scale.into())?;
        at_least_one("seconds", self.seconds.into())?;
        at_least_one("threads", self.threads.into())?;
        for clients in &self.clients {
            at_least_one("clients", (*clients).into())?;
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            bail!("'rate' has to be above 0");
        }
        Ok(())
    }
}

impl Workload for Pgbench {
    fn check(&self) -> Result<()> {
        postgres_server::check()
    }

    fn storage_bytes(&self) -> u64 {
        const MB: u64 = 1 << 20;
        // Tables with what updates add, and the log of two runs: some 100 MB a second with full pages, 8 GB at most.
        let log_seconds = u64::from(self.seconds + self.warm_up_seconds) * 2;
        u64::from(self.scale) * 30 * MB + (log_seconds * 100 * MB).min(9000 * MB) + 1000 * MB
    }

    fn expected_seconds(&self) -> Option<u64> {
        // A load at a few MB a second and timed runs with a checkpoint before and after each.
        const CHECKPOINTS_S: u64 = 5;
        let runs = self.clients.len() as u64 + u64::from(self.read_only_clients > 0);
        let load = u64::from(self.scale) / 4 + CHECKPOINTS_S;
        Some(load + runs * (u64::from(self.seconds + self.warm_up_seconds) + CHECKPOINTS_S))
    }

    fn arm_settings(&self) -> &'static [&'static str] {
        ARM_SETTINGS
    }

    fn run(&self, turn: &mut dyn Turn) -> Result<()> {
        let server = Server::start_on(turn, &self.server_settings)?;
        self.load(turn, &server)?;
        for clients in &self.clients {
            let phase = match clients {
                1 => "1 client".to_owned(),
                several => format!("{several} clients"),
            };
            let run = Run {
                phase: &phase,
                clients: *clients,
                read_only: false,
                noted_share: 1.0,
            };
            self.timed(turn, &server, &run)?;
        }
        if self.read_only_clients > 0 {
            let run = Run {
                phase: "reading",
                clients: self.read_only_clients,
                read_only: true,
                noted_share: READING_NOTED_SHARE,
            };
            self.timed(turn, &server, &run)?;
        }
        server.record_stored(turn, "")?;
        if self.scans {
            server.restart_cold(turn)?;
            self.scan(turn, &server, "cold scan")?;
            self.scan(turn, &server, "warm scan")?;
        }
        Ok(())
    }
}

impl Pgbench {
    fn load(&self, turn: &mut dyn Turn, server: &Server) -> Result<()> {
        let mut said = String::new();
        let rows = u64::from(self.scale) * 100_000;
        let scale = self.scale.to_string();
        server.measure_writing(turn, "load", &mut || {
            let mut command = server.cluster().program("pgbench");
            command.args(["-i", "-q", "-s", &scale]);
            said = text(&mut command, None)?.1;
            Ok(Work {
                operations: rows,
                operation: "row",
            })
        })?;
        let steps = output::load_steps(&said)
            .with_context(|| format!("cannot understand what pgbench -i says: {said}"))?;
        for (name, seconds) in steps {
            turn.record("load", &name, Unit::Seconds, Better::Lower, seconds);
        }
        Ok(())
    }

    fn timed(&self, turn: &mut dyn Turn, server: &Server, run: &Run) -> Result<()> {
        if self.warm_up_seconds > 0 {
            turn.say(&format!("{}: warming up", run.phase));
            let mut command = self.command(server, run, self.warm_up_seconds, turn.seed());
            text(&mut command, turn.cleanup())?;
        }
        let logs = Logs::new(server)?;
        let mut command = self.command(server, run, self.seconds, turn.seed() ^ 1);
        command.args(["-l", "-P", "1", "--log-prefix"]).arg(&logs.prefix);
        if run.noted_share < 1.0 {
            command.arg(format!("--sampling-rate={}", run.noted_share));
        }
        let mut said = (String::new(), String::new());
        let cleanup = turn.cleanup().cloned();
        let mut work = || {
            said = text(&mut command, cleanup.as_ref())?;
            let summary = output::summary(&said.0)?;
            Ok(Work {
                operations: summary.transactions,
                operation: "transaction",
            })
        };
        if run.read_only {
            server.settle(turn)?;
            turn.say(run.phase);
            turn.measure(run.phase, &server.processes(), false, &mut work)?;
        } else {
            server.measure_writing(turn, run.phase, &mut work)?;
        }
        let summary = output::summary(&said.0)?;
        turn.record(
            run.phase,
            "throughput",
            Unit::PerSecond,
            Better::Higher,
            summary.each_second,
        );
        if summary.failed > 0 {
            turn.note(&format!("{}: {} transactions failed", run.phase, summary.failed));
        }
        turn.record_series(Series {
            phase: run.phase.to_owned(),
            name: "throughput".to_owned(),
            unit: Unit::PerSecond,
            points: output::progress(&said.1),
        });
        let latencies = logs.read()?;
        latencies.record(turn, run.phase, "transaction", self.rate.is_some());
        Ok(())
    }

    fn command(&self, server: &Server, run: &Run, seconds: u32, seed: u64) -> Command {
        let mut command = server.cluster().program("pgbench");
        command
            .args(["-n", "-M", self.mode.name()])
            .arg(format!("--client={}", run.clients))
            .arg(format!("--jobs={}", self.threads.min(run.clients)))
            .arg(format!("--time={seconds}"))
            // pgbench takes any number of 64 bits, but prints and reads it as a signed one in some versions.
            .arg(format!("--random-seed={}", seed >> 1));
        if run.read_only {
            command.arg("--select-only");
        } else if let Some(rate) = self.rate {
            command.arg(format!("--rate={rate}"));
        }
        command
    }

    fn scan(&self, turn: &mut dyn Turn, server: &Server, phase: &str) -> Result<()> {
        turn.say(phase);
        let mut database = server.cluster().connect("postgres")?;
        database.batch_execute("SET max_parallel_workers_per_gather = 0")?;
        let mut seconds = 0.0;
        let mut rows = 0;
        turn.measure(phase, &server.processes(), false, &mut || {
            let started = Instant::now();
            let row = database.query_one("SELECT count(*), sum(abalance) FROM pgbench_accounts", &[])?;
            seconds = started.elapsed().as_secs_f64();
            rows = row.get::<_, i64>(0) as u64;
            Ok(Work {
                operations: rows,
                operation: "row",
            })
        })?;
        record_throughput(turn, phase, rows, seconds);
        Ok(())
    }
}

/// Runs `command`; what it wrote to standard output and to standard error.
fn text(command: &mut Command, cleanup: Option<&crate::scratch::Cleanup>) -> Result<(String, String)> {
    let output = supervised::run(command, cleanup)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&output.stdout), text(&output.stderr)))
}

/// The files in which pgbench notes every transaction.
struct Logs {
    prefix: std::path::PathBuf,
    directory: std::path::PathBuf,
}

impl Logs {
    const NAME: &'static str = "transactions";

    fn new(server: &Server) -> Result<Logs> {
        let directory = server.cluster().run_directory().to_owned();
        let logs = Logs {
            prefix: directory.join(Logs::NAME),
            directory,
        };
        logs.remove();
        Ok(logs)
    }

    fn files(&self) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(Logs::NAME))
            .map(|entry| entry.path())
            .collect()
    }

    fn read(&self) -> Result<Latencies> {
        let mut latencies = Latencies::default();
        for path in self.files() {
            read_log(&path, &mut latencies)?;
        }
        Ok(latencies)
    }

    fn remove(&self) {
        for path in self.files() {
            // Left behind, they go with the run directory.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.remove();
    }
}

fn read_log(path: &Path, latencies: &mut Latencies) -> Result<()> {
    use std::io::BufRead;
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    for line in std::io::BufReader::new(file).lines() {
        if let Some(seconds) = output::logged_seconds(&line?) {
            latencies.push_seconds(seconds);
        }
    }
    Ok(())
}
