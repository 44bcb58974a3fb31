//! Room: what may be written, what is kept back, and making more.
//!
//! Two different things can run out. *Bytes*: live data may fill all segments but the reserve; beyond that a commit gets
//! `NoSpace`, and what `df` shows as available is exactly what is left until then. *Free segments*: dead bytes may lie
//! scattered in segments that are not free; then the committer itself makes room (a checkpoint frees empty segments, the
//! cleaner empties more) before its commit is admitted, so that a later flush cannot run dry.
//!
//! What admission keeps: once a commit is admitted, free segments suffice for everything that waits with this commit behind
//! it, the ends of segments lost that fit no further record included ([`Demand::log_segments`]), for the checkpoint that follows, and for
//! [`KEPT_SEGMENTS`] more, from which a victim is cleaned and what makes room is written. Long records need this most: of a segment
//! they may leave nearly half unused. The bytes that fit count the same loss ([`usable_bytes`]), guessed from the mean length of
//! what each tree stores; a pool that is still empty knows nothing of that and shows more.
//!
//! The reserve is a twelfth of the pool, at least 20 segments (a third of a tiny pool): room for the cleaner to work in and for checkpoints.
//! Transactions that make room may use half of it.
//!
//! Known to be wrong: where most records take about half a segment, moving them wins nothing, and a full pool may then
//! refuse even what makes room, with a handful of free segments left. Admitting such a transaction with fewer only moves
//! the end (`docs/testing.md` has a life that shows it).

use crate::batch::ENTRY_BYTES_MAX;
use crate::error::{Error, ErrorKind, Result};
use crate::log::group_segments;
use crate::node::NODE_BYTES_MAX;
use crate::pool::Pool;
use crate::state::{Group, LOG_STREAMS, State};
use crate::transaction::Transaction;
use crate::types::{SECTOR_BYTES, TreeId};

/// Space as a user sees it: what `df` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Used and available together.
    pub capacity_bytes: u64,
    /// Live bytes, on media or waiting to be written.
    pub used_bytes: u64,
    /// What can be written, after compression.
    pub available_bytes: u64,
}

/// Whether a commit may go ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Admitted,
    /// There are too few free segments, but bytes enough.
    NeedsRoom,
    Full,
}

/// Attempts to make room for one commit before it gets `NoSpace`.
const ATTEMPTS_MAX: u32 = 64;
/// Node bytes that one recent change adds to its tree, rather more than it does.
const CHANGE_BYTES: u64 = 24;
/// Log bytes of a change that makes room, rather fewer than it takes.
const DELETE_BYTES: u64 = 16;

/// Free segments that ordinary commits leave beyond what log and checkpoint may need: one for the moves of a cleaned
/// victim, two for what makes room.
const KEPT_SEGMENTS: u32 = 3;
/// Records longer than this part of a segment count as long: what they lose at the ends of segments is taken into account.
const LONG_SHARE: u128 = 32;

/// Segments kept back.
pub(crate) fn reserve_segments(count: u32) -> u32 {
    (count / 12).max(20).min(count / 3)
}

/// Bytes that are or will be live, once all that waits is written.
fn used_bytes(state: &State) -> u64 {
    let frozen = state.frozen.as_ref();
    let changes = state.active.change_count() + frozen.map_or(0, |frozen| frozen.change_count());
    let values = state.active.long_value_bytes() + frozen.map_or(0, |frozen| frozen.long_value_bytes());
    state.segments.live_bytes() + state.group.bytes + changes as u64 * CHANGE_BYTES + values
}

/// Segments that the next checkpoint may need at worst, with so many changes more.
pub(crate) fn checkpoint_segments(state: &State, segment_bytes: u32, more_changes: u64) -> u32 {
    let changes = state.active.change_count() as u64 + more_changes;
    let nodes = state.counters.values().fold(state.table_bytes, |sum, counters| {
        counters.node_bytes.saturating_add(sum)
    });
    let rewritten = (nodes
        .saturating_add(nodes / 4)
        .saturating_add(state.active.memory_bytes() as u64))
    .min(changes * 2 * NODE_BYTES_MAX as u64 + state.active.long_value_bytes());
    let usage = u64::from(state.segments.page_count() + 1) * 4608;
    (rewritten + usage).div_ceil(u64::from(segment_bytes)) as u32 + 1
}

/// What of a segment records can fill, when its end stays empty because the next did not fit: by the mean length of the
/// records of each tree, weighted by their bytes.
fn usable_bytes(state: &State, segment_bytes: u32) -> u64 {
    let segment = u128::from(segment_bytes);
    let (mut packed, mut lost) = (0u128, 0u128);
    for counters in state.counters.values().filter(|counters| counters.records > 0) {
        let bytes = u128::from(counters.packed_bytes);
        let mean = bytes / u128::from(counters.records);
        packed += bytes;
        // Short ones lose less than the reserve forgives.
        if mean * LONG_SHARE > segment {
            lost += bytes * mean.min(segment / 2);
        }
    }
    (segment - lost.checked_div(packed).unwrap_or(0)) as u64
}

fn limit_bytes(state: &State, segment_bytes: u32, may_use_reserve: bool) -> u64 {
    let count = state.segments.count();
    let kept = reserve_segments(count) / if may_use_reserve { 2 } else { 1 };
    u64::from(count - kept) * usable_bytes(state, segment_bytes)
}

/// What a transaction wants to add.
#[derive(Clone, Copy)]
struct Demand {
    bytes: u64,
    /// Packed bytes of its records, and of the longest.
    records_bytes: u64,
    longest_bytes: u32,
    may_use_reserve: bool,
}

impl Demand {
    fn of(transaction: &Transaction) -> Demand {
        let lengths = || {
            transaction
                .stored
                .iter()
                .map(|stored| stored.record.packed_bytes())
        };
        Demand {
            bytes: transaction.bytes,
            records_bytes: lengths().map(u64::from).sum(),
            longest_bytes: lengths().max().unwrap_or(0),
            may_use_reserve: transaction.may_use_reserve,
        }
    }

    /// Segments that the log may need for the waiting group with this behind it: records fill a segment only up to where the
    /// next one does not fit.
    fn log_segments(&self, group: &Group, segment_bytes: u32, least: u32) -> u32 {
        let segment = u64::from(segment_bytes);
        let end = self.longest_bytes + ENTRY_BYTES_MAX + SECTOR_BYTES;
        let usable = segment - u64::from(end.min(segment_bytes / 2 + 2 * SECTOR_BYTES));
        let spread = self.records_bytes * segment / usable + self.bytes.saturating_sub(self.records_bytes);
        group_segments(group, segment_bytes).max(least) + spread.div_ceil(segment) as u32
    }
}

fn verdict(state: &State, segment_bytes: u32, demand: Demand) -> Verdict {
    let Demand {
        bytes,
        may_use_reserve,
        ..
    } = demand;
    if used_bytes(state) + bytes > limit_bytes(state, segment_bytes, may_use_reserve) {
        return Verdict::Full;
    }
    let log = demand.log_segments(&state.group, segment_bytes, LOG_STREAMS as u32);
    // Whatever is admitted, the checkpoint that wins room must still fit behind it, or nothing ever fits again.
    let floor = if may_use_reserve {
        log + checkpoint_segments(state, segment_bytes, bytes / DELETE_BYTES) + 1
    } else {
        log + checkpoint_segments(state, segment_bytes, 0) + KEPT_SEGMENTS
    };
    if state.segments.free_count() >= floor {
        Verdict::Admitted
    } else {
        Verdict::NeedsRoom
    }
}

impl Pool {
    /// What `df` shows.
    pub fn space(&self) -> Space {
        let state = self.state.read();
        let capacity_bytes = limit_bytes(&state, self.geometry.segment_bytes(), false);
        let used_bytes = used_bytes(&state).min(capacity_bytes);
        Space {
            capacity_bytes,
            used_bytes,
            available_bytes: capacity_bytes - used_bytes,
        }
    }

    /// Lets a commit of that size pass, making room if need be.
    pub(crate) fn admit(&self, transaction: &Transaction) -> Result<()> {
        let demand = Demand::of(transaction);
        let segment_bytes = self.geometry.segment_bytes();
        let mut settled = self.state.read().active.is_empty();
        let mut stuck = false;
        for _ in 0..ATTEMPTS_MAX {
            let verdict = {
                let state = self.state.read();
                state.require_writable("commit")?;
                self.refuse_without_end(&state)?;
                verdict(&state, segment_bytes, demand)
            };
            match verdict {
                Verdict::Admitted => return Ok(()),
                // Recent changes are counted by guess; a checkpoint turns the guess into knowledge.
                Verdict::Full if !settled => {
                    settled = true;
                    self.settle()?;
                }
                Verdict::Full => break,
                Verdict::NeedsRoom => {
                    // Even without a segment won, the waiting group was written and no longer needs its own.
                    let won = self.make_room()?;
                    if !won && stuck {
                        break;
                    }
                    stuck = !won;
                }
            }
        }
        if demand.may_use_reserve {
            // What makes room must not be refused for want of comfort: the log itself still has to fit.
            let state = self.state.read();
            let log = demand.log_segments(&state.group, segment_bytes, LOG_STREAMS as u32 + 1);
            if log < state.segments.free_count() {
                return Ok(());
            }
        }
        Err(Error::new(
            ErrorKind::NoSpace,
            "commit",
            format!("pool {} is full: delete something, or grow the pool", self.name()),
        ))
    }

    /// While checkpoints fail (a damaged node in their way), changes pile up in memory and in the log. That ends here.
    fn refuse_without_end(&self, state: &State) -> Result<()> {
        let Some((kind, reason)) = &state.checkpoint_failure else {
            return Ok(());
        };
        let frozen = state.frozen.as_ref().map_or(0, |frozen| frozen.memory_bytes());
        if ((state.active.memory_bytes() + frozen) as u64) < self.memory_bytes / 2 {
            return Ok(());
        }
        Err(Error::new(
            *kind,
            "commit",
            format!(
                "checkpoints fail ({reason}), and what waits for one fills its share of memory: unmount and run packstone check"
            ),
        ))
    }

    /// A checkpoint that may fail for want of room.
    fn settle(&self) -> Result<()> {
        match self.checkpoint(&mut self.checkpointer.lock()) {
            Err(error) if error.kind() != ErrorKind::NoSpace => Err(error),
            _ => Ok(()),
        }
    }

    /// Frees segments; false when nothing could be won.
    pub(crate) fn make_room(&self) -> Result<bool> {
        let free = || self.state.read().segments.free_count();
        let before = free();
        let mut cleaner = self.cleaner.lock();
        // Every round moves a segment's worth at most once into dense segments, so this ends.
        for _ in 0..2 * self.geometry.label.segment_count {
            // Somebody else may have made room while we waited.
            if free() > before {
                return Ok(true);
            }
            let empty = self.state.read().segments.empty_count();
            let cleaned = if empty == 0 {
                self.clean_some(&mut cleaner)?
            } else {
                0
            };
            match self.checkpoint(&mut self.checkpointer.lock()) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(false),
                Err(error) => return Err(error),
            }
            // What was moved may fill the segment it went to only after a few rounds.
            if empty == 0 && cleaned == 0 {
                break;
            }
        }
        Ok(free() > before)
    }

    /// Totals of one tree.
    pub fn tree_usage(&self, tree: TreeId) -> crate::catalog::TreeUsage {
        let state = self.state.read();
        let counters = state.counters.get(&tree).copied().unwrap_or_default();
        let all_records = state
            .counters
            .values()
            .fold(0u64, |sum, counters| counters.records.saturating_add(sum));
        let table_share = if all_records == 0 {
            0
        } else {
            (u128::from(state.table_bytes) * u128::from(counters.records) / u128::from(all_records)) as u64
        };
        crate::catalog::TreeUsage {
            logical_bytes: counters.logical_bytes,
            stored_bytes: counters.packed_bytes + counters.node_bytes + table_share,
            records: counters.records,
        }
    }
}
