//! Loading a table with COPY, then building its indexes.
//!
//! Phases: `copy`, `btree indexes`, `GIN index`. The time that the statements take is the figure `statement seconds`; what a
//! phase wrote counts with the checkpoint after it.
//!
//! Rows are generated click events, or the lines of a file of JSON (one value a line, which may be compressed with gzip).

mod json_lines;

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Parameters, Workload, at_least_one, record_throughput};
use crate::events::{self, Generator};
use crate::figure::{Better, Unit};
use crate::postgres_server::{self, ARM_SETTINGS, Server, ServerSettings};
use crate::turn::{Turn, Work};
use json_lines::JsonLines;

/// Parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PgLoad {
    /// Rows to load; of a file at most so many lines.
    rows: u64,
    /// A file with a JSON value in each line; compressed when its name ends in `.gz`.
    data_file: Option<PathBuf>,
    /// Whether the GIN index is built, which takes the most time.
    gin: bool,
    /// Settings of the server.
    server_settings: ServerSettings,
}

impl Default for PgLoad {
    fn default() -> PgLoad {
        PgLoad {
            rows: 1_000_000,
            data_file: None,
            gin: true,
            server_settings: ServerSettings::new(),
        }
    }
}

/// Makes the table for lines of a file.
const CREATE_DOCUMENTS: &str = "CREATE TABLE document (id bigint NOT NULL, data jsonb NOT NULL)";
const COPY_DOCUMENTS: &str = "COPY document (id, data) FROM STDIN";
const DOCUMENT_BTREES: [&str; 2] = [
    "CREATE UNIQUE INDEX document_id ON document (id)",
    "CREATE INDEX document_hash ON document (hashtext(data::text))",
];
const DOCUMENT_GIN: &str = "CREATE INDEX document_data ON document USING gin (data jsonb_path_ops)";

impl Parameters for PgLoad {
    fn validate(&self) -> Result<()> {
        at_least_one("rows", self.rows)
    }
}

impl Workload for PgLoad {
    fn check(&self) -> Result<()> {
        if let Some(path) = &self.data_file
            && !path.is_file()
        {
            bail!("'data_file': there is no file {}", path.display());
        }
        postgres_server::check()
    }

    fn storage_bytes(&self) -> u64 {
        // Row, indexes, log and the files that sorting needs.
        const ROW_BYTES: u64 = 4_000;
        let rows = self.rows * ROW_BYTES;
        let from_file = self.data_file.as_ref().and_then(|path| path.metadata().ok());
        (1 << 30)
            + from_file.map_or(rows, |file| {
                // JSON is often a tenth of its size when compressed.
                rows.min(
                    file.len()
                        * if json_lines::is_compressed(&self.data_file) {
                            60
                        } else {
                            6
                        },
                )
            })
    }

    fn arm_settings(&self) -> &'static [&'static str] {
        ARM_SETTINGS
    }

    fn run(&self, turn: &mut dyn Turn) -> Result<()> {
        let server = Server::start_on(turn, &self.server_settings)?;
        let rows = self.copy(turn, &server)?;
        let (btrees, gin): (Vec<&str>, &str) = match self.data_file {
            None => {
                let (gin, btrees) = events::CREATE_INDEXES
                    .into_iter()
                    .partition::<Vec<&str>, _>(|sql| sql.contains("USING gin"));
                (btrees, gin.first().copied().unwrap_or_default())
            }
            Some(_) => (DOCUMENT_BTREES.to_vec(), DOCUMENT_GIN),
        };
        statements(turn, &server, "btree indexes", &btrees, rows)?;
        if self.gin {
            statements(turn, &server, "GIN index", &[gin], rows)?;
        }
        server.record_stored(turn, "")
    }
}

impl PgLoad {
    /// Loads the table; the number of rows.
    fn copy(&self, turn: &mut dyn Turn, server: &Server) -> Result<u64> {
        let (create, copy) = match self.data_file {
            None => (events::CREATE_TABLE, events::COPY),
            Some(_) => (CREATE_DOCUMENTS, COPY_DOCUMENTS),
        };
        server.execute(create)?;
        let mut database = server.cluster().connect("postgres")?;
        let seed = turn.seed();
        let mut loaded = Loaded::default();
        let mut seconds = 0.0;
        server.measure_writing(turn, "copy", &mut || {
            let started = Instant::now();
            let mut writer = database.copy_in(copy)?;
            loaded = match &self.data_file {
                None => write_events(&mut writer, seed, self.rows)?,
                Some(path) => write_lines(&mut writer, JsonLines::open(path)?, self.rows)?,
            };
            writer.finish().context("PostgreSQL refused the rows")?;
            seconds = started.elapsed().as_secs_f64();
            Ok(Work {
                operations: loaded.rows,
                operation: "row",
            })
        })?;
        record_statement(turn, "copy", seconds);
        record_throughput(turn, "copy", loaded.rows, seconds);
        let rate = loaded.bytes as f64 / seconds;
        turn.record("copy", "loaded bytes", Unit::BytesPerSecond, Better::Higher, rate);
        if loaded.passed_over > 0 {
            turn.note(&format!(
                "{} lines of the file hold a \\u0000, which jsonb cannot, and were passed over",
                loaded.passed_over
            ));
        }
        Ok(loaded.rows)
    }
}

fn record_statement(turn: &mut dyn Turn, phase: &str, seconds: f64) {
    turn.record(phase, "statement seconds", Unit::Seconds, Better::Lower, seconds);
}

/// Runs `sql` as a phase about `rows` rows.
fn statements(turn: &mut dyn Turn, server: &Server, phase: &str, sql: &[&str], rows: u64) -> Result<()> {
    let mut database = server.cluster().connect("postgres")?;
    let mut seconds = 0.0;
    server.measure_writing(turn, phase, &mut || {
        let started = Instant::now();
        for statement in sql {
            database.batch_execute(statement)?;
        }
        seconds = started.elapsed().as_secs_f64();
        Ok(Work {
            operations: rows,
            operation: "row",
        })
    })?;
    record_statement(turn, phase, seconds);
    Ok(())
}

/// What has been loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Loaded {
    rows: u64,
    bytes: u64,
    passed_over: u64,
}

/// How much is collected before it is sent.
const CHUNK_BYTES: usize = 1 << 16;

/// Sends generated events in the format of COPY.
pub(super) fn write_events(writer: &mut impl Write, seed: u64, rows: u64) -> Result<Loaded> {
    let mut generator = Generator::new(seed);
    let mut text = String::new();
    let mut bytes = 0;
    for row in 1..=rows {
        generator.write_row(&mut text);
        if text.len() >= CHUNK_BYTES || row == rows {
            writer.write_all(text.as_bytes())?;
            bytes += text.len() as u64;
            text.clear();
        }
    }
    Ok(Loaded {
        rows,
        bytes,
        passed_over: 0,
    })
}

/// Sends lines of JSON, numbered from 1, in the format of COPY.
fn write_lines(writer: &mut impl Write, mut lines: JsonLines, most: u64) -> Result<Loaded> {
    let mut loaded = Loaded::default();
    let mut text = String::new();
    while loaded.rows < most {
        let Some(line) = lines.next_line()? else { break };
        if !json_lines::fits_jsonb(line) {
            loaded.passed_over += 1;
            continue;
        }
        loaded.rows += 1;
        let before = text.len();
        text.push_str(&loaded.rows.to_string());
        text.push('\t');
        json_lines::escape_for_copy(line, &mut text);
        text.push('\n');
        loaded.bytes += (text.len() - before) as u64;
        if text.len() >= CHUNK_BYTES {
            writer.write_all(text.as_bytes())?;
            text.clear();
        }
    }
    writer.write_all(text.as_bytes())?;
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_rows_of_copy() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("lines.jsonl");
        let text = "{\"a\": \"x\\ny\"}\n\n{\"zero\": \"\\u0000\"}\n{\"b\":\t2}\n{\"c\": 3}\n";
        std::fs::write(&path, text).expect("a file");
        let mut sent = Vec::new();
        let lines = JsonLines::open(&path).expect("the file opens");
        let loaded = write_lines(&mut sent, lines, 2).expect("lines");
        assert_eq!(
            String::from_utf8_lossy(&sent),
            "1\t{\"a\": \"x\\\\ny\"}\n2\t{\"b\":\\t2}\n"
        );
        assert_eq!((loaded.rows, loaded.passed_over), (2, 1));
        assert_eq!(loaded.bytes, sent.len() as u64);
    }
}
