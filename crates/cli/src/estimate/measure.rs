//! Reads chunks and compresses them in every way that is compared.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::ProgressBar;
use packstone_codec::{Compression, PackedRecord, ZstdLevel};
use rustix::fs::{Advice, OFlags};

use super::collect::Collected;
use super::report::{Sizes, Skipped};
use super::sample::{Plan, Run};
use super::{INDEX_BYTES, LARGE_RECORD_BYTES, SECTOR_BYTES, SMALL_RECORD_BYTES};

/// What was read of one family, and what it takes in each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) read_bytes: u64,
    pub(super) zero_bytes: u64,
    pub(super) sizes: Sizes,
}

/// Everything that was read.
#[derive(Debug)]
pub(super) struct Measured {
    /// By family.
    pub(super) tallies: Vec<Tally>,
    pub(super) skipped: Skipped,
}

/// Does the work of the plan on that many threads.
pub(super) fn measure(collected: &Collected, plan: &Plan, jobs: usize, progress: &ProgressBar) -> Measured {
    let next_run = AtomicUsize::new(0);
    let work = || {
        let mut measured = Measured::new(collected.families.len());
        let mut buffer = vec![0; LARGE_RECORD_BYTES];
        while let Some(run) = plan.runs.get(next_run.fetch_add(1, Ordering::Relaxed)) {
            measured.measure_run(collected, *run, &mut buffer, progress);
        }
        measured
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..jobs).map(|_| scope.spawn(work)).collect();
        let mut total = work();
        for thread in threads {
            match thread.join() {
                Ok(measured) => total.add(&measured),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        total
    })
}

impl Measured {
    fn new(families: usize) -> Measured {
        Measured {
            tallies: vec![Tally::default(); families],
            skipped: Skipped::default(),
        }
    }

    fn add(&mut self, other: &Measured) {
        for (tally, other) in self.tallies.iter_mut().zip(&other.tallies) {
            tally.read_bytes += other.read_bytes;
            tally.zero_bytes += other.zero_bytes;
            tally.sizes.add(&other.sizes);
        }
        self.skipped.add(&other.skipped);
    }

    fn measure_run(&mut self, collected: &Collected, run: Run, buffer: &mut [u8], progress: &ProgressBar) {
        let found = &collected.files[run.file];
        let tally = &mut self.tallies[found.family as usize];
        let result = open(&collected.path(found)).and_then(|file| {
            for chunk in run.first_chunk..run.first_chunk + run.chunks {
                let offset_bytes = chunk * LARGE_RECORD_BYTES as u64;
                let length = read_up_to(&file, offset_bytes, buffer)?;
                tally.measure_chunk(&buffer[..length]);
                progress.inc(length as u64);
            }
            Ok(())
        });
        if let Err(error) = result {
            self.skipped.count_failure(&error);
        }
    }
}

/// Opens for reading without a trace where this user may ask for that, and never something that took a file's
/// place.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open_with = |flags: OFlags| {
        OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(path)
    };
    let file = match open_with(flags | OFlags::NOATIME) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open_with(flags)?,
        result => result?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    }
    // A hint about read-ahead; nothing depends on it.
    let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
    Ok(file)
}

/// Fills the buffer as far as the file goes.
fn read_up_to(file: &File, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], offset_bytes + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

impl Tally {
    fn measure_chunk(&mut self, chunk: &[u8]) {
        let zstd_1 = Compression::Zstd(ZstdLevel::MIN);
        let zstd_3 = Compression::Zstd(ZstdLevel::STANDARD);
        self.read_bytes += chunk.len() as u64;
        if is_zero(chunk) {
            self.zero_bytes += chunk.len() as u64;
            return;
        }
        self.sizes.lz4_128k_sectors_bytes += in_sectors(chunk.len(), packed_bytes(chunk, Compression::Lz4));
        self.sizes.zstd3_128k_sectors_bytes += in_sectors(chunk.len(), packed_bytes(chunk, zstd_3));
        for record in chunk.chunks(SMALL_RECORD_BYTES) {
            if is_zero(record) {
                self.zero_bytes += record.len() as u64;
                continue;
            }
            let zstd_3_bytes = packed_bytes(record, zstd_3);
            self.sizes.lz4_8k_sectors_bytes +=
                in_sectors(record.len(), packed_bytes(record, Compression::Lz4));
            self.sizes.zstd3_8k_sectors_bytes += in_sectors(record.len(), zstd_3_bytes);
            self.sizes.zstd3_8k_packed_bytes += zstd_3_bytes + INDEX_BYTES;
            self.sizes.zstd1_8k_packed_bytes += packed_bytes(record, zstd_1) + INDEX_BYTES;
        }
    }
}

fn packed_bytes(record: &[u8], compression: Compression) -> u64 {
    u64::from(PackedRecord::pack(record, compression).packed_bytes())
}

/// What a record takes where records start on sectors: whole when compressing saves no sector.
fn in_sectors(raw_bytes: usize, packed_bytes: u64) -> u64 {
    packed_bytes.min(raw_bytes as u64).next_multiple_of(SECTOR_BYTES)
}

fn is_zero(bytes: &[u8]) -> bool {
    // In pieces, so that the loop over a piece has no exit and the compiler can use wide registers.
    bytes
        .chunks(256)
        .all(|piece| piece.iter().fold(0, |any, &byte| any | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_take_whole_sectors_and_never_more_than_uncompressed() {
        for (raw, packed, expected) in [
            (8192, 3, 4096),
            (8192, 4096, 4096),
            (8192, 4097, 8192),
            (8192, 8195, 8192),
            (100, 40, 4096),
            (5000, 5003, 8192),
            (131_072, 20_481, 24_576),
        ] {
            assert_eq!(in_sectors(raw, packed), expected, "{raw} {packed}");
        }
    }

    #[test]
    fn zero_bytes_are_found() {
        for length in [0, 1, 255, 256, 257, 8192] {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes));
            for position in [0, length / 2, length.saturating_sub(1)] {
                if let Some(byte) = bytes.get_mut(position) {
                    *byte = 1;
                    assert!(!is_zero(&bytes), "{position} of {length}");
                    bytes[position] = 0;
                }
            }
        }
    }
}
