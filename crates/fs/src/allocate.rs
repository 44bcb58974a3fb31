//! fallocate: room ahead of writing, holes, zeroed ranges.
//!
//! Nothing is reserved: records are never overwritten in place, so a block set aside would not be the block written.
//! Allocating checks that the pool has the room now and extends the size. What was never written reads as zeros.

use crate::error::fail;
use crate::filesystem::{FILE_BYTES_MAX, FileSystem};
use crate::inode::{Inode, InodeState};
use crate::staged::Staged;
use crate::types::{AllocateMode, Caller, ErrorKind, Ino, Result};

const OPERATION: &str = "allocate";

impl FileSystem {
    /// fallocate(2) with byte precision. `NoSpace` if the part behind the end of the file does not fit the pool.
    pub fn allocate(
        &self,
        caller: &Caller,
        ino: Ino,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    ) -> Result<()> {
        self.check_writable(OPERATION)?;
        if length == 0 {
            return fail(ErrorKind::InvalidInput, OPERATION, "a length of 0");
        }
        let Some(end) = offset.checked_add(length).filter(|&end| end <= FILE_BYTES_MAX) else {
            return fail(
                ErrorKind::FileTooLarge,
                OPERATION,
                "the range ends behind the largest file, 2^63-1 bytes",
            );
        };
        let inode = self.inode(OPERATION, ino)?;
        let mut state = inode.write_state(OPERATION)?;
        self.check_regular(OPERATION, ino, &state.record)?;
        self.drop_privileges_now(OPERATION, &inode, &mut state, false)?;
        match mode {
            AllocateMode::PunchHole => self.punch(OPERATION, caller, &inode, &mut state, offset..end),
            AllocateMode::ZeroRange { keep_size } => {
                self.punch(OPERATION, caller, &inode, &mut state, offset..end)?;
                self.make_room(caller, &inode, &mut state, end, keep_size)
            }
            AllocateMode::Allocate => self.make_room(caller, &inode, &mut state, end, false),
            AllocateMode::KeepSize => self.make_room(caller, &inode, &mut state, end, true),
        }
    }

    fn make_room(
        &self,
        caller: &Caller,
        inode: &Inode,
        state: &mut InodeState,
        end: u64,
        keep_size: bool,
    ) -> Result<()> {
        let beyond_bytes = end.saturating_sub(state.record.size_bytes);
        let available_bytes = self.pool.space().available_bytes;
        if beyond_bytes > available_bytes {
            let message = format!("{beyond_bytes} bytes are needed, {available_bytes} are available");
            return fail(ErrorKind::NoSpace, OPERATION, message);
        }
        if beyond_bytes == 0 || keep_size {
            return Ok(());
        }
        let mut staged = Staged::new(state);
        staged.put_inode = true;
        staged.touch(caller.now);
        staged.record.size_bytes = end;
        self.commit_one(OPERATION, inode, state, staged, self.pool.begin())
    }
}
