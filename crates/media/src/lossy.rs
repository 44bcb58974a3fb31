//! A wrapper that forgets what was not flushed, so that killing a program is a power cut. For tests of whole programs.
//!
//! ```text
//!   write ──► cache (memory) ──flush──► inner media ──► its flush
//!                  │                        ▲
//!                  └──write-back: now and then some sectors, in any order, whole or torn
//! ```
//!
//! Reads see all writes. A flush writes the cached sectors to the inner media in random order and flushes that. Whoever
//! dies before, or in the middle, leaves there for each sector what was flushed last or something newer, in any
//! combination. That is what [`Media`] allows a real device, and [`crate::SimulatedMedia`] for a whole process.
//!
//! Invariants:
//! - Only the holder of `writer` writes to the inner media. So no torn sector is mixed from bytes that a flush has
//!   replaced meanwhile, and nothing that a flush made durable is taken back.
//! - A sector leaves the cache only after the inner media has it whole, and a read looks into the cache before it asks
//!   the inner media: it never sees older bytes than a write that returned before it began.
//! - Dropping it flushes nothing.
//!
//! Left out: reads that fail, and damage; the inner media may bring them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::aligned::AlignedBuffer;
use crate::counters::{LiveCounters, MediaCounters};
use crate::error::{MediaError, MediaErrorKind, Result};
use crate::media::{Media, check_request};
use crate::simulated::Random;

/// Torn sectors are mixed from pieces of this size, the unit in which the oldest disks write.
const TEAR_BYTES: usize = 512;
/// Longest single write to the inner media, in sectors.
const PIECE_SECTORS_MAX: usize = 256;

/// Longest pause within a flush.
const PAUSE_MS_MAX: u64 = 16;

/// How a [`LossyMedia`] behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossyOptions {
    /// With a seed some unflushed sectors reach the inner media early, in random order, some of them torn, and some
    /// flushes pause when half done. Without one neither happens, unless the memory is full.
    pub write_back_seed: Option<u64>,
    /// Most memory for unflushed sectors, bytes; beyond it a part of them is written back.
    pub memory_bytes: u64,
}

impl Default for LossyOptions {
    fn default() -> Self {
        LossyOptions {
            write_back_seed: None,
            memory_bytes: 64 << 20,
        }
    }
}

/// A media whose unflushed writes live in memory only. See the head of this file.
#[derive(Debug)]
pub struct LossyMedia<M> {
    inner: M,
    options: LossyOptions,
    cache: Mutex<Cache>,
    /// Taken before `cache`.
    writer: Mutex<Writer>,
    counters: LiveCounters,
}

/// The newest bytes of a sector.
type Sector = Arc<[u8]>;

/// What the inner media may not have yet, by offset.
#[derive(Debug, Default)]
struct Cache {
    /// Written and not yet covered by a flush.
    dirty: BTreeMap<u64, Sector>,
    /// Being written to the inner media by the holder of `writer`; older than `dirty` where both have a sector.
    leaving: BTreeMap<u64, Sector>,
}

/// Whoever holds it may write to the inner media.
#[derive(Debug)]
struct Writer {
    random: Random,
    failed: bool,
}

impl<M: Media> LossyMedia<M> {
    /// Wraps `inner`, which nobody else may write to.
    pub fn new(inner: M, options: LossyOptions) -> LossyMedia<M> {
        LossyMedia {
            inner,
            options,
            cache: Mutex::default(),
            writer: Mutex::new(Writer {
                random: Random::new(options.write_back_seed.unwrap_or(0)),
                failed: false,
            }),
            counters: LiveCounters::default(),
        }
    }

    /// Bytes that would be lost now, as far as they were not written back early.
    pub fn unflushed_bytes(&self) -> u64 {
        let cache = self.cache.lock();
        (cache.dirty.len() + cache.leaving.len()) as u64 * u64::from(self.sector_bytes())
    }

    fn read_now(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        check_request(self, "read", offset_bytes, buffer.len() as u64)?;
        let sector_bytes = self.sector_bytes() as usize;
        let range = offset_bytes..offset_bytes + buffer.len() as u64;
        // Collected before the inner media is read: what leaves the cache meanwhile is known all the same.
        let cached = {
            let cache = self.cache.lock();
            let mut cached: BTreeMap<u64, Sector> = BTreeMap::new();
            for sectors in [&cache.leaving, &cache.dirty] {
                cached.extend(
                    sectors
                        .range(range.clone())
                        .map(|(at, sector)| (*at, sector.clone())),
                );
            }
            cached
        };
        if cached.len() * sector_bytes < buffer.len() {
            self.inner.read(offset_bytes, buffer)?;
        }
        for (at, sector) in cached {
            let start = (at - offset_bytes) as usize;
            buffer[start..start + sector_bytes].copy_from_slice(&sector);
        }
        Ok(())
    }

    fn write_now(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        check_request(self, "write", offset_bytes, data.len() as u64)?;
        let sector_bytes = self.sector_bytes() as usize;
        {
            let mut cache = self.cache.lock();
            for (index, sector) in data.chunks_exact(sector_bytes).enumerate() {
                let at = offset_bytes + (index * sector_bytes) as u64;
                cache.dirty.insert(at, Arc::from(sector));
            }
        }
        if self.unflushed_bytes() > self.options.memory_bytes {
            return self.spill();
        }
        // While a flush holds the writer, it does this.
        if let Some(mut writer) = self.writer.try_lock() {
            self.write_back_by_chance(&mut writer)?;
        }
        Ok(())
    }

    fn flush_now(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.refuse_after_failure(&writer, "flush")?;
        {
            let mut cache = self.cache.lock();
            cache.leaving = std::mem::take(&mut cache.dirty);
        }
        let written = self.write_leaving(&mut writer);
        let flushed = written.and_then(|()| self.inner.flush());
        self.settle(&mut writer, flushed)
    }

    /// Makes room: half of the sectors, chosen by chance, go to the inner media, which is not flushed.
    fn spill(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.refuse_after_failure(&writer, "write")?;
        if self.unflushed_bytes() <= self.options.memory_bytes {
            return Ok(());
        }
        {
            let mut cache = self.cache.lock();
            let dirty = std::mem::take(&mut cache.dirty);
            (cache.leaving, cache.dirty) = dirty.into_iter().partition(|_| writer.random.below(2) == 0);
        }
        let written = self.write_leaving(&mut writer);
        self.settle(&mut writer, written)
    }

    /// Ends what `flush_now` or `spill` began. After a failure the sectors stay readable, and no flush succeeds any more.
    fn settle(&self, writer: &mut Writer, result: Result<()>) -> Result<()> {
        let mut cache = self.cache.lock();
        let leaving = std::mem::take(&mut cache.leaving);
        if result.is_err() {
            writer.failed = true;
            for (at, sector) in leaving {
                cache.dirty.entry(at).or_insert(sector);
            }
        }
        result
    }

    /// Writes all leaving sectors, in pieces and in random order.
    fn write_leaving(&self, writer: &mut Writer) -> Result<()> {
        let leaving = self.cache.lock().leaving.clone();
        let mut pieces = self.cut(&leaving, &mut writer.random);
        for index in (1..pieces.len()).rev() {
            pieces.swap(index, writer.random.below(index as u64 + 1) as usize);
        }
        let pause_before = self.choose_pause(pieces.len(), &mut writer.random);
        for (index, (offset_bytes, sectors)) in pieces.into_iter().enumerate() {
            if let Some((_, pause)) = pause_before.filter(|(piece, _)| *piece == index) {
                std::thread::sleep(pause);
            }
            self.write_sectors(offset_bytes, &sectors)?;
            self.write_back_by_chance(writer)?;
        }
        Ok(())
    }

    /// With a seed, now and then a device that is slow in the middle of a flush, so that kills find it half done. Before
    /// which piece, and for how long.
    fn choose_pause(&self, pieces: usize, random: &mut Random) -> Option<(usize, Duration)> {
        if self.options.write_back_seed.is_none() || pieces < 2 || random.below(8) != 0 {
            return None;
        }
        let before = 1 + random.below(pieces as u64 - 1) as usize;
        Some((before, Duration::from_millis(1 + random.below(PAUSE_MS_MAX))))
    }

    /// Cuts sectors into runs without gaps. How long they may be is drawn once, so that kills in the middle of a flush
    /// find all sorts of half-done states.
    fn cut(&self, sectors: &BTreeMap<u64, Sector>, random: &mut Random) -> Vec<(u64, Vec<Sector>)> {
        let limit = match sectors.len() {
            0..=64 => [1, 4, 16, PIECE_SECTORS_MAX],
            _ => [16, 64, PIECE_SECTORS_MAX, PIECE_SECTORS_MAX],
        }[random.below(4) as usize];
        let sector_bytes = u64::from(self.sector_bytes());
        let mut pieces: Vec<(u64, Vec<Sector>)> = Vec::new();
        for (at, sector) in sectors {
            match pieces.last_mut() {
                Some((start, run))
                    if run.len() < limit && *start + run.len() as u64 * sector_bytes == *at =>
                {
                    run.push(sector.clone());
                }
                _ => pieces.push((*at, vec![sector.clone()])),
            }
        }
        pieces
    }

    fn write_sectors(&self, offset_bytes: u64, sectors: &[Sector]) -> Result<()> {
        let sector_bytes = self.sector_bytes() as usize;
        let length_bytes = sectors.len() * sector_bytes;
        let mut buffer = AlignedBuffer::zeroed(length_bytes.next_multiple_of(AlignedBuffer::ALIGNMENT_BYTES));
        for (place, sector) in buffer.chunks_exact_mut(sector_bytes).zip(sectors) {
            place.copy_from_slice(sector);
        }
        self.inner.write(offset_bytes, &buffer[..length_bytes])
    }

    /// Lets some dirty sectors reach the inner media before any flush asks for it. They stay in the cache.
    fn write_back_by_chance(&self, writer: &mut Writer) -> Result<()> {
        if self.options.write_back_seed.is_none() || writer.failed || writer.random.below(8) != 0 {
            return Ok(());
        }
        for _ in 0..=writer.random.below(4) {
            let Some((at, sector)) = self.choose_dirty(&mut writer.random) else {
                return Ok(());
            };
            let sector = match writer.random.below(2) {
                0 => sector,
                _ => self.tear(at, &sector, &mut writer.random)?,
            };
            if let Err(error) = self.write_sectors(at, &[sector]) {
                writer.failed = true;
                return Err(error);
            }
        }
        Ok(())
    }

    fn choose_dirty(&self, random: &mut Random) -> Option<(u64, Sector)> {
        let cache = self.cache.lock();
        let (first, last) = (
            *cache.dirty.first_key_value()?.0,
            *cache.dirty.last_key_value()?.0,
        );
        let from = first + random.below(last - first + 1);
        let (at, sector) = cache.dirty.range(from..).next()?;
        Some((*at, sector.clone()))
    }

    /// The sector with some of its pieces as the inner media has them now.
    fn tear(&self, offset_bytes: u64, new: &Sector, random: &mut Random) -> Result<Sector> {
        let mut mixed = AlignedBuffer::zeroed(new.len().next_multiple_of(AlignedBuffer::ALIGNMENT_BYTES));
        self.inner.read(offset_bytes, &mut mixed[..new.len()])?;
        for (place, piece) in mixed
            .chunks_exact_mut(TEAR_BYTES)
            .zip(new.chunks_exact(TEAR_BYTES))
        {
            if random.below(2) == 0 {
                place.copy_from_slice(piece);
            }
        }
        Ok(Arc::from(&mixed[..new.len()]))
    }

    fn discard_now(&self, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        check_request(self, "discard", offset_bytes, length_bytes)?;
        let _writer = self.writer.lock();
        let range = offset_bytes..offset_bytes + length_bytes;
        self.cache.lock().dirty.retain(|at, _| !range.contains(at));
        self.inner.discard(offset_bytes, length_bytes)
    }

    fn refuse_after_failure(&self, writer: &Writer, operation: &'static str) -> Result<()> {
        if !writer.failed {
            return Ok(());
        }
        let detail = "an earlier flush failed, so what was written before it may be lost; close it, check the device and \
                      open it again";
        Err(MediaError::new(
            MediaErrorKind::Unavailable,
            operation,
            self.description(),
            detail,
        ))
    }
}

impl<M: Media> Media for LossyMedia<M> {
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
        self.inner.size_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.inner.sector_bytes()
    }

    fn description(&self) -> String {
        format!("{} (lossy: for tests only)", self.inner.description())
    }

    fn counters(&self) -> MediaCounters {
        self.counters.reading()
    }
}

#[cfg(test)]
mod tests;
