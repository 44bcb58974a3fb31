//! Which calls of a simulated device suffer what, and the counting that decides it.
//!
//! A call is asked in this order: has the device stopped, has it gone, does the range fail, was a fault asked for at the
//! next call, does the plan draw one. At most one fault hits a call, besides slowness.

use std::io;
use std::ops::Range;

use crate::error::{MediaError, MediaErrorKind};

use super::crash::Random;
use super::plan::{FaultKind, FaultPlan};

/// What a simulated device calls itself in messages.
pub(super) const DESCRIPTION: &str = "simulated device";

/// What becomes of unflushed writes while a device is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detachment {
    /// They are still unflushed when it comes back.
    KeepingUnflushed,
    /// They are lost.
    LosingUnflushed,
}

/// Why a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The device was stopped.
    Stopped,
    /// A fault of this kind.
    Hit(FaultKind),
    /// An earlier flush failed.
    FlushFailedBefore,
}

impl Fault {
    pub(super) fn into_error(self, operation: &'static str) -> MediaError {
        let unavailable =
            |detail: &str| MediaError::new(MediaErrorKind::Unavailable, operation, DESCRIPTION, detail);
        let from_errno = |errno: i32| {
            MediaError::from_io_described(
                operation,
                DESCRIPTION.to_owned(),
                io::Error::from_raw_os_error(errno),
            )
        };
        match self {
            Fault::Stopped => unavailable("it was stopped by the test"),
            Fault::FlushFailedBefore => {
                unavailable("an earlier flush failed, so what was written before it may be lost")
            }
            Fault::Hit(FaultKind::Gone) => from_errno(libc::ENXIO),
            Fault::Hit(FaultKind::NoSpace) => from_errno(libc::ENOSPC),
            Fault::Hit(_) => from_errno(libc::EIO),
        }
    }
}

/// Where the faults of a call come from.
#[derive(Debug)]
pub(super) struct Faults {
    asked: [u64; FaultKind::ALL.len()],
    /// Calls to pass before the one that suffers it.
    asked_after: [Option<u64>; FaultKind::ALL.len()],
    plan: Option<FaultPlan>,
    /// Decides what the plan draws, and where damage and misdirected calls go.
    pub(super) random: Random,
    pub(super) misdirect_to: Option<u64>,
    pub(super) detached: Option<Detachment>,
    pub(super) backing_file_full: bool,
    pub(super) unreadable: Vec<Range<u64>>,
    pub(super) unwritable: Vec<Range<u64>>,
    pub(super) delay_ms: u64,
    /// All calls, and those that can change the media.
    pub(super) calls: u64,
    pub(super) changes: u64,
    calls_max: Option<u64>,
    changes_max: Option<u64>,
    flush_failed: bool,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            asked: [0; FaultKind::ALL.len()],
            asked_after: [None; FaultKind::ALL.len()],
            plan: None,
            random: Random::new(0),
            misdirect_to: None,
            detached: None,
            backing_file_full: false,
            unreadable: Vec::new(),
            unwritable: Vec::new(),
            delay_ms: 0,
            calls: 0,
            changes: 0,
            calls_max: None,
            changes_max: None,
            flush_failed: false,
        }
    }
}

impl Faults {
    pub(super) fn set_plan(&mut self, plan: FaultPlan) {
        self.random = Random::new(plan.seed);
        self.plan = Some(plan);
    }

    pub(super) fn ask(&mut self, kind: FaultKind, count: u64) {
        let asked = &mut self.asked[kind as usize];
        *asked = asked.saturating_add(count);
    }

    pub(super) fn ask_after(&mut self, kind: FaultKind, skip: u64) {
        self.asked_after[kind as usize] = Some(skip);
    }

    pub(super) fn set_asked(&mut self, kind: FaultKind, count: u64) {
        self.asked[kind as usize] = count;
    }

    /// `Ok(Some(..))`: the read succeeds, but suffers that.
    pub(super) fn read(&mut self, range: &Range<u64>) -> Result<Option<FaultKind>, Fault> {
        self.calls += 1;
        self.check_usable()?;
        check_ranges(&self.unreadable, range)?;
        self.silent_or_failed(&[
            FaultKind::ReadError,
            FaultKind::ShortRead,
            FaultKind::MisdirectedRead,
        ])
    }

    /// As `read`. `is_new`: a part of the range lies in an area that was never written.
    pub(super) fn write(&mut self, range: &Range<u64>, is_new: bool) -> Result<Option<FaultKind>, Fault> {
        self.change()?;
        check_ranges(&self.unwritable, range)?;
        if is_new && (self.backing_file_full || self.strikes(FaultKind::NoSpace)) {
            return Err(Fault::Hit(FaultKind::NoSpace));
        }
        self.silent_or_failed(&[
            FaultKind::WriteError,
            FaultKind::ShortWrite,
            FaultKind::PhantomWrite,
            FaultKind::MisdirectedWrite,
        ])
    }

    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        self.change()?;
        if self.flush_failed {
            return Err(Fault::FlushFailedBefore);
        }
        let struck = self.silent_or_failed(&[FaultKind::FlushError, FaultKind::DroppingFlush]);
        self.flush_failed = struck == Err(Fault::Hit(FaultKind::FlushError));
        struck.map(|_| ())
    }

    /// Counts a call that can change the media.
    pub(super) fn change(&mut self) -> Result<(), Fault> {
        self.calls += 1;
        self.changes += 1;
        self.check_usable()
    }

    /// Damage that happens besides a call.
    pub(super) fn damage(&mut self) -> Option<FaultKind> {
        [
            FaultKind::BitRot,
            FaultKind::GarbageSector,
            FaultKind::ZeroedSector,
        ]
        .into_iter()
        .find(|kind| self.strikes(*kind))
    }

    /// A call to which this applies is slow; answers whether.
    pub(super) fn slow_down(&mut self) -> bool {
        let slow = self.strikes(FaultKind::Slow);
        if slow {
            // From a hiccup to a disk that tries again and again.
            let longest_ms = [10, 100, 1_000, 30_000][self.random.below(4) as usize];
            self.delay_ms += 1 + self.random.below(longest_ms);
        }
        slow
    }

    pub(super) fn stop_after_calls(&mut self, calls: u64) {
        self.calls_max = Some(self.calls.saturating_add(calls));
    }

    pub(super) fn stop_after_changes(&mut self, changes: u64) {
        self.changes_max = Some(self.changes.saturating_add(changes));
    }

    pub(super) fn clear(&mut self) {
        *self = Faults {
            calls: self.calls,
            changes: self.changes,
            delay_ms: self.delay_ms,
            detached: self.detached,
            flush_failed: self.flush_failed,
            ..Faults::default()
        };
    }

    fn silent_or_failed(&mut self, kinds: &[FaultKind]) -> Result<Option<FaultKind>, Fault> {
        match kinds.iter().copied().find(|kind| self.strikes(*kind)) {
            Some(kind) if kind.is_reported() => Err(Fault::Hit(kind)),
            silent => Ok(silent),
        }
    }

    fn strikes(&mut self, kind: FaultKind) -> bool {
        let asked = &mut self.asked[kind as usize];
        if *asked > 0 {
            *asked -= 1;
            return true;
        }
        match &mut self.asked_after[kind as usize] {
            Some(0) => {
                self.asked_after[kind as usize] = None;
                return true;
            }
            Some(skip) => *skip -= 1,
            None => {}
        }
        let random = &mut self.random;
        self.plan
            .as_ref()
            .is_some_and(|plan| plan.hits(kind, |bound| random.below(bound)))
    }

    /// The call just counted is one too many, or the device has gone. Once the changes are used up, reads fail too: the
    /// machine is off.
    fn check_usable(&self) -> Result<(), Fault> {
        let is_off = self.calls_max.is_some_and(|max| self.calls > max)
            || self.changes_max.is_some_and(|max| self.changes > max);
        if is_off {
            return Err(Fault::Stopped);
        }
        match self.detached {
            Some(_) => Err(Fault::Hit(FaultKind::Gone)),
            None => Ok(()),
        }
    }
}

fn check_ranges(ranges: &[Range<u64>], request: &Range<u64>) -> Result<(), Fault> {
    let hit = ranges
        .iter()
        .any(|range| range.start < request.end && request.start < range.end);
    if hit {
        Err(Fault::Hit(FaultKind::BadRange))
    } else {
        Ok(())
    }
}
