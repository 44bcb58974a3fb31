//! Creating and opening: every check that a path is what it should be, before a byte of it is changed.
//!
//! Order matters: the lock comes before anything is written or cut, so that a file in use is never damaged.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use parking_lot::Mutex;

use rustix::fs::{FallocateFlags, OFlags};

use super::{Access, CreateMode, FileMedia, lock};
use crate::aligned::AlignedBuffer;
use crate::counters::LiveCounters;
use crate::error::{MediaError, MediaErrorKind, Result};
use crate::media::SECTOR_BYTES;

/// Unit of `st_blocks`, whatever the file system's block is.
const STAT_BLOCK_BYTES: u64 = 512;

pub(super) fn create(path: &Path, size_bytes: u64, mode: CreateMode) -> Result<FileMedia> {
    let refuse = |kind, detail: String| {
        Err(MediaError::new(
            kind,
            "create",
            path.display().to_string(),
            detail,
        ))
    };
    if size_bytes == 0 || size_bytes % u64::from(SECTOR_BYTES) != 0 {
        return refuse(
            MediaErrorKind::InvalidInput,
            format!("its size of {size_bytes} bytes is not a positive multiple of {SECTOR_BYTES}"),
        );
    }
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            let advice = if metadata.file_type().is_block_device() {
                "it is a block device; open it instead, it has its size already"
            } else {
                "it is not a regular file"
            };
            return refuse(MediaErrorKind::InvalidInput, advice.into());
        }
        Ok(_) if mode == CreateMode::New => {
            let detail = "it exists already; choose another path or ask to overwrite it";
            return refuse(MediaErrorKind::AlreadyExists, detail.into());
        }
        _ => {}
    }
    let failed = |error| MediaError::from_io("create", path, error);
    let (file, is_new) = open_for_create(path, mode).map_err(failed)?;
    let result = fill(&file, path, size_bytes).and_then(|is_preallocated| {
        let mut media = finish(file, path, Access::ReadWrite, "create")?;
        // Some file systems do not count what they promised in `st_blocks`.
        media.is_preallocated = is_preallocated;
        Ok(media)
    });
    if result.is_err() && is_new {
        // The first error is the one to report.
        let _ = std::fs::remove_file(path);
    }
    result
}

/// Opens without cutting the file: it may be in use. Says whether it is new.
fn open_for_create(path: &Path, mode: CreateMode) -> std::io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.create_new(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && mode == CreateMode::Overwrite => {
            Ok((options.create_new(false).open(path)?, false))
        }
        result => Ok((result?, true)),
    }
}

/// Gives the file its size and makes that durable; says whether its room is allocated.
fn fill(file: &File, path: &Path, size_bytes: u64) -> Result<bool> {
    let failed = |error: std::io::Error| MediaError::from_io("create", path, error);
    lock::acquire(file, path, Access::ReadWrite, "create")?;
    // Old contents go first, so that nobody finds an old pool in a new file.
    file.set_len(0).map_err(failed)?;
    let is_preallocated = loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size_bytes) {
            Ok(()) => break true,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                file.set_len(size_bytes).map_err(failed)?;
                break false;
            }
            Err(error) => return Err(failed(error.into())),
        }
    };
    file.sync_all().map_err(failed)?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(failed)?;
    Ok(is_preallocated)
}

pub(super) fn open(path: &Path, access: Access) -> Result<FileMedia> {
    let failed = |error| MediaError::from_io("open", path, error);
    // Looked at first: opening a FIFO would wait for ever, and a tape would rewind.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    let is_block_device = metadata.file_type().is_block_device();
    if !is_block_device && !metadata.is_file() {
        return Err(MediaError::new(
            MediaErrorKind::InvalidInput,
            "open",
            path.display().to_string(),
            "it is neither a regular file nor a block device",
        ));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(access == Access::ReadWrite);
    if is_block_device && access == Access::ReadWrite {
        // Claims the device in the kernel: fails while it is mounted or used otherwise, under whatever name.
        options.custom_flags(OFlags::EXCL.bits() as i32);
    }
    let file = options.open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => lock::busy_device(path, &metadata, error),
        _ => failed(error),
    })?;
    lock::acquire(&file, path, access, "open")?;
    finish(file, path, access, "open")
}

/// Measures an opened and locked file or device.
fn finish(file: File, path: &Path, access: Access, operation: &'static str) -> Result<FileMedia> {
    let failed = |error: std::io::Error| MediaError::from_io(operation, path, error);
    let metadata = file.metadata().map_err(failed)?;
    let is_block_device = metadata.file_type().is_block_device();
    let (length_bytes, sector_bytes) = if is_block_device {
        // The end of a block device is its size; `st_size` is 0 for it.
        let end =
            rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(|error| failed(error.into()))?;
        (end, device_sector_bytes(&file).map_err(failed)?)
    } else {
        (metadata.len(), SECTOR_BYTES)
    };
    let size_bytes = length_bytes - length_bytes % u64::from(sector_bytes);
    if size_bytes == 0 {
        return Err(MediaError::new(
            MediaErrorKind::TooSmall,
            operation,
            path.display().to_string(),
            format!("its {length_bytes} bytes are less than one sector of {sector_bytes} bytes"),
        ));
    }
    let is_direct = enable_direct(&file, sector_bytes);
    Ok(FileMedia {
        file,
        path: path.to_owned(),
        access,
        size_bytes,
        sector_bytes,
        is_block_device,
        is_direct,
        is_preallocated: is_block_device || metadata.blocks() * STAT_BLOCK_BYTES >= length_bytes,
        flush_failed: Mutex::new(false),
        counters: LiveCounters::default(),
    })
}

/// The larger of the logical and the physical sector, and at least 4096: many devices say 512 for old
/// programs' sake.
fn device_sector_bytes(file: &File) -> std::io::Result<u32> {
    let logical = rustix::fs::ioctl_blksszget(file)?;
    let physical = rustix::fs::ioctl_blkpbszget(file).unwrap_or(logical);
    Ok(logical.max(physical).max(SECTOR_BYTES).next_power_of_two())
}

/// Turns O_DIRECT on and tries it; some file systems accept the flag and then refuse every read.
fn enable_direct(file: &File, sector_bytes: u32) -> bool {
    let Ok(flags) = rustix::fs::fcntl_getfl(file) else {
        return false;
    };
    if rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).is_err() {
        return false;
    }
    let mut probe = AlignedBuffer::zeroed(sector_bytes as usize);
    if probe_read(file, &mut probe) {
        return true;
    }
    // Without the flag everything still works, through the page cache.
    rustix::fs::fcntl_setfl(file, flags).is_err()
}

fn probe_read(file: &File, probe: &mut [u8]) -> bool {
    use std::os::unix::fs::FileExt;
    file.read_exact_at(probe, 0).is_ok()
}
