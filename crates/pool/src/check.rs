//! Offline verification of everything the pool knows: every node, every record's bytes, and the books.
//!
//! The books balance when the live bytes of every segment are exactly the footprints of what the record table, the trees
//! and the checkpoint name there. Whether each record is wanted by some file is for `fs` to say: the report lists the
//! records that are not tree nodes, to be compared with what the trees refer to.

use crate::btree::{Root, walk};
use crate::error::{Error, ErrorKind, Result};
use crate::label::damaged_labels;
use crate::pool::Pool;
use crate::segments::SegmentTable;
use crate::stores::{decode_location, read_frame, unpack};
use crate::types::{Location, RecordId, SegmentId, TreeId};
use std::collections::{BTreeMap, BTreeSet};

/// Outcome of [`check`].
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Records whose bytes were read and verified.
    pub records_checked: u64,
    /// Tree and table nodes read.
    pub nodes_checked: u64,
    /// Packed bytes read.
    pub bytes_checked: u64,
    /// One line each, with what to do.
    pub problems: Vec<String>,
    /// Records that are not tree nodes, ascending; 8 bytes of memory each.
    pub records: Vec<RecordId>,
    /// Records whose bytes cannot be read or fail their check, ascending.
    pub damaged: Vec<RecordId>,
    /// What everything adds up to; none where damage hides a part of it.
    pub(crate) books: Option<Books>,
}

/// What a pool's trees and table add up to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    pub places: BTreeMap<RecordId, Location>,
    /// Live bytes of each segment.
    pub live: BTreeMap<SegmentId, u64>,
    /// Packed bytes of the nodes of the record table, and of each tree.
    pub table_bytes: u64,
    pub node_bytes: BTreeMap<TreeId, u64>,
}

/// Verifies a pool that nobody writes to. `progress` gets (done, total) in bytes.
///
/// Damage is reported, not returned as an error; errors are those of the media.
pub fn check(pool: &Pool, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
    let mut checker = Checker {
        pool,
        report: CheckReport {
            problems: pool.damage_noted(),
            ..CheckReport::default()
        },
        expected: BTreeMap::new(),
        nodes: BTreeSet::new(),
        books: Books::default(),
        hidden: false,
    };
    checker.copies();
    let places = checker.table()?;
    checker.trees(&places)?;
    checker.records(&places, progress)?;
    checker.books();
    if !checker.hidden {
        checker.report.books = Some(Books {
            places,
            live: checker.expected,
            ..checker.books
        });
    }
    Ok(checker.report)
}

struct Checker<'a> {
    pool: &'a Pool,
    report: CheckReport,
    /// Live bytes that each segment should have.
    expected: BTreeMap<SegmentId, u64>,
    nodes: BTreeSet<RecordId>,
    books: Books,
    /// A part of the table or of a tree could not be read.
    hidden: bool,
}

impl Checker<'_> {
    fn problem(&mut self, what: String) {
        self.report.problems.push(what);
    }

    fn count(&mut self, location: &Location) {
        *self.expected.entry(location.segment).or_default() += u64::from(location.footprint_bytes());
    }

    /// Damage becomes a problem, other errors end the check.
    fn tolerate<T>(&mut self, what: &str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == ErrorKind::Damaged => {
                self.problem(format!("{what}: {error}"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Damaged copies of labels and checkpoint slots, of which the other copy is whole.
    fn copies(&mut self) {
        for place in damaged_labels(self.pool.geometry.member(), &self.pool.geometry.label) {
            self.problem(format!(
                "the label at the {place} is damaged; the other copy is whole"
            ));
        }
        let opening = self.pool.opening.lock();
        let damaged = opening
            .as_ref()
            .map_or(0, |opening| opening.ring.damaged_copies());
        drop(opening);
        if damaged > 0 {
            self.problem(format!(
                "{damaged} copies of checkpoint slots are damaged; the other copies are whole"
            ));
        }
    }

    /// All records and where they are, from the table on media and the overlay above it.
    fn table(&mut self) -> Result<BTreeMap<RecordId, Location>> {
        let pool = self.pool;
        let mut places = BTreeMap::new();
        let mut table_nodes = Vec::new();
        let root = pool.stable.read().table_root;
        let walked = walk(&pool.table_store(), root.as_ref(), &mut |pointer, node| {
            table_nodes.push(*pointer);
            for at in 0..if node.level() == 0 { node.len() } else { 0 } {
                let Ok(id) = node.key(at).try_into() else {
                    return Err(Error::damaged(
                        "check",
                        "the record table has a key of the wrong length",
                    ));
                };
                places.insert(RecordId(u64::from_be_bytes(id)), decode_location(node.value(at))?);
            }
            Ok(())
        });
        let walked = self.tolerate("record table (what lies below the damage is not checked)", walked)?;
        self.hidden |= walked.is_none();
        self.books.table_bytes = table_nodes
            .iter()
            .map(|place| u64::from(place.packed_bytes))
            .sum();
        self.report.nodes_checked += table_nodes.len() as u64;
        table_nodes.iter().for_each(|location| self.count(location));
        let state = pool.state.read();
        for (id, place) in &state.active.table {
            match place {
                Some(location) => drop(places.insert(*id, *location)),
                None => drop(places.remove(id)),
            }
        }
        Ok(places)
    }

    fn trees(&mut self, places: &BTreeMap<RecordId, Location>) -> Result<()> {
        let stable = self.pool.stable.read().clone();
        let roots: Vec<(TreeId, Root<RecordId>)> =
            stable.trees.iter().map(|(tree, root)| (*tree, *root)).collect();
        for (tree, root) in roots {
            let mut nodes = Vec::new();
            let walked = walk(&self.pool.tree_store(&stable), Some(&root), &mut |id, _| {
                nodes.push(*id);
                Ok(())
            });
            let walked = self.tolerate(&format!("tree {}", tree.0), walked)?;
            self.hidden |= walked.is_none();
            let packed = nodes.iter().filter_map(|id| places.get(id));
            let node_bytes = packed.map(|place| u64::from(place.packed_bytes)).sum();
            self.books.node_bytes.insert(tree, node_bytes);
            self.report.nodes_checked += nodes.len() as u64;
            for id in nodes {
                if !self.nodes.insert(id) {
                    self.problem(format!("tree {}: node {} is part of a tree twice", tree.0, id.0));
                }
            }
        }
        Ok(())
    }

    fn records(
        &mut self,
        places: &BTreeMap<RecordId, Location>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let total: u64 = places.values().map(|place| u64::from(place.packed_bytes)).sum();
        // In the order in which they lie, so that a disk reads forwards.
        let mut ordered: Vec<(&RecordId, &Location)> = places.iter().collect();
        ordered.sort_by_key(|(_, place)| (place.segment, place.offset_bytes));
        let mut end = (SegmentId::NONE, 0);
        for (id, place) in ordered {
            self.count(place);
            if end.0 == place.segment && end.1 > place.offset_bytes {
                self.problem(format!(
                    "record {} at {place} overlaps the record before it",
                    id.0
                ));
            }
            let place_end = place.offset_bytes.saturating_add(place.packed_bytes);
            end = match end {
                (segment, before) if segment == place.segment => (segment, place_end.max(before)),
                _ => (place.segment, place_end),
            };
            let raw =
                read_frame(&self.pool.geometry, place).and_then(|frame| unpack(&frame, place.raw_bytes));
            let raw = self.tolerate(&format!("record {}", id.0), raw)?;
            if raw.is_none() {
                self.report.damaged.push(*id);
            }
            if let Some(raw) = raw
                && raw.len() != place.raw_bytes as usize
            {
                self.problem(format!(
                    "record {}: {} raw bytes where the table says {}",
                    id.0,
                    raw.len(),
                    place.raw_bytes
                ));
            }
            self.report.records_checked += 1;
            self.report.bytes_checked += u64::from(place.packed_bytes);
            if self.report.records_checked % 256 == 0 {
                progress(self.report.bytes_checked, total);
            }
        }
        progress(total, total);
        self.report.damaged.sort_unstable();
        self.report.records = places
            .keys()
            .filter(|id| !self.nodes.contains(id))
            .copied()
            .collect();
        for id in self.nodes.clone() {
            if !places.contains_key(&id) {
                self.problem(format!("tree node {} is not in the record table", id.0));
            }
        }
        Ok(())
    }

    /// Compares what each segment should hold with the usage that was kept.
    fn books(&mut self) {
        {
            let checkpointer = self.pool.checkpointer.lock();
            let pages: Vec<Location> = checkpointer
                .pages
                .iter()
                .flatten()
                .copied()
                .chain(checkpointer.usage_index)
                .collect();
            drop(checkpointer);
            pages.iter().for_each(|location| self.count(location));
        }
        let segments: SegmentTable = self.pool.state.read().segments.clone();
        for (id, segment) in segments.iter() {
            let expected = self.expected.get(&id).copied().unwrap_or(0);
            if expected != u64::from(segment.live_bytes) {
                self.problem(format!(
                    "segment {id}: usage says {} live bytes, {expected} are; the difference is leaked or lent room",
                    segment.live_bytes
                ));
            }
        }
    }
}
