//! Adds lives up, and tells of them.

use super::life::Life;
use std::collections::BTreeMap;
use std::time::Duration;

/// All lives of a run.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) worlds: u64,
    pub(crate) failures: u64,
    operations: u64,
    crashes: u64,
    reopenings: u64,
    refused_full: u64,
    undone: u64,
    faults: BTreeMap<String, u64>,
}

impl Totals {
    pub(crate) fn add(&mut self, life: &Life) {
        self.worlds += 1;
        self.failures += u64::from(life.failure.is_some());
        self.operations += life.counts.operations;
        self.crashes += life.counts.crashes;
        self.reopenings += life.counts.reopenings;
        self.refused_full += life.counts.full;
        self.undone += life.counts.lost;
        for (kind, count) in &life.counts.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
    }

    pub(crate) fn line(&self, elapsed: Duration) -> String {
        let faults: Vec<String> = self
            .faults
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        format!(
            "{} worlds, {} operations ({:.0} a second), {} crashes, {} reopenings, {} operations taken back by crashes, \
             {} refused by full pools; faults: {}; {} failures",
            self.worlds,
            self.operations,
            self.operations as f64 / elapsed.as_secs_f64().max(0.001),
            self.crashes,
            self.reopenings,
            self.undone,
            self.refused_full,
            if faults.is_empty() {
                "none".into()
            } else {
                faults.join(", ")
            },
            self.failures,
        )
    }

    pub(crate) fn json(&self, elapsed: Duration) -> String {
        serde_json::json!({
            "worlds": self.worlds,
            "operations": self.operations,
            "crashes": self.crashes,
            "reopenings": self.reopenings,
            "operations_undone": self.undone,
            "refused_full": self.refused_full,
            "faults": self.faults,
            "failures": self.failures,
            "seconds": elapsed.as_secs_f64(),
        })
        .to_string()
    }
}
