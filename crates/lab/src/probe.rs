//! How fast an arm's storage really is under the experiment's device profile: asked before the first turn.
//!
//! | part | does | shows |
//! |---|---|---|
//! | buffered writing | writes a file without flushing, then syncs | whether writing back is limited too; bytes/s at the device |
//! | flushed writes | 4 KiB at random places of the file, each flushed | writes/s, and requests/s at the device |
//! | random reads | 4 KiB all over the cold file, no place twice, eight at a time | reads/s, and reads/s at the device |
//!
//! Flushed writes come one after the other, so they are bound by latency and mostly below the profile's operations: a
//! limiter counts in slices of time, and one writer cannot use all of them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::experiment::Limits;
use crate::figure::{Better, Figure, Unit};
use crate::interrupt;
use crate::meter::device::Counters;
use crate::place::Storage;

/// Phase of the probe's figures.
pub const PHASE: &str = "probe";

/// How far off the profile may be before that is said.
const TOLERANCE: f64 = 0.15;
const PART: Duration = Duration::from_secs(2);
const BLOCK_BYTES: u64 = 4096;
const READERS: u64 = 8;

/// What was reached.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Probed {
    pub figures: Vec<Figure>,
    /// Where the profile was not kept.
    pub warnings: Vec<String>,
}

struct Probe<'a> {
    storage: &'a mut dyn Storage,
    limits: Option<Limits>,
    probed: Probed,
}

/// Device counters and time of one part.
struct Part {
    seconds: f64,
    device: Option<Counters>,
}

impl Part {
    fn per_second(&self, count: impl Fn(Counters) -> u64) -> Option<f64> {
        self.device.map(|device| count(device) as f64 / self.seconds)
    }
}

/// Probes freshly made storage, whose device is limited already. Takes some seven seconds. `room_bytes`: what may be written.
pub(crate) fn run(storage: &mut dyn Storage, limits: Option<Limits>, room_bytes: u64) -> Result<Probed> {
    let bytes = match limits {
        Some(limits) => limits.bytes_per_second.saturating_mul(PART.as_secs()),
        None => 256 << 20,
    };
    let bytes = bytes.min(room_bytes / 4).min(1 << 30) / (1 << 20) * (1 << 20);
    if bytes == 0 {
        bail!("the backing is too small for the probe: enlarge backing.size, or set meters.probe = false");
    }
    let path = storage.directory().join("probe");
    let mut probe = Probe {
        storage,
        limits,
        probed: Probed::default(),
    };
    probe.buffered_writing(&path, bytes)?;
    probe.flushed_writes(&path, bytes)?;
    probe.random_reads(&path, bytes)?;
    std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    Ok(probe.probed)
}

impl Probe<'_> {
    fn counters(&self) -> Option<Counters> {
        Counters::read(self.storage.device()?).ok()
    }

    fn part(&self, work: impl FnOnce(&dyn Storage) -> Result<()>) -> Result<Part> {
        let (start, before) = (Instant::now(), self.counters());
        work(&*self.storage)?;
        Ok(Part {
            seconds: start.elapsed().as_secs_f64(),
            device: self
                .counters()
                .zip(before)
                .map(|(after, before)| after.since(before)),
        })
    }

    fn buffered_writing(&mut self, path: &Path, bytes: u64) -> Result<()> {
        let mut part = self.part(|storage| {
            let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
            let mut random = Random(0x5eed);
            let mut chunk = vec![0; 1 << 20];
            for offset in (0..bytes).step_by(chunk.len()) {
                interrupt::check()?;
                random.fill(&mut chunk);
                file.write_all_at(&chunk, offset)
                    .context("cannot write the probe's file")?;
            }
            storage.settle()
        })?;
        part.seconds = (part.seconds - self.storage.settle_waits().as_secs_f64()).max(0.001);
        self.record(
            "buffered writing",
            Unit::BytesPerSecond,
            Some(bytes as f64 / part.seconds),
        );
        let reached = part.per_second(|device| device.written_bytes);
        self.record("buffered writing at the device", Unit::BytesPerSecond, reached);
        let limit = self.limits.map(|limits| limits.bytes_per_second);
        self.compare("buffered writing", "bytes/s", reached, limit, true);
        Ok(())
    }

    fn flushed_writes(&mut self, path: &Path, bytes: u64) -> Result<()> {
        let mut writes = 0_u64;
        let part = self.part(|_| {
            let file = File::options().write(true).open(path)?;
            let mut random = Random(0xf1a5);
            let mut block = vec![0; BLOCK_BYTES as usize];
            let start = Instant::now();
            while start.elapsed() < PART {
                interrupt::check()?;
                random.fill(&mut block);
                let at = random.next() % (bytes / BLOCK_BYTES) * BLOCK_BYTES;
                file.write_all_at(&block, at)
                    .context("cannot write the probe's file")?;
                file.sync_data().context("cannot flush the probe's file")?;
                writes += 1;
            }
            Ok(())
        })?;
        self.record(
            "flushed writes",
            Unit::PerSecond,
            Some(writes as f64 / part.seconds),
        );
        // A flush without data counts as a write too; the limiter sees both.
        let reached = part.per_second(|device| device.writes);
        self.record("flushed writes: requests at the device", Unit::PerSecond, reached);
        let limit = self.limits.map(|limits| limits.operations_per_second);
        self.compare("flushed writes", "operations/s", reached, limit, false);
        Ok(())
    }

    fn random_reads(&mut self, path: &Path, bytes: u64) -> Result<()> {
        if let Some(note) = self.storage.make_cold()? {
            self.probed.warnings.push(note);
        }
        let blocks = bytes / BLOCK_BYTES;
        let (begun, reads, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let part = self.part(|_| {
            let file = File::open(path)?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
            let start = Instant::now();
            let reader = || {
                let mut block = vec![0; BLOCK_BYTES as usize];
                while start.elapsed() < PART && !interrupt::requested() {
                    let turn = begun.fetch_add(1, Ordering::Relaxed);
                    if turn >= blocks {
                        // What comes now would come from the page cache.
                        return;
                    }
                    match file.read_exact_at(&mut block, scattered(turn, blocks) * BLOCK_BYTES) {
                        Ok(()) => reads.fetch_add(1, Ordering::Relaxed),
                        Err(_) => failed.fetch_add(1, Ordering::Relaxed),
                    };
                }
            };
            std::thread::scope(|scope| {
                for _ in 0..READERS {
                    scope.spawn(reader);
                }
            });
            interrupt::check()
        })?;
        if failed.into_inner() > 0 {
            bail!("the probe's file could not be read");
        }
        self.record(
            "random reads",
            Unit::PerSecond,
            Some(reads.into_inner() as f64 / part.seconds),
        );
        let reached = part.per_second(|device| device.reads);
        self.record("random reads at the device", Unit::PerSecond, reached);
        self.record(
            "random reads at the device, bytes",
            Unit::BytesPerSecond,
            part.per_second(|device| device.read_bytes),
        );
        let limit = self.limits.map(|limits| limits.operations_per_second);
        self.compare("random reads", "operations/s", reached, limit, true);
        Ok(())
    }

    fn record(&mut self, name: &str, unit: Unit, value: Option<f64>) {
        if let Some(value) = value {
            self.probed.figures.push(Figure {
                phase: PHASE.to_owned(),
                name: name.to_owned(),
                unit,
                better: Better::Neither,
                value,
            });
        }
    }

    fn compare(
        &mut self,
        what: &str,
        unit: &str,
        reached: Option<f64>,
        limit: Option<u64>,
        should_reach: bool,
    ) {
        if let (Some(reached), Some(limit)) = (reached, limit)
            && let Some(warning) = deviation(what, unit, reached, limit as f64, should_reach)
        {
            self.probed.warnings.push(warning);
        }
    }
}

/// Sends 0, 1, 2, ... below `count` to places far apart, none twice.
fn scattered(turn: u64, count: u64) -> u64 {
    /// A prime above every count of blocks, so that it has no divisor in common with it.
    const STRIDE: u64 = 2_654_435_761;
    turn * STRIDE % count
}

/// What to say when a value lies too far from the profile's. `should_reach`: whether being below is worth a word.
fn deviation(what: &str, unit: &str, reached: f64, limit: f64, should_reach: bool) -> Option<String> {
    let off = reached / limit - 1.0;
    let says = match () {
        () if off > TOLERANCE => "the limit does not hold",
        () if should_reach && off < -TOLERANCE => "something else is slower than the limit",
        () => return None,
    };
    Some(format!(
        "{what} reached {reached:.0} {unit} at the device, {:+.0} % off the profile's {limit:.0}: {says}",
        off * 100.0
    ))
}

/// Marsaglia's xorshift64*, for bytes that do not compress and for places.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_places_are_all_places_once() {
        for count in [1, 2, 1000, 32_768] {
            let mut places: Vec<u64> = (0..count).map(|turn| scattered(turn, count)).collect();
            assert!(count < 1000 || places[0].abs_diff(places[1]) > 1);
            places.sort_unstable();
            assert!(places.into_iter().eq(0..count));
        }
    }

    #[test]
    fn deviations_are_told_by_direction() {
        let told = |reached, should_reach| deviation("reads", "operations/s", reached, 1000.0, should_reach);
        assert_eq!(told(1100.0, true), None);
        assert!(told(1200.0, false).expect("a warning").contains("+20 %"));
        assert!(told(800.0, true).expect("a warning").contains("-20 %"));
        assert_eq!(told(800.0, false), None);
    }
}
