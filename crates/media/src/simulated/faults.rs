//! Which calls of a simulated device fail, and the counting that decides it.

use std::io;
use std::ops::Range;

use crate::error::{MediaError, MediaErrorKind};

/// What a simulated device calls itself in messages.
pub(super) const DESCRIPTION: &str = "simulated device";

/// Why a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The device was stopped.
    Stopped,
    /// A fault was asked for.
    Asked,
    /// An earlier flush failed.
    FlushFailedBefore,
}

impl Fault {
    /// A device that fails in the middle of a write may have done some of it; a stopped one does nothing.
    pub(super) fn may_write_a_part(self) -> bool {
        self == Fault::Asked
    }

    pub(super) fn into_error(self, operation: &'static str) -> MediaError {
        match self {
            Fault::Stopped => MediaError::new(
                MediaErrorKind::Unavailable,
                operation,
                DESCRIPTION,
                "it was stopped by the test",
            ),
            Fault::Asked => MediaError::from_io_described(
                operation,
                DESCRIPTION.to_owned(),
                io::Error::from_raw_os_error(libc::EIO),
            ),
            Fault::FlushFailedBefore => MediaError::new(
                MediaErrorKind::Unavailable,
                operation,
                DESCRIPTION,
                "an earlier flush failed, so what was written before it may be lost",
            ),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) failing_reads: u64,
    pub(super) failing_writes: u64,
    pub(super) failing_flushes: u64,
    pub(super) unreadable: Vec<Range<u64>>,
    pub(super) unwritable: Vec<Range<u64>>,
    /// All calls, and those that can change the media.
    pub(super) calls: u64,
    pub(super) changes: u64,
    calls_max: Option<u64>,
    changes_max: Option<u64>,
    flush_failed: bool,
}

impl Faults {
    pub(super) fn read(&mut self, range: Range<u64>) -> Result<(), Fault> {
        self.calls += 1;
        self.check_stop()?;
        take_one(&mut self.failing_reads)?;
        check_ranges(&self.unreadable, &range)
    }

    pub(super) fn write(&mut self, range: Range<u64>) -> Result<(), Fault> {
        self.change()?;
        take_one(&mut self.failing_writes)?;
        check_ranges(&self.unwritable, &range)
    }

    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        self.change()?;
        if self.flush_failed {
            return Err(Fault::FlushFailedBefore);
        }
        take_one(&mut self.failing_flushes).inspect_err(|_| self.flush_failed = true)
    }

    /// Counts a call that can change the media.
    pub(super) fn change(&mut self) -> Result<(), Fault> {
        self.calls += 1;
        self.changes += 1;
        self.check_stop()
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
            flush_failed: self.flush_failed,
            ..Faults::default()
        };
    }

    /// The call just counted is one too many. Once the changes are used up, reads fail too: the machine is
    /// off.
    fn check_stop(&self) -> Result<(), Fault> {
        let is_off = self.calls_max.is_some_and(|max| self.calls > max)
            || self.changes_max.is_some_and(|max| self.changes > max);
        if is_off { Err(Fault::Stopped) } else { Ok(()) }
    }
}

fn take_one(remaining: &mut u64) -> Result<(), Fault> {
    if *remaining == 0 {
        return Ok(());
    }
    *remaining -= 1;
    Err(Fault::Asked)
}

fn check_ranges(ranges: &[Range<u64>], request: &Range<u64>) -> Result<(), Fault> {
    let hit = ranges
        .iter()
        .any(|range| range.start < request.end && request.start < range.end);
    if hit { Err(Fault::Asked) } else { Ok(()) }
}
