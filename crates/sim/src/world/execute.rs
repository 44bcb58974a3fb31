//! Does one operation on the pool and on the model, and compares the outcomes.

mod attributes;
mod background;
mod data;
mod names;

use super::model::Handle;
use super::operation::{Operation, Step};
use super::state::{Checked, Trouble, World, violation};
use packstone_fs::{ErrorKind, Ino};

/// How an operation ended, where that was allowed.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    /// Done.
    Done(T),
    /// Refused, as the model does.
    Refused,
    /// The pool is full.
    Full,
    /// The device failed.
    Failed,
}

/// Whether an operation may be refused because the pool is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Needs,
    /// It makes room, or changes nothing.
    NeedsNone,
}

impl World {
    /// Does one step, and what follows from it.
    pub(crate) fn step(&mut self, step: &Step) -> Checked {
        self.journal.number = u64::from(step.number);
        self.counts.operations += 1;
        self.time_ms += 1;
        self.execute(step)?;
        self.time_ms += self.media.take_delay_ms();
        if self.power_goes || self.trouble == Trouble::Stop && self.is_stopped() {
            let loss = self.loss;
            self.crash(loss)?;
        }
        if step.witness && self.trouble != Trouble::ReadOnly {
            self.commit_witness()?;
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.pool().statistics().stopped.is_some()
    }

    fn execute(&mut self, step: &Step) -> Checked {
        let handle = step.number;
        match &step.operation {
            Operation::Create { .. }
            | Operation::Unnamed { .. }
            | Operation::Link { .. }
            | Operation::Remove { .. }
            | Operation::Rename { .. }
            | Operation::Lookup { .. }
            | Operation::List { .. } => self.on_names(handle, &step.operation),
            Operation::Write { .. }
            | Operation::Read { .. }
            | Operation::Truncate { .. }
            | Operation::Allocate { .. }
            | Operation::Seek { .. }
            | Operation::Copy { .. } => self.on_data(&step.operation),
            Operation::SetXattr { .. }
            | Operation::GetXattr { .. }
            | Operation::RemoveXattr { .. }
            | Operation::Chmod { .. }
            | Operation::Chown { .. }
            | Operation::Times { .. }
            | Operation::Open { .. }
            | Operation::Release { .. }
            | Operation::Forget { .. } => self.on_attributes(&step.operation),
            operation => self.on_the_whole(operation),
        }
    }

    /// The inode of a handle, referred to as the kernel would before it does anything. `None` when there is no such thing
    /// (any more), and then nothing is to be done.
    pub(crate) fn target(&mut self, slot: u8, handle: Handle) -> Checked<Option<Ino>> {
        if self.slots.len() <= usize::from(slot) || self.slot(slot).fs.is_none() {
            return Ok(None);
        }
        let Some(ino) = self.slot(slot).model.resolve(handle) else {
            return Ok(None);
        };
        Ok(Some(ino))
    }

    /// Compares an outcome with what the model says. With trouble on the device other errors are allowed, and nothing but
    /// errors.
    pub(crate) fn judge<T, E>(
        &mut self,
        what: &'static str,
        room: Room,
        result: packstone_fs::Result<T>,
        expected: Result<E, ErrorKind>,
    ) -> Checked<Outcome<(T, E)>> {
        let kind = result.as_ref().err().map(packstone_fs::Error::kind);
        self.note((what, kind.map(|kind| kind as u8)));
        match (result, expected) {
            (Ok(found), Ok(expected)) => Ok(Outcome::Done((found, expected))),
            (Err(error), Err(expected)) if error.kind() == expected => Ok(Outcome::Refused),
            (Err(error), _) if is_device(error.kind(), self.trouble) => {
                self.failed(what, &error)?;
                Ok(Outcome::Failed)
            }
            (Err(error), _) if error.kind() == ErrorKind::NoSpace && self.may_be_full(room) => {
                self.counts.full += 1;
                Ok(Outcome::Full)
            }
            (Err(error), expected) => violation(
                format!("{what}: {:?} where {:?} is right", error.kind(), expected.err()),
                format!("{error}; {}", self.room()),
            ),
            (Ok(_), Err(expected)) => violation(
                format!("{what}: done where {expected:?} is right"),
                "it went through",
            ),
        }
    }

    /// Whether a full pool is an answer.
    pub(crate) fn may_be_full(&self, room: Room) -> bool {
        room == Room::Needs
    }

    /// How full the pool is, for messages.
    pub(crate) fn room(&self) -> String {
        let found = self.pool().statistics();
        format!(
            "of {} segments {} are free; {} bytes are live, {} of them index, {} can be written",
            found.capacity_bytes / u64::from(self.profile.segment_bytes),
            found.free_bytes / u64::from(self.profile.segment_bytes),
            found.live_bytes,
            found.index_bytes,
            found.available_bytes,
        )
    }

    /// The device failed: is that what was asked for?
    pub(crate) fn failed(&mut self, what: &str, error: &dyn std::fmt::Display) -> Checked {
        let stopped = self.is_stopped();
        // A device that is off cannot even be asked what became of this.
        self.power_goes = self.trouble == Trouble::Stop;
        match self.trouble {
            Trouble::None => violation(format!("{what}: fails for no reason"), error.to_string()),
            Trouble::Reads if stopped => violation(
                format!("{what}: a read that failed stopped the pool"),
                error.to_string(),
            ),
            Trouble::Writes if stopped => {
                self.trouble = Trouble::ReadOnly;
                Ok(())
            }
            Trouble::ReadOnly if !stopped => {
                violation(format!("{what}: the pool takes writes again"), error.to_string())
            }
            _ => Ok(()),
        }
    }
}

/// Errors that a failing device causes. Bytes from another place fail their check.
fn is_device(kind: ErrorKind, trouble: Trouble) -> bool {
    let misread = kind == ErrorKind::Damaged && trouble == Trouble::Reads;
    misread || matches!(kind, ErrorKind::Unavailable | ErrorKind::ReadOnly)
}
