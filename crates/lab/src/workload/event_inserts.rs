//! Inserts of jsonb events, one by one and in batches, into tables with many partial indexes.
//!
//! So a product-analytics store takes events in: for each event that somebody has defined there is an index that holds
//! only its rows, and every insert has to ask every definition. Phases: one for each size of a batch, `one by one` or
//! `batches of N`, each from new and empty tables and with a number of events that is the same on every arm.
//!
//! Leaves out: reading while events come in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use postgres::types::ToSql;
use postgres::{Client, Statement};
use serde::Deserialize;

use super::{Parameters, Workload, at_least_one, record_stored, record_throughput};
use crate::events::{self, Generator};
use crate::latencies::Latencies;
use crate::postgres_server::{self, ARM_SETTINGS, Server, ServerSettings};
use crate::turn::{Turn, Work};

/// Parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventInserts {
    /// Tables that the events are spread over.
    tables: u32,
    /// Partial indexes of each table.
    definitions: u32,
    /// Connections that insert at the same time.
    clients: u32,
    /// Events of the phase with one event in a transaction.
    single_events: u64,
    /// Events of each phase with several events in a transaction.
    batched_events: u64,
    /// Sizes of a batch, each a phase; 1 is one by one.
    batch_sizes: Vec<u32>,
    /// Settings of the server.
    server_settings: ServerSettings,
}

impl Default for EventInserts {
    fn default() -> EventInserts {
        EventInserts {
            tables: 4,
            definitions: 40,
            clients: 4,
            single_events: 30_000,
            batched_events: 150_000,
            batch_sizes: vec![1, 50],
            server_settings: ServerSettings::new(),
        }
    }
}

/// Columns of an event. A statement has at most 65,535 parameters.
const COLUMNS: usize = 8;
const LARGEST_BATCH: u32 = 5_000;

impl Parameters for EventInserts {
    fn validate(&self) -> Result<()> {
        at_least_one("tables", self.tables.into())?;
        at_least_one("clients", self.clients.into())?;
        at_least_one("single_events", self.single_events)?;
        at_least_one("batched_events", self.batched_events)?;
        if self
            .batch_sizes
            .iter()
            .any(|size| !(1..=LARGEST_BATCH).contains(size))
        {
            bail!("'batch_sizes' have to be from 1 to {LARGEST_BATCH}");
        }
        Ok(())
    }
}

impl Workload for EventInserts {
    fn check(&self) -> Result<()> {
        postgres_server::check()
    }

    fn storage_bytes(&self) -> u64 {
        // Row, indexes and the log with full pages.
        const EVENT_BYTES: u64 = 10_000;
        (1 << 30) + (self.single_events + self.batched_events) * EVENT_BYTES
    }

    fn arm_settings(&self) -> &'static [&'static str] {
        ARM_SETTINGS
    }

    fn run(&self, turn: &mut dyn Turn) -> Result<()> {
        let server = Server::start_on(turn, &self.server_settings)?;
        for size in &self.batch_sizes {
            self.make_tables(&server)?;
            self.insert_all(turn, &server, *size)?;
        }
        server.record_stored(turn, "")
    }
}

impl EventInserts {
    fn make_tables(&self, server: &Server) -> Result<()> {
        let mut sql = String::new();
        for table in 0..self.tables {
            sql.push_str(&format!(
                "DROP TABLE IF EXISTS event_{table};\n\
                 {};\n\
                 ALTER TABLE event RENAME TO event_{table};\n\
                 ALTER TABLE event_{table} ADD PRIMARY KEY (id);\n",
                events::CREATE_TABLE
            ));
            for definition in 0..self.definitions {
                sql.push_str(&format!(
                    "CREATE INDEX event_{table}_definition_{definition} ON event_{table} (team_id, time) WHERE {};\n",
                    condition(definition)
                ));
            }
        }
        server.execute(&sql)
    }

    fn insert_all(&self, turn: &mut dyn Turn, server: &Server, batch: u32) -> Result<()> {
        let (phase, wanted) = match batch {
            1 => ("one by one".to_owned(), self.single_events),
            size => (format!("batches of {size}"), self.batched_events),
        };
        // Whole batches, the same number for each client.
        let batches_each = wanted.div_ceil(u64::from(self.clients) * u64::from(batch));
        let events = batches_each * u64::from(self.clients) * u64::from(batch);
        let mut inserters = Vec::new();
        for number in 0..self.clients {
            inserters.push(Inserter::new(server, turn.seed(), number, self.tables, batch)?);
        }
        let mut latencies = Latencies::default();
        let mut seconds = 0.0;
        server.measure_writing(turn, &phase, &mut || {
            let started = Instant::now();
            latencies = insert_with(&mut inserters, batches_each)?;
            seconds = started.elapsed().as_secs_f64();
            Ok(Work {
                operations: events,
                operation: "event",
            })
        })?;
        record_throughput(turn, &phase, events, seconds);
        latencies.record(turn, &phase, "transaction", false);
        record_stored(turn, &phase)
    }
}

/// All clients at once, each with so many batches; the times of the transactions.
fn insert_with(inserters: &mut [Inserter], batches_each: u64) -> Result<Latencies> {
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = inserters
            .iter_mut()
            .map(|inserter| {
                let failed = &failed;
                scope.spawn(move || {
                    inserter
                        .insert(batches_each, failed)
                        .inspect_err(|_| failed.store(true, Ordering::Relaxed))
                })
            })
            .collect();
        let mut all = Latencies::default();
        for thread in threads {
            match thread.join() {
                Ok(latencies) => all.append(latencies?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })
}

/// One client with its connection and its events.
struct Inserter {
    database: Client,
    statements: Vec<Statement>,
    generator: Generator,
    number: u64,
    batch: usize,
}

impl Inserter {
    fn new(server: &Server, seed: u64, number: u32, tables: u32, batch: u32) -> Result<Inserter> {
        let mut database = server.cluster().connect("postgres")?;
        let mut statements = Vec::new();
        for table in 0..tables {
            statements.push(database.prepare(&insert_statement(table, batch as usize))?);
        }
        Ok(Inserter {
            database,
            statements,
            generator: Generator::new(seed.wrapping_add(u64::from(number) << 32)),
            number: number.into(),
            batch: batch as usize,
        })
    }

    fn insert(&mut self, batches: u64, failed: &AtomicBool) -> Result<Latencies> {
        let mut latencies = Latencies::default();
        let mut rows = String::new();
        // Clients begin at different tables, and then each goes round.
        for round in 0..batches {
            if failed.load(Ordering::Relaxed) {
                bail!("another client has failed");
            }
            rows.clear();
            for _ in 0..self.batch {
                self.generator.write_row(&mut rows);
            }
            let mut fields: Vec<&str> = rows.lines().flat_map(|row| row.split('\t')).collect();
            // Every client numbers its events from 1.
            let ids = distinct_ids(&fields, self.number)?;
            for (position, id) in ids.iter().enumerate() {
                fields[position * COLUMNS] = id;
            }
            let parameters: Vec<&(dyn ToSql + Sync)> =
                fields.iter().map(|field| field as &(dyn ToSql + Sync)).collect();
            let table = (round + self.number) as usize % self.statements.len();
            let started = Instant::now();
            self.database
                .execute(&self.statements[table], &parameters)
                .context("an insert of events failed")?;
            latencies.push(started.elapsed());
        }
        Ok(latencies)
    }
}

/// The ids in every eighth field, made distinct from those of other clients.
fn distinct_ids(fields: &[&str], client: u64) -> Result<Vec<String>> {
    const IDS_EACH: u64 = 1 << 40;
    fields
        .iter()
        .step_by(COLUMNS)
        .map(|id| Ok((client * IDS_EACH + id.parse::<u64>()?).to_string()))
        .collect()
}

/// An insert of `rows` events, all of whose values are sent as text.
fn insert_statement(table: u32, rows: usize) -> String {
    const TYPES: [&str; COLUMNS] = [
        "bigint",
        "integer",
        "bigint",
        "uuid",
        "text",
        "text",
        "timestamptz",
        "jsonb",
    ];
    let row = |row: usize| {
        let values: Vec<String> = TYPES
            .iter()
            .enumerate()
            .map(|(column, kind)| format!("${}::text::{kind}", row * COLUMNS + column + 1))
            .collect();
        format!("({})", values.join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    format!("INSERT INTO event_{table} VALUES {}", rows.join(", "))
}

/// What defines an event, as the condition of its index: some hold for many rows, most for few.
fn condition(definition: u32) -> String {
    const CONDITIONS: [(&str, &[&str]); 6] = [
        (
            "event = 'click' AND properties->>'element_text' = '{}'",
            &[
                "Add to basket",
                "Show more",
                "Next page",
                "Sort by price",
                "Open menu",
                "Sign in",
            ],
        ),
        (
            "event = 'pageview' AND url LIKE '%/{}/%'",
            &["oak", "lamp", "linen", "chair", "desk", "wool", "rug", "mirror"],
        ),
        (
            "event = '{}'",
            &[
                "purchase",
                "signup",
                "search",
                "add_to_cart",
                "client_error",
                "newsletter_opened",
            ],
        ),
        (
            "event = 'product_viewed' AND properties->>'category' = '{}'",
            &[
                "shelf", "copper", "kettle", "vase", "blue", "large", "set", "garden",
            ],
        ),
        (
            "event = 'pageview' AND properties->>'utm_campaign' = '{}'",
            &["summer_sale", "weekly_digest", "new_arrivals", "autumn_catalogue"],
        ),
        (
            "event = 'pageview' AND properties->>'country' = '{}' AND properties->>'device_type' = 'Mobile'",
            &["Germany", "France", "United States", "Brazil", "Japan", "India"],
        ),
    ];
    let (condition, values) = CONDITIONS[definition as usize % CONDITIONS.len()];
    let round = definition as usize / CONDITIONS.len();
    let text = condition.replace("{}", values[round % values.len()]);
    // When the values have all had their turn, the definition is narrowed to some teams.
    match round / values.len() {
        0 => text,
        turn => format!("{text} AND team_id = {turn}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn definitions_differ() {
        let all: HashSet<String> = (0..200).map(condition).collect();
        assert_eq!(all.len(), 200);
    }

    #[test]
    fn statement_numbers_its_parameters() {
        let sql = insert_statement(3, 2);
        assert!(sql.starts_with("INSERT INTO event_3 VALUES ($1::text::bigint, $2::text::integer"));
        assert!(sql.ends_with("$15::text::timestamptz, $16::text::jsonb)"));
    }

    #[test]
    fn ids_of_clients_are_distinct() {
        let fields = ["5", "", "", "", "", "", "", "", "6"];
        let ids = |client| distinct_ids(&fields, client).expect("numbers");
        assert_eq!(ids(0), ["5", "6"]);
        assert_eq!(ids(1), ["1099511627781", "1099511627782"]);
    }
}
