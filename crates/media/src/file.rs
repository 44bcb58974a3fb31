//! A regular file or a block device.
//!
//! - Input and output is direct (O_DIRECT) where a real read shows that it works, so that the pool's own
//!   cache is the only one and a flush has little to wait for; elsewhere it goes through the page cache, and
//!   flush writes that out.
//! - A new file is allocated at once, so that the file system below cannot run full under the pool. Where it
//!   cannot allocate, the file is sparse and [`FileMedia::is_preallocated`] says so.
//! - Memory that is not aligned is copied through an aligned buffer instead of failing on some systems only.
//!
//! - Several reads are made at once through io_uring where the kernel has it, one by one elsewhere.
//!
//! Left out: growing, and asynchronous writing.

mod lock;
mod open;
mod ring;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::FallocateFlags;

use crate::aligned::AlignedBuffer;
use crate::counters::{LiveCounters, MediaCounters};
use crate::error::{MediaError, MediaErrorKind, Result};
use crate::media::{Media, ReadRequest, check_request};

/// What an opened media is to be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reading only; other readers may have it open, but no writer.
    ReadOnly,
    /// Reading and writing; nobody else may have it open.
    ReadWrite,
}

/// What [`FileMedia::create`] does about a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CreateMode {
    /// Refuse with [`MediaErrorKind::AlreadyExists`].
    New,
    /// Replace its contents, unless it is in use.
    Overwrite,
}

/// A regular file or a block device as a media.
#[derive(Debug)]
pub struct FileMedia {
    file: File,
    path: PathBuf,
    access: Access,
    size_bytes: u64,
    sector_bytes: u32,
    is_block_device: bool,
    is_direct: bool,
    is_preallocated: bool,
    /// Whether a flush has failed; held while one runs.
    flush_failed: Mutex<bool>,
    counters: LiveCounters,
}

impl FileMedia {
    /// Makes a file of that size, readable and writable by its owner alone, and opens it for writing.
    ///
    /// The file, its size and its name are durable when this returns. When it fails, a file that was not
    /// there before is gone again. The size must be a positive multiple of 4096.
    ///
    /// Errors: `AlreadyExists`, `NotFound` (no such directory), `NoSpace`, `Busy`, `PermissionDenied`,
    /// `InvalidInput` (the size, or a path that is not a regular file), `Unavailable`.
    pub fn create(path: &Path, size_bytes: u64, mode: CreateMode) -> Result<FileMedia> {
        open::create(path, size_bytes, mode)
    }

    /// Opens a file or a block device.
    ///
    /// Bytes after the last whole sector are not used. Errors: `NotFound`, `Busy`, `TooSmall` (not one whole
    /// sector), `PermissionDenied`, `InvalidInput` (neither a file nor a block device), `Unavailable`.
    pub fn open(path: &Path, access: Access) -> Result<FileMedia> {
        open::open(path, access)
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it was opened for.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether this is a block device.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Whether input and output bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Whether all of its room is its own already. When it is not, writes can fail with `NoSpace` although
    /// the media has room left.
    pub fn is_preallocated(&self) -> bool {
        self.is_preallocated
    }

    fn read_now(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        check_request(self, "read", offset_bytes, buffer.len() as u64)?;
        if self.is_direct && !AlignedBuffer::is_aligned(buffer) {
            let mut aligned =
                AlignedBuffer::zeroed(buffer.len().next_multiple_of(AlignedBuffer::ALIGNMENT_BYTES));
            self.read_exactly(offset_bytes, &mut aligned[..buffer.len()])?;
            buffer.copy_from_slice(&aligned[..buffer.len()]);
            return Ok(());
        }
        self.read_exactly(offset_bytes, buffer)
    }

    fn read_exactly(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        // Handles interruptions and short reads; reports an early end as `UnexpectedEof`.
        self.file
            .read_exact_at(buffer, offset_bytes)
            .map_err(|error| self.failed("read", error))
    }

    /// Answers how many of the requests at the front have been done; the others are to be read one by one.
    fn read_together(&self, requests: &mut [ReadRequest<'_>]) -> Result<usize> {
        let together = self.is_direct
            && requests.len() > 1
            && requests
                .iter()
                .all(|request| AlignedBuffer::is_aligned(request.buffer));
        if !together {
            return Ok(0);
        }
        for request in requests.iter() {
            check_request(self, "read", request.offset_bytes, request.buffer.len() as u64)?;
        }
        let Some(outcomes) = ring::read_all(&self.file, requests) else {
            return Ok(0);
        };
        for (request, outcome) in requests.iter_mut().zip(outcomes) {
            let length_bytes = request.buffer.len();
            let result = match outcome {
                Ok(read) if read == length_bytes => Ok(()),
                // A short read, an interrupted one, or one for which the kernel had no thread to spare just then: the
                // careful way finishes it or says what is wrong.
                Ok(_) | Err(_) => self.read_exactly(request.offset_bytes, request.buffer),
            };
            self.counters.read(length_bytes, result)?;
        }
        Ok(requests.len())
    }

    fn write_now(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.check_writable("write")?;
        check_request(self, "write", offset_bytes, data.len() as u64)?;
        let result = if self.is_direct && !AlignedBuffer::is_aligned(data) {
            self.file
                .write_all_at(&AlignedBuffer::copy_of(data)[..data.len()], offset_bytes)
        } else {
            self.file.write_all_at(data, offset_bytes)
        };
        result.map_err(|error| self.failed("write", error))
    }

    fn flush_now(&self) -> Result<()> {
        // One at a time: the kernel tells an error to one caller, and a flush beside that one would return well without
        // what was lost.
        let mut flush_failed = self.flush_failed.lock();
        if *flush_failed {
            return Err(MediaError::new(
                MediaErrorKind::Unavailable,
                "flush",
                self.description(),
                "an earlier flush failed, so what was written before it may be lost; close it, check the device and \
                 open it again",
            ));
        }
        loop {
            match rustix::fs::fdatasync(&self.file) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    // The kernel reports a lost page once and then forgets it, so this is the only place that
                    // knows.
                    *flush_failed = true;
                    return Err(self.failed("flush", error));
                }
            }
        }
    }

    fn discard_now(&self, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        self.check_writable("discard")?;
        check_request(self, "discard", offset_bytes, length_bytes)?;
        // Punching a hole into a preallocated file would give away room that the pool counts on.
        if length_bytes == 0 || (self.is_preallocated && !self.is_block_device) {
            return Ok(());
        }
        let result = if self.is_block_device {
            discard_device(&self.file, offset_bytes, length_bytes)
        } else {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&self.file, flags, offset_bytes, length_bytes).map_err(io::Error::from)
        };
        match result {
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Err(self.failed("discard", error)),
            // Anything else means that the hint cannot be used here.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn check_writable(&self, operation: &'static str) -> Result<()> {
        if self.access == Access::ReadWrite {
            return Ok(());
        }
        let detail = "it was opened for reading only";
        Err(MediaError::new(
            MediaErrorKind::PermissionDenied,
            operation,
            self.description(),
            detail,
        ))
    }

    fn failed(&self, operation: &'static str, error: impl Into<io::Error>) -> MediaError {
        MediaError::from_io(operation, &self.path, error)
    }
}

impl Drop for FileMedia {
    /// Gives the lock back now: closing alone would leave it with a child process that is just being started
    /// and still has the descriptor.
    fn drop(&mut self) {
        lock::release(&self.file);
    }
}

/// `BLKDISCARD` of `linux/fs.h`, the same number on every architecture.
const BLOCK_DEVICE_DISCARD: libc::Ioctl = 0x1277;

fn discard_device(file: &File, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
    let range = [offset_bytes, length_bytes];
    // SAFETY: the descriptor is open, and the kernel reads two 64-bit numbers from the pointer, which
    // outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLOCK_DEVICE_DISCARD, range.as_ptr()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

impl Media for FileMedia {
    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.counters
            .read(buffer.len(), self.read_now(offset_bytes, buffer))
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        let done = self.read_together(requests)?;
        requests[done..]
            .iter_mut()
            .try_for_each(|request| self.read(request.offset_bytes, request.buffer))
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
        self.path.display().to_string()
    }

    fn counters(&self) -> MediaCounters {
        self.counters.reading()
    }
}

#[cfg(test)]
mod tests;
