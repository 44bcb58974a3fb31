//! Reading data.
//!
//! A read takes its view under the shared lock: size, record ids, and a copy of what is buffered. The records are read
//! without the lock, so that a write never waits for media. Records never change, so what is read is the file as it was at
//! the view; if one was freed meanwhile the read starts over, the last time holding the lock.

use crate::error::damaged;
use crate::filesystem::FileSystem;
use crate::inode::{Inode, InodeState};
use crate::properties::AccessTime;
use crate::types::{Caller, Ino, RecordPlace, Result, Timestamp};
use packstone_pool::{ErrorKind as PoolErrorKind, RecordId};

const OPERATION: &str = "read";
/// Age at which relatime updates the time of last access in any case.
const ACCESS_AGE_MS: i64 = 24 * 60 * 60 * 1000;
/// Times a read starts over before it holds the lock.
const FREE_TRIES: usize = 3;

/// One piece of a read: `length` bytes at `start` in a record.
struct Piece {
    index: u64,
    /// Where the record begins in the file.
    offset_bytes: u64,
    start: usize,
    length: usize,
    source: Source,
}

enum Source {
    Hole,
    Record(RecordId),
    Buffered(Vec<u8>),
}

impl FileSystem {
    /// Appends up to `length` bytes at `offset` to `buffer`; fewer only at the end of the file. Updates atime by relatime
    /// rules. On an error `buffer` is as before.
    pub fn read(
        &self,
        caller: &Caller,
        ino: Ino,
        offset: u64,
        length: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let inode = self.inode(OPERATION, ino)?;
        self.read_inode(&inode, offset, length, buffer)?;
        self.note_access(&inode, caller.now)
    }

    pub(crate) fn read_inode(
        &self,
        inode: &Inode,
        offset: u64,
        length: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        for _ in 0..FREE_TRIES {
            let state = inode.read_state(OPERATION)?;
            let view = self.view(inode.ino, &state, offset, length)?;
            drop(state);
            if let Some(records) = self.read_view(inode.ino, &view, true)? {
                assemble(view, &records, buffer);
                return Ok(());
            }
        }
        let state = inode.read_state(OPERATION)?;
        let view = self.view(inode.ino, &state, offset, length)?;
        let records = self.read_view(inode.ino, &view, false)?.unwrap_or_default();
        assemble(view, &records, buffer);
        Ok(())
    }

    /// What the read consists of.
    fn view(&self, ino: Ino, state: &InodeState, offset: u64, length: usize) -> Result<Vec<Piece>> {
        self.check_regular(OPERATION, ino, &state.record)?;
        let end = state.record.size_bytes.min(offset.saturating_add(length as u64));
        if offset >= end {
            return Ok(vec![]);
        }
        let record_bytes = state.record.record_bytes().unwrap_or(end);
        let (first, last) = (offset / record_bytes, (end - 1) / record_bytes);
        let extents = if first == last {
            self.extent(OPERATION, ino, first)?
                .map(|id| (first, id))
                .into_iter()
                .collect()
        } else {
            self.extents_in(OPERATION, ino, first, last)?
        };
        let mut extents = extents.into_iter().peekable();
        let mut pieces = Vec::with_capacity((last - first + 1) as usize);
        for index in first..=last {
            let record_start = index * record_bytes;
            let start = offset.saturating_sub(record_start) as usize;
            let length = (end - record_start).min(record_bytes) as usize - start;
            let stored = extents.next_if(|(at, _)| *at == index);
            let source = match (&state.open_record, stored) {
                (Some(open), _) if open.index == index => {
                    let content = open.content.get(start..).unwrap_or_default();
                    Source::Buffered(content[..content.len().min(length)].to_vec())
                }
                (_, Some((_, id))) => Source::Record(id),
                (_, None) => Source::Hole,
            };
            pieces.push(Piece {
                index,
                offset_bytes: record_start,
                start,
                length,
                source,
            });
        }
        Ok(pieces)
    }

    /// The records of a view, in order. `None` if one no longer exists and `may_be_freed`.
    fn read_view(&self, ino: Ino, view: &[Piece], may_be_freed: bool) -> Result<Option<Vec<Vec<u8>>>> {
        let ids: Vec<RecordId> = view
            .iter()
            .filter_map(|piece| match piece.source {
                Source::Record(id) => Some(id),
                _ => None,
            })
            .collect();
        if ids.is_empty() {
            return Ok(Some(vec![]));
        }
        match self.pool.read_records(&ids) {
            Ok(records) => Ok(Some(records)),
            Err(gone) if may_be_freed && gone.kind() == PoolErrorKind::NotFound => Ok(None),
            Err(failed) => Err(self.explain(ino, view, failed)),
        }
    }

    /// Names the file and, by reading one by one, the record.
    fn explain(&self, ino: Ino, view: &[Piece], failed: packstone_pool::Error) -> crate::types::Error {
        let bad = view.iter().find_map(|piece| match piece.source {
            Source::Record(id) if self.pool.read_records(&[id]).is_err() => Some((piece, id)),
            _ => None,
        });
        let place = bad
            .map(|(piece, id)| format!(", record {} (id {})", piece.index, id.0))
            .unwrap_or_default();
        let message = format!("{}{place}: {failed}", self.describe(ino));
        let mut error = match failed.kind() {
            PoolErrorKind::NotFound => damaged(OPERATION, message),
            _ => crate::error::error(crate::error::kind_of(&failed), OPERATION, message),
        };
        error.source = Some(failed);
        error.place = bad.map(|(piece, _)| {
            Box::new(RecordPlace {
                ino,
                index: piece.index,
                offset_bytes: piece.offset_bytes,
            })
        });
        error
    }

    /// All bytes of one record as they are now, without the zeros that may follow.
    pub(crate) fn record_content(
        &self,
        operation: &'static str,
        ino: Ino,
        state: &InodeState,
        index: u64,
    ) -> Result<Vec<u8>> {
        if let Some(open) = state.open_record.as_ref().filter(|open| open.index == index) {
            return Ok(open.content.clone());
        }
        let Some(id) = self.extent(operation, ino, index)? else {
            return Ok(vec![]);
        };
        let records = self.pool.read_records(&[id]).map_err(|failed| {
            let view = [Piece {
                index,
                offset_bytes: index.saturating_mul(state.record.record_bytes().unwrap_or(0)),
                start: 0,
                length: 0,
                source: Source::Record(id),
            }];
            self.explain(ino, &view, failed)
        })?;
        match records.into_iter().next() {
            Some(content) => Ok(content),
            None => Err(damaged(
                operation,
                format!("{}, record {index}: no answer", self.describe(ino)),
            )),
        }
    }

    fn note_access(&self, inode: &Inode, now: Timestamp) -> Result<()> {
        if self.read_only || !self.must_note_access(&*inode.read_state(OPERATION)?, now) {
            return Ok(());
        }
        let mut state = inode.write_state(OPERATION)?;
        state.record.accessed = now;
        state.attributes_dirty = true;
        self.dirty.queue_attributes(inode.ino, &mut state, now);
        Ok(())
    }

    fn must_note_access(&self, state: &InodeState, now: Timestamp) -> bool {
        let record = &state.record;
        match self.properties().access_time {
            AccessTime::Off => false,
            AccessTime::On => record.accessed != now,
            AccessTime::Relative => {
                record.accessed <= record.modified
                    || record.accessed <= record.changed
                    || now.is_past(record.accessed, ACCESS_AGE_MS)
            }
        }
    }
}

fn assemble(view: Vec<Piece>, records: &[Vec<u8>], buffer: &mut Vec<u8>) {
    buffer.reserve(view.iter().map(|piece| piece.length).sum());
    let mut records = records.iter();
    for piece in view {
        let end = buffer.len() + piece.length;
        match &piece.source {
            Source::Hole => {}
            Source::Buffered(content) => buffer.extend_from_slice(content),
            Source::Record(_) => {
                let content = records
                    .next()
                    .and_then(|record| record.get(piece.start..))
                    .unwrap_or_default();
                buffer.extend_from_slice(&content[..content.len().min(piece.length)]);
            }
        }
        // A record shorter than its place in the file goes on with zeros.
        buffer.resize(end, 0);
    }
}
