//! What a simulated device holds: two images, and the sectors in which they differ.

use std::sync::Arc;

use super::crash::{CrashModel, Fate, PendingSector, SectorWrite};
use super::faults::Faults;
use super::image::SimulatedImage;

/// Invariant: `current` is `durable` with `unflushed` applied in order, except where `corrupt` changed both.
#[derive(Debug)]
pub(super) struct State {
    pub(super) durable: SimulatedImage,
    pub(super) current: SimulatedImage,
    pub(super) unflushed: Vec<PendingSector>,
    pub(super) writes: u64,
    pub(super) model: CrashModel,
    pub(super) faults: Faults,
}

impl State {
    pub(super) fn write(&mut self, offset_bytes: u64, data: &[u8], sector_bytes: u32) {
        self.current.write(offset_bytes, data);
        let write = self.writes;
        self.writes += 1;
        let sectors = data
            .chunks_exact(sector_bytes as usize)
            .enumerate()
            .map(|(index, sector)| PendingSector {
                offset_bytes: offset_bytes + index as u64 * u64::from(sector_bytes),
                write,
                data: Arc::from(sector),
            });
        self.unflushed.extend(sectors);
    }

    /// A discarded sector reads as zeros, and until the next flush a crash can bring the old bytes back.
    pub(super) fn discard(&mut self, offset_bytes: u64, length_bytes: u64, sector_bytes: u32) {
        let zeros: Arc<[u8]> = Arc::from(vec![0; sector_bytes as usize]);
        let write = self.writes;
        self.writes += 1;
        for offset_bytes in (offset_bytes..offset_bytes + length_bytes).step_by(sector_bytes as usize) {
            self.current.write(offset_bytes, &zeros);
            self.unflushed.push(PendingSector {
                offset_bytes,
                write,
                data: zeros.clone(),
            });
        }
    }

    pub(super) fn flush(&mut self) {
        for sector in self.unflushed.drain(..) {
            self.durable.write(sector.offset_bytes, &sector.data);
        }
    }

    pub(super) fn crash(&mut self, sector_bytes: u32, choose: &mut dyn FnMut(SectorWrite<'_>) -> Fate) {
        let mut old = vec![0; sector_bytes as usize];
        for (index, sector) in std::mem::take(&mut self.unflushed).iter().enumerate() {
            self.durable.read(sector.offset_bytes, &mut old);
            let fate = choose(SectorWrite {
                index,
                write: sector.write,
                offset_bytes: sector.offset_bytes,
                old: &old,
                new: &sector.data,
            });
            if let Some(bytes) = fate.apply(&old, &sector.data) {
                self.durable.write(sector.offset_bytes, &bytes);
            }
        }
        self.restart();
    }

    pub(super) fn restart(&mut self) {
        self.unflushed.clear();
        self.current = self.durable.clone();
        self.faults = Faults::default();
    }
}
