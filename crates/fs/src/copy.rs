//! copy_file_range: a real copy, without the round trips of a program that reads and writes.
//!
//! Holes stay holes, because a record of zeros is not stored. Left out: sharing records between files.

use crate::error::fail;
use crate::filesystem::{FILE_BYTES_MAX, FileSystem};
use crate::types::{Caller, ErrorKind, Ino, Result};

/// One call copies at most this much; the kernel calls again.
const CALL_BYTES_MAX: u64 = 8 << 20;
/// One read and one write.
const CHUNK_BYTES: u64 = 1 << 20;

impl FileSystem {
    /// Copies up to `length` bytes and answers how many; fewer at the end of the source, or at 8 MiB. 0 at its end.
    pub fn copy_range(
        &self,
        caller: &Caller,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        const OPERATION: &str = "copy range";
        self.check_writable(OPERATION)?;
        // The end of the source as it is now: a copy within one file may move it.
        let source_bytes = self.attributes(from)?.size_bytes.saturating_sub(from_offset);
        let length = length.min(CALL_BYTES_MAX).min(source_bytes);
        let apart = from_offset.abs_diff(to_offset) >= length;
        if from == to && !apart {
            return fail(ErrorKind::InvalidInput, OPERATION, "source and target overlap");
        }
        if to_offset.saturating_add(length) > FILE_BYTES_MAX {
            return fail(
                ErrorKind::FileTooLarge,
                OPERATION,
                "the target ends behind the largest file, 2^63-1 bytes",
            );
        }
        let mut copied = 0;
        let mut buffer = vec![];
        while copied < length {
            // Whole records of the target, once the first piece has reached a boundary.
            let to_boundary = CHUNK_BYTES - (to_offset + copied) % CHUNK_BYTES;
            let wanted = to_boundary.min(length - copied) as usize;
            buffer.clear();
            self.read(
                caller,
                from,
                from_offset.saturating_add(copied),
                wanted,
                &mut buffer,
            )?;
            if buffer.is_empty() {
                break;
            }
            match self.write(caller, to, to_offset + copied, &buffer, true) {
                Ok(()) => copied += buffer.len() as u64,
                // What was copied was copied: the next call meets the error.
                Err(_) if copied > 0 => break,
                Err(failed) => return Err(failed),
            }
            if buffer.len() < wanted {
                break;
            }
        }
        Ok(copied)
    }
}
