//! Nodes of B+trees: sorted pairs of byte strings.
//!
//! A leaf holds keys and values. An inner node holds, for each child, the lowest key below it and a pointer; the first
//! key of an inner node counts as "lower than anything". What a pointer is (a record id, or a location for the record
//! table) is the business of the tree that owns the node.
//!
//! Encoded: level (1 byte), varint pair count, then per pair: varint bytes shared with the key before, varint bytes of
//! key that follow, varint value length, the key's rest, the value. The encoding is then packed like any record
//! (zstd-1), so shared prefixes and regular ids cost next to nothing.

use crate::encoding::{Malformed, Reader, put_varint};
use crate::transaction::KEY_BYTES_MAX;
use packstone_codec::{Compression, PackedRecord};

/// A node is split when its encoding would be longer. Small, because one changed pair rewrites its whole leaf.
pub(crate) const NODE_BYTES_MAX: usize = 8 << 10;
/// A node shorter than this is merged with a neighbour.
pub(crate) const NODE_BYTES_MIN: usize = NODE_BYTES_MAX / 4;
/// Deepest tree that is believed; ten levels of a hundred children exceed any pool.
pub(crate) const LEVELS_MAX: u8 = 16;
/// Bound for unpacking a node: one pair may be as long as a value may be.
pub(crate) const NODE_RAW_BYTES_MAX: u32 = 1 << 20;

/// Most bytes a node is believed to take once its keys are whole: well above what [`NODE_BYTES_MAX`] of shared prefixes
/// can stand for.
const NODE_DECODED_BYTES_MAX: usize = 4 << 20;

/// Key and value, each any bytes.
pub type Pair = (Vec<u8>, Vec<u8>);

#[derive(Clone, Copy, Debug)]
struct Slice {
    key_end: u32,
    value_end: u32,
}

/// A decoded node, laid out flat for binary search.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    level: u8,
    bytes: Vec<u8>,
    index: Vec<Slice>,
    encoded_bytes: usize,
}

impl Node {
    pub(crate) fn new(level: u8) -> Node {
        Node {
            level,
            ..Node::default()
        }
    }

    /// Empty, with room for pairs of so many bytes.
    pub(crate) fn with_capacity(level: u8, bytes: usize) -> Node {
        Node {
            level,
            bytes: Vec::with_capacity(bytes),
            ..Node::default()
        }
    }

    /// 0 for leaves.
    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Memory this node takes, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.index.len() * size_of::<Slice>() + 96
    }

    /// Length of the encoding so far (an upper bound of it by a few bytes).
    pub(crate) fn encoded_bytes(&self) -> usize {
        self.encoded_bytes
    }

    fn start(&self, at: usize) -> usize {
        if at == 0 {
            0
        } else {
            self.index[at - 1].value_end as usize
        }
    }

    pub(crate) fn key(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..self.index[at].key_end as usize]
    }

    pub(crate) fn value(&self, at: usize) -> &[u8] {
        &self.bytes[self.index[at].key_end as usize..self.index[at].value_end as usize]
    }

    /// Appends a pair; keys must come in ascending order.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        let previous = match self.len() {
            0 => &[],
            count => {
                let previous = self.key(count - 1);
                assert!(previous < key, "pairs of a node must ascend");
                previous
            }
        };
        self.encoded_bytes += pair_bytes(previous, key, value);
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.index.push(Slice {
            key_end,
            value_end: self.bytes.len() as u32,
        });
    }

    /// Position of `key`, or where it would be.
    pub(crate) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.key(middle).cmp(key) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// In an inner node: the child whose range holds `key`.
    pub(crate) fn child_for(&self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(at) => at,
            Err(at) => at.saturating_sub(1),
        }
    }

    pub(crate) fn pack(&self) -> PackedRecord {
        let mut out = Vec::with_capacity(self.encoded_bytes + 8);
        out.push(self.level);
        put_varint(&mut out, self.len() as u64);
        let mut previous: &[u8] = &[];
        for at in 0..self.len() {
            let (key, value) = (self.key(at), self.value(at));
            let shared = shared_prefix(previous, key);
            put_varint(&mut out, shared as u64);
            put_varint(&mut out, (key.len() - shared) as u64);
            put_varint(&mut out, value.len() as u64);
            out.extend_from_slice(&key[shared..]);
            out.extend_from_slice(value);
            previous = key;
        }
        PackedRecord::pack(&out, Compression::default())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Node, Malformed> {
        let mut reader = Reader::new(bytes);
        let level = reader.u8()?;
        if level > LEVELS_MAX {
            return Err(Malformed("is too deep"));
        }
        let count = reader.varint()?;
        // Each pair takes at least three bytes, so a lying count cannot make us allocate.
        if count > bytes.len() as u64 / 3 {
            return Err(Malformed("has too many pairs"));
        }
        let mut node = Node::new(level);
        let mut key: Vec<u8> = Vec::new();
        for at in 0..count {
            let (shared, rest, value) = (reader.varint()?, reader.varint()?, reader.varint()?);
            if shared > key.len() as u64 {
                return Err(Malformed("shares more of a key than there is"));
            }
            if rest > KEY_BYTES_MAX as u64 - shared.min(KEY_BYTES_MAX as u64) {
                return Err(Malformed("has a key too long"));
            }
            let previous = key.clone();
            key.truncate(shared as usize);
            key.extend_from_slice(
                reader.take(usize::try_from(rest).map_err(|_| Malformed("has a key too long"))?)?,
            );
            if at > 0 && previous >= key {
                return Err(Malformed("has keys out of order"));
            }
            let value =
                reader.take(usize::try_from(value).map_err(|_| Malformed("has a value too long"))?)?;
            if node.bytes.len() + key.len() + value.len() > NODE_DECODED_BYTES_MAX {
                return Err(Malformed("holds more than any node"));
            }
            node.push(&key, value);
        }
        if !reader.is_empty() || node.is_empty() {
            return Err(Malformed("has the wrong length"));
        }
        Ok(node)
    }
}

/// What a pair adds to the encoding of a node behind the key `previous`, or a few bytes more.
pub(crate) fn pair_bytes(previous: &[u8], key: &[u8], value: &[u8]) -> usize {
    key.len() - shared_prefix(previous, key) + value.len() + 4
}

fn shared_prefix(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(l, r)| l == r).count()
}
