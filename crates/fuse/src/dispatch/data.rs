//! The bytes of a file. READ and WRITE are the hot path: no allocation, no copy beyond the file system's own.

use super::{Context, Handled};
use crate::abi::{
    ALLOCATE_KEEP_SIZE, ALLOCATE_PUNCH_HOLE, ALLOCATE_ZERO_RANGE, FSYNC_DATA_ONLY, SEEK_DATA, SEEK_HOLE,
    WRITE_BYTES_MAX, WRITE_KILL_SUIDGID,
};
use crate::errno::Failure;
use packstone_fs::{AllocateMode, Ino, Seek};

/// A copy holds up one thread and may not be interrupted; the program asks again for the rest.
const COPY_BYTES_MAX: u64 = 64 << 20;

impl Context<'_> {
    pub(super) fn read(&mut self, offset: u64, length: u32) -> Handled {
        let length = (length as usize).min(WRITE_BYTES_MAX);
        self.filesystem
            .read(&self.caller, self.node, offset, length, &mut self.body.bytes)?;
        assert!(
            self.body.bytes.len() <= length,
            "read returned more than was asked for"
        );
        Ok(())
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8], write_flags: u32) -> Handled {
        let kill_privileges = write_flags & WRITE_KILL_SUIDGID != 0;
        self.filesystem
            .write(&self.caller, self.node, offset, data, kill_privileges)?;
        self.body.u32(data.len() as u32);
        self.body.u32(0);
        Ok(())
    }

    pub(super) fn fsync(&mut self, fsync_flags: u32) -> Handled {
        Ok(self
            .filesystem
            .sync_file(self.node, fsync_flags & FSYNC_DATA_ONLY != 0)?)
    }

    pub(super) fn allocate(&mut self, offset: u64, length: u64, mode: u32) -> Handled {
        const PUNCH_HOLE: u32 = ALLOCATE_PUNCH_HOLE | ALLOCATE_KEEP_SIZE;
        const ZERO_KEEPING_SIZE: u32 = ALLOCATE_ZERO_RANGE | ALLOCATE_KEEP_SIZE;
        let mode = match mode {
            0 => AllocateMode::Allocate,
            ALLOCATE_KEEP_SIZE => AllocateMode::KeepSize,
            PUNCH_HOLE => AllocateMode::PunchHole,
            ALLOCATE_ZERO_RANGE => AllocateMode::ZeroRange { keep_size: false },
            ZERO_KEEPING_SIZE => AllocateMode::ZeroRange { keep_size: true },
            _ => return Err(Failure::UnsupportedMode),
        };
        Ok(self
            .filesystem
            .allocate(&self.caller, self.node, offset, length, mode)?)
    }

    pub(super) fn seek(&mut self, offset: u64, whence: u32) -> Handled {
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return Err(Failure::InvalidArgument),
        };
        let found = self.filesystem.seek(self.node, offset, what)?;
        self.body.u64(found);
        Ok(())
    }

    pub(super) fn copy_range(
        &mut self,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        length: u64,
        wide_reply: bool,
    ) -> Handled {
        let length = length.min(COPY_BYTES_MAX);
        let copied =
            self.filesystem
                .copy_range(&self.caller, self.node, from_offset, to, to_offset, length)?;
        if wide_reply {
            self.body.u64(copied);
        } else {
            self.body.u32(copied as u32);
            self.body.u32(0);
        }
        Ok(())
    }
}
