//! SEEK_DATA and SEEK_HOLE, at the precision of records, buffered data included.
//!
//! A record that exists counts as data, zeros at its end too; a missing record is a hole, unless it is the open
//! record. The end of the file counts as a hole.

use crate::error::fail;
use crate::filesystem::FileSystem;
use crate::inode::InodeState;
use crate::types::{ErrorKind, Ino, Result, Seek};

const OPERATION: &str = "seek";
/// Extents looked at in one scan.
const EXTENTS_PER_SCAN: usize = 256;

impl FileSystem {
    /// The next offset from `offset` on with data, or in a hole. `NoSuchOffset` from the end of the file on, and where no
    /// data follows.
    pub fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let inode = self.inode(OPERATION, ino)?;
        let state = inode.read_state(OPERATION)?;
        self.check_regular(OPERATION, ino, &state.record)?;
        let size_bytes = state.record.size_bytes;
        if offset >= size_bytes {
            return fail(
                ErrorKind::NoSuchOffset,
                OPERATION,
                format!("offset {offset} is behind the end, {size_bytes}"),
            );
        }
        let Some(record_bytes) = state.record.record_bytes() else {
            return match what {
                Seek::Data => fail(ErrorKind::NoSuchOffset, OPERATION, "the file has no data"),
                Seek::Hole => Ok(offset),
            };
        };
        let first = offset / record_bytes;
        let found = match what {
            Seek::Data => self.next_data(ino, &state, first)?,
            Seek::Hole => Some(self.next_hole(ino, &state, first)?),
        };
        let found = found.map(|index| index.saturating_mul(record_bytes).max(offset));
        match (found, what) {
            (Some(found), Seek::Data) if found < size_bytes => Ok(found),
            (Some(found), Seek::Hole) => Ok(found.min(size_bytes)),
            _ => fail(
                ErrorKind::NoSuchOffset,
                OPERATION,
                format!("no data from offset {offset} on"),
            ),
        }
    }

    fn next_data(&self, ino: Ino, state: &InodeState, first: u64) -> Result<Option<u64>> {
        let stored = self
            .extents_limited(OPERATION, ino, first, u64::MAX, 1)?
            .first()
            .map(|(index, _)| *index);
        let open = state
            .open_record
            .as_ref()
            .map(|open| open.index)
            .filter(|&index| index >= first);
        Ok(match (stored, open) {
            (Some(stored), Some(open)) => Some(stored.min(open)),
            (stored, open) => stored.or(open),
        })
    }

    fn next_hole(&self, ino: Ino, state: &InodeState, first: u64) -> Result<u64> {
        let open = state.open_record.as_ref().map(|open| open.index);
        let mut at = first;
        loop {
            let extents = self.extents_limited(OPERATION, ino, at, u64::MAX, EXTENTS_PER_SCAN)?;
            let scanned = extents.len();
            for (index, _) in extents {
                if open == Some(at) && index > at {
                    at += 1;
                }
                if index != at || at == u64::MAX {
                    return Ok(at);
                }
                at += 1;
            }
            if scanned < EXTENTS_PER_SCAN {
                return Ok(if open == Some(at) {
                    at.saturating_add(1)
                } else {
                    at
                });
            }
        }
    }
}
