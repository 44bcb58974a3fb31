//! Reading a table: in order and by index, cold and warm, as loaded or after random updates.
//!
//! Phases: `load`, `updates`, `cold scan`, `warm scan` (several times, the middle counts), `cold index scan` (rows in an order
//! that has nothing to do with where they lie). Scans read every row, with one process of the server.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use postgres::Client;
use serde::Deserialize;

use super::pg_load::write_events;
use super::{Parameters, Workload, at_least_one, record_throughput};
use crate::events;
use crate::figure::{Better, Unit};
use crate::postgres_server::{self, ARM_SETTINGS, Server, ServerSettings};
use crate::turn::{Turn, Work};

/// Parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scan {
    /// Size of the table, in MiB, roughly.
    table_mib: u64,
    /// Share of rows that are updated before the scans, at random places.
    update_share: f64,
    /// In how many rounds, with a checkpoint after each; more rounds scatter more.
    update_rounds: u32,
    /// How often the warm scan is repeated.
    warm_scans: u32,
    /// Rows that the index scan fetches; 0 for no index scan.
    index_rows: u64,
    /// Settings of the server.
    server_settings: ServerSettings,
}

impl Default for Scan {
    fn default() -> Scan {
        Scan {
            table_mib: 1024,
            update_share: 0.2,
            update_rounds: 4,
            warm_scans: 3,
            index_rows: 20_000,
            server_settings: ServerSettings::new(),
        }
    }
}

/// What a generated event takes in a table, with 5 % left free in each page for updates.
const ROW_BYTES: u64 = 760;
const MIB: u64 = 1 << 20;

/// Reads every value of every row; jsonb is only looked at, not unpacked.
const SCAN: &str = "SELECT count(*), sum(length(url)), sum(pg_column_size(properties)) FROM event";

impl Parameters for Scan {
    fn validate(&self) -> Result<()> {
        at_least_one("table_mib", self.table_mib)?;
        at_least_one("update_rounds", self.update_rounds.into())?;
        if !(0.0..=1.0).contains(&self.update_share) {
            bail!("'update_share' has to be from 0 to 1");
        }
        Ok(())
    }
}

impl Workload for Scan {
    fn check(&self) -> Result<()> {
        postgres_server::check()
    }

    fn storage_bytes(&self) -> u64 {
        // Table and index, and as much log for the load; updates write pages and full pages of log.
        1000 * MIB + self.table_mib * MIB * 3
    }

    fn arm_settings(&self) -> &'static [&'static str] {
        ARM_SETTINGS
    }

    fn run(&self, turn: &mut dyn Turn) -> Result<()> {
        let server = Server::start_on(turn, &self.server_settings)?;
        self.load(turn, &server)?;
        self.update(turn, &server)?;
        server.record_stored(turn, "")?;
        server.restart_cold(turn)?;
        scan(turn, &server, "cold scan", 1)?;
        if self.warm_scans > 0 {
            scan(turn, &server, "warm scan", self.warm_scans)?;
        }
        if self.index_rows > 0 {
            server.restart_cold(turn)?;
            self.index_scan(turn, &server)?;
        }
        Ok(())
    }
}

impl Scan {
    fn rows(&self) -> u64 {
        self.table_mib * MIB / ROW_BYTES
    }

    fn load(&self, turn: &mut dyn Turn, server: &Server) -> Result<()> {
        server.execute(&format!(
            "{} WITH (fillfactor = 95, autovacuum_enabled = off)",
            events::CREATE_TABLE
        ))?;
        let mut database = server.cluster().connect("postgres")?;
        let seed = turn.seed();
        let mut seconds = 0.0;
        server.measure_writing(turn, "load", &mut || {
            let started = Instant::now();
            let mut writer = database.copy_in(events::COPY)?;
            write_events(&mut writer, seed, self.rows())?;
            writer.finish().context("PostgreSQL refused the rows")?;
            seconds = started.elapsed().as_secs_f64();
            Ok(Work {
                operations: self.rows(),
                operation: "row",
            })
        })?;
        record_throughput(turn, "load", self.rows(), seconds);
        turn.say("indexing and vacuuming");
        // Without it the first scan would write hint bits; with it the planner knows the table.
        database.batch_execute("VACUUM (ANALYZE, FREEZE) event")?;
        if self.index_rows > 0 {
            database.batch_execute("CREATE INDEX event_scattered ON event (hashint8(id))")?;
        }
        Ok(())
    }

    fn update(&self, turn: &mut dyn Turn, server: &Server) -> Result<()> {
        if self.update_share == 0.0 {
            return Ok(());
        }
        let mut database = server.cluster().connect("postgres")?;
        let mut updated = 0;
        let seed = turn.seed() % 1_000_000;
        let share = self.update_share / f64::from(self.update_rounds);
        server.measure_writing(turn, "updates", &mut || {
            updated = 0;
            for round in 0..self.update_rounds {
                // A hash of the row's number decides, so that every arm updates the same rows.
                updated += database.execute(
                    &format!(
                        "UPDATE event SET user_id = user_id + 1 \
                         WHERE hashint8(id * 1000003 + {seed} + {round}) < -2147483648 + 4294967295 * {share}::float8"
                    ),
                    &[],
                )?;
                database.batch_execute("CHECKPOINT")?;
            }
            Ok(Work {
                operations: updated,
                operation: "row",
            })
        })?;
        database.batch_execute("VACUUM event")?;
        Ok(())
    }

    fn index_scan(&self, turn: &mut dyn Turn, server: &Server) -> Result<()> {
        let phase = "cold index scan";
        let mut database = single_process(server)?;
        // Neither a scan of the whole table nor one in the table's order.
        database
            .batch_execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off")?;
        let sql = format!(
            "SELECT count(*), sum(length(url)) FROM \
             (SELECT url FROM event ORDER BY hashint8(id) LIMIT {}) AS fetched",
            self.index_rows
        );
        turn.say(phase);
        let mut fetched = 0;
        let mut seconds = 0.0;
        turn.measure(phase, &server.processes(), false, &mut || {
            let started = Instant::now();
            let row = database.query_one(&sql, &[])?;
            seconds = started.elapsed().as_secs_f64();
            fetched = row.get::<_, i64>(0) as u64;
            Ok(Work {
                operations: fetched,
                operation: "row",
            })
        })?;
        record_throughput(turn, phase, fetched, seconds);
        turn.record(phase, "statement seconds", Unit::Seconds, Better::Lower, seconds);
        Ok(())
    }
}

fn single_process(server: &Server) -> Result<Client> {
    let mut database = server.cluster().connect("postgres")?;
    database.batch_execute("SET max_parallel_workers_per_gather = 0")?;
    Ok(database)
}

/// Scans the table `times` times; the middle time counts.
fn scan(turn: &mut dyn Turn, server: &Server, phase: &str, times: u32) -> Result<()> {
    let mut database = single_process(server)?;
    turn.say(phase);
    let mut rows = 0;
    let mut seconds = Vec::new();
    turn.measure(phase, &server.processes(), false, &mut || {
        rows = 0;
        for _ in 0..times {
            let started = Instant::now();
            let row = database.query_one(SCAN, &[])?;
            seconds.push(started.elapsed().as_secs_f64());
            rows += row.get::<_, i64>(0) as u64;
        }
        Ok(Work {
            operations: rows,
            operation: "row",
        })
    })?;
    seconds.sort_by(f64::total_cmp);
    let middle = seconds[seconds.len() / 2];
    record_throughput(turn, phase, rows / u64::from(times), middle);
    turn.record(phase, "statement seconds", Unit::Seconds, Better::Lower, middle);
    Ok(())
}
