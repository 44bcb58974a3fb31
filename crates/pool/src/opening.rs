//! Finding a checkpoint to open from: the newest that can be read, an older one where it can stand in, and for a pool that
//! is only read also one that cannot quite. docs/decisions/0005-older-checkpoint.md says when.
//!
//! Nothing is written here.

use crate::batch::pool_tag;
use crate::btree::{Window, scan};
use crate::cache::Caches;
use crate::catalog::{decode_root, root_range};
use crate::checkpoint::{Checkpointer, read_usage};
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::lifecycle::Parts;
use crate::log::LogWriter;
use crate::older::{EPOCHS_LOST_MAX, Examination};
use crate::pool::Stable;
use crate::recovery::{Replay, Replayed};
use crate::scanner::Scanner;
use crate::segments::SegmentKind;
use crate::slot::{Cursor, Loss, Ring, Slot};
use crate::state::{Counters, LOG_STREAMS, State};
use crate::stores::{TableStore, TreeStore};
use crate::types::{Location, NUMBER_MAX, RECORD_RAW_BYTES_MAX, SECTOR_BYTES, SegmentId, TreeId};
use std::collections::BTreeSet;

/// What a pool that was opened for reading only needs to become writable.
pub(crate) struct Opening {
    pub ring: Ring,
    pub next_epoch: u64,
    /// Acknowledged data are missing.
    pub incomplete: bool,
}

/// How much is put up with.
#[derive(Clone, Copy)]
struct Leniency {
    /// Segment usage that cannot be read is counted anew.
    rebuild_usage: bool,
    /// Acknowledged data may be missing.
    incomplete: bool,
}

/// Something out of the ordinary that opening found.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub text: String,
    /// It is damage. Else a crash may have left it so, and nothing is wrong any more.
    pub is_damage: bool,
}

impl Note {
    fn damage(text: String) -> Note {
        Note {
            text,
            is_damage: true,
        }
    }
}

/// A checkpoint that can be used, with the log behind it.
pub(crate) struct Found {
    pub parts: Parts,
    pub caches: Caches,
    pub next_record: u64,
    pub next_epoch: u64,
    pub notes: Vec<Note>,
    pub incomplete: bool,
}

/// Tries checkpoints from the newest down. One whose trees cannot be read is passed over; an error of the log is final,
/// for the same log lies behind all of them.
pub(crate) fn find_checkpoint(
    geometry: &Geometry,
    ring: &Ring,
    memory_bytes: u64,
    read_only: bool,
) -> Result<Found> {
    let leniency = |rebuild_usage, incomplete| Leniency {
        rebuild_usage,
        incomplete,
    };
    let error = match try_checkpoints(geometry, ring, memory_bytes, read_only, leniency(false, false)) {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    // Only a pool that is not written may be less than it was.
    for (rebuild_usage, incomplete) in [(true, false), (false, true), (true, true)] {
        let leniency = leniency(rebuild_usage, incomplete);
        match try_checkpoints(geometry, ring, memory_bytes, true, leniency) {
            Ok(found) if read_only => return Ok(found),
            Ok(found) if !found.incomplete => {
                return Err(Error::new(
                    error.kind(),
                    "open pool",
                    format!("{error}; packstone check --repair mends this"),
                ));
            }
            _ => {}
        }
    }
    Err(error)
}

/// One pass over the slots.
fn try_checkpoints(
    geometry: &Geometry,
    ring: &Ring,
    memory_bytes: u64,
    read_only: bool,
    leniency: Leniency,
) -> Result<Found> {
    const OPERATION: &str = "open pool";
    let mut passed_over: Option<Error> = None;
    for (at, slot) in ring.slots.iter().enumerate() {
        // Each with caches of its own, for records and nodes of one are not those of another.
        let caches = Caches::new(memory_bytes);
        let trees = match read_trees(geometry, &caches, slot, leniency.rebuild_usage) {
            Ok(trees) => trees,
            Err(error) => {
                passed_over.get_or_insert(error);
                continue;
            }
        };
        let attempt = Attempt {
            geometry,
            ring,
            at,
            read_only,
            leniency,
        };
        return match (attempt.recover(caches, trees, passed_over.as_ref()), passed_over) {
            (Err(error), Some(newest)) => Err(Error::damaged(
                OPERATION,
                format!(
                    "checkpoint {} cannot be used ({newest}), nor can an older one stand in for it: {error}",
                    ring.slots[0].number
                ),
            )),
            (outcome, _) => outcome,
        };
    }
    Err(passed_over.unwrap_or_else(|| {
        let name = &geometry.label.pool_name;
        Error::damaged(OPERATION, format!("no checkpoint of pool {name} can be read"))
    }))
}

/// An attempt to open from one slot.
struct Attempt<'a> {
    geometry: &'a Geometry,
    ring: &'a Ring,
    at: usize,
    read_only: bool,
    leniency: Leniency,
}

impl Attempt<'_> {
    fn recover(&self, caches: Caches, mut trees: Trees, passed_over: Option<&Error>) -> Result<Found> {
        let (geometry, slot) = (self.geometry, &self.ring.slots[self.at]);
        let before = trees.state.segments.clone();
        let pool_tag = pool_tag(&geometry.label.pool_id);
        let replayed = Replay {
            geometry,
            table: TableStore {
                geometry,
                caches: &caches,
            },
            stable: &trees.stable,
            slot,
            scanner: Scanner::new(geometry, pool_tag),
            read_only: self.read_only,
            incomplete: self.leniency.incomplete,
        }
        .run(&mut trees.state)?;
        let loss = self.ring.loss(slot.number + 1);
        let told = replayed.unread.clone().into_iter().chain(trees.note.take());
        let mut notes: Vec<Note> = told.map(Note::damage).collect();
        let mut incomplete = replayed.unread.is_some();
        let mut next_epoch = replayed.epoch + 1;
        if self.at > 0 || loss != Loss::No || replayed.epoch > slot.epoch {
            let findings = Examination {
                geometry,
                ring: self.ring,
                slot,
                pool_tag,
                before: &before,
                after: &trees.state.segments,
                replayed: &replayed,
            }
            .run();
            next_epoch = findings.epoch_max + EPOCHS_LOST_MAX;
            let reason = match passed_over {
                Some(error) => format!(
                    "checkpoint {} cannot be used ({error})",
                    self.ring.slots[0].number
                ),
                None => format!("checkpoint {} was not finished, or is damaged", slot.number + 1),
            };
            if let Some(missing) = findings.missing {
                self.refuse_incomplete(&reason, &missing)?;
                incomplete = true;
                notes.push(Note::damage(format!(
                    "INCOMPLETE: {reason}; what is shown is from checkpoint {}, and acknowledged data are missing: {missing}",
                    slot.number
                )));
            } else if self.at > 0 || loss == Loss::Likely || replayed.epoch > slot.epoch {
                // A crash that tears both copies of a slot looks like this, and does no harm.
                let may_be_torn = self.at == 0 && replayed.epoch == slot.epoch;
                notes.push(Note {
                    text: format!(
                        "{reason}: opened from checkpoint {} and the log behind it; nothing acknowledged is missing",
                        slot.number
                    ),
                    is_damage: !may_be_torn,
                });
            }
        }
        self.rest_segments(&mut trees.state);
        let number = self.ring.slots[0].number;
        let notes = (notes, incomplete);
        Ok(found(slot, number, caches, trees, &replayed, next_epoch, notes))
    }

    fn refuse_incomplete(&self, reason: &str, missing: &str) -> Result<()> {
        if self.leniency.incomplete {
            return Ok(());
        }
        Err(Error::damaged(
            "open pool",
            format!(
                "{reason}, and from checkpoint {} acknowledged data would be missing: {missing}; packstone check and packstone inspect show what is there; restore the pool from a backup",
                self.ring.slots[self.at].number
            ),
        ))
    }

    /// What the checkpoint before this one needs shall last for some time yet.
    fn rest_segments(&self, state: &mut State) {
        if let Some(older) = self.ring.slots.get(self.at + 1)
            && check_slot(self.geometry, older).is_ok()
            && let Ok((usage, _)) = read_usage(self.geometry, &older.usage_index)
        {
            state.segments.rest_what_was_used_in(&usage);
        }
    }
}

fn found(
    slot: &Slot,
    number: u64,
    caches: Caches,
    trees: Trees,
    replayed: &Replayed,
    next_epoch: u64,
    (notes, incomplete): (Vec<Note>, bool),
) -> Found {
    let log = LogWriter {
        cursors: replayed.cursors,
        epoch: replayed.epoch,
        next_batch: replayed.next_batch,
        durable_below: replayed.next_batch,
    };
    let node_cursor = slot.cursors.get(LOG_STREAMS).copied();
    Found {
        parts: Parts {
            log,
            state: trees.state,
            stable: trees.stable,
            checkpointer: Checkpointer::new(number, node_cursor, trees.pages, trees.usage_index),
        },
        caches,
        next_record: replayed.next_record,
        next_epoch,
        notes,
        incomplete,
    }
}

/// What a slot names, as far as opening needs it.
struct Trees {
    state: State,
    stable: Stable,
    pages: Vec<Option<Location>>,
    usage_index: Option<Location>,
    note: Option<String>,
}

fn read_trees(geometry: &Geometry, caches: &Caches, slot: &Slot, rebuild_usage: bool) -> Result<Trees> {
    check_slot(geometry, slot)?;
    let (mut segments, pages, usage_index, note) = match read_usage(geometry, &slot.usage_index) {
        Ok((segments, pages)) => (segments, pages, Some(slot.usage_index), None),
        Err(error) if rebuild_usage => {
            let note =
                format!("{error}; the segment usage was counted anew, packstone check --repair writes it");
            let segments = crate::repair::count_usage(geometry, caches, slot)?;
            (segments, Vec::new(), None, Some(note))
        }
        Err(error) => return Err(error),
    };
    for (stream, cursor) in slot.cursors.iter().enumerate() {
        let kind = if stream < LOG_STREAMS {
            SegmentKind::Log(stream as u8)
        } else {
            SegmentKind::Nodes
        };
        segments.open_found(cursor.segment, kind);
    }
    let mut state = State::new(segments);
    state.table_bytes = slot.table_bytes;
    state.next_tree = slot.next_tree;
    state.covered_below = slot.next_batch;
    let stable = read_roots(geometry, caches, slot, &mut state)?;
    Ok(Trees {
        state,
        stable,
        pages,
        usage_index,
        note,
    })
}

fn check_slot(geometry: &Geometry, slot: &Slot) -> Result<()> {
    let segment_bytes = geometry.segment_bytes();
    let bad_cursor = |cursor: &Cursor| {
        cursor.segment.0 >= geometry.label.segment_count
            || cursor.offset_bytes > segment_bytes
            || cursor.offset_bytes % SECTOR_BYTES != 0
    };
    let count = slot.cursors.len();
    let segments: BTreeSet<SegmentId> = slot.cursors.iter().map(|cursor| cursor.segment).collect();
    if !(LOG_STREAMS..=LOG_STREAMS + 1).contains(&count)
        || slot.cursors.iter().any(bad_cursor)
        || segments.len() != count
    {
        return Err(Error::damaged(
            "open pool",
            "the checkpoint names impossible places in the log",
        ));
    }
    let numbers = [slot.number, slot.epoch, slot.next_batch, slot.next_record];
    let capacity_bytes = geometry.label.capacity_bytes;
    if numbers.iter().any(|number| *number >= NUMBER_MAX)
        || slot.table_bytes > capacity_bytes
        || slot.catalog_bytes > capacity_bytes
    {
        return Err(Error::damaged(
            "open pool",
            "the checkpoint holds impossible numbers",
        ));
    }
    geometry.check_location(&slot.usage_index)
}

/// Totals that sums over all trees may be made of without overflow.
fn check_counters(geometry: &Geometry, counters: &Counters) -> Result<()> {
    let capacity_bytes = geometry.label.capacity_bytes;
    if counters.packed_bytes > capacity_bytes
        || counters.node_bytes > capacity_bytes
        || counters.records > capacity_bytes
        || counters.logical_bytes / u64::from(RECORD_RAW_BYTES_MAX) > capacity_bytes
    {
        return Err(Error::damaged("open pool", "the totals of a tree are impossible"));
    }
    Ok(())
}

/// Roots and totals of all trees, from the catalog.
fn read_roots(geometry: &Geometry, caches: &Caches, slot: &Slot, state: &mut State) -> Result<Stable> {
    let mut stable = Stable {
        table_root: slot.table_root,
        ..Stable::default()
    };
    let Some(catalog_root) = slot.catalog_root else {
        return Ok(stable);
    };
    let store = TreeStore {
        table: TableStore { geometry, caches },
        table_root: slot.table_root,
    };
    let (from, to) = root_range();
    for (key, value) in scan(
        &store,
        Some(&catalog_root),
        Window {
            from,
            to,
            limit: usize::MAX,
        },
    )? {
        let (tree, root, counters) = decode_root(&key, &value)?;
        check_counters(geometry, &counters)?;
        state.counters.insert(tree, counters);
        if let Some(root) = root {
            stable.trees.insert(tree, root);
        }
    }
    let catalog = Counters {
        node_bytes: slot.catalog_bytes,
        ..Counters::default()
    };
    state.counters.insert(TreeId::CATALOG, catalog);
    stable.trees.insert(TreeId::CATALOG, catalog_root);
    Ok(stable)
}
