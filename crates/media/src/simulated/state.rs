//! What a simulated device holds: two images, and the sectors in which they differ; and what calls do to them, faults
//! included.

use std::ops::Range;
use std::sync::Arc;

use super::crash::{CrashModel, Fate, PendingSector, SectorWrite};
use super::faults::{Fault, Faults};
use super::image::SimulatedImage;
use super::plan::{FaultKind, FaultLog};

/// Invariant: `current` is `durable` with `unflushed` applied in order, except where damage changed both, and where a
/// flush dropped what it should have made durable.
#[derive(Debug)]
pub(super) struct State {
    pub(super) durable: SimulatedImage,
    pub(super) current: SimulatedImage,
    pub(super) unflushed: Vec<PendingSector>,
    pub(super) writes: u64,
    pub(super) model: CrashModel,
    pub(super) faults: Faults,
    pub(super) log: FaultLog,
}

impl State {
    pub(super) fn write_or_fail(
        &mut self,
        offset_bytes: u64,
        data: &[u8],
        sector_bytes: u32,
    ) -> Result<(), Fault> {
        let range = offset_bytes..offset_bytes + data.len() as u64;
        self.slow_down(&range);
        let is_new = !self.current.is_allocated(&range);
        match self.faults.write(&range, is_new) {
            Ok(None) => self.write(offset_bytes, data, sector_bytes),
            Ok(Some(FaultKind::MisdirectedWrite)) => {
                let wanted = self.faults.misdirect_to.take();
                let instead = wanted.unwrap_or_else(|| self.elsewhere(&range, sector_bytes));
                self.log.note(FaultKind::MisdirectedWrite, range, Some(instead));
                self.write(instead, data, sector_bytes);
            }
            Ok(Some(silent)) => self.log.note(silent, range, None),
            Err(fault) => {
                let part = self.written_part(fault, offset_bytes, data, sector_bytes);
                if !part.is_empty() {
                    self.write(offset_bytes, &part, sector_bytes);
                }
                return Err(self.noted(fault, range));
            }
        }
        self.damage(sector_bytes);
        Ok(())
    }

    pub(super) fn read_or_fail(
        &mut self,
        offset_bytes: u64,
        buffer: &mut [u8],
        sector_bytes: u32,
    ) -> Result<(), Fault> {
        let range = offset_bytes..offset_bytes + buffer.len() as u64;
        self.slow_down(&range);
        match self.faults.read(&range) {
            Ok(None) => self.current.read(offset_bytes, buffer),
            Ok(Some(kind)) => {
                let instead = self.elsewhere(&range, sector_bytes);
                self.log.note(kind, range, Some(instead));
                self.current.read(instead, buffer);
            }
            Err(fault) => {
                if fault == Fault::Hit(FaultKind::ShortRead) {
                    let length = self.faults.random.below(buffer.len() as u64 + 1) as usize;
                    self.current.read(offset_bytes, &mut buffer[..length]);
                }
                return Err(self.noted(fault, range));
            }
        }
        Ok(())
    }

    pub(super) fn flush_or_fail(&mut self, sector_bytes: u32) -> Result<(), Fault> {
        self.slow_down(&(0..0));
        match self.faults.flush() {
            Ok(()) => self.flush(),
            Err(fault) => {
                if fault == Fault::Hit(FaultKind::DroppingFlush) {
                    // Reads go on seeing what is no longer going to be durable, as in the page cache.
                    self.unflushed.clear();
                }
                return Err(self.noted(fault, 0..0));
            }
        }
        self.damage(sector_bytes);
        Ok(())
    }

    pub(super) fn discard_or_fail(
        &mut self,
        offset_bytes: u64,
        length_bytes: u64,
        sector_bytes: u32,
    ) -> Result<(), Fault> {
        let range = offset_bytes..offset_bytes + length_bytes;
        if let Err(fault) = self.faults.change() {
            return Err(self.noted(fault, range));
        }
        self.discard(offset_bytes, length_bytes, sector_bytes);
        Ok(())
    }

    /// What a failing write leaves written. A device that fails in the middle may have done some of it; one that is
    /// stopped, gone or full does nothing.
    fn written_part(&mut self, fault: Fault, offset_bytes: u64, data: &[u8], sector_bytes: u32) -> Vec<u8> {
        let sector_bytes = sector_bytes as usize;
        let sectors = data.len() / sector_bytes;
        match fault {
            Fault::Hit(FaultKind::WriteError | FaultKind::BadRange) => {
                data[..sectors / 2 * sector_bytes].to_vec()
            }
            Fault::Hit(FaultKind::ShortWrite) if sectors > 0 => {
                let length = self.faults.random.below(data.len() as u64) as usize;
                let mut part = vec![0; length.next_multiple_of(sector_bytes)];
                self.current.read(offset_bytes, &mut part);
                part[..length].copy_from_slice(&data[..length]);
                part
            }
            _ => Vec::new(),
        }
    }

    fn noted(&mut self, fault: Fault, range: Range<u64>) -> Fault {
        if let Fault::Hit(kind) = fault {
            self.log.note(kind, range, None);
        }
        fault
    }

    fn slow_down(&mut self, range: &Range<u64>) {
        if self.faults.slow_down() {
            self.log.note(FaultKind::Slow, range.clone(), None);
        }
    }

    /// Damage to something durable that happens by itself.
    fn damage(&mut self, sector_bytes: u32) {
        let Some(kind) = self.faults.damage() else { return };
        let random = &mut self.faults.random;
        let Some(offset_bytes) = self.durable.written_offset(|bound| random.below(bound)) else {
            return;
        };
        let sector_bytes = u64::from(sector_bytes);
        let start = offset_bytes / sector_bytes * sector_bytes;
        match kind {
            FaultKind::BitRot => {
                let bit = 1 << random.below(8);
                self.rot(offset_bytes, bit);
                self.log.note(kind, offset_bytes..offset_bytes + 1, None);
            }
            _ => {
                let mut bytes = vec![0; sector_bytes as usize];
                if kind == FaultKind::GarbageSector {
                    random.fill(&mut bytes);
                }
                self.overwrite(start, &bytes);
                self.log.note(kind, start..start + sector_bytes, None);
            }
        }
    }

    /// Another place of the same length, preferably one that holds something.
    fn elsewhere(&mut self, range: &Range<u64>, sector_bytes: u32) -> u64 {
        let sector_bytes = u64::from(sector_bytes);
        let length = range.end - range.start;
        let random = &mut self.faults.random;
        let last = (self.current.size_bytes() - length) / sector_bytes;
        for _ in 0..16 {
            let offset = match self.current.written_offset(|bound| random.below(bound)) {
                Some(offset) => (offset / sector_bytes).min(last),
                None => random.below(last + 1),
            };
            if offset * sector_bytes != range.start {
                return offset * sector_bytes;
            }
        }
        if range.start == 0 { last * sector_bytes } else { 0 }
    }

    pub(super) fn rot(&mut self, offset_bytes: u64, exclusive_or: u8) {
        for image in [&mut self.durable, &mut self.current] {
            let mut byte = [0];
            image.read(offset_bytes, &mut byte);
            image.write(offset_bytes, &[byte[0] ^ exclusive_or]);
        }
    }

    /// Replaces durable bytes behind the program's back. Unflushed writes still replace them when they are flushed.
    pub(super) fn overwrite(&mut self, offset_bytes: u64, bytes: &[u8]) {
        self.durable.write(offset_bytes, bytes);
        self.current.write(offset_bytes, bytes);
    }

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
        self.drop_unflushed();
        self.faults = Faults::default();
    }

    pub(super) fn drop_unflushed(&mut self) {
        self.unflushed.clear();
        self.current = self.durable.clone();
    }
}
