//! The bytes of one file as the model has them, with every version since they were last known to be durable.
//!
//! Bytes are kept in chunks of 4 KiB, the smallest record size; a chunk of zeros is not kept, so sparse files cost what
//! they hold. Each operation that changes the file adds one entry to the history: the old size and the old chunks.
//!
//! After a crash the file must be as it was after one of these operations, or in the middle of one: then each record is
//! whole, as it was before or as it is after ([`FileData::find`]).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Bytes of a chunk.
pub(crate) const CHUNK_BYTES: u64 = 4096;

/// One chunk that is not all zeros.
pub(crate) type Chunk = Rc<[u8; CHUNK_BYTES as usize]>;

/// What a file holds, as the model has it or as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) size_bytes: u64,
    pub(crate) chunks: BTreeMap<u64, Chunk>,
}

/// What one operation replaced.
#[derive(Debug)]
struct Change {
    number: u64,
    old_size_bytes: u64,
    old_chunks: BTreeMap<u64, Option<Chunk>>,
}

/// A file's content now, and what it was.
#[derive(Debug, Default)]
pub(crate) struct FileData {
    now: Content,
    history: Vec<Change>,
    /// Operations after which everything written before was committed, ascending.
    committed: Vec<u64>,
    /// Whatever the file was at this operation is durable.
    durable: u64,
}

impl Content {
    /// The bytes of a range, zeros where nothing is, cut at the end of the file.
    pub(crate) fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let end = offset.saturating_add(length).min(self.size_bytes);
        if offset >= end {
            return vec![];
        }
        let mut bytes = vec![0; (end - offset) as usize];
        for (index, chunk) in self.chunks.range(offset / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES)) {
            let start = index * CHUNK_BYTES;
            let (from, to) = (offset.max(start), end.min(start + CHUNK_BYTES));
            bytes[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&chunk[(from - start) as usize..(to - start) as usize]);
        }
        bytes
    }

    /// Whether a range reads as zeros.
    pub(crate) fn is_zero(&self, from: u64, to: u64) -> bool {
        let mut chunks = self.chunks.range(from / CHUNK_BYTES..to.div_ceil(CHUNK_BYTES));
        chunks.all(|(index, chunk)| {
            let start = index * CHUNK_BYTES;
            let (from, to) = (from.max(start) - start, to.min(start + CHUNK_BYTES) - start);
            chunk[from as usize..to as usize].iter().all(|byte| *byte == 0)
        })
    }

    /// Puts bytes that were read; they may begin and end anywhere.
    pub(crate) fn put(&mut self, offset: u64, data: &[u8]) {
        for (index, start, piece) in pieces(offset, data) {
            let chunk = merged(self.chunks.get(&index), start, piece);
            set(&mut self.chunks, index, chunk);
        }
    }
}

impl FileData {
    /// A file known to be durable as it is.
    pub(crate) fn durable(content: Content, number: u64) -> FileData {
        FileData {
            now: content,
            durable: number,
            ..FileData::default()
        }
    }

    pub(crate) fn now(&self) -> &Content {
        &self.now
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.now.size_bytes
    }

    /// Chunks that the history holds.
    pub(crate) fn history_chunks(&self) -> usize {
        self.history
            .iter()
            .map(|change| change.old_chunks.len() + 1)
            .sum()
    }

    fn change(&mut self, number: u64) -> &mut Change {
        if self.history.last().is_none_or(|change| change.number != number) {
            self.history.push(Change {
                number,
                old_size_bytes: self.now.size_bytes,
                old_chunks: BTreeMap::new(),
            });
        }
        let last = self.history.len() - 1;
        &mut self.history[last]
    }

    fn set_chunk(&mut self, number: u64, index: u64, chunk: Option<Chunk>) {
        let old = self.now.chunks.get(&index).cloned();
        self.change(number).old_chunks.entry(index).or_insert(old);
        set(&mut self.now.chunks, index, chunk);
    }

    pub(crate) fn write(&mut self, number: u64, offset: u64, data: &[u8]) {
        self.change(number);
        for (index, start, piece) in pieces(offset, data) {
            let chunk = merged(self.now.chunks.get(&index), start, piece);
            self.set_chunk(number, index, chunk);
        }
        self.now.size_bytes = self.now.size_bytes.max(offset + data.len() as u64);
    }

    /// Makes what lies in the range zero; the size stays.
    pub(crate) fn zero(&mut self, number: u64, from: u64, to: u64) {
        self.change(number);
        let hit: Vec<u64> = self
            .now
            .chunks
            .range(from / CHUNK_BYTES..to.div_ceil(CHUNK_BYTES))
            .map(|(index, _)| *index)
            .collect();
        for index in hit {
            let start = index * CHUNK_BYTES;
            let (from, to) = (from.max(start) - start, to.min(start + CHUNK_BYTES) - start);
            let zeros = vec![0; (to - from) as usize];
            let chunk = merged(self.now.chunks.get(&index), from as usize, &zeros);
            self.set_chunk(number, index, chunk);
        }
    }

    pub(crate) fn resize(&mut self, number: u64, size_bytes: u64) {
        self.change(number);
        if size_bytes < self.now.size_bytes {
            self.zero(number, size_bytes, self.now.size_bytes);
        }
        self.now.size_bytes = size_bytes;
    }

    /// Everything written so far was acknowledged as durable.
    pub(crate) fn note_durable(&mut self, number: u64) {
        self.history.clear();
        self.committed.clear();
        self.durable = number;
    }

    /// Everything written so far was committed with operation `number`: it is there if that operation is.
    pub(crate) fn note_committed(&mut self, number: u64) {
        if !self.history.is_empty() {
            self.committed.push(number);
        }
    }

    fn undo(&mut self) -> Option<Change> {
        let change = self.history.pop()?;
        self.now.size_bytes = change.old_size_bytes;
        for (index, old) in &change.old_chunks {
            set(&mut self.now.chunks, *index, old.clone());
        }
        Some(change)
    }

    /// The last operation was done in part: each record of what was found must be as before or as after it. Takes over
    /// what was found.
    pub(crate) fn settle_last(
        &mut self,
        number: u64,
        found: &Content,
        record_bytes: u64,
    ) -> Result<(), String> {
        let none = BTreeMap::new();
        let (old_size_bytes, old) = match self.history.last().filter(|change| change.number == number) {
            Some(change) => (change.old_size_bytes, &change.old_chunks),
            None => (self.now.size_bytes, &none),
        };
        let touched: BTreeSet<u64> = old.keys().copied().collect();
        partly(&self.now, old_size_bytes, old, found, record_bytes)?;
        for index in differing(&self.now, found) {
            if !touched.contains(&index) {
                return Err(format!("chunk {index} changed though nobody wrote it"));
            }
            self.set_chunk(number, index, found.chunks.get(&index).cloned());
        }
        self.change(number);
        self.now.size_bytes = found.size_bytes;
        Ok(())
    }

    /// Finds the version that was found after a crash. What came after operation `newest` cannot be there; what was
    /// durable, or committed by operation `certain`, must be.
    pub(crate) fn find(
        &mut self,
        found: &Content,
        record_bytes: u64,
        certain: u64,
        newest: u64,
    ) -> Result<(), String> {
        let committed = self.committed.iter().rev().find(|number| **number <= certain);
        let oldest = self.durable.max(committed.copied().unwrap_or(0));
        while self
            .history
            .last()
            .is_some_and(|change| change.number > newest.max(oldest))
        {
            self.undo();
        }
        let mut differing = differing(&self.now, found);
        let mut tried = vec![];
        loop {
            if differing.is_empty() && self.now.size_bytes == found.size_bytes {
                return Ok(());
            }
            let Some(change) = self.history.last().filter(|change| change.number > oldest) else {
                return Err(format!(
                    "{} bytes, chunks {:?} are not as after any operation from {oldest} to {newest}; tried {tried:?}, the \
                     oldest has {} bytes",
                    found.size_bytes,
                    differing.iter().take(8).collect::<Vec<_>>(),
                    self.now.size_bytes,
                ));
            };
            let others_equal = differing
                .iter()
                .all(|index| change.old_chunks.contains_key(index));
            if others_equal
                && partly(
                    &self.now,
                    change.old_size_bytes,
                    &change.old_chunks,
                    found,
                    record_bytes,
                )
                .is_ok()
            {
                return Ok(());
            }
            tried.push(change.number);
            if let Some(change) = self.undo() {
                for index in change.old_chunks.into_keys() {
                    if self.now.chunks.get(&index) == found.chunks.get(&index) {
                        differing.remove(&index);
                    } else {
                        differing.insert(index);
                    }
                }
            }
        }
    }
}

fn differing(left: &Content, right: &Content) -> BTreeSet<u64> {
    let mut indices = BTreeSet::new();
    for (index, chunk) in &left.chunks {
        match right.chunks.get(index) {
            Some(other) if Rc::ptr_eq(other, chunk) || other == chunk => {}
            _ => drop(indices.insert(*index)),
        }
    }
    indices.extend(
        right
            .chunks
            .keys()
            .filter(|index| !left.chunks.contains_key(index)),
    );
    indices
}

/// Whether `found` lies between the state before an operation and the state `new` after it: every record that it touched
/// is whole, old or new, and the size tells of no bytes that are not there.
fn partly(
    new: &Content,
    old_size_bytes: u64,
    old: &BTreeMap<u64, Option<Chunk>>,
    found: &Content,
    record_bytes: u64,
) -> Result<(), String> {
    let size = found.size_bytes;
    let bounds = [old_size_bytes, new.size_bytes];
    let between = size >= bounds[0].min(bounds[1]) && size <= bounds[0].max(bounds[1]);
    if !between || (!bounds.contains(&size) && size % record_bytes != 0) {
        return Err(format!("{size} bytes, neither {} nor {}", bounds[0], bounds[1]));
    }
    let mut records: BTreeMap<u64, (bool, bool)> = BTreeMap::new();
    for (index, before) in old {
        let is = |expected: Option<&Chunk>| {
            clipped(expected, *index, size) == found.chunks.get(index).map(|chunk| chunk.to_vec())
        };
        let record = records
            .entry(index * CHUNK_BYTES / record_bytes)
            .or_insert((true, true));
        record.0 &= is(before.as_ref());
        record.1 &= is(new.chunks.get(index));
    }
    if let Some((record, _)) = records.iter().find(|(_, (old, new))| !old && !new) {
        return Err(format!("record {record} is neither as before nor as after"));
    }
    if size > old_size_bytes
        && let Some((_, is_new)) = records.get(&((size - 1) / record_bytes))
        && !is_new
    {
        return Err("the size tells of bytes that are not there".into());
    }
    Ok(())
}

/// A chunk cut at the end of the file; `None` when that leaves zeros.
fn clipped(chunk: Option<&Chunk>, index: u64, size_bytes: u64) -> Option<Vec<u8>> {
    let chunk = chunk?;
    let length = size_bytes.saturating_sub(index * CHUNK_BYTES).min(CHUNK_BYTES) as usize;
    let mut bytes = chunk.to_vec();
    bytes[length..].fill(0);
    bytes.iter().any(|byte| *byte != 0).then_some(bytes)
}

/// Chunk, start in it, and bytes.
fn pieces(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, usize, &[u8])> {
    let end = offset + data.len() as u64;
    (offset / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES)).map(move |index| {
        let start = index * CHUNK_BYTES;
        let (from, to) = (offset.max(start), end.min(start + CHUNK_BYTES));
        let piece = &data[(from - offset) as usize..(to - offset) as usize];
        (index, (from - start) as usize, piece)
    })
}

fn merged(chunk: Option<&Chunk>, start: usize, piece: &[u8]) -> Option<Chunk> {
    let mut bytes = chunk.map_or([0; CHUNK_BYTES as usize], |chunk| **chunk);
    bytes[start..start + piece.len()].copy_from_slice(piece);
    bytes.iter().any(|byte| *byte != 0).then(|| Rc::new(bytes))
}

fn set(chunks: &mut BTreeMap<u64, Chunk>, index: u64, chunk: Option<Chunk>) {
    match chunk {
        Some(chunk) => drop(chunks.insert(index, chunk)),
        None => drop(chunks.remove(&index)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(steps: &[(u64, u64, u8, usize)]) -> FileData {
        let mut file = FileData::default();
        for (number, offset, byte, length) in steps {
            file.write(*number, *offset, &vec![*byte; *length]);
        }
        file
    }

    fn content(pieces: &[(u64, u8, usize)]) -> Content {
        let mut content = Content::default();
        for (offset, byte, length) in pieces {
            content.put(*offset, &vec![*byte; *length]);
            content.size_bytes = content.size_bytes.max(offset + *length as u64);
        }
        content
    }

    #[test]
    fn every_version_and_every_mix_of_whole_records_is_found() {
        let steps = [(1, 0, 1, 16384), (2, 0, 2, 16384)];
        for (first, second) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            let found = content(&[(0, first, 8192), (8192, second, 8192)]);
            assert!(file(&steps).find(&found, 8192, 0, 2).is_ok());
        }
        assert!(file(&steps).find(&Content::default(), 8192, 0, 2).is_ok());
    }

    #[test]
    fn torn_records_lost_durable_bytes_and_sizes_without_bytes_are_refused() {
        let steps = [(1, 0, 1, 16384), (2, 0, 2, 16384)];
        let torn = content(&[(0, 1, 4096), (4096, 2, 12288)]);
        assert!(file(&steps).find(&torn, 8192, 0, 2).is_err());
        let old = content(&[(0, 1, 16384)]);
        assert!(file(&steps).find(&old, 8192, 0, 2).is_ok());
        let mut synced = file(&steps);
        synced.note_durable(2);
        assert!(synced.find(&old, 8192, 0, 2).is_err());
        let mut committed = file(&steps);
        committed.note_committed(3);
        assert!(committed.find(&old, 8192, 3, 3).is_err());
        let hollow = Content {
            size_bytes: 16384,
            ..Content::default()
        };
        assert!(file(&steps[..1]).find(&hollow, 8192, 0, 2).is_err());
    }

    #[test]
    fn cutting_in_pieces_leaves_a_shorter_file() {
        let mut cut = file(&[(1, 0, 1, 32768)]);
        cut.note_durable(1);
        cut.resize(2, 100);
        assert!(cut.find(&content(&[(0, 1, 16384)]), 4096, 1, 2).is_ok());
        let mut cut = file(&[(1, 0, 1, 32768)]);
        cut.note_durable(1);
        cut.resize(2, 100);
        assert!(cut.find(&content(&[(0, 1, 50)]), 4096, 1, 2).is_err());
    }
}
