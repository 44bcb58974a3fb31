//! Checkpoints: working the frozen overlay into the trees, without stopping writers.
//!
//! ```text
//!   freeze     lay out the waiting group, swap overlays, copy counters and segment usage   (state lock, memory only)
//!   apply      dataset trees ─► catalog ─► record table ─► usage pages                     (no lock)
//!   harden     flush, write the slot, flush                                                (no lock)
//!   publish    swap roots, fill caches, drop the frozen overlay, free empty segments       (both locks, memory only)
//! ```
//!
//! The slot describes the state at the freeze: everything later is in log batches behind the cursors it names. If the
//! apply runs out of room, what it wrote is forgotten and the same frozen state is tried again later; if the media fail,
//! the pool stops.

mod trees;
mod usage;

pub(crate) use usage::read_usage;
#[cfg(feature = "fuzzing")]
pub(crate) use usage::{decode_index as decode_usage_index, encode_index as encode_usage_index};

use crate::cache::PlaceKey;
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint::Failpoint;
use crate::log::plan_group;
use crate::node::Node;
use crate::node_writer::{NodeWriter, Promise};
use crate::overlay::Overlay;
use crate::pool::{Pool, Stable};
use crate::segments::{SegmentKind, SegmentTable};
use crate::sinks::NodeChanges;
use crate::slot::{Cursor, Slot, write_slot};
use crate::state::{Counters, LOG_STREAMS};
use crate::types::{CommitSequence, Location, SECTOR_BYTES, SegmentId, TreeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use trees::apply_overlay;
use usage::write_usage;

/// What only checkpoints use; owned by whoever holds the checkpoint lock.
pub(crate) struct Checkpointer {
    pub number: u64,
    pub cursor: Option<Cursor>,
    pub pages: Vec<Option<Location>>,
    pub usage_index: Option<Location>,
    /// Node segments whose nodes shall be written anew, to win the segment back.
    pub relocate: BTreeSet<SegmentId>,
    /// Frozen, but not yet written because room ran out.
    frozen: Option<Freeze>,
    pub last_ms: Option<u64>,
}

impl Checkpointer {
    pub(crate) fn new(
        number: u64,
        cursor: Option<Cursor>,
        pages: Vec<Option<Location>>,
        usage_index: Option<Location>,
    ) -> Checkpointer {
        Checkpointer {
            number,
            cursor,
            pages,
            usage_index,
            relocate: BTreeSet::new(),
            frozen: None,
            last_ms: None,
        }
    }
}

/// The state a checkpoint describes.
struct Freeze {
    overlay: Arc<Overlay>,
    image: SegmentTable,
    counters: BTreeMap<TreeId, Counters>,
    table_bytes: u64,
    cursors: [Cursor; LOG_STREAMS],
    epoch: u64,
    next_batch: u64,
    next_tree: u32,
    commit: CommitSequence,
}

/// Everything a checkpoint changes, ready to be published.
struct Applied {
    stable: Stable,
    changes: NodeChanges,
    table_nodes: Vec<(PlaceKey, Arc<Node>)>,
    /// As frozen, with the node bytes this checkpoint leaves.
    counters: BTreeMap<TreeId, Counters>,
    table_bytes: u64,
}

impl Pool {
    /// Writes a checkpoint now. `NoSpace` when the trees do not fit; nothing is lost then.
    pub(crate) fn checkpoint(&self, checkpointer: &mut Checkpointer) -> Result<()> {
        // Also where a frozen state is tried again: a write may have failed since.
        self.state.read().require_writable("checkpoint")?;
        let freeze = match checkpointer.frozen.take() {
            Some(freeze) => freeze,
            None => self.freeze()?,
        };
        let number = checkpointer.number + 1;
        let mut writer = NodeWriter::new(
            self,
            freeze.image.clone(),
            checkpointer.cursor,
            number,
            Promise {
                epoch: freeze.epoch,
                durable_below: self.state.read().covered_below,
                covered_below: freeze.next_batch,
            },
        );
        match self.write_checkpoint(checkpointer, &freeze, &mut writer) {
            Ok((applied, pages)) => {
                self.publish(&freeze, applied, &writer);
                checkpointer.number = number;
                checkpointer.cursor = writer.cursor;
                (checkpointer.pages, checkpointer.usage_index) = (pages.locations, Some(pages.index));
                checkpointer.relocate.clear();
                self.reach(Failpoint::AfterPublish)
            }
            Err(error) => {
                let mut state = self.state.write();
                if error.kind() != ErrorKind::NoSpace {
                    state.checkpoint_failure = Some((error.kind(), error.to_string()));
                }
                for segment in &writer.opened {
                    state.segments.give_back(*segment);
                }
                drop(state);
                checkpointer.frozen = Some(freeze);
                // Relocation is a wish; the next attempt must not fail for it again.
                checkpointer.relocate.clear();
                Err(error)
            }
        }
    }

    fn freeze(&self) -> Result<Freeze> {
        let mut log = self.log.lock();
        let (plan, freeze) = {
            let mut state = self.state.write();
            state.require_writable("checkpoint")?;
            let plan = plan_group(&mut state, &mut log, self.geometry.segment_bytes())?;
            let overlay = Arc::new(std::mem::take(&mut state.active));
            assert!(
                state.frozen.is_none(),
                "the last frozen overlay was not published"
            );
            state.frozen = Some(overlay.clone());
            state.log_bytes = 0;
            let freeze = Freeze {
                overlay,
                image: state.segments.clone(),
                counters: state.counters.clone(),
                table_bytes: state.table_bytes,
                cursors: log.cursors,
                epoch: log.epoch,
                next_batch: log.next_batch,
                next_tree: state.next_tree,
                commit: plan.commit,
            };
            (plan, freeze)
        };
        self.write_plan(&mut log, &plan, false)?;
        self.reach(Failpoint::AfterFreeze)?;
        Ok(freeze)
    }

    fn write_checkpoint(
        &self,
        checkpointer: &Checkpointer,
        freeze: &Freeze,
        writer: &mut NodeWriter<'_>,
    ) -> Result<(Applied, usage::Pages)> {
        let applied = apply_overlay(self, &checkpointer.relocate, freeze, writer)?;
        let mut forced = BTreeSet::new();
        for segment in &checkpointer.relocate {
            let pages = checkpointer.pages.iter().enumerate();
            forced.extend(
                pages
                    .filter(|(_, at)| at.is_some_and(|at| at.segment == *segment))
                    .map(|(page, _)| page as u32),
            );
        }
        for segment in writer.image.empty_segments() {
            writer.image.free(segment);
        }
        let pages = write_usage(
            writer,
            &checkpointer.pages,
            checkpointer.usage_index.as_ref(),
            &forced,
        )?;
        self.refuse_distrusted(&writer.image)?;
        self.reach(Failpoint::BeforeNodeFlush)?;
        self.stop_on_error(self.geometry.flush())?;
        // A flush that failed elsewhere may have let this one succeed for nothing.
        self.state.read().require_writable("checkpoint")?;
        let slot = Slot {
            pool_id: self.geometry.label.pool_id,
            number: writer.number,
            epoch: freeze.epoch,
            next_batch: freeze.next_batch,
            next_record: self.next_record.load(Ordering::Relaxed),
            next_tree: freeze.next_tree,
            cursors: freeze.cursors.iter().copied().chain(writer.cursor).collect(),
            table_root: applied.stable.table_root,
            catalog_root: applied.stable.trees.get(&TreeId::CATALOG).cloned(),
            usage_index: pages.index,
            table_bytes: applied.table_bytes,
            catalog_bytes: applied
                .counters
                .get(&TreeId::CATALOG)
                .map_or(0, |counters| counters.node_bytes),
        };
        self.reach(Failpoint::BetweenNodesAndSlot)?;
        let between_copies = &mut || self.reach(Failpoint::BetweenSlotCopies);
        self.stop_on_error(write_slot(
            self.geometry.member(),
            &self.geometry.label,
            &slot,
            between_copies,
        ))?;
        self.reach(Failpoint::BeforeSlotFlush)?;
        self.stop_on_error(self.geometry.flush())?;
        self.reach(Failpoint::BeforePublish)?;
        self.state.read().require_writable("checkpoint")?;
        Ok((applied, pages))
    }

    /// A checkpoint frees segments; one made from usage that is known to be wrong would free live data.
    fn refuse_distrusted(&self, image: &SegmentTable) -> Result<()> {
        let live = self.state.read().segments.mismatch();
        let Some(segment) = image.mismatch().or(live) else {
            return Ok(());
        };
        self.stop_on_error(Err(Error::damaged(
            "write checkpoint",
            format!(
                "the usage kept for segment {segment} contradicts the record table: open the pool for reading only and copy what is in it"
            ),
        )))
    }

    /// After the slot is durable: readers see the new trees, empty segments become free.
    fn publish(&self, freeze: &Freeze, applied: Applied, writer: &NodeWriter<'_>) {
        let mut stable = self.stable.write();
        for (key, node) in applied.table_nodes {
            self.caches.table_nodes.insert(key, node);
        }
        for (id, place) in &applied.changes.places {
            if place.is_none() {
                self.caches.tree_nodes.remove(id);
            }
        }
        for (id, node) in applied.changes.nodes {
            self.caches.tree_nodes.insert(id, node);
        }
        *stable = applied.stable;
        let mut state = self.state.write();
        state.frozen = None;
        state.checkpoint_failure = None;
        state.covered_below = freeze.next_batch;
        state.publishes += 1;
        state.table_bytes = applied.table_bytes;
        for (tree, counters) in &applied.counters {
            state.counters.entry(*tree).or_default().node_bytes = counters.node_bytes;
        }
        state
            .counters
            .retain(|_, counters| *counters != Counters::default());
        writer
            .added
            .iter()
            .for_each(|location| state.segments.add(location));
        writer
            .released
            .iter()
            .for_each(|location| state.segments.release(location));
        writer
            .sealed
            .iter()
            .for_each(|segment| state.segments.seal(*segment));
        state.segments.rest();
        for (segment, usage) in writer.image.iter() {
            // Free in the image but not in the live table: emptied before the freeze, or opened by the log since.
            let live = state.segments.get(segment);
            let was = freeze.image.get(segment).kind;
            if usage.kind == SegmentKind::Free && was != SegmentKind::Free {
                if live.live_bytes == 0 && !state.segments.is_open(segment) {
                    state.segments.free(segment);
                    // Views read nodes, and those lie nowhere else.
                    if was == SegmentKind::Nodes && !state.views.is_empty() {
                        let publish = state.publishes;
                        state.segments.hold(segment, publish);
                    }
                } else {
                    state.segments.distrust(segment);
                }
            }
        }
        state.written.nodes += writer.written_bytes;
        state.written.labels += 2 * u64::from(SECTOR_BYTES);
        state.durable_commit = state.durable_commit.max(freeze.commit);
        state.checkpoints += 1;
        state.expire_views(self.memory_bytes / 2);
    }
}
