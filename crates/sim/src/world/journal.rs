//! What was changed since the last moment known to be durable, so that the model can go back to what a crash left.
//!
//! Recovery yields a prefix of the commits. After each operation (or some of them) the world commits its number under one
//! key of a dataset of its own, the *witness*: what a recovered pool has there says which operations are in, but for
//! those between this witness and the next one written.

use super::model::{Meta, Model, Name, Node};
use super::slots::{Catalog, Slot};
use packstone_fs::Ino;
use std::collections::VecDeque;

/// One change, with what is needed to undo it.
#[derive(Debug)]
pub(crate) enum Change {
    Entry {
        slot: u8,
        parent: Ino,
        name: Name,
        old: Option<Ino>,
    },
    Meta {
        slot: u8,
        ino: Ino,
        old: Box<Meta>,
    },
    Created {
        slot: u8,
        ino: Ino,
    },
    Dropped {
        slot: u8,
        ino: Ino,
        node: Box<Node>,
    },
    Catalog {
        slot: u8,
        old: Catalog,
        /// The dataset's content, when it was lost with this change.
        model: Option<Box<Model>>,
    },
}

/// Changes with the numbers of their operations, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// The operation being done.
    pub(crate) number: u64,
    /// Everything up to this operation is durable.
    pub(crate) durable: u64,
    changes: VecDeque<(u64, Change)>,
    witnesses: VecDeque<u64>,
}

impl Journal {
    pub(crate) fn note(&mut self, change: Change) {
        self.changes.push_back((self.number, change));
    }

    pub(crate) fn note_witness(&mut self) {
        self.witnesses.push_back(self.number);
    }

    /// What operations up to `number` did to names and attributes was acknowledged as durable.
    pub(crate) fn note_durable(&mut self, number: u64) {
        if number <= self.durable {
            return;
        }
        self.durable = number;
        while self.changes.front().is_some_and(|(at, _)| *at <= number) {
            self.changes.pop_front();
        }
        while self.witnesses.get(1).is_some_and(|at| *at < number) {
            self.witnesses.pop_front();
        }
    }

    /// First and last operation that may have been the last one in, when the witness says `found`.
    pub(crate) fn candidates(&self, found: u64) -> Result<(u64, u64), String> {
        let next = self.witnesses.iter().find(|number| **number > found);
        // The next witness was lost; what its own operation did before it may be there.
        let newest = next.copied().unwrap_or(self.number);
        if !self.witnesses.contains(&found) {
            return Err(format!(
                "witness {found} was never written or was known to be replaced"
            ));
        }
        if newest < self.durable {
            let durable = self.durable;
            return Err(format!(
                "operation {durable} was acknowledged as durable, and what is there ends with operation {newest}"
            ));
        }
        Ok((found.max(self.durable), newest))
    }

    /// Undoes the last operation if it came after `number`. False when there is none.
    pub(crate) fn undo_after(&mut self, slots: &mut [Slot], number: u64) -> bool {
        let Some(last) = self.changes.back().map(|(at, _)| *at).filter(|at| *at > number) else {
            return false;
        };
        while self.changes.back().is_some_and(|(at, _)| *at == last) {
            if let Some((_, change)) = self.changes.pop_back() {
                undo(change, slots);
            }
        }
        true
    }

    /// The state found, with this witness, is the one to go on from.
    pub(crate) fn restart(&mut self, witness: u64) {
        self.changes.clear();
        self.witnesses.clear();
        self.durable = self.number;
        self.witnesses.push_back(witness);
    }
}

fn undo(change: Change, slots: &mut [Slot]) {
    match change {
        Change::Entry {
            slot,
            parent,
            name,
            old,
        } => drop(slots[usize::from(slot)].model.set_entry(parent, name, old)),
        Change::Meta { slot, ino, old } => drop(slots[usize::from(slot)].model.set_meta(ino, *old)),
        Change::Created { slot, ino } => drop(slots[usize::from(slot)].model.take(ino)),
        Change::Dropped { slot, ino, node } => slots[usize::from(slot)].model.insert(ino, *node),
        Change::Catalog { slot, old, model } => {
            let slot = &mut slots[usize::from(slot)];
            slot.catalog = old;
            if let Some(model) = model {
                slot.model = *model;
            }
        }
    }
}
