//! Counts of requests. Each worker counts in its own cell, so that counting costs no shared cache line.

use crate::abi::{OPCODES, Opcode};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// One worker's counters, indexed by opcode number; 0 counts what is unknown.
#[derive(Debug)]
pub(crate) struct RequestCounters {
    counts: [AtomicU64; OPCODES],
}

impl Default for RequestCounters {
    fn default() -> Self {
        RequestCounters {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl RequestCounters {
    pub(crate) fn count(&self, opcode_number: u32) {
        let index = if Opcode::from_number(opcode_number).is_some() {
            opcode_number as usize
        } else {
            0
        };
        self.counts[index].fetch_add(1, Ordering::Relaxed);
    }
}

/// How often the kernel asked for what since the mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestStatistics {
    /// Requests by the protocol's name of the operation, without those that never came.
    pub requests: BTreeMap<&'static str, u64>,
}

impl RequestStatistics {
    pub(crate) fn sum<'a>(workers: impl Iterator<Item = &'a RequestCounters>) -> RequestStatistics {
        let mut requests = BTreeMap::new();
        for worker in workers {
            for (number, count) in worker.counts.iter().enumerate() {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let name = Opcode::from_number(number as u32).map_or("UNKNOWN", Opcode::name);
                    *requests.entry(name).or_insert(0) += count;
                }
            }
        }
        RequestStatistics { requests }
    }

    /// Requests of one kind, by the protocol's name, for example `"WRITE"`.
    pub fn count(&self, name: &str) -> u64 {
        self.requests.get(name).copied().unwrap_or(0)
    }

    /// All requests.
    pub fn total(&self) -> u64 {
        self.requests.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_add_up_and_unknown_opcodes_are_kept_apart() {
        let workers = [RequestCounters::default(), RequestCounters::default()];
        workers[0].count(Opcode::Write as u32);
        workers[1].count(Opcode::Write as u32);
        workers[1].count(4096);
        let statistics = RequestStatistics::sum(workers.iter());
        assert_eq!(statistics.count("WRITE"), 2);
        assert_eq!(statistics.count("UNKNOWN"), 1);
        assert_eq!(statistics.count("READ"), 0);
        assert_eq!(statistics.total(), 3);
    }
}
