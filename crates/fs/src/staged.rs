//! What one transaction does to one inode: replaced records and changed attributes, staged beside the state that
//! callers see and settled into it only after the commit.
//!
//! Invariants:
//! - The inode's lock is held exclusively from `Staged::new` to `settle`.
//! - The open record goes into the transaction unless a replacement supersedes it.
//! - An old record is freed in the transaction that replaces it.
//!
//! Stored bytes and times of a plain overwrite stay in memory, so that overwriting a page costs one record and one
//! extent. The first such overwrite marks the inode in the tree (`STORED_INEXACT`); writing the attributes out later
//! clears the mark, and a crash in between makes the next run count again.

use crate::error::{damaged, from_pool};
use crate::filesystem::FileSystem;
use crate::inode::{Inode, InodeState};
use crate::layout::{InodeRecord, decode_extent, encode_extent, flags, keys};
use crate::types::{Ino, Result, Timestamp};
use packstone_pool::{CommitSequence, Compression, ErrorKind, PackedRecord, RecordId, Stream, Transaction};
use std::collections::HashSet;
use std::ops::Bound;

/// Up to this many records are looked up key by key.
const SINGLE_LOOKUPS: usize = 2;

/// New content of one record.
pub(crate) enum Replacement {
    Store(PackedRecord),
    Hole,
}

/// A change to one inode, not yet visible.
pub(crate) struct Staged {
    pub(crate) record: InodeRecord,
    /// Record index and content; each index once, ascending.
    pub(crate) replacements: Vec<(u64, Replacement)>,
    /// The attributes must be in the transaction.
    pub(crate) put_inode: bool,
    /// A plain write: attributes may follow later where nothing but times and stored bytes changed.
    pub(crate) lean: bool,
    /// The inode loses its last name: buffered data may stay buffered, for no crash can show it.
    pub(crate) keep_open_record: bool,
    was_put: bool,
}

impl Staged {
    pub(crate) fn new(state: &InodeState) -> Staged {
        Staged {
            record: state.record,
            replacements: vec![],
            put_inode: false,
            lean: false,
            keep_open_record: false,
            was_put: false,
        }
    }

    /// Data and attributes changed at `now`.
    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.record.modified = now;
        self.record.changed = now;
    }
}

impl FileSystem {
    /// Adds the staged change to `transaction`.
    pub(crate) fn stage(
        &self,
        operation: &'static str,
        inode: &Inode,
        state: &InodeState,
        staged: &mut Staged,
        transaction: &mut Transaction,
    ) -> Result<()> {
        if let Some(open) = state.open_record.as_ref().filter(|_| !staged.keep_open_record) {
            let position = staged
                .replacements
                .partition_point(|(index, _)| *index < open.index);
            let superseded = staged
                .replacements
                .get(position)
                .is_some_and(|(index, _)| *index == open.index);
            if !superseded {
                staged.replacements.insert(
                    position,
                    (open.index, self.pack(&open.content, state.record.stream)),
                );
            }
        }
        let replaced_any = !staged.replacements.is_empty();
        self.stage_records(operation, inode, staged, transaction)?;
        let (old, new) = (&state.record, &mut staged.record);
        // The tree must not claim a count of stored bytes that this transaction makes wrong.
        let first_inexact = replaced_any && !state.tree_says_inexact;
        let differs = old.size_bytes != new.size_bytes || old.record_bytes_log2 != new.record_bytes_log2;
        if staged.put_inode || state.size_dirty || differs || first_inexact {
            if staged.lean || state.recount {
                new.flags |= flags::STORED_INEXACT;
            } else {
                new.flags &= !flags::STORED_INEXACT;
            }
            transaction.put(self.tree, &keys::inode(inode.ino), &new.encode());
            staged.was_put = true;
        }
        Ok(())
    }

    /// Stores, extents and frees; keeps the count of stored bytes.
    fn stage_records(
        &self,
        operation: &'static str,
        inode: &Inode,
        staged: &mut Staged,
        transaction: &mut Transaction,
    ) -> Result<()> {
        let replacements = std::mem::take(&mut staged.replacements);
        let mut freed = FreedOnce::default();
        let indices: Vec<u64> = replacements.iter().map(|(index, _)| *index).collect();
        let old_records = self.extents_at(operation, inode.ino, &indices)?;
        for ((index, replacement), old) in replacements.into_iter().zip(old_records) {
            let key = keys::extent(inode.ino, index);
            match replacement {
                Replacement::Store(packed) => {
                    let packed_bytes = u64::from(packed.packed_bytes());
                    staged.record.stored_bytes = staged.record.stored_bytes.saturating_add(packed_bytes);
                    let id = transaction.store(self.tree, staged.record.stream, packed);
                    transaction.put(self.tree, &key, &encode_extent(id));
                }
                Replacement::Hole if old.is_some() => transaction.delete(self.tree, &key),
                Replacement::Hole => {}
            }
            if let Some(old) = old {
                let freed = self.free_record(operation, inode.ino, old, &mut freed, transaction)?;
                staged.record.stored_bytes = staged.record.stored_bytes.saturating_sub(freed);
            }
        }
        Ok(())
    }

    /// Frees a record and answers its packed length. A record that the pool does not have is reported and let go, so
    /// that damaged files can still be overwritten and deleted.
    pub(crate) fn free_record(
        &self,
        operation: &'static str,
        ino: Ino,
        id: RecordId,
        freed: &mut FreedOnce,
        transaction: &mut Transaction,
    ) -> Result<u64> {
        match self.pool.packed_bytes(id) {
            Ok(packed_bytes @ 1..) if freed.is_first(id) => {
                transaction.free(self.tree, id);
                Ok(u64::from(packed_bytes))
            }
            Err(error) if error.kind() != ErrorKind::NotFound => Err(from_pool(operation)(error)),
            _ => {
                tracing::error!(
                    ino = ino.0,
                    record = id.0,
                    "file refers to a record that does not exist"
                );
                Ok(0)
            }
        }
    }

    /// Record ids at ascending indices.
    fn extents_at(
        &self,
        operation: &'static str,
        ino: Ino,
        indices: &[u64],
    ) -> Result<Vec<Option<RecordId>>> {
        let (Some(&first), Some(&last)) = (indices.first(), indices.last()) else {
            return Ok(vec![]);
        };
        let dense = last - first < 4 * indices.len() as u64;
        if indices.len() <= SINGLE_LOOKUPS || !dense {
            return indices
                .iter()
                .map(|&index| self.extent(operation, ino, index))
                .collect();
        }
        let found = self.extents_in(operation, ino, first, last)?;
        let mut found = found.into_iter().peekable();
        Ok(indices
            .iter()
            .map(|&index| {
                while found.next_if(|(at, _)| *at < index).is_some() {}
                found.next_if(|(at, _)| *at == index).map(|(_, id)| id)
            })
            .collect())
    }

    /// Record id at one index.
    pub(crate) fn extent(&self, operation: &'static str, ino: Ino, index: u64) -> Result<Option<RecordId>> {
        let value = self
            .pool
            .get(self.tree, &keys::extent(ino, index))
            .map_err(from_pool(operation))?;
        value
            .map(|value| self.decode_extent(operation, ino, index, &value))
            .transpose()
    }

    /// Indices and record ids in `first..=last`; the caller bounds the range.
    pub(crate) fn extents_in(
        &self,
        operation: &'static str,
        ino: Ino,
        first: u64,
        last: u64,
    ) -> Result<Vec<(u64, RecordId)>> {
        let limit = usize::try_from((last - first).saturating_add(1)).unwrap_or(usize::MAX);
        self.extents_limited(operation, ino, first, last, limit)
    }

    /// At most `limit` indices and record ids in `first..=last`.
    pub(crate) fn extents_limited(
        &self,
        operation: &'static str,
        ino: Ino,
        first: u64,
        last: u64,
        limit: usize,
    ) -> Result<Vec<(u64, RecordId)>> {
        let (from, to) = (keys::extent(ino, first), keys::extent(ino, last));
        let pairs = self
            .pool
            .scan(self.tree, Bound::Included(&from), Bound::Included(&to), limit)
            .map_err(from_pool(operation))?;
        pairs
            .into_iter()
            .map(|(key, value)| match keys::parse(&key) {
                Some(keys::Key::Extent(_, index)) => {
                    Ok((index, self.decode_extent(operation, ino, index, &value)?))
                }
                _ => Err(damaged(
                    operation,
                    format!("{}: bad key among its records", self.describe(ino)),
                )),
            })
            .collect()
    }

    fn decode_extent(&self, operation: &'static str, ino: Ino, index: u64, value: &[u8]) -> Result<RecordId> {
        decode_extent(value).map_err(|why| {
            damaged(
                operation,
                format!("{}, record {index}: {why}", self.describe(ino)),
            )
        })
    }

    /// After the commit: what was staged is what callers see.
    pub(crate) fn settle(
        &self,
        inode: &Inode,
        state: &mut InodeState,
        staged: Staged,
        sequence: Option<CommitSequence>,
    ) {
        if !staged.keep_open_record {
            self.dirty.drop_open_record(state);
        }
        if let Some(sequence) = sequence {
            state.last_commit = state.last_commit.max(sequence);
        }
        if staged.was_put {
            state.size_dirty = false;
            state.tree_says_inexact = staged.record.flags & flags::STORED_INEXACT != 0;
            state.attributes_dirty = state.tree_says_inexact;
        } else if staged.record != state.record {
            state.attributes_dirty = true;
        }
        state.record = staged.record;
        if state.attributes_dirty {
            self.dirty
                .queue_attributes(inode.ino, state, staged.record.changed);
        }
    }

    /// Stages, commits and settles a change of one inode.
    pub(crate) fn commit_one(
        &self,
        operation: &'static str,
        inode: &Inode,
        state: &mut InodeState,
        mut staged: Staged,
        mut transaction: Transaction,
    ) -> Result<()> {
        self.stage(operation, inode, state, &mut staged, &mut transaction)?;
        let sequence = self.commit(operation, transaction)?;
        self.settle(inode, state, staged, sequence);
        Ok(())
    }

    /// Commits unless there is nothing to commit.
    pub(crate) fn commit(
        &self,
        operation: &'static str,
        transaction: Transaction,
    ) -> Result<Option<CommitSequence>> {
        if transaction.is_empty() {
            return Ok(None);
        }
        self.pool
            .commit(transaction)
            .map(Some)
            .map_err(from_pool(operation))
    }

    /// A record ready to be stored, or a hole if it is all zeros. Takes as long as compression does: call it without
    /// locks where possible.
    pub(crate) fn pack(&self, content: &[u8], stream: Stream) -> Replacement {
        if is_zero(content) {
            return Replacement::Hole;
        }
        let compression = match (stream, self.properties().compression) {
            // A database waits for each page of its log, writes it several times and hardly ever reads it: time counts.
            (Stream::ShortLived, Compression::Zstd(_)) => Compression::Lz4,
            (_, compression) => compression,
        };
        Replacement::Store(PackedRecord::pack(content, compression))
    }
}

/// Records that one transaction frees. Damaged extents may name the same record twice, and it must be freed once.
#[derive(Default)]
pub(crate) struct FreedOnce {
    /// Most transactions free one record: no set is made for it.
    first: Option<RecordId>,
    further: HashSet<RecordId>,
}

impl FreedOnce {
    pub(crate) fn is_first(&mut self, id: RecordId) -> bool {
        match self.first {
            None => {
                self.first = Some(id);
                true
            }
            Some(first) => first != id && self.further.insert(id),
        }
    }
}

/// Whether all bytes are zero; leaves at the first that is not.
fn is_zero(content: &[u8]) -> bool {
    content
        .chunks(64)
        .all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}
