//! A device in memory that crashes and fails as real ones do, for tests of everything above.
//!
//! ```text
//!   write ──► unflushed (in order) ──flush──► durable
//!                     │                          ▲
//!                     └──crash: each sector is lost, persisted or torn
//! ```
//!
//! Reads see all writes. A crash keeps the durable image and decides for every unflushed sector, in the order
//! of the writes, what becomes of it; by default any later write may survive an earlier one. Nothing here is
//! random by itself: chance comes from a seed, so that a failure can be run again.
//!
//! A crash happens to the device, not to the program: drop whatever uses the device before, or stop it with
//! [`SimulatedMedia::stop_after_calls`] so that it cannot write on.
//!
//! Left out: time, and damage to sectors that were not being written other than through
//! [`SimulatedMedia::corrupt`].

mod crash;
mod faults;
mod image;
mod state;

use std::ops::Range;

use parking_lot::Mutex;

use crate::counters::{LiveCounters, MediaCounters};
use crate::error::Result;
use crate::media::{Media, SECTOR_BYTES, check_request};

pub use crash::{CrashModel, Fate, SectorWrite};
pub use image::SimulatedImage;

pub(crate) use crash::Random;
use faults::Faults;
use state::State;

/// A device in memory with crashes and faults. See the head of this file.
#[derive(Debug)]
pub struct SimulatedMedia {
    size_bytes: u64,
    sector_bytes: u32,
    state: Mutex<State>,
    counters: LiveCounters,
}

impl SimulatedMedia {
    /// A device of zero bytes with sectors of 4096 bytes.
    ///
    /// # Panics
    /// When the size is not a multiple of the sector.
    pub fn new(size_bytes: u64) -> SimulatedMedia {
        Self::with_sector_bytes(size_bytes, SECTOR_BYTES)
    }

    /// A device of zero bytes.
    ///
    /// # Panics
    /// When the sector is not a power of two from 512 to 65,536, or the size not a multiple of it.
    pub fn with_sector_bytes(size_bytes: u64, sector_bytes: u32) -> SimulatedMedia {
        Self::from_snapshot(&SimulatedImage::new(size_bytes), sector_bytes)
    }

    /// A device that holds these bytes.
    ///
    /// # Panics
    /// As [`SimulatedMedia::with_sector_bytes`].
    pub fn from_image(bytes: &[u8], sector_bytes: u32) -> SimulatedMedia {
        let mut image = SimulatedImage::new(bytes.len() as u64);
        image.write(0, bytes);
        Self::from_snapshot(&image, sector_bytes)
    }

    /// A device that holds what another held durably.
    ///
    /// # Panics
    /// As [`SimulatedMedia::with_sector_bytes`].
    pub fn from_snapshot(image: &SimulatedImage, sector_bytes: u32) -> SimulatedMedia {
        assert!(
            sector_bytes.is_power_of_two() && (512..=65_536).contains(&sector_bytes),
            "a sector of {sector_bytes} bytes: not a power of two from 512 to 65536"
        );
        assert!(
            image.size_bytes() % u64::from(sector_bytes) == 0,
            "a device of {} bytes: not a multiple of its sector, {sector_bytes}",
            image.size_bytes()
        );
        SimulatedMedia {
            size_bytes: image.size_bytes(),
            sector_bytes,
            state: Mutex::new(State {
                durable: image.clone(),
                current: image.clone(),
                unflushed: Vec::new(),
                writes: 0,
                model: CrashModel::default(),
                faults: Faults::default(),
            }),
            counters: LiveCounters::default(),
        }
    }

    /// Another device in the same state, unflushed writes included, without the faults that were asked for.
    pub fn fork(&self) -> SimulatedMedia {
        let state = self.state.lock();
        SimulatedMedia {
            size_bytes: self.size_bytes,
            sector_bytes: self.sector_bytes,
            state: Mutex::new(State {
                durable: state.durable.clone(),
                current: state.current.clone(),
                unflushed: state.unflushed.clone(),
                writes: state.writes,
                model: state.model,
                faults: Faults::default(),
            }),
            counters: LiveCounters::default(),
        }
    }

    /// What a crash that loses everything unflushed would leave. Cheap: unchanged parts are shared.
    pub fn snapshot(&self) -> SimulatedImage {
        self.state.lock().durable.clone()
    }

    /// Goes back to a snapshot, as after a restart: nothing is unflushed and no fault is set.
    ///
    /// # Panics
    /// When the snapshot is of a device of another size.
    pub fn restore(&self, image: &SimulatedImage) {
        assert_eq!(
            image.size_bytes(),
            self.size_bytes,
            "a snapshot of a device of another size"
        );
        let mut state = self.state.lock();
        state.durable = image.clone();
        state.restart();
    }

    /// The durable bytes, all of them.
    pub fn image(&self) -> Vec<u8> {
        self.state.lock().durable.to_vec()
    }

    /// Sector writes that no flush has covered yet.
    pub fn unflushed_sectors(&self) -> usize {
        self.state.lock().unflushed.len()
    }

    /// Chooses what crashes may do; by default everything.
    pub fn set_crash_model(&self, model: CrashModel) {
        self.state.lock().model = model;
    }

    /// Power is lost and comes back: each unflushed sector is lost, persists or tears, as the seed and the
    /// crash model have it. How many survive differs from seed to seed, from none to all. Faults and stops
    /// end; corruption stays.
    pub fn crash(&self, seed: u64) {
        let mut state = self.state.lock();
        let sector_bytes = self.sector_bytes;
        let mut fates = crash::RandomFates::new(
            Random::new(seed),
            state.model,
            state.unflushed.len(),
            sector_bytes,
        );
        state.crash(sector_bytes, &mut |_| fates.next_fate());
    }

    /// A crash in which the caller decides about every unflushed sector, in the order of the writes.
    pub fn crash_with(&self, choose: &mut dyn FnMut(SectorWrite<'_>) -> Fate) {
        self.state.lock().crash(self.sector_bytes, choose);
    }

    /// A crash that loses every unflushed sector.
    pub fn crash_losing_all(&self) {
        self.crash_with(&mut |_| Fate::Lost);
    }

    /// A crash that loses nothing, as when only the program dies.
    pub fn crash_losing_nothing(&self) {
        self.crash_with(&mut |_| Fate::Persisted);
    }

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
        let mut state = self.state.lock();
        let State { durable, current, .. } = &mut *state;
        for image in [durable, current] {
            let mut byte = [0];
            image.read(offset_bytes, &mut byte);
            image.write(offset_bytes, &[byte[0] ^ exclusive_or]);
        }
    }

    /// The next reads fail, that many of them.
    pub fn fail_next_reads(&self, count: u64) {
        self.state.lock().faults.failing_reads = count;
    }

    /// The next writes fail, that many of them; the first half of the sectors of each is written
    /// nevertheless.
    pub fn fail_next_writes(&self, count: u64) {
        self.state.lock().faults.failing_writes = count;
    }

    /// The next flushes fail, that many of them, and then, as the trait promises, all others until a crash.
    pub fn fail_next_flushes(&self, count: u64) {
        self.state.lock().faults.failing_flushes = count;
    }

    /// Every read that touches this range of bytes fails.
    pub fn fail_reads_in(&self, range: Range<u64>) {
        self.state.lock().faults.unreadable.push(range);
    }

    /// Every write that touches this range of bytes fails.
    pub fn fail_writes_in(&self, range: Range<u64>) {
        self.state.lock().faults.unwritable.push(range);
    }

    /// Ends all faults and stops; a flush that failed stays failed.
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

    fn write_now(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        check_request(self, "write", offset_bytes, data.len() as u64)?;
        let mut state = self.state.lock();
        let range = offset_bytes..offset_bytes + data.len() as u64;
        match state.faults.write(range) {
            Ok(()) => {
                state.write(offset_bytes, data, self.sector_bytes);
                Ok(())
            }
            Err(fault) => {
                if fault.may_write_a_part() {
                    let sectors = data.len() / self.sector_bytes as usize;
                    state.write(
                        offset_bytes,
                        &data[..sectors / 2 * self.sector_bytes as usize],
                        self.sector_bytes,
                    );
                }
                Err(fault.into_error("write"))
            }
        }
    }

    fn read_now(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        check_request(self, "read", offset_bytes, buffer.len() as u64)?;
        let mut state = self.state.lock();
        let range = offset_bytes..offset_bytes + buffer.len() as u64;
        state
            .faults
            .read(range)
            .map_err(|fault| fault.into_error("read"))?;
        state.current.read(offset_bytes, buffer);
        Ok(())
    }

    fn flush_now(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.faults.flush().map_err(|fault| fault.into_error("flush"))?;
        state.flush();
        Ok(())
    }

    fn discard_now(&self, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        check_request(self, "discard", offset_bytes, length_bytes)?;
        let mut state = self.state.lock();
        state
            .faults
            .change()
            .map_err(|fault| fault.into_error("discard"))?;
        state.discard(offset_bytes, length_bytes, self.sector_bytes);
        Ok(())
    }
}

impl Media for SimulatedMedia {
    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.counters
            .read(buffer.len(), self.read_now(offset_bytes, buffer))
    }

    fn write(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.counters
            .write(data.len(), self.write_now(offset_bytes, data))
    }

    fn flush(&self) -> Result<()> {
        self.counters.flush(self.flush_now())
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        self.counters
            .discard(self.discard_now(offset_bytes, length_bytes))
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    fn description(&self) -> String {
        faults::DESCRIPTION.to_owned()
    }

    fn counters(&self) -> MediaCounters {
        self.counters.reading()
    }
}

#[cfg(test)]
mod tests;
