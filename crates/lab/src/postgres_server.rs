//! A PostgreSQL server on the storage of one arm, for one turn.
//!
//! Invariants:
//! - The server takes connections on a Unix socket alone, and runs as the user `postgres` when the lab runs as root.
//! - It has ended when a `Server` goes out of scope, and when the run is interrupted.
//! - All arms have the same settings but for those that the arm itself gives, such as `full_page_writes`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::cluster::Cluster;
use crate::figure::{Better, Unit};
use crate::requirements;
use crate::turn::{Processes, Turn, Work};
use crate::workload;

/// Settings of every server, unless the workload or the arm says otherwise.
const DEFAULTS: [(&str, &str); 6] = [
    ("shared_buffers", "128MB"),
    // Large enough that no checkpoint falls into a timed phase by its own; each phase is preceded by one.
    ("max_wal_size", "8GB"),
    // Small, so that recycled files of the log do not hide what the data takes.
    ("min_wal_size", "32MB"),
    ("checkpoint_timeout", "30min"),
    // Workers of its own would work at times that nobody knows.
    ("autovacuum", "off"),
    // Safe everywhere; an arm that needs no full pages says so.
    ("full_page_writes", "on"),
];

/// Server settings that belong to the storage, so that each arm may have its own.
pub const ARM_SETTINGS: &[&str] = &[
    "full_page_writes",
    "wal_compression",
    "wal_init_zero",
    "wal_recycle",
    "wal_sync_method",
    "wal_buffers",
    "synchronous_commit",
    "commit_delay",
    "fsync",
    "shared_buffers",
    "max_wal_size",
    "effective_io_concurrency",
    "backend_flush_after",
    "checkpoint_flush_after",
    "bgwriter_flush_after",
    "huge_pages",
];

/// The value of a server setting, which may be written as text, number or truth value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// `"128MB"`
    Text(String),
    /// `100`
    Whole(i64),
    /// `0.9`
    Real(f64),
    /// `true`
    Truth(bool),
}

impl std::fmt::Display for SettingValue {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SettingValue::Text(text) => to.write_str(text),
            SettingValue::Whole(number) => number.fmt(to),
            SettingValue::Real(number) => number.fmt(to),
            SettingValue::Truth(truth) => to.write_str(if *truth { "on" } else { "off" }),
        }
    }
}

/// A workload's `server_settings`.
pub type ServerSettings = BTreeMap<String, SettingValue>;

/// Why no server can run here, as an error that says what to do.
pub fn check() -> Result<()> {
    match requirements::missing_for_postgres() {
        Some(reason) => bail!("this workload needs PostgreSQL: {reason}"),
        None => Ok(()),
    }
}

/// A cluster on the place of a turn.
pub struct Server {
    cluster: Cluster,
    // Socket and log. Not in the turn's scratch directory: its path may be too long for a socket, or closed to the
    // server's user.
    run_directory: tempfile::TempDir,
    kept_log: PathBuf,
}

impl Server {
    /// Makes a cluster in `data` below the place's directory and starts its server.
    pub fn start_on(turn: &mut dyn Turn, settings: &ServerSettings) -> Result<Server> {
        turn.say("making a PostgreSQL cluster");
        let run_directory = tempfile::Builder::new()
            .prefix("packstone-lab-")
            .tempdir()
            .context("cannot create a directory for the server's socket")?;
        let kept_log = turn.scratch().join("postgresql.log");
        let place = turn.place();
        let mut cluster = Cluster::create(&place.directory().join("data"), run_directory.path())?;
        for (name, value) in DEFAULTS {
            cluster = cluster.with_setting(name, value);
        }
        for (name, value) in settings {
            cluster = cluster.with_setting(name, &value.to_string());
        }
        for name in ARM_SETTINGS {
            if let Some(value) = place.setting(name) {
                cluster = cluster.with_setting(name, value);
            }
        }
        if let Some(cleanup) = turn.cleanup() {
            let cluster = cluster.clone();
            cleanup.push("end PostgreSQL", move || cluster.kill_hard());
        }
        let server = Server {
            cluster,
            run_directory,
            kept_log,
        };
        server.cluster.start()?;
        Ok(server)
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What the meters are to look at.
    pub fn processes(&self) -> Processes {
        Processes {
            server_pids: self.cluster.postmaster_pid().into_iter().collect(),
        }
    }

    /// Runs statements that yield nothing.
    pub fn execute(&self, sql: &str) -> Result<()> {
        self.cluster
            .connect("postgres")?
            .batch_execute(sql)
            .with_context(|| format!("PostgreSQL refused: {sql}"))
    }

    /// Writes everything that is dirty in the server and below it, so that nobody else pays for it later.
    pub fn settle(&self, turn: &mut dyn Turn) -> Result<()> {
        self.execute("CHECKPOINT")?;
        turn.place().settle()
    }

    /// Stops the server, makes the storage cold, and starts the server again.
    pub fn restart_cold(&self, turn: &mut dyn Turn) -> Result<()> {
        self.cluster.stop()?;
        workload::make_cold(turn)?;
        self.cluster.start()
    }

    /// Records what the cluster takes, with the log cut to its least size.
    pub fn record_stored(&self, turn: &mut dyn Turn, phase: &str) -> Result<()> {
        // How many old files of the log are kept depends on how much was written between checkpoints, which a server
        // that has just started knows nothing of.
        self.cluster.stop()?;
        self.cluster.start()?;
        self.settle(turn)?;
        workload::record_stored(turn, phase)
    }

    /// Measures `work` as a phase, from a settled server to a checkpoint afterwards, with the bytes of log it wrote.
    pub fn measure_writing(
        &self,
        turn: &mut dyn Turn,
        phase: &str,
        work: &mut dyn FnMut() -> Result<Work>,
    ) -> Result<()> {
        self.settle(turn)?;
        turn.say(phase);
        let log_before = self.log_position()?;
        let mut log_bytes = 0.0;
        let mut done = Work {
            operations: 0,
            operation: "",
        };
        turn.measure(phase, &self.processes(), true, &mut || {
            done = work()?;
            log_bytes = self.log_position()? - log_before;
            self.execute("CHECKPOINT")?;
            Ok(done)
        })?;
        turn.record(phase, "server log bytes", Unit::Bytes, Better::Lower, log_bytes);
        if done.operations > 0 {
            let each = log_bytes / done.operations as f64;
            let name = format!("server log bytes per {}", done.operation);
            turn.record(phase, &name, Unit::Bytes, Better::Lower, each);
        }
        Ok(())
    }

    /// Bytes of log written since the cluster was made.
    fn log_position(&self) -> Result<f64> {
        let row = self
            .cluster
            .connect("postgres")?
            .query_one("SELECT (pg_current_wal_insert_lsn() - '0/0')::float8", &[])?;
        Ok(row.get(0))
    }

    fn keep_log(&self) {
        let kept = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.kept_log);
        // Nice to have when something is to be explained; not worth failing for.
        if let Ok(mut kept) = kept {
            let _ = kept.write_all(self.cluster.log().as_bytes());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.cluster.pids().is_empty() {
            let ended = self.cluster.stop().or_else(|_| self.cluster.kill_hard());
            if let Err(error) = ended {
                eprintln!(
                    "PostgreSQL in {} could not be stopped: {error:#}",
                    self.run_directory.path().display()
                );
            }
        }
        self.keep_log();
    }
}
