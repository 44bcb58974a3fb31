//! What a phase costs: read before it and after it, and subtracted.
//!
//! | meter | source | counts |
//! |---|---|---|
//! | `device` | `/sys/dev/block/M:m/stat` | bytes, requests and flushes that reach the arm's device, by anyone |
//! | `processes` | `/proc/PID/stat`, `/proc/PID/status` | processor time (kernel time included) and memory of server and daemon |
//! | `machine` | `/proc/stat` | processor time of everything, kernel threads (flushers, loop workers) included |
//! | `memory` | a thread that looks at intervals | the highest memory seen |
//! | the pool's own | `packstone status --json` | bytes written by purpose, flushes, checkpoints |
//!
//! Processor time comes in ticks of mostly 10 ms, so figures of phases below a second are coarse.

pub(crate) mod device;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod processes;

use std::collections::BTreeMap;

use anyhow::Result;

use crate::figure::{Better, Figure, Unit};
use crate::place::{DeviceNumber, Storage};
use crate::process;
use crate::turn::Work;

/// All counters at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    device: Option<device::Counters>,
    server_seconds: f64,
    daemon_seconds: Option<f64>,
    machine_seconds: f64,
    pool: BTreeMap<String, u64>,
    daemon_pids: Vec<i32>,
}

impl Reading {
    /// Reads all counters of `storage` and of the servers with their descendants, before a phase. Asking a pool costs a
    /// little processor time, so that is done first.
    pub(crate) fn before(storage: &dyn Storage, server_pids: &[i32]) -> Result<Reading> {
        let pool = storage.pool_counters()?;
        Ok(Reading {
            pool,
            ..Reading::without_pool(storage, server_pids)
        })
    }

    /// As [`Reading::before`], after the phase: a pool is asked last.
    pub(crate) fn after(storage: &dyn Storage, server_pids: &[i32]) -> Result<Reading> {
        let reading = Reading::without_pool(storage, server_pids);
        Ok(Reading {
            pool: storage.pool_counters()?,
            ..reading
        })
    }

    fn without_pool(storage: &dyn Storage, server_pids: &[i32]) -> Reading {
        let daemon_pids = storage.daemon_pids();
        let daemon_seconds =
            (!daemon_pids.is_empty()).then(|| daemon_pids.iter().map(|pid| process::cpu_seconds(*pid)).sum());
        Reading {
            device: storage.device().and_then(device_counters),
            server_seconds: processes::tree_cpu_seconds(server_pids),
            daemon_seconds,
            machine_seconds: machine::busy_seconds(),
            pool: BTreeMap::new(),
            daemon_pids,
        }
    }

    /// What happened from `self` to `end`, in total and for each operation. Counters of a daemon that was started anew
    /// in between count from its start, which is said in a note.
    pub(crate) fn figures_until(
        &self,
        end: &Reading,
        phase: &str,
        work: Work,
        memory: &memory::Peak,
    ) -> Costs {
        let mut costs = Costs::new(phase, work);
        if let (Some(start), Some(end)) = (self.device, end.device) {
            costs.device(&end.since(start));
        }
        let restarted = self.daemon_pids != end.daemon_pids;
        if restarted {
            costs.notes.push(format!(
                "phase '{phase}': the storage was mounted again meanwhile, so the figures of its daemon count from then on"
            ));
        }
        let server = (end.server_seconds - self.server_seconds).max(0.0);
        costs.seconds("CPU seconds of server", server);
        let daemon = end.daemon_seconds.map(|seconds| {
            let before = if restarted {
                0.0
            } else {
                self.daemon_seconds.unwrap_or(0.0)
            };
            (seconds - before).max(0.0)
        });
        if let Some(daemon) = daemon {
            costs.seconds("CPU seconds of daemon", daemon);
        }
        costs.seconds("CPU seconds of server and daemon", server + daemon.unwrap_or(0.0));
        costs.seconds(
            "CPU seconds of the machine",
            (end.machine_seconds - self.machine_seconds).max(0.0),
        );
        if memory.server_bytes > 0 {
            costs.once("peak memory of server", Unit::Bytes, memory.server_bytes as f64);
        }
        if daemon.is_some() {
            costs.once("peak memory of daemon", Unit::Bytes, memory.daemon_bytes as f64);
        }
        for (name, count) in &end.pool {
            let before = if restarted {
                0
            } else {
                self.pool.get(name).copied().unwrap_or(0)
            };
            let unit = if name.starts_with("bytes") {
                Unit::Bytes
            } else {
                Unit::Count
            };
            let name = format!("pool {name}");
            costs.push(&name, unit, Better::Neither, count.saturating_sub(before) as f64);
        }
        costs
    }
}

fn device_counters(device: DeviceNumber) -> Option<device::Counters> {
    device::Counters::read(device).ok()
}

/// Figures and notes of one phase.
pub(crate) struct Costs {
    phase: String,
    work: Work,
    pub(crate) figures: Vec<Figure>,
    pub(crate) notes: Vec<String>,
}

impl Costs {
    fn new(phase: &str, work: Work) -> Costs {
        Costs {
            phase: phase.to_owned(),
            work,
            figures: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn device(&mut self, counted: &device::Counters) {
        let mut both = |name: &str, unit, value: u64| self.divided(name, unit, value as f64);
        both("device bytes written", Unit::Bytes, counted.written_bytes);
        both("device bytes read", Unit::Bytes, counted.read_bytes);
        both("device writes", Unit::Count, counted.writes);
        both("device reads", Unit::Count, counted.reads);
        both("device flushes", Unit::Count, counted.flushes);
    }

    fn seconds(&mut self, name: &str, value: f64) {
        self.divided(name, Unit::Seconds, value);
    }

    /// In total, and for each operation when there are operations.
    fn divided(&mut self, name: &str, unit: Unit, value: f64) {
        self.push(name, unit, Better::Lower, value);
        if self.work.operations > 0 {
            let name = format!("{name} per {}", self.work.operation);
            self.push(&name, unit, Better::Lower, value / self.work.operations as f64);
        }
    }

    fn once(&mut self, name: &str, unit: Unit, value: f64) {
        self.push(name, unit, Better::Lower, value);
    }

    fn push(&mut self, name: &str, unit: Unit, better: Better, value: f64) {
        self.figures.push(Figure {
            phase: self.phase.clone(),
            name: name.to_owned(),
            unit,
            better,
            value,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(costs: &Costs, name: &str) -> f64 {
        let found = costs.figures.iter().find(|figure| figure.name == name);
        found.unwrap_or_else(|| panic!("no figure '{name}'")).value
    }

    fn reading(written_bytes: u64, server_seconds: f64, pid: i32, flushes: u64) -> Reading {
        Reading {
            device: Some(device::Counters {
                written_bytes,
                ..device::Counters::default()
            }),
            server_seconds,
            daemon_seconds: Some(server_seconds / 2.0),
            machine_seconds: server_seconds * 2.0,
            pool: BTreeMap::from([("flushes".to_owned(), flushes)]),
            daemon_pids: vec![pid],
        }
    }

    const WORK: Work = Work {
        operations: 10,
        operation: "transaction",
    };

    #[test]
    fn differences_are_given_in_total_and_for_each_operation() {
        let (start, end) = (reading(1_000, 1.0, 5, 3), reading(5_000, 3.0, 5, 7));
        let costs = start.figures_until(&end, "run", WORK, &memory::Peak::default());
        assert_eq!(value(&costs, "device bytes written"), 4_000.0);
        assert_eq!(value(&costs, "device bytes written per transaction"), 400.0);
        assert_eq!(value(&costs, "CPU seconds of server and daemon"), 3.0);
        assert_eq!(value(&costs, "CPU seconds of the machine"), 4.0);
        assert_eq!(value(&costs, "pool flushes"), 4.0);
        assert!(costs.notes.is_empty());
    }

    #[test]
    fn a_new_daemon_counts_from_its_start() {
        let (start, end) = (reading(0, 4.0, 5, 100), reading(0, 5.0, 6, 7));
        let costs = start.figures_until(&end, "run", WORK, &memory::Peak::default());
        assert_eq!(value(&costs, "pool flushes"), 7.0);
        assert_eq!(value(&costs, "CPU seconds of daemon"), 2.5);
        assert_eq!(costs.notes.len(), 1);
    }
}
