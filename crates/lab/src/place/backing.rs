//! What the storage of every turn is made on: one file, written once, or the user's device.
//!
//! The file is filled with bytes that do not compress before the first turn, so that blocks need no allocating in it and
//! a thin or compressing layer below gains nothing. File systems are made and mounted without discards, which would punch
//! holes into it, and whoever comes next would pay for filling them. Before each turn the file is looked at, and filled
//! again when holes have appeared all the same.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FallocateFlags, OFlags};

use super::block::{DeviceNumber, LoopDevice};
use crate::experiment;
use crate::interrupt;
use crate::invoke;

/// The file or device; a file is removed when it is dropped.
pub(crate) struct Backing {
    what: What,
}

enum What {
    File { path: PathBuf, size_bytes: u64 },
    Device(PathBuf),
}

/// The block device that one turn uses; a loop device is detached when it is dropped.
pub(crate) enum Attached {
    Loop(LoopDevice),
    Device(PathBuf),
}

impl Attached {
    /// Its path below `/dev`.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Attached::Loop(device) => device.path(),
            Attached::Device(path) => path,
        }
    }

    /// Its number.
    pub(crate) fn number(&self) -> Result<DeviceNumber> {
        DeviceNumber::of_device(self.path())
    }

    /// Detaches a loop device. Harmless when called again.
    pub(crate) fn detach(&mut self) -> Result<()> {
        match self {
            Attached::Loop(device) => device.detach(),
            Attached::Device(_) => Ok(()),
        }
    }
}

impl Backing {
    /// Makes the file in `directory`, or looks whether the device may be overwritten. `say` gets what takes long.
    pub(crate) fn prepare(
        wanted: &experiment::Backing,
        directory: &Path,
        force: bool,
        say: &mut dyn FnMut(&str),
    ) -> Result<Backing> {
        let Some(device) = &wanted.device else {
            let path = directory.join("backing.img");
            // Made first, so that a file that could not be filled is removed too.
            let backing = Backing {
                what: What::File {
                    path,
                    size_bytes: wanted.size_bytes() / SECTOR_BYTES * SECTOR_BYTES,
                },
            };
            backing.fill_holes(say)?;
            return Ok(backing);
        };
        refuse_used(device, force)?;
        Ok(Backing {
            what: What::Device(device.clone()),
        })
    }

    /// The file, unless it is a device.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.what {
            What::File { path, .. } => Some(path),
            What::Device(_) => None,
        }
    }

    /// The device for one turn, with the last turn's traces wiped.
    pub(crate) fn attach(&self) -> Result<Attached> {
        let attached = match &self.what {
            What::File { path, .. } => Attached::Loop(LoopDevice::attach(path)?),
            What::Device(path) => Attached::Device(path.clone()),
        };
        // Tools ask back when they find another file system, and labels at the end confuse the next user.
        invoke::run(
            invoke::program("wipefs")?
                .arg("--all")
                .arg("--force")
                .arg(attached.path()),
        )
        .context("cannot wipe the device")?;
        Ok(attached)
    }

    /// Writes the file where it has holes, which is everywhere at first. True when there were some.
    pub(crate) fn fill_holes(&self, say: &mut dyn FnMut(&str)) -> Result<bool> {
        let What::File { path, size_bytes } = &self.what else {
            return Ok(false);
        };
        let allocated = path
            .metadata()
            .map(|metadata| (metadata.len(), metadata.blocks() * 512));
        if allocated.is_ok_and(|(length, bytes)| length == *size_bytes && bytes >= *size_bytes) {
            return Ok(false);
        }
        fill(path, *size_bytes, say).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(true)
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let What::File { path, .. } = &self.what
            && let Err(error) = std::fs::remove_file(path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("cannot remove {}: {error}", path.display());
        }
    }
}

const SECTOR_BYTES: u64 = 4096;

fn fill(path: &Path, size_bytes: u64, say: &mut dyn FnMut(&str)) -> Result<()> {
    const CHUNK_BYTES: usize = 4 << 20;
    /// So that little of it is dirty at a time, and nothing of it stays in the page cache.
    const SYNC_EVERY_CHUNKS: u64 = 64;
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    file.set_len(size_bytes)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size_bytes)
        .context("cannot reserve the room")?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut left = size_bytes;
    let mut chunks = 0;
    while left > 0 {
        interrupt::check()?;
        scramble(&mut chunk, &mut state);
        let length = left.min(CHUNK_BYTES as u64);
        file.write_all(&chunk[..length as usize])?;
        left -= length;
        chunks += 1;
        if chunks % SYNC_EVERY_CHUNKS == 0 || left == 0 {
            file.sync_data()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            say(&format!(
                "writing the backing file: {} of {} MiB",
                (size_bytes - left) >> 20,
                size_bytes >> 20
            ));
        }
    }
    file.sync_all()?;
    Ok(())
}

/// Fills `chunk` with Marsaglia's xorshift64.
fn scramble(chunk: &mut [u8], state: &mut u64) {
    for word in chunk.chunks_exact_mut(8) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
}

/// Refuses a device that somebody uses, always, and one that holds anything, unless forced.
pub(super) fn refuse_used(device: &Path, force: bool) -> Result<()> {
    let shown = device.display();
    let metadata = device
        .metadata()
        .with_context(|| format!("backing.device: cannot look at {shown}"))?;
    ensure!(
        metadata.file_type().is_block_device(),
        "backing.device: {shown} is no block device"
    );
    let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    if let Err(error) = rustix::fs::open(device, flags, rustix::fs::Mode::empty()) {
        bail!("backing.device: {shown} is in use ({error}): unmount or detach what uses it");
    }
    if force {
        return Ok(());
    }
    if let Some(what) = signature(device)? {
        bail!("backing.device: {shown} holds {what}, which would be lost: add --force to overwrite it");
    }
    Ok(())
}

/// What `blkid` or `wipefs` recognises on a device, or that it is a pool's member.
fn signature(device: &Path) -> Result<Option<String>> {
    let found = invoke::run(
        invoke::program("wipefs")?
            .args(["--no-act", "--noheadings", "--output", "TYPE"])
            .arg(device),
    )?;
    let found = found.split_whitespace().collect::<Vec<_>>().join(", ");
    if !found.is_empty() {
        return Ok(Some(found));
    }
    // blkid ends with 2 when it finds nothing; it also knows partition tables.
    let mut blkid = Command::new(invoke::program("blkid")?.get_program());
    let output = blkid
        .args(["--probe", "--output", "value", "--match-tag", "TYPE"])
        .arg(device)
        .output()?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !found.is_empty() {
        return Ok(Some(found));
    }
    Ok(holds_data(device)?.then(|| "data of an unknown kind".to_owned()))
}

/// Whether the first MiB of a device is anything but zeros.
fn holds_data(device: &Path) -> Result<bool> {
    use std::io::Read;
    let mut head = Vec::new();
    File::open(device)?.take(1 << 20).read_to_end(&mut head)?;
    Ok(head.iter().any(|byte| *byte != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_written_in_full_again_after_holes_and_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let table: toml::Table = "size = '9M'".parse().expect("a table");
        let wanted: experiment::Backing = table.try_into().expect("a backing");
        let mut said = 0;
        let backing =
            Backing::prepare(&wanted, directory.path(), false, &mut |_| said += 1).expect("a backing");
        let path = backing.file().expect("a file").to_owned();
        assert_eq!(path.metadata().expect("metadata").len(), 9 << 20);
        assert!(path.metadata().expect("metadata").blocks() * 512 >= 9 << 20);
        assert!(said > 0);
        assert!(!backing.fill_holes(&mut |_| {}).expect("no holes"));
        let file = File::options().write(true).open(&path).expect("the file");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 1 << 20, 1 << 20).expect("a hole");
        assert!(backing.fill_holes(&mut |_| {}).expect("holes are filled"));
        drop(backing);
        assert!(!path.exists());
    }

    #[test]
    fn a_plain_file_is_no_device() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert!(refuse_used(file.path(), true).is_err());
        assert!(refuse_used(Path::new("/nowhere"), true).is_err());
    }
}
