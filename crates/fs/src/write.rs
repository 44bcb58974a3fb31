//! Writing data.
//!
//! A write of whole records, which is what a database does, packs them before it takes the lock; under the lock it
//! commits the records, their extents, and the freeing of the old ones. Pieces of records go through one buffered
//! ("open") record per inode, so that small appends do not pack a record each time:
//! - a write inside one record is merged into the open record, which is first stored if it is another one;
//! - a longer write stores its whole records and its first piece, and its last piece becomes the open record;
//! - with little room left in the pool nothing is buffered, so that a full pool is reported by the write itself.
//!
//! Every transaction leaves the file as some prefix of the writes made it, each record as one write left it.

use crate::error::fail;
use crate::filesystem::{FILE_BYTES_MAX, FileSystem};
use crate::inode::{Inode, InodeState, OpenRecord};
use crate::staged::{Replacement, Staged};
use crate::types::{Caller, ErrorKind, Ino, Result, Timestamp};
use parking_lot::RwLockWriteGuard;
use std::ops::Range;

const OPERATION: &str = "write";
/// One transaction takes at most this much; longer writes are split, at record boundaries.
const CHUNK_BYTES: u64 = 1 << 20;
/// Room that must be left beyond twice what is buffered, for the extents, attributes and tree nodes that go with it.
const BUFFERING_MARGIN_BYTES: u64 = 8 << 20;

/// The part of a write that lies in one record.
struct Piece<'a> {
    index: u64,
    /// Position in the record.
    start: usize,
    data: &'a [u8],
    /// Covers the whole record: what to store, packed before any lock.
    packed: Option<Replacement>,
}

impl Piece<'_> {
    fn merge_into(&self, content: &mut Vec<u8>) {
        let end = self.start + self.data.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[self.start..end].copy_from_slice(self.data);
    }
}

impl FileSystem {
    /// Writes all of `data` or fails; a part that lies in one record is atomic through any crash.
    pub fn write(
        &self,
        caller: &Caller,
        ino: Ino,
        offset: u64,
        data: &[u8],
        kill_privileges: bool,
    ) -> Result<()> {
        self.check_writable(OPERATION)?;
        let inode = self.inode(OPERATION, ino)?;
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|&end| end <= FILE_BYTES_MAX);
        let Some(end) = end else {
            return fail(
                ErrorKind::FileTooLarge,
                OPERATION,
                "the write ends behind the largest file, 2^63-1 bytes",
            );
        };
        let mut at = offset;
        while at < end {
            let chunk_end = end.min((at / CHUNK_BYTES + 1) * CHUNK_BYTES);
            let range = (at - offset) as usize..(chunk_end - offset) as usize;
            self.write_chunk(caller, &inode, at, &data[range], kill_privileges)?;
            at = chunk_end;
        }
        self.bound_buffers()
    }

    fn write_chunk(
        &self,
        caller: &Caller,
        inode: &Inode,
        offset: u64,
        data: &[u8],
        kill: bool,
    ) -> Result<()> {
        let (record_bytes_log2, mut pieces, mut state) = self.pack_and_lock(inode, offset, data)?;
        self.check_regular(OPERATION, inode.ino, &state.record)?;
        self.drop_privileges_now(OPERATION, inode, &mut state, kill)?;
        let buffers =
            pieces.last().is_some_and(|piece| piece.packed.is_none()) && self.may_buffer(record_bytes_log2);
        let touched =
            pieces.first().map_or(0, |piece| piece.index)..=pieces.last().map_or(0, |piece| piece.index);
        let open = state.open_record.as_ref().map(|open| open.index);
        let open_is_hit = open.is_some_and(|index| touched.contains(&index));
        let end = offset + data.len() as u64;
        if let ([piece], true, true) = (&pieces[..], buffers, open_is_hit) {
            self.merge_into_open(inode, &mut state, piece, end, caller.now);
            return Ok(());
        }
        // A last piece of the record that is open already is stored: then there is nothing left to buffer.
        let buffered = if buffers && !open_is_hit {
            pieces.pop()
        } else {
            None
        };
        let buffered = buffered
            .map(|piece| {
                let mut content = self.record_content(OPERATION, inode.ino, &state, piece.index)?;
                piece.merge_into(&mut content);
                Ok(OpenRecord {
                    index: piece.index,
                    content,
                    accounted_bytes: 1 << record_bytes_log2,
                })
            })
            .transpose()?;
        if pieces.is_empty() && state.open_record.is_none() {
            // Nothing for the tree yet.
            if let Some(open) = buffered {
                state.size_dirty |= state.record.record_bytes_log2 == 0;
                state.record.record_bytes_log2 = record_bytes_log2;
                self.start_open(inode, &mut state, open, end, caller.now);
            }
            return Ok(());
        }
        let committed_end = buffered
            .as_ref()
            .map_or(end, |open| open.index << record_bytes_log2);
        let mut staged = self.stage_pieces(inode, &state, pieces, committed_end)?;
        staged.record.record_bytes_log2 = record_bytes_log2;
        staged.touch(caller.now);
        self.commit_one(OPERATION, inode, &mut state, staged, self.pool.begin())?;
        if let Some(open) = buffered {
            self.start_open(inode, &mut state, open, end, caller.now);
        }
        Ok(())
    }

    /// The change that stores these pieces, which end at `committed_end`.
    fn stage_pieces(
        &self,
        inode: &Inode,
        state: &InodeState,
        pieces: Vec<Piece<'_>>,
        committed_end: u64,
    ) -> Result<Staged> {
        let mut staged = Staged::new(state);
        staged.lean = true;
        if !pieces.is_empty() {
            staged.record.size_bytes = state.record.size_bytes.max(committed_end);
        }
        for mut piece in pieces {
            let replacement = match piece.packed.take() {
                Some(packed) => packed,
                None => {
                    let mut content = self.record_content(OPERATION, inode.ino, state, piece.index)?;
                    piece.merge_into(&mut content);
                    self.pack(&content, state.record.stream)
                }
            };
            staged.replacements.push((piece.index, replacement));
        }
        Ok(staged)
    }

    /// Cuts the data into records, packs the whole ones, and locks the inode. Starts over if the record size was fixed
    /// meanwhile by another writer.
    fn pack_and_lock<'i, 'd>(
        &self,
        inode: &'i Inode,
        offset: u64,
        data: &'d [u8],
    ) -> Result<(u8, Vec<Piece<'d>>, RwLockWriteGuard<'i, InodeState>)> {
        loop {
            let default = self.record_bytes_log2();
            let chosen = |log2: u8| if log2 == 0 { default } else { log2 };
            let (fixed, stream) = {
                let state = inode.read_state(OPERATION)?;
                (state.record.record_bytes_log2, state.record.stream)
            };
            let record_bytes_log2 = chosen(fixed);
            let mut pieces = cut(record_bytes_log2, offset, data);
            for piece in &mut pieces {
                if piece.data.len() == 1 << record_bytes_log2 {
                    piece.packed = Some(self.pack(piece.data, stream));
                }
            }
            let state = inode.write_state(OPERATION)?;
            if chosen(state.record.record_bytes_log2) == record_bytes_log2 {
                return Ok((record_bytes_log2, pieces, state));
            }
        }
    }

    /// Whether what is buffered is sure to find room later.
    fn may_buffer(&self, record_bytes_log2: u8) -> bool {
        let pending_bytes = self.dirty.buffered_bytes() + (1 << record_bytes_log2);
        self.pool.space().available_bytes > 2 * pending_bytes + BUFFERING_MARGIN_BYTES
    }

    fn merge_into_open(
        &self,
        inode: &Inode,
        state: &mut InodeState,
        piece: &Piece<'_>,
        end: u64,
        now: Timestamp,
    ) {
        if let Some(open) = &mut state.open_record {
            piece.merge_into(&mut open.content);
        }
        self.note_buffered(inode, state, end, now);
    }

    fn start_open(&self, inode: &Inode, state: &mut InodeState, open: OpenRecord, end: u64, now: Timestamp) {
        self.dirty.set_open_record(inode.ino, state, open, now);
        self.note_buffered(inode, state, end, now);
    }

    fn note_buffered(&self, inode: &Inode, state: &mut InodeState, end: u64, now: Timestamp) {
        state.size_dirty |= end > state.record.size_bytes;
        state.record.size_bytes = state.record.size_bytes.max(end);
        state.record.modified = now;
        state.record.changed = now;
        state.attributes_dirty = true;
        self.dirty.queue_attributes(inode.ino, state, now);
    }
}

fn cut(record_bytes_log2: u8, offset: u64, data: &[u8]) -> Vec<Piece<'_>> {
    let record_bytes = 1u64 << record_bytes_log2;
    let end = offset + data.len() as u64;
    let indices: Range<u64> = offset >> record_bytes_log2..end.div_ceil(record_bytes);
    indices
        .map(|index| {
            let record_start = index << record_bytes_log2;
            let from = offset.max(record_start);
            let to = end.min(record_start + record_bytes);
            let range = (from - offset) as usize..(to - offset) as usize;
            Piece {
                index,
                start: (from - record_start) as usize,
                data: &data[range],
                packed: None,
            }
        })
        .collect()
}
