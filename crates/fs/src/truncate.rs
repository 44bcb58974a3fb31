//! Cutting and extending files, and making holes: everything that takes records away.
//!
//! Extending changes the size and nothing else: what is not there reads as zeros. Cutting goes from the end of the file
//! towards its start in transactions of bounded size, each of which leaves a shorter whole file; the last one cuts the
//! record that holds the new end, so that bytes behind the end never come back.

use crate::error::{fail, from_pool};
use crate::filesystem::{FILE_BYTES_MAX, FileSystem};
use crate::inode::{Inode, InodeState};
use crate::layout::keys;
use crate::staged::{Replacement, Staged};
use crate::types::{Caller, ErrorKind, Result};
use std::ops::{Bound, Range};

/// Records removed in one transaction.
const RECORDS_PER_PIECE: u64 = 1024;

impl FileSystem {
    /// Sets the size of a regular file.
    pub(crate) fn truncate(
        &self,
        operation: &'static str,
        caller: &Caller,
        inode: &Inode,
        state: &mut InodeState,
        size_bytes: u64,
    ) -> Result<()> {
        self.check_regular(operation, inode.ino, &state.record)?;
        if size_bytes > FILE_BYTES_MAX {
            return fail(
                ErrorKind::FileTooLarge,
                operation,
                "the largest file has 2^63-1 bytes",
            );
        }
        let keep = match state.record.record_bytes() {
            Some(record_bytes) if size_bytes < state.record.size_bytes => {
                let keep = size_bytes.div_ceil(record_bytes);
                self.cut_records(operation, caller, inode, state, keep, record_bytes)?;
                Some(record_bytes)
            }
            _ => None,
        };
        let mut staged = Staged::new(state);
        staged.put_inode = true;
        staged.touch(caller.now);
        staged.record.size_bytes = size_bytes;
        if let Some(record_bytes) = keep {
            let (index, length) = (size_bytes / record_bytes, (size_bytes % record_bytes) as usize);
            if length > 0 {
                let mut content = self.record_content(operation, inode.ino, state, index)?;
                if content.len() > length {
                    content.truncate(length);
                    staged
                        .replacements
                        .push((index, self.pack(&content, state.record.stream)));
                }
            }
        }
        let mut transaction = self.pool.begin();
        transaction.may_use_reserve();
        self.commit_one(operation, inode, state, staged, transaction)
    }

    /// Removes the records from `keep` on, the last ones first.
    fn cut_records(
        &self,
        operation: &'static str,
        caller: &Caller,
        inode: &Inode,
        state: &mut InodeState,
        keep: u64,
        record_bytes: u64,
    ) -> Result<()> {
        loop {
            let (from, to) = (keys::extent(inode.ino, keep), keys::extent(inode.ino, u64::MAX));
            let last = self
                .pool
                .last(self.tree, Bound::Included(&from), Bound::Included(&to))
                .map_err(from_pool(operation))?;
            let stored = last.and_then(|(key, _)| match keys::parse(&key) {
                Some(keys::Key::Extent(_, index)) => Some(index),
                _ => None,
            });
            let open = state
                .open_record
                .as_ref()
                .map(|open| open.index)
                .filter(|&index| index >= keep);
            let Some(last) = stored.max(open) else {
                return Ok(());
            };
            let first = keep.max(last.saturating_add(1).saturating_sub(RECORDS_PER_PIECE));
            let mut staged = Staged::new(state);
            let extents = self.extents_in(operation, inode.ino, first, last)?;
            staged.replacements = extents
                .into_iter()
                .map(|(index, _)| (index, Replacement::Hole))
                .collect();
            if let Some(open) = open.filter(|&open| open >= first) {
                supersede(&mut staged, open);
            }
            staged.touch(caller.now);
            staged.record.size_bytes = state.record.size_bytes.min(first.saturating_mul(record_bytes));
            staged.put_inode = true;
            let mut transaction = self.pool.begin();
            transaction.may_use_reserve();
            self.commit_one(operation, inode, state, staged, transaction)?;
            self.between_pieces(operation)?;
        }
    }

    /// Makes `range` read as zeros and take no space. The size stays.
    pub(crate) fn punch(
        &self,
        operation: &'static str,
        caller: &Caller,
        inode: &Inode,
        state: &mut InodeState,
        range: Range<u64>,
    ) -> Result<()> {
        let Some(record_bytes) = state.record.record_bytes() else {
            return Ok(());
        };
        let size_bytes = state.record.size_bytes;
        let (start, mut end) = (range.start, range.end.min(size_bytes));
        if start >= end {
            return Ok(());
        }
        // Behind the end of the file everything is zero: the last record goes as a whole.
        if end == size_bytes {
            end = end.next_multiple_of(record_bytes);
        }
        let whole = start.div_ceil(record_bytes)..end / record_bytes;
        self.zero_edges(operation, caller, inode, state, start..end, record_bytes)?;
        let mut from = whole.start;
        while from < whole.end {
            let limit = RECORDS_PER_PIECE as usize;
            let extents = self.extents_limited(operation, inode.ino, from, whole.end - 1, limit)?;
            let to = match extents.last() {
                Some((index, _)) if extents.len() == limit => index + 1,
                _ => whole.end,
            };
            let mut staged = Staged::new(state);
            staged.replacements = extents
                .into_iter()
                .map(|(index, _)| (index, Replacement::Hole))
                .collect();
            let open = state.open_record.as_ref().map(|open| open.index);
            if let Some(open) = open.filter(|open| (from..to).contains(open)) {
                supersede(&mut staged, open);
            }
            if !staged.replacements.is_empty() {
                staged.touch(caller.now);
                staged.lean = true;
                let mut transaction = self.pool.begin();
                transaction.may_use_reserve();
                self.commit_one(operation, inode, state, staged, transaction)?;
                self.between_pieces(operation)?;
            }
            from = to;
        }
        Ok(())
    }

    /// Zeroes what `range` covers of its first and last record, where that is not all of them.
    fn zero_edges(
        &self,
        operation: &'static str,
        caller: &Caller,
        inode: &Inode,
        state: &mut InodeState,
        range: Range<u64>,
        record_bytes: u64,
    ) -> Result<()> {
        let mut staged = Staged::new(state);
        let (first, last) = (range.start / record_bytes, (range.end - 1) / record_bytes);
        for index in if first == last {
            vec![first]
        } else {
            vec![first, last]
        } {
            let record_start = index * record_bytes;
            let from = range.start.saturating_sub(record_start) as usize;
            let to = (range.end - record_start).min(record_bytes) as usize;
            if from == 0 && to as u64 == record_bytes {
                continue;
            }
            let mut content = self.record_content(operation, inode.ino, state, index)?;
            let to = to.min(content.len());
            if from < to {
                content[from..to].fill(0);
                staged
                    .replacements
                    .push((index, self.pack(&content, state.record.stream)));
            }
        }
        if staged.replacements.is_empty() {
            return Ok(());
        }
        staged.touch(caller.now);
        staged.lean = true;
        let mut transaction = self.pool.begin();
        transaction.may_use_reserve();
        self.commit_one(operation, inode, state, staged, transaction)
    }
}

/// The open record at `index` is dropped, not stored.
fn supersede(staged: &mut Staged, index: u64) {
    let position = staged.replacements.partition_point(|(at, _)| *at < index);
    if staged
        .replacements
        .get(position)
        .is_none_or(|(at, _)| *at != index)
    {
        staged.replacements.insert(position, (index, Replacement::Hole));
    }
}
