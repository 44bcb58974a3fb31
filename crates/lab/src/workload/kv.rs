//! Embedded key-value stores: the pool's own trees and others, each in both orders of keys.
//!
//! The program `packstone-kv-bench` does the work, once for each store and order; its numbers become figures of the phase
//! `STORE, ORDER`. An arm may choose its store with the setting `engine`; phases are then called `ORDER` alone, so that
//! arms with different stores are compared with each other.
//!
//! What the lab measures of a phase includes making the store, which writes zeros over a part of a new pool, and reading
//! everything back. What the program counts of the puts alone are the figures `device bytes of the puts` and
//! `store's own count of written bytes`, in total and per item.
//!
//! It is a program of its own because the stores are not to be linked into `packstone`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use super::{Parameters, Workload, at_least_one, own_processes};
use crate::figure::{Better, Unit};
use crate::requirements;
use crate::supervised;
use crate::turn::{Turn, Work};

/// Parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyValue {
    /// Items that are put.
    items: u64,
    /// Items of each durable transaction.
    per_transaction: u64,
    /// Size of each value; keys have 16 bytes.
    value_bytes: u64,
    /// Stores, as `packstone-kv-bench --help` lists them.
    engines: Vec<String>,
    /// `sequential`, `random`.
    orders: Vec<String>,
    /// The program, when it is neither beside `packstone` nor on the search path.
    program: Option<PathBuf>,
}

impl Default for KeyValue {
    fn default() -> KeyValue {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        KeyValue {
            items: 500_000,
            per_transaction: 100,
            value_bytes: 100,
            engines: names(&["packstone", "lmdb", "redb", "sqlite", "fjall"]),
            orders: names(&["sequential", "random"]),
            program: None,
        }
    }
}

/// The setting with which an arm chooses its store.
const ENGINE: &str = "engine";

const PROGRAM: &str = "packstone-kv-bench";

/// Fields of a line that become figures.
const FIGURES: [(&str, &str, Unit, Better); 7] = [
    ("items_per_second", "throughput", Unit::PerSecond, Better::Higher),
    ("gets_per_second", "gets", Unit::PerSecond, Better::Higher),
    (
        "scan_items_per_second",
        "scanned items",
        Unit::PerSecond,
        Better::Higher,
    ),
    (
        "device_written_bytes",
        "device bytes of the puts",
        Unit::Bytes,
        Better::Lower,
    ),
    (
        "own_written_bytes",
        "store's own count of written bytes",
        Unit::Bytes,
        Better::Lower,
    ),
    ("file_bytes", "file bytes", Unit::Bytes, Better::Lower),
    ("stored_bytes", "stored bytes", Unit::Bytes, Better::Lower),
];

impl Parameters for KeyValue {
    fn validate(&self) -> Result<()> {
        at_least_one("items", self.items)?;
        at_least_one("per_transaction", self.per_transaction)?;
        for (name, list) in [("engines", &self.engines), ("orders", &self.orders)] {
            if list.is_empty() {
                bail!("'{name}' is empty");
            }
            if let Some(odd) = list.iter().find(|one| one.is_empty() || one.contains(',')) {
                bail!("'{name}' holds {odd:?}, which is no name");
            }
        }
        Ok(())
    }
}

impl Workload for KeyValue {
    fn check(&self) -> Result<()> {
        self.find_program().map(|_| ())
    }

    fn storage_bytes(&self) -> u64 {
        // Trees that are half full, their logs, and room for old versions of pages.
        (3 << 30) + self.items * (self.value_bytes + 16) * 12
    }

    fn arm_settings(&self) -> &'static [&'static str] {
        &[ENGINE]
    }

    fn run(&self, turn: &mut dyn Turn) -> Result<()> {
        let program = self.find_program()?;
        let chosen = turn.place().setting(ENGINE).map(str::to_owned);
        for order in &self.orders {
            if let Some(engine) = &chosen {
                self.run_one(turn, &program, engine, order, order)?;
                continue;
            }
            for engine in &self.engines {
                self.run_one(turn, &program, engine, order, &format!("{engine}, {order}"))?;
            }
        }
        Ok(())
    }
}

impl KeyValue {
    fn find_program(&self) -> Result<PathBuf> {
        if let Some(program) = &self.program {
            if !program.is_file() {
                bail!("'program': there is no file {}", program.display());
            }
            return Ok(program.clone());
        }
        let beside = requirements::packstone_program()
            .ok()
            .map(|packstone| packstone.with_file_name(PROGRAM))
            .filter(|path| path.is_file());
        beside
            .or_else(|| requirements::program(PROGRAM))
            .with_context(|| {
                format!("this workload needs the program {PROGRAM}: cargo build --release -p {PROGRAM}")
            })
    }

    fn run_one(
        &self,
        turn: &mut dyn Turn,
        program: &Path,
        engine: &str,
        order: &str,
        phase: &str,
    ) -> Result<()> {
        turn.say(phase);
        let directory = turn.place().directory().join(format!("{engine}-{order}"));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let mut command = Command::new(program);
        command
            .arg(format!("--items={}", self.items))
            .arg(format!("--per-transaction={}", self.per_transaction))
            .arg(format!("--value-bytes={}", self.value_bytes))
            .arg(format!("--engines={engine}"))
            .arg(format!("--orders={order}"))
            .args(["--rounds=1", "--json", "--directory"])
            .arg(&directory)
            .current_dir(turn.scratch());
        let cleanup = turn.cleanup().cloned();
        let mut line = HashMap::new();
        turn.measure(phase, &own_processes(), true, &mut || {
            let output = supervised::run(&mut command, cleanup.as_ref())?;
            let text = String::from_utf8_lossy(&output.stdout);
            line = only_line(&text, engine, order)
                .with_context(|| format!("cannot understand what {PROGRAM} says: {text}"))?;
            Ok(Work {
                operations: self.items,
                operation: "item",
            })
        })?;
        for (field, name, unit, better) in FIGURES {
            // What a store does not know is null.
            if let Some(value) = line.get(field).and_then(Value::as_f64) {
                turn.record(phase, name, unit, better, value);
                if unit == Unit::Bytes {
                    let each = value / self.items as f64;
                    turn.record(phase, &format!("{name} per item"), unit, better, each);
                }
            }
        }
        std::fs::remove_dir_all(&directory).with_context(|| format!("cannot remove {}", directory.display()))
    }
}

/// The one line of JSON about `engine` and `order`.
fn only_line(text: &str, engine: &str, order: &str) -> Result<HashMap<String, Value>> {
    let lines: Vec<HashMap<String, Value>> = text
        .lines()
        .filter(|line| line.trim_start().starts_with('{'))
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let named = |line: &HashMap<String, Value>, key: &str| {
        line.get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_lowercase()
    };
    let mut wanted = lines
        .into_iter()
        .filter(|line| named(line, "engine") == engine.to_lowercase() && named(line, "order") == order);
    match (wanted.next(), wanted.next()) {
        (Some(line), None) => Ok(line),
        (None, _) => bail!("no line about {engine} in {order} order"),
        (Some(_), Some(_)) => bail!("several lines about {engine} in {order} order"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_store_is_found() {
        let text = "packstone-kv-bench\n\
                    {\"engine\": \"redb\", \"order\": \"random\", \"items\": 5, \"items_per_second\": 2.5, \"stored_bytes\": null}\n";
        let line = only_line(text, "redb", "random").expect("a line");
        assert_eq!(line["items_per_second"].as_f64(), Some(2.5));
        assert!(only_line(text, "redb", "sequential").is_err());
        assert!(only_line("{\"engine\":", "redb", "random").is_err());
        assert!(only_line(&format!("{text}{text}"), "redb", "random").is_err());
    }
}
