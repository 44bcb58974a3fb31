//! Mending what can be told from what is whole: segment usage from the record table, totals from the records, records that
//! no file wants, damaged copies.
//!
//! A repair begins with a pool opened for reading only, so that not even the first checkpoint goes by usage that is wrong: it
//! would free what is live. Everything is planned from a check, shown, and only then written: usage, totals and copies with
//! the checkpoint that begins the epoch, frees by transactions after it. After a crash in between the pool is no worse than
//! before, and the repair can be run again. What damage hides is never counted: then nothing is recounted at all.

use crate::batch::BatchKind;
use crate::btree::walk;
use crate::cache::Caches;
use crate::check::{Books, CheckReport};
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::Geometry;
use crate::label::{damaged_labels, write_label};
use crate::pool::Pool;
use crate::scanner::Scanner;
use crate::segments::{SegmentKind, SegmentTable, live_bytes_max};
use crate::slot::Slot;
use crate::state::{Counters, LOG_STREAMS};
use crate::stores::{TableStore, decode_location};
use crate::types::{Location, RecordId, SegmentId, TreeId};
use std::collections::{BTreeMap, BTreeSet};

/// Records by the tree of the dataset that refers to them.
pub type Owners = BTreeMap<TreeId, Vec<RecordId>>;

/// Records freed in one transaction.
const FREES_PER_COMMIT: usize = 1000;

/// What a segment in use is called whose first batch cannot be read.
const KIND_UNKNOWN: SegmentKind = SegmentKind::Nodes;

/// What a repair of the pool would do.
#[derive(Clone, Debug, Default)]
pub struct PoolRepair {
    /// One line for each thing that would be done.
    pub lines: Vec<String>,
    /// What is wrong beyond that which the check told.
    pub problems: Vec<String>,
    usage: Vec<(SegmentId, u32)>,
    leaked: Vec<RecordId>,
    totals: BTreeMap<TreeId, Counters>,
    table_bytes: Option<u64>,
    /// Every segment was counted: once `usage` is set, all of it can be trusted.
    usage_is_whole: bool,
    /// A segment that is said to hold more than fits: no count of it can be true.
    impossible: Option<SegmentId>,
}

impl PoolRepair {
    /// Plans the repair of a pool after a check. `owners` names every record of every dataset; without it nothing can be
    /// said of records without an owner, nor of totals.
    pub fn plan(pool: &Pool, report: &CheckReport, owners: Option<&Owners>) -> PoolRepair {
        let mut repair = PoolRepair::default();
        repair.plan_copies(pool);
        if let Some(books) = &report.books {
            repair.plan_usage(pool, books);
            if let Some(owners) = owners {
                repair.plan_leaks(report, books, owners);
                repair.plan_totals(pool, books, owners);
            }
        }
        repair
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn plan_copies(&mut self, pool: &Pool) {
        for place in damaged_labels(pool.geometry.member(), &pool.geometry.label) {
            self.lines
                .push(format!("write the label at the {place} from the other copy"));
        }
        let opening = pool.opening.lock();
        let damaged = opening
            .as_ref()
            .map_or(0, |opening| opening.ring.damaged_copies());
        drop(opening);
        if damaged > 0 {
            self.lines.push(format!(
                "write {damaged} copies of checkpoint slots from the others"
            ));
        }
        for note in pool.damage_noted() {
            self.lines.push(format!("write a new checkpoint, because {note}"));
        }
    }

    fn plan_usage(&mut self, pool: &Pool, books: &Books) {
        let segments = pool.state.read().segments.clone();
        let limit = live_bytes_max(pool.geometry.segment_bytes());
        for (id, segment) in segments.iter() {
            let live = books.live.get(&id).copied().unwrap_or(0);
            let Some(live_bytes) = u32::try_from(live).ok().filter(|bytes| *bytes <= limit) else {
                self.impossible.get_or_insert(id);
                self.problems.push(format!(
                    "segment {id}: records and nodes of {live} bytes are said to lie in it, more than fit; no repair can tell which are right"
                ));
                continue;
            };
            let lent = segment.kind == SegmentKind::Free && live_bytes > 0;
            if live_bytes != segment.live_bytes || lent {
                self.usage.push((id, live_bytes));
                self.lines.push(format!(
                    "count segment {id} anew: {live_bytes} live bytes instead of {}",
                    segment.live_bytes
                ));
            }
        }
        self.usage_is_whole = self.impossible.is_none() && books.live.keys().all(|id| segments.contains(*id));
        if let Some(id) = segments.mismatch().filter(|_| self.usage_is_whole) {
            self.problems.push(format!(
                "segment {id}: its usage contradicted the log when the pool was opened"
            ));
            self.lines
                .push("trust the usage of segments again, because all of them were counted".into());
        }
    }

    fn plan_leaks(&mut self, report: &CheckReport, books: &Books, owners: &Owners) {
        let wanted: BTreeSet<RecordId> = owners.values().flatten().copied().collect();
        let leaked = report.records.iter().filter(|id| !wanted.contains(id));
        self.leaked = leaked.copied().collect();
        if !self.leaked.is_empty() {
            let places = self.leaked.iter().filter_map(|id| books.places.get(id));
            let total: u64 = places.map(|place| u64::from(place.packed_bytes)).sum();
            self.lines.push(format!(
                "free {} records that belong to no file, {total} bytes",
                self.leaked.len()
            ));
        }
    }

    fn plan_totals(&mut self, pool: &Pool, books: &Books, owners: &Owners) {
        let state = pool.state.read();
        let catalog = (TreeId::CATALOG, Vec::new());
        for (tree, records) in owners.iter().chain([(&catalog.0, &catalog.1)]) {
            let unique: BTreeSet<RecordId> = records.iter().copied().collect();
            let mut counted = Counters {
                node_bytes: books.node_bytes.get(tree).copied().unwrap_or(0),
                ..Counters::default()
            };
            for place in unique.iter().filter_map(|id| books.places.get(id)) {
                counted.add(place.raw_bytes, place.packed_bytes);
            }
            let kept = state.counters.get(tree).copied().unwrap_or_default();
            if kept != counted {
                self.problems.push(format!(
                    "tree {}: its totals say {}, counted were {}",
                    tree.0,
                    in_words(&kept),
                    in_words(&counted)
                ));
                self.lines
                    .push(format!("count the totals of tree {} anew", tree.0));
                self.totals.insert(*tree, counted);
            }
        }
        if state.table_bytes != books.table_bytes {
            self.problems.push(format!(
                "the record table is said to take {} bytes, it takes {}",
                state.table_bytes, books.table_bytes
            ));
            self.lines.push("count the bytes of the record table anew".into());
            self.table_bytes = Some(books.table_bytes);
        }
    }

    /// Makes a pool that was opened for reading only writable and does what was planned. The pool stays open for writing;
    /// close it when all is done.
    ///
    /// Errors: `Damaged` for a pool that misses acknowledged data, which a repair would make final.
    pub fn apply(&self, pool: &Pool) -> Result<()> {
        self.make_writable(pool)?;
        let geometry = &pool.geometry;
        if !damaged_labels(geometry.member(), &geometry.label).is_empty() {
            pool.stop_on_error(write_label(geometry.member(), &geometry.label))?;
        }
        for ids in self.leaked.chunks(FREES_PER_COMMIT) {
            let mut transaction = pool.begin();
            transaction.may_use_reserve();
            // Nobody knows whose it was, and the totals were counted without it.
            ids.iter().for_each(|id| transaction.free(TreeId::CATALOG, *id));
            pool.commit(transaction)?;
        }
        pool.checkpoint_now()
    }

    /// From reading only to writing, with usage and totals set right before the first checkpoint goes by them.
    fn make_writable(&self, pool: &Pool) -> Result<()> {
        const OPERATION: &str = "repair pool";
        let opening = pool.opening.lock().take().ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                OPERATION,
                "the pool was not opened for reading only",
            )
        })?;
        if opening.incomplete {
            return Err(Error::damaged(
                OPERATION,
                "acknowledged data are missing, and a repair would make that final: restore the pool from a backup",
            ));
        }
        if let Some(id) = self.impossible {
            return Err(Error::damaged(
                OPERATION,
                format!(
                    "more is said to lie in segment {id} than fits: mount read-only and copy what is in the pool"
                ),
            ));
        }
        let found: Vec<Option<SegmentKind>> = self
            .usage
            .iter()
            .map(|(id, _)| first_kind(&pool.geometry, pool.pool_tag, *id))
            .collect();
        let mut state = pool.state.write();
        for ((id, live_bytes), found) in self.usage.iter().zip(found) {
            let kind = match (state.segments.get(*id).kind, found) {
                (SegmentKind::Free, Some(found)) => found,
                // Free it would be written over, though its first batch can no longer say what it is.
                (SegmentKind::Free, None) if *live_bytes > 0 => KIND_UNKNOWN,
                (kept, _) => kept,
            };
            state.segments.recount(*id, kind, *live_bytes);
        }
        if self.usage_is_whole {
            state.segments.trust();
        }
        for (tree, counted) in &self.totals {
            state.counters.insert(*tree, *counted);
        }
        state.table_bytes = self.table_bytes.unwrap_or(state.table_bytes);
        state.stopped = None;
        drop(state);
        pool.begin_epoch(&opening.ring, opening.next_epoch)
    }
}

fn in_words(counters: &Counters) -> String {
    format!(
        "{} records of {} bytes, {} packed, {} in nodes",
        counters.records, counters.logical_bytes, counters.packed_bytes, counters.node_bytes
    )
}

/// What a segment is used for, by the first batch in it.
fn first_kind(geometry: &Geometry, pool_tag: u64, segment: SegmentId) -> Option<SegmentKind> {
    let header = Scanner::new(geometry, pool_tag).first_header(segment).ok()??;
    Some(match header.kind {
        BatchKind::Nodes => SegmentKind::Nodes,
        BatchKind::Log => SegmentKind::Log(header.stream.min(LOG_STREAMS as u8 - 1)),
    })
}

/// Segment usage as a checkpoint's record table has it: every record, node and table node counted where it lies.
pub(crate) fn count_usage(geometry: &Geometry, caches: &Caches, slot: &Slot) -> Result<SegmentTable> {
    let store = TableStore { geometry, caches };
    let mut live: BTreeMap<SegmentId, u32> = BTreeMap::new();
    let mut add = |place: &Location| {
        geometry.check_location(place)?;
        let sum = live.entry(place.segment).or_default();
        *sum = sum.saturating_add(place.footprint_bytes());
        Ok(())
    };
    // Added up on the way: a list of all records could take more memory than there is.
    walk(&store, slot.table_root.as_ref(), &mut |pointer, node| {
        add(pointer)?;
        (0..if node.level() == 0 { node.len() } else { 0 })
            .try_for_each(|at| add(&decode_location(node.value(at))?))
    })?;
    let pool_tag = crate::batch::pool_tag(&geometry.label.pool_id);
    let mut table = SegmentTable::new(geometry.label.segment_count);
    for (segment, live_bytes) in live {
        let kind = first_kind(geometry, pool_tag, segment).unwrap_or(KIND_UNKNOWN);
        table.recount(segment, kind, live_bytes);
    }
    Ok(table)
}
