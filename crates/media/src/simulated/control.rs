//! What a test asks of a simulated device besides crashing: faults at rates, faults at the next calls, in ranges, for
//! good; stops; damage to what is durable; and the count of what was done.
//!
//! A crash or a restore ends all faults and stops that were asked for; damage stays, and so does the count.

use std::ops::Range;

use super::faults::Detachment;
use super::plan::{FaultCounts, FaultKind, FaultPlan, InjectedFault};
use super::{Random, SimulatedMedia};

/// What becomes of a whole sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorDamage {
    /// It reads as zeros.
    Zeroed,
    /// It reads as noise, drawn from this seed.
    Garbage(u64),
}

impl SimulatedMedia {
    /// Bit rot: changes one durable byte by exclusive or, behind the back of the program. Unflushed writes of
    /// the same sector still replace it when they are flushed.
    ///
    /// # Panics
    /// When the offset lies beyond the end, or `exclusive_or` is 0 and would change nothing.
    pub fn corrupt(&self, offset_bytes: u64, exclusive_or: u8) {
        assert!(
            offset_bytes < self.size_bytes,
            "offset {offset_bytes} lies beyond the end"
        );
        assert!(exclusive_or != 0, "this would change nothing");
        self.state.lock().rot(offset_bytes, exclusive_or);
    }

    /// Damages the durable sector around that byte, as [`SimulatedMedia::corrupt`] does a byte.
    ///
    /// # Panics
    /// When the offset lies beyond the end.
    pub fn damage_sector(&self, offset_bytes: u64, damage: SectorDamage) {
        assert!(
            offset_bytes < self.size_bytes,
            "offset {offset_bytes} lies beyond the end"
        );
        let sector_bytes = u64::from(self.sector_bytes);
        let start = offset_bytes / sector_bytes * sector_bytes;
        let mut bytes = vec![0; self.sector_bytes as usize];
        if let SectorDamage::Garbage(seed) = damage {
            Random::new(seed).fill(&mut bytes);
        }
        self.state.lock().overwrite(start, &bytes);
    }

    /// From now on faults happen at the rates of this plan. It replaces an earlier one.
    pub fn set_fault_plan(&self, plan: FaultPlan) {
        self.state.lock().faults.set_plan(plan);
    }

    /// The next `count` calls to which this kind applies suffer it, besides those that were asked for already.
    ///
    /// # Panics
    /// For [`FaultKind::Gone`] and [`FaultKind::BadRange`], which are not faults of one call: see
    /// [`SimulatedMedia::detach`] and [`SimulatedMedia::fail_writes_in`].
    pub fn inject(&self, kind: FaultKind, count: u64) {
        assert!(
            !matches!(kind, FaultKind::Gone | FaultKind::BadRange),
            "{kind:?} is not a fault of one call"
        );
        self.state.lock().faults.ask(kind, count);
    }

    /// Of the calls to which this kind applies, `skip` pass and the one after them suffers it.
    ///
    /// # Panics
    /// As [`SimulatedMedia::inject`].
    pub fn inject_after(&self, kind: FaultKind, skip: u64) {
        assert!(
            !matches!(kind, FaultKind::Gone | FaultKind::BadRange),
            "{kind:?} is not a fault of one call"
        );
        self.state.lock().faults.ask_after(kind, skip);
    }

    /// The next write lands there instead of where it should, and says that all is well.
    pub fn misdirect_next_write(&self, to_offset_bytes: u64) {
        let mut state = self.state.lock();
        state.faults.ask(FaultKind::MisdirectedWrite, 1);
        state.faults.misdirect_to = Some(to_offset_bytes);
    }

    /// The device disappears: every call fails until [`SimulatedMedia::reattach`] or a crash.
    pub fn detach(&self, detachment: Detachment) {
        self.state.lock().faults.detached = Some(detachment);
    }

    /// The device comes back, with or without what was not flushed, as `detach` had it.
    pub fn reattach(&self) {
        let mut state = self.state.lock();
        if state.faults.detached.take() == Some(Detachment::LosingUnflushed) {
            state.drop_unflushed();
        }
    }

    /// The file system that holds the file runs full: writes to areas (64 KiB) that were never written fail with
    /// [`crate::MediaErrorKind::NoSpace`] and change nothing, until faults are cleared.
    pub fn fill_backing_file(&self) {
        self.state.lock().faults.backing_file_full = true;
    }

    /// Virtual milliseconds that slow calls took since this was last asked.
    pub fn take_delay_ms(&self) -> u64 {
        std::mem::take(&mut self.state.lock().faults.delay_ms)
    }

    /// How often each kind of fault happened since the device was made.
    pub fn fault_counts(&self) -> FaultCounts {
        self.state.lock().log.counts()
    }

    /// The latest faults that happened, oldest first; at most 1024 are kept.
    pub fn injected_faults(&self) -> Vec<InjectedFault> {
        self.state.lock().log.latest()
    }

    /// The next reads fail, that many of them.
    pub fn fail_next_reads(&self, count: u64) {
        self.state.lock().faults.set_asked(FaultKind::ReadError, count);
    }

    /// The next writes fail, that many of them; the first half of the sectors of each is written
    /// nevertheless.
    pub fn fail_next_writes(&self, count: u64) {
        self.state.lock().faults.set_asked(FaultKind::WriteError, count);
    }

    /// The next flushes fail, that many of them, and then, as the trait promises, all others until a crash.
    pub fn fail_next_flushes(&self, count: u64) {
        self.state.lock().faults.set_asked(FaultKind::FlushError, count);
    }

    /// Every read that touches this range of bytes fails.
    pub fn fail_reads_in(&self, range: Range<u64>) {
        self.state.lock().faults.unreadable.push(range);
    }

    /// Every write that touches this range of bytes fails.
    pub fn fail_writes_in(&self, range: Range<u64>) {
        self.state.lock().faults.unwritable.push(range);
    }

    /// Ends all faults, the plan and stops; a flush that failed stays failed, and a device that has gone stays away.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// Calls since the last crash or restore (or ever): reads, writes, flushes and discards, failed ones
    /// included.
    pub fn media_calls(&self) -> u64 {
        self.state.lock().faults.calls
    }

    /// As [`SimulatedMedia::media_calls`] without reads: between two of these the state of the media does not
    /// change, so they are the crash points worth trying.
    pub fn media_changes(&self) -> u64 {
        self.state.lock().faults.changes
    }

    /// Lets that many more calls through; every call after them fails, reads included, until a crash, a
    /// restore or [`SimulatedMedia::clear_faults`].
    pub fn stop_after_calls(&self, calls: u64) {
        self.state.lock().faults.stop_after_calls(calls);
    }

    /// As [`SimulatedMedia::stop_after_calls`], counting only writes, flushes and discards.
    pub fn stop_after_changes(&self, changes: u64) {
        self.state.lock().faults.stop_after_changes(changes);
    }
}
