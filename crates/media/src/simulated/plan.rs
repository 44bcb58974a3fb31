//! The kinds of faults, how often they happen, and the count of those that did.

use std::collections::VecDeque;
use std::ops::Range;

/// Faults that are kept one by one; all are counted.
const LATEST_MAX: usize = 1024;
/// Rates are of so many calls.
const RATE_OF: u64 = 1_000_000;

/// What can go wrong with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// A read fails; the buffer is left as it was.
    ReadError,
    /// A read fails after a part of the buffer was filled.
    ShortRead,
    /// A read succeeds with the bytes of another place.
    MisdirectedRead,
    /// A write fails; the first half of its sectors is written nevertheless.
    WriteError,
    /// A write fails after some of its bytes were written; a sector may be half new.
    ShortWrite,
    /// A write succeeds and never happens, not even after a flush.
    PhantomWrite,
    /// A write succeeds but lands at another place; the intended one keeps its bytes.
    MisdirectedWrite,
    /// A write to an area never written fails for want of room below. Other writes cannot suffer it.
    NoSpace,
    /// A flush fails and makes nothing durable; all later ones fail until a crash, as the trait promises.
    FlushError,
    /// A flush fails and the device forgets that anything is unflushed. Later flushes succeed, reads see what was
    /// written, and a crash takes it. The trait forbids it; Linux did it to programs until version 4.13.
    DroppingFlush,
    /// A call takes long; see [`crate::SimulatedMedia::take_delay_ms`].
    Slow,
    /// One bit of something durable flips.
    BitRot,
    /// A durable sector becomes noise.
    GarbageSector,
    /// A durable sector becomes zeros.
    ZeroedSector,
    /// A call to a device that has gone. Not for plans.
    Gone,
    /// A call that touches a range set to fail. Not for plans.
    BadRange,
}

impl FaultKind {
    /// Every kind, in the order of the enum.
    pub const ALL: [FaultKind; 16] = [
        FaultKind::ReadError,
        FaultKind::ShortRead,
        FaultKind::MisdirectedRead,
        FaultKind::WriteError,
        FaultKind::ShortWrite,
        FaultKind::PhantomWrite,
        FaultKind::MisdirectedWrite,
        FaultKind::NoSpace,
        FaultKind::FlushError,
        FaultKind::DroppingFlush,
        FaultKind::Slow,
        FaultKind::BitRot,
        FaultKind::GarbageSector,
        FaultKind::ZeroedSector,
        FaultKind::Gone,
        FaultKind::BadRange,
    ];

    /// Whether a call says that something went wrong. The others are found by checksums, or not at all.
    pub fn is_reported(self) -> bool {
        !matches!(
            self,
            FaultKind::MisdirectedRead
                | FaultKind::PhantomWrite
                | FaultKind::MisdirectedWrite
                | FaultKind::Slow
                | FaultKind::BitRot
                | FaultKind::GarbageSector
                | FaultKind::ZeroedSector
        )
    }
}

/// How often each kind of fault happens, and the seed that decides when. Damage is drawn at writes and flushes.
///
/// ```
/// use packstone_media::{FaultKind, FaultPlan, SimulatedMedia};
///
/// let media = SimulatedMedia::new(1 << 20);
/// media.set_fault_plan(FaultPlan::new(7).with(FaultKind::ReadError, 1_000).with(FaultKind::Slow, 50_000));
/// ```
#[derive(Clone, Debug)]
pub struct FaultPlan {
    pub(super) seed: u64,
    rates: [u32; FaultKind::ALL.len()],
}

impl FaultPlan {
    /// A plan in which nothing goes wrong yet.
    pub fn new(seed: u64) -> FaultPlan {
        FaultPlan {
            seed,
            rates: [0; FaultKind::ALL.len()],
        }
    }

    /// Of a million calls to which that kind applies, so many suffer it.
    ///
    /// # Panics
    /// For [`FaultKind::Gone`] and [`FaultKind::BadRange`], which have no rate.
    #[must_use]
    pub fn with(mut self, kind: FaultKind, per_million: u32) -> FaultPlan {
        assert!(
            !matches!(kind, FaultKind::Gone | FaultKind::BadRange),
            "{kind:?} has no rate"
        );
        self.rates[kind as usize] = per_million;
        self
    }

    /// The rate of a kind: so many of a million calls.
    pub fn per_million(&self, kind: FaultKind) -> u32 {
        self.rates[kind as usize]
    }

    /// Whether a draw below [`RATE_OF`] hits.
    pub(super) fn hits(&self, kind: FaultKind, draw: impl FnOnce(u64) -> u64) -> bool {
        let rate = self.rates[kind as usize];
        rate > 0 && draw(RATE_OF) < u64::from(rate)
    }
}

/// A fault that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFault {
    /// What it was.
    pub kind: FaultKind,
    /// The bytes that were asked for or damaged; empty for flushes.
    pub range: Range<u64>,
    /// Where a misdirected call went instead.
    pub instead_bytes: Option<u64>,
}

/// Number of faults by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    counts: [u64; FaultKind::ALL.len()],
}

impl FaultCounts {
    /// How often this kind happened.
    pub fn of(&self, kind: FaultKind) -> u64 {
        self.counts[kind as usize]
    }

    /// How many faults happened.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Kinds that happened, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (FaultKind, u64)> + '_ {
        FaultKind::ALL
            .into_iter()
            .map(|kind| (kind, self.of(kind)))
            .filter(|(_, count)| *count > 0)
    }
}

/// What happened so far.
#[derive(Debug, Default)]
pub(super) struct FaultLog {
    counts: FaultCounts,
    latest: VecDeque<InjectedFault>,
}

impl FaultLog {
    pub(super) fn note(&mut self, kind: FaultKind, range: Range<u64>, instead_bytes: Option<u64>) {
        self.counts.counts[kind as usize] += 1;
        if self.latest.len() == LATEST_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(InjectedFault {
            kind,
            range,
            instead_bytes,
        });
    }

    pub(super) fn counts(&self) -> FaultCounts {
        self.counts
    }

    pub(super) fn latest(&self) -> Vec<InjectedFault> {
        self.latest.iter().cloned().collect()
    }
}
