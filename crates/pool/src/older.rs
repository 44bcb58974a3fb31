//! Whether a pool may be opened from a checkpoint that is perhaps not its newest.
//!
//! The newest slot may be damaged, or the trees it names. What an older one needs may have been written over since, and
//! acknowledged batches may be missing from the log behind it. Nothing on media says so in one place, but whatever
//! destroyed it left a witness: a segment is written again only after the checkpoint that freed it is durable, and from
//! then on every batch says so. See docs/decisions/0005-older-checkpoint.md. Finding nothing here means that replay brought
//! back all that was ever acknowledged.

use crate::batch::{BatchKind, Header};
use crate::geometry::Geometry;
use crate::recovery::Replayed;
use crate::scanner::Scanner;
use crate::segments::{SegmentKind, SegmentTable};
use crate::slot::{Cursor, Loss, Ring, SLOTS, Slot};
use crate::state::LOG_STREAMS;
use crate::types::{COUNTED_MAX, SegmentId};
use std::collections::BTreeMap;

/// How far the epoch is raised beyond the highest that was seen: every checkpoint of the ring may have begun one.
pub(crate) const EPOCHS_LOST_MAX: u64 = 2 * SLOTS;

/// What the media tell about checkpoints after the one that was used.
pub(crate) struct Findings {
    /// Highest epoch of any batch or slot.
    pub epoch_max: u64,
    /// Why something acknowledged is missing.
    pub missing: Option<String>,
    /// What the nodes of each checkpoint say that it covered, of its last attempt.
    covered: BTreeMap<u64, Covered>,
}

/// A checkpoint that crashed before its slot leaves nodes that say what it would have covered, which need not have been
/// durable. The next opening writes a checkpoint of the same number in a higher epoch; only the highest counts.
struct Covered {
    epoch: u64,
    below: u64,
    at: Cursor,
}

pub(crate) struct Examination<'a> {
    pub geometry: &'a Geometry,
    pub ring: &'a Ring,
    pub slot: &'a Slot,
    pub pool_tag: u64,
    /// Usage as the slot had it.
    pub before: &'a SegmentTable,
    /// Usage after replay.
    pub after: &'a SegmentTable,
    pub replayed: &'a Replayed,
}

impl Examination<'_> {
    pub(crate) fn run(&self) -> Findings {
        let mut findings = Findings {
            epoch_max: self.slot.epoch.max(self.replayed.epoch),
            missing: None,
            covered: BTreeMap::new(),
        };
        for newer in self
            .ring
            .slots
            .iter()
            .filter(|slot| slot.number > self.slot.number)
        {
            findings.epoch_max = findings.epoch_max.max(newer.epoch);
            if newer.next_batch > self.replayed.next_batch {
                let what = format!("checkpoint {}", newer.number);
                findings.miss(self.lost_log(&what, newer.next_batch));
            }
        }
        let scanner = Scanner::new(self.geometry, self.pool_tag);
        for number in 0..self.geometry.label.segment_count {
            let first = Cursor {
                segment: SegmentId(number),
                offset_bytes: 0,
            };
            if let Ok(Some(header)) = scanner.first_header(first.segment) {
                self.refuse_reuse(&header, &mut findings);
                self.hear(&scanner, &first, &header, &mut findings);
            }
        }
        let nodes = self.slot.cursors.get(LOG_STREAMS);
        for cursor in self.replayed.cursors.iter().chain(nodes) {
            for (at, header) in scanner.headers_behind(cursor) {
                self.hear(&scanner, &at, &header, &mut findings);
            }
        }
        for covered in std::mem::take(&mut findings.covered).into_values() {
            self.believe(&covered.at, covered.below, &mut findings);
        }
        findings
    }

    /// Takes what a batch says of the log, if it is whole and says something new.
    fn hear(&self, scanner: &Scanner<'_>, at: &Cursor, header: &Header, findings: &mut Findings) {
        if header.epoch >= COUNTED_MAX {
            return;
        }
        let lost = header.durable_below > self.replayed.next_batch;
        let later = header.epoch > findings.epoch_max;
        let known = findings.covered.get(&header.sequence);
        let covers = header.kind == BatchKind::Nodes
            && self.slot_was_begun(header.sequence)
            && known.is_none_or(|known| header.epoch > known.epoch);
        if (!lost && !later && !covers) || !scanner.is_whole(at, header) {
            return;
        }
        if later {
            findings.epoch_max = header.epoch;
        }
        if covers {
            let covered = Covered {
                epoch: header.epoch,
                below: header.covered_below,
                at: *at,
            };
            findings.covered.insert(header.sequence, covered);
        }
        self.believe(at, header.durable_below, findings);
    }

    fn believe(&self, at: &Cursor, durable_below: u64, findings: &mut Findings) {
        if durable_below > self.replayed.next_batch {
            let what = format!("a batch at segment {} offset {}", at.segment, at.offset_bytes);
            findings.miss(self.lost_log(&what, durable_below));
        }
    }

    /// Slots are written after a flush: what a checkpoint covered is durable once its slot was begun.
    fn slot_was_begun(&self, number: u64) -> bool {
        number > self.slot.number
            && (self.ring.loss(number) != Loss::No
                || self.ring.slots.iter().any(|slot| slot.number >= number))
    }

    /// A segment in use that begins with a batch younger than the checkpoint was written over.
    fn refuse_reuse(&self, header: &Header, findings: &mut Findings) {
        let (before, after) = (self.before.get(header.segment), self.after.get(header.segment));
        let in_use = before.kind != SegmentKind::Free && before.live_bytes > 0 && after.live_bytes > 0;
        let younger = match header.kind {
            BatchKind::Log if header.epoch == self.slot.epoch => header.sequence >= self.slot.next_batch,
            BatchKind::Log => header.epoch > self.slot.epoch,
            BatchKind::Nodes => header.sequence > self.slot.number,
        };
        if in_use && younger {
            findings.miss(format!(
                "segment {}, which it needs, was written over since",
                header.segment
            ));
        }
    }

    fn lost_log(&self, what: &str, durable_below: u64) -> String {
        format!(
            "{what} says that the log was durable up to batch {}, but behind checkpoint {} it can be read only up to batch {}",
            durable_below.saturating_sub(1),
            self.slot.number,
            self.replayed.next_batch.saturating_sub(1)
        )
    }
}

impl Findings {
    fn miss(&mut self, why: String) {
        self.missing.get_or_insert(why);
    }
}
