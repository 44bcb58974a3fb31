//! Our own: what `SEEK_DATA` and `SEEK_HOLE` say of a file whose latest changes nobody has flushed.
//!
//! No published suite fuzzes this. Random writes, holes, truncations, preallocations and copies within and between two
//! files; after each few, a walk over the file must find data wherever a byte is not zero, in ascending pieces that end
//! at the end of the file, and every byte must be right.
//!
//! Half of the writes through a mapping are synced; the others are left to whoever looks for data.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use super::{Case, Effort, Place, Suite};
use crate::events::Draw;

pub(super) const SUITE: Suite = Suite {
    name: "holes",
    programs: &[],
    record_sizes: [&["4K", "8K", "128K"], &["4K", "8K", "128K"]],
    run,
};

/// Some records of the largest size, many of the smallest.
const LENGTH_MAX: u64 = 1_500_000;

/// Operations between two walks.
const BETWEEN_WALKS: u64 = 3;

fn run(place: &Place, effort: Effort) -> Result<Vec<Case>> {
    let work = place.directory("holes")?;
    let (seeds, operations) = effort.choose((1..=1, 500), (1..=8, 2_000));
    let mut cases: Vec<Case> = seeds
        .map(|seed| {
            let name = format!("random operations, seed {seed}");
            Case::measured(name, || Pair::create(&work, seed)?.exercise(operations))
        })
        .collect();
    cases.push(Case::measured(
        "holes and bytes are the same after opening again",
        || {
            let mut pair = Pair::create(&work, 0)?;
            pair.exercise(operations / 4)?;
            let expected = pair.contents.clone();
            drop(pair);
            place.reopen()?;
            let mut pair = Pair::open(&work, 0)?;
            pair.contents = expected;
            pair.verify()?;
            Ok(1)
        },
    ));
    Ok(cases)
}

/// Two files, what they should hold, and a source of choices.
struct Pair {
    files: [File; 2],
    contents: [Vec<u8>; 2],
    draw: Draw,
}

impl Pair {
    fn create(work: &Path, seed: u64) -> Result<Pair> {
        for side in 0..2 {
            File::create(work.join(format!("seed-{seed}-{side}"))).context("cannot create a file")?;
        }
        Pair::open(work, seed)
    }

    fn open(work: &Path, seed: u64) -> Result<Pair> {
        let open = |side: u32| {
            let path = work.join(format!("seed-{seed}-{side}"));
            File::options()
                .read(true)
                .write(true)
                .open(path)
                .context("cannot open a file")
        };
        Ok(Pair {
            files: [open(0)?, open(1)?],
            contents: [Vec::new(), Vec::new()],
            draw: Draw::new(seed),
        })
    }

    fn exercise(&mut self, operations: u64) -> Result<u64> {
        let mut done = Vec::new();
        for number in 0..operations {
            let what = self
                .step()
                .with_context(|| format!("operation {number}, after {}", last(&done)))?;
            done.push(what);
            if number % BETWEEN_WALKS == 0 {
                self.verify()
                    .with_context(|| format!("after operation {number}: {}", last(&done)))?;
            }
        }
        self.verify().context("at the end")?;
        Ok(operations)
    }

    /// A random piece of a file; some of them aligned, as programs like to.
    fn piece(&mut self) -> (u64, u64) {
        let unit = [1, 1, 512, 4_096, 8_192][self.draw.below(5) as usize];
        let longest = [100, 5_000, 50_000, 300_000][self.draw.below(4) as usize];
        let offset = self.draw.below(LENGTH_MAX - 1) / unit * unit;
        let length = (1 + self.draw.below(longest))
            .next_multiple_of(unit)
            .min(LENGTH_MAX - offset);
        (offset, length)
    }

    /// Does something, and says what it was.
    fn step(&mut self) -> Result<String> {
        let side = self.draw.below(2) as usize;
        let (offset, length) = self.piece();
        let (start, end) = (offset as usize, (offset + length) as usize);
        let choice = self.draw.below(10);
        match choice {
            0..=3 => {
                let value = 1 + self.draw.below(255) as u8;
                let bytes = vec![value; length as usize];
                grow(&mut self.contents[side], end);
                self.contents[side][start..end].copy_from_slice(&bytes);
                self.files[side].write_all_at(&bytes, offset)?;
            }
            4 | 5 => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.files[side], flags, offset, length)?;
                zero(&mut self.contents[side], start, end);
            }
            6 => {
                self.files[side].set_len(offset)?;
                self.contents[side].resize(start, 0);
            }
            7 => {
                let keep_size = self.draw.below(2) == 0;
                let flags = if keep_size {
                    FallocateFlags::KEEP_SIZE
                } else {
                    FallocateFlags::empty()
                };
                rustix::fs::fallocate(&self.files[side], flags, offset, length)?;
                if !keep_size {
                    grow(&mut self.contents[side], end);
                }
            }
            8 => self.write_mapped(side, start, end)?,
            _ => self.copy(side, offset, length)?,
        }
        if self.draw.below(20) == 0 {
            self.files[side].sync_data()?;
        }
        if self.draw.below(20) == 0 {
            rustix::fs::fadvise(&self.files[side], 0, None, Advice::DontNeed)?;
        }
        let names = [
            "write", "write", "write", "write", "punch", "punch", "truncate", "allocate", "map", "copy",
        ];
        Ok(format!(
            "{} of file {side}, {length} bytes at {offset}",
            names[choice as usize]
        ))
    }

    fn write_mapped(&mut self, side: usize, start: usize, end: usize) -> Result<()> {
        let end = end.min(self.contents[side].len());
        if start >= end {
            return Ok(());
        }
        let mapping = Mapping::of(&self.files[side], self.contents[side].len())?;
        mapping.fill(start, end, 0xD7);
        self.contents[side][start..end].fill(0xD7);
        if self.draw.below(2) == 0 {
            mapping.sync()?;
        }
        Ok(())
    }

    /// Copies to the other file, or within this one where the pieces do not overlap.
    fn copy(&mut self, side: usize, offset: u64, length: u64) -> Result<()> {
        let available = (self.contents[side].len() as u64)
            .saturating_sub(offset)
            .min(length);
        let to_side = self.draw.below(2) as usize;
        let to = self.draw.below(LENGTH_MAX - length);
        if available == 0 || (to_side == side && to < offset + available && offset < to + available) {
            return Ok(());
        }
        let bytes = self.contents[side][offset as usize..(offset + available) as usize].to_vec();
        let (mut from_offset, mut to_offset, mut left) = (offset, to, available as usize);
        while left > 0 {
            let (from, into) = (&self.files[side], &self.files[to_side]);
            let copied =
                rustix::fs::copy_file_range(from, Some(&mut from_offset), into, Some(&mut to_offset), left)?;
            ensure!(
                copied > 0,
                "copy_file_range copied nothing, {left} bytes before the end"
            );
            left -= copied;
        }
        let (start, end) = (to as usize, (to + available) as usize);
        grow(&mut self.contents[to_side], end);
        self.contents[to_side][start..end].copy_from_slice(&bytes);
        Ok(())
    }

    fn verify(&mut self) -> Result<()> {
        for (side, (file, contents)) in self.files.iter().zip(&self.contents).enumerate() {
            // The walk first: reading could make the file system settle what it has not decided.
            let pieces =
                data_pieces(file, contents.len() as u64).with_context(|| format!("walking file {side}"))?;
            let is_data = |at: usize| {
                pieces
                    .iter()
                    .any(|(start, end)| (*start..*end).contains(&(at as u64)))
            };
            let mut at = 0;
            while let Some(next) = contents[at..].iter().position(|byte| *byte != 0) {
                at += next;
                let piece = pieces
                    .iter()
                    .find(|(start, end)| (*start..*end).contains(&(at as u64)));
                ensure!(
                    is_data(at),
                    "file {side}: byte {at} is {} and lies in a hole",
                    contents[at]
                );
                at = piece
                    .map_or(contents.len(), |(_, end)| *end as usize)
                    .min(contents.len());
            }
            let mut found = vec![0_u8; contents.len() + 1];
            let length = read_all(file, &mut found)?;
            ensure!(
                length == contents.len(),
                "file {side} has {length} bytes in place of {}",
                contents.len()
            );
            let wrong = found.iter().zip(contents).position(|(one, other)| one != other);
            ensure!(wrong.is_none(), "file {side}: wrong bytes from {wrong:?} on");
        }
        Ok(())
    }
}

fn last(done: &[String]) -> String {
    done[done.len().saturating_sub(6)..].join("; ")
}

fn grow(contents: &mut Vec<u8>, end: usize) {
    if contents.len() < end {
        contents.resize(end, 0);
    }
}

fn zero(contents: &mut [u8], start: usize, end: usize) {
    let end = end.min(contents.len());
    if start < end {
        contents[start..end].fill(0);
    }
}

fn read_all(file: &File, buffer: &mut [u8]) -> Result<usize> {
    let mut length = 0;
    loop {
        match file.read_at(&mut buffer[length..], length as u64)? {
            0 => return Ok(length),
            more => length += more,
        }
    }
}

/// The pieces of `file`, `length` bytes long, that are data, by walking it as `cp` and `tar` do.
fn data_pieces(file: &File, length: u64) -> Result<Vec<(u64, u64)>> {
    let mut pieces = Vec::new();
    let (mut at, mut empty_at) = (0, None);
    loop {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // No data from here to the end.
            Err(Errno::NXIO) => return Ok(pieces),
            Err(error) => return Err(error).context("SEEK_DATA"),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).context("SEEK_HOLE")?;
        let range = format!("data from {start} to {end}, asked at {at} of {length}");
        ensure!(at <= start && start <= end && end <= length, "{range}");
        // A buffered record of zeros becomes a hole when it is stored, which may happen between the two; but only once.
        ensure!(start < end || empty_at != Some(start), "{range}, twice");
        empty_at = (start == end).then_some(start);
        pieces.push((start, end));
        at = end;
    }
}

/// A file mapped for writing.
struct Mapping {
    address: *mut core::ffi::c_void,
    length: usize,
}

impl Mapping {
    fn of(file: &File, length: usize) -> Result<Mapping> {
        // SAFETY: a new mapping at an address that the kernel chooses; it is used only within `length` and unmapped once.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        Ok(Mapping {
            address: address.context("cannot map the file")?,
            length,
        })
    }

    fn fill(&self, start: usize, end: usize, value: u8) {
        assert!(start <= end && end <= self.length, "outside the mapping");
        // SAFETY: within the mapping, as asserted; nobody else has a reference into it, and nobody shortens the file.
        unsafe { std::ptr::write_bytes(self.address.cast::<u8>().add(start), value, end - start) };
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: exactly the mapping made in `of`.
        unsafe { rustix::mm::msync(self.address, self.length, MsyncFlags::SYNC) }
            .context("cannot sync the mapping")
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `of`, which nobody uses after this.
        let unmapped = unsafe { rustix::mm::munmap(self.address, self.length) };
        debug_assert!(unmapped.is_ok(), "the mapping is ours");
    }
}
