//! What an open pool can tell about itself.

use crate::pool::Pool;
use crate::state::WrittenBytes;
use std::sync::atomic::Ordering;

/// Whether an open pool still takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// Reads and writes.
    Open,
    /// Reads only: opened so, or stopped after a failed write or flush.
    ReadOnly,
    /// Closed.
    Closed,
}

/// State of one member.
#[derive(Clone, Debug)]
pub struct MemberStatistics {
    /// Path of the file or device.
    pub path: String,
    /// "online", or what is wrong.
    pub state: String,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Records and nodes that failed their check.
    pub checksum_errors: u64,
}

/// Facts about an open pool; counters start when it is opened.
#[derive(Clone, Debug)]
pub struct PoolStatistics {
    /// Name of the pool.
    pub name: String,
    /// Whether it takes writes.
    pub state: PoolState,
    /// Why it does not, if it does not.
    pub stopped: Option<String>,
    /// Bytes of all segments.
    pub capacity_bytes: u64,
    /// Bytes of segments that are not free.
    pub allocated_bytes: u64,
    /// Bytes of records and nodes that can be read, with their directory entries.
    pub live_bytes: u64,
    /// Bytes of free segments.
    pub free_bytes: u64,
    /// What can still be written.
    pub available_bytes: u64,
    /// Raw bytes of all records.
    pub logical_bytes: u64,
    /// Packed records and their index.
    pub stored_bytes: u64,
    /// Of `stored_bytes`: tree nodes and record table.
    pub index_bytes: u64,
    /// Records.
    pub records: u64,
    /// Bytes written to media.
    pub written: WrittenBytes,
    /// Flushes asked of the media.
    pub flushes: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Bound for caches and buffers.
    pub memory_budget_bytes: u64,
    /// Caches, overlays, what views keep of them, and buffers now, roughly.
    pub memory_used_bytes: u64,
    /// The members.
    pub members: Vec<MemberStatistics>,
}

impl Pool {
    /// Facts about the pool as it is now.
    pub fn statistics(&self) -> PoolStatistics {
        let available_bytes = self.space().available_bytes;
        let state = self.state.read();
        let segment_bytes = u64::from(self.geometry.segment_bytes());
        let capacity_bytes = u64::from(state.segments.count()) * segment_bytes;
        let free_bytes = u64::from(state.segments.free_count()) * segment_bytes;
        let mut totals = crate::state::Counters::default();
        for counters in state.counters.values() {
            totals.logical_bytes = totals.logical_bytes.saturating_add(counters.logical_bytes);
            totals.packed_bytes = totals.packed_bytes.saturating_add(counters.packed_bytes);
            totals.records = totals.records.saturating_add(counters.records);
            totals.node_bytes = totals.node_bytes.saturating_add(counters.node_bytes);
        }
        let index_bytes = totals.node_bytes + state.table_bytes;
        let overlays =
            state.active.memory_bytes() + state.frozen.as_ref().map_or(0, |frozen| frozen.memory_bytes());
        let views = state.views.memory_bytes(state.publishes);
        PoolStatistics {
            name: self.name().to_owned(),
            state: match (&state.stopped, state.closed) {
                (_, true) => PoolState::Closed,
                (Some(_), _) => PoolState::ReadOnly,
                (None, _) => PoolState::Open,
            },
            stopped: state.stopped.clone(),
            capacity_bytes,
            allocated_bytes: capacity_bytes - free_bytes,
            live_bytes: state.segments.live_bytes(),
            free_bytes,
            available_bytes,
            logical_bytes: totals.logical_bytes,
            stored_bytes: totals.packed_bytes + index_bytes,
            index_bytes,
            records: totals.records,
            written: state.written,
            flushes: self
                .geometry
                .members
                .iter()
                .map(|member| member.counters().flushes)
                .sum(),
            checkpoints: state.checkpoints,
            memory_budget_bytes: self.memory_bytes,
            memory_used_bytes: self.caches.memory_bytes() + overlays as u64 + views + state.group.bytes,
            members: self.member_statistics(state.stopped.is_some()),
        }
    }

    fn member_statistics(&self, stopped: bool) -> Vec<MemberStatistics> {
        let checksum_errors = self.damage.checksum_errors.load(Ordering::Relaxed)
            + self.geometry.damaged_nodes.load(Ordering::Relaxed);
        let describe = |member: &std::sync::Arc<dyn packstone_media::Media>| {
            let counters = member.counters();
            let write_errors = counters.write_errors;
            MemberStatistics {
                path: member.description(),
                state: if stopped && write_errors > 0 {
                    "failed"
                } else {
                    "online"
                }
                .to_owned(),
                read_errors: counters.read_errors,
                write_errors,
                checksum_errors,
            }
        };
        self.geometry.members.iter().map(describe).collect()
    }
}
