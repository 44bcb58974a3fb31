//! Transactions: changes that become visible, and durable, all together or not at all.
//!
//! A transaction is plain data, built without any lock. Its operations are encoded for the log as they are added, in
//! chunks that fit any batch:
//!
//! | tag | operation | fields |
//! |---|---|---|
//! | 0 | put | varint tree, key, value (each with varint length) |
//! | 1 | delete | varint tree, key |
//! | 2 | free record | varint tree, varint record id |
//!
//! Storing a record is no operation of its own: the directory of the batch that carries the record says it.

use crate::changes::Item;
use crate::encoding::{Malformed, Reader, put_bytes, put_varint};
use crate::types::{Location, RecordId, Stream, TreeId};
use packstone_codec::PackedRecord;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Operations are cut into chunks of about this size, bytes; a batch holds whole chunks.
pub(crate) const CHUNK_BYTES: usize = 16 << 10;
/// Longest key, bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// Longest value, bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// Whether a pair is longer than a tree takes. A key that is only deleted may be: there is none like it.
pub(crate) fn is_too_long(item: &Item) -> bool {
    item.value()
        .is_some_and(|value| item.key().len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX)
}

/// A change of a tree or of the set of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Puts a pair or deletes a key.
    Change(TreeId, Item),
    Free(TreeId, RecordId),
}

impl Operation {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Operation::Change(tree, item) => {
                out.push(if item.value().is_some() { 0 } else { 1 });
                put_varint(out, u64::from(tree.0));
                put_bytes(out, item.key());
                item.value().into_iter().for_each(|value| put_bytes(out, value));
            }
            Operation::Free(tree, id) => {
                out.push(2);
                put_varint(out, u64::from(tree.0));
                put_varint(out, id.0);
            }
        }
    }

    /// All operations of one unpacked chunk.
    pub(crate) fn decode_chunk(bytes: &[u8]) -> Result<Vec<Operation>, Malformed> {
        let mut reader = Reader::new(bytes);
        let (mut operations, mut buffer) = (Vec::new(), Vec::new());
        while !reader.is_empty() {
            let tag = reader.u8()?;
            let tree = TreeId(reader.varint_u32()?);
            operations.push(match tag {
                0 => Operation::Change(tree, Item::put(reader.bytes()?, reader.bytes()?, &mut buffer)),
                1 => Operation::Change(tree, Item::delete(reader.bytes()?)),
                2 => Operation::Free(tree, RecordId(reader.varint()?)),
                _ => return Err(Malformed("holds an unknown operation")),
            });
        }
        Ok(operations)
    }
}

/// A record that comes with the transaction.
pub(crate) struct Stored {
    pub id: RecordId,
    pub tree: TreeId,
    /// Index of the log stream it goes to.
    pub stream: usize,
    pub record: PackedRecord,
    /// Set by the cleaner: where the record must still be for the move to happen.
    pub moved_from: Option<Location>,
}

/// Changes to be applied by [`crate::Pool::commit`].
pub struct Transaction {
    pub(crate) stored: Vec<Stored>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) may_use_reserve: bool,
    pub(crate) bytes: u64,
    next_record: Arc<AtomicU64>,
    /// Where items are put together.
    buffer: Vec<u8>,
}

impl Transaction {
    pub(crate) fn new(next_record: Arc<AtomicU64>) -> Transaction {
        Transaction {
            stored: Vec::new(),
            operations: Vec::new(),
            may_use_reserve: false,
            bytes: 0,
            next_record,
            buffer: Vec::new(),
        }
    }

    /// Adds a record owned by `tree`. Its id may be used in values that this same transaction puts.
    pub fn store(&mut self, tree: TreeId, stream: Stream, record: PackedRecord) -> RecordId {
        let id = RecordId(self.next_record.fetch_add(1, Ordering::Relaxed));
        self.bytes += u64::from(record.packed_bytes()) + 48;
        self.stored.push(Stored {
            id,
            tree,
            stream: stream as usize,
            record,
            moved_from: None,
        });
        id
    }

    /// Sets `key` to `value`. At most [`KEY_BYTES_MAX`] and [`VALUE_BYTES_MAX`] bytes.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        self.bytes += (key.len() + value.len() + 8) as u64;
        let item = Item::put(key, value, &mut self.buffer);
        self.operations.push(Operation::Change(tree, item));
    }

    /// Removes `key`; no error when there is none.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) {
        self.bytes += (key.len() + 8) as u64;
        self.operations.push(Operation::Change(tree, Item::delete(key)));
    }

    /// `tree` no longer refers to the record. The record must exist and be freed once.
    pub fn free(&mut self, tree: TreeId, record: RecordId) {
        self.bytes += 12;
        self.operations.push(Operation::Free(tree, record));
    }

    /// For transactions that make room (delete, truncate, property change): admitted when the pool is full.
    pub fn may_use_reserve(&mut self) {
        self.may_use_reserve = true;
    }

    /// Nothing was added yet.
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.operations.is_empty()
    }

    /// Bytes the transaction will take in the log, roughly.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The operations in encoded chunks.
    pub(crate) fn encode_operations(&self) -> Vec<Vec<u8>> {
        let mut chunks = Vec::new();
        let mut chunk = Vec::new();
        for operation in &self.operations {
            operation.encode(&mut chunk);
            if chunk.len() >= CHUNK_BYTES {
                chunks.push(std::mem::take(&mut chunk));
            }
        }
        if !chunk.is_empty() {
            chunks.push(chunk);
        }
        chunks
    }
}
