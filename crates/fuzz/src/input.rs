//! Choices taken from the front of an input. When it is used up every choice is 0, so any bytes are a whole input.

/// The bytes not yet used.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

/// Numbers at the edges of what fields hold.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    7,
    0x7f,
    0x80,
    0xff,
    0x100,
    0xfff,
    0x1000,
    0x1001,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x4_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
    0x1_0000_0000,
    1 << 62,
    i64::MAX as u64,
    u64::MAX,
];

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        first
    }

    pub(crate) fn number16(&mut self) -> usize {
        usize::from(self.byte()) | usize::from(self.byte()) << 8
    }

    /// Below `count`, or 0 where there is nothing to choose from.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        match count {
            0 | 1 => 0,
            2..=256 => usize::from(self.byte()) % count,
            _ => self.number16() % count,
        }
    }

    /// Up to `length` bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// A number at an edge, or near it.
    pub(crate) fn edge(&mut self) -> u64 {
        let chosen = self.byte();
        let edge = EDGES[usize::from(chosen) % EDGES.len()];
        match chosen / 64 {
            0 | 1 => edge,
            2 => edge.wrapping_add(u64::from(self.byte())),
            _ => edge.wrapping_sub(u64::from(self.byte())),
        }
    }

    /// Changes `bytes` in one to three places; their number too, unless it is fixed.
    pub(crate) fn edit(&mut self, bytes: &mut Vec<u8>, fixed_length: bool) {
        for _ in 0..1 + self.byte() % 3 {
            self.edit_once(bytes, fixed_length);
        }
    }

    fn edit_once(&mut self, bytes: &mut Vec<u8>, fixed_length: bool) {
        let kind = self.byte() % if fixed_length { 6 } else { 9 };
        let at = self.below(bytes.len());
        let width = 1 << self.below(4);
        let end = bytes.len().min(at + width);
        match kind {
            0 if at < end => bytes[at] ^= self.byte().max(1),
            1 if at < end => bytes[at] = bytes[at].wrapping_add(self.byte()),
            2 => {
                let number = self.edge().to_le_bytes();
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            3 => {
                // Big-endian numbers stand in keys.
                let number = self.edge().to_be_bytes();
                bytes[at..end].copy_from_slice(&number[8 - (end - at)..]);
            }
            4 => {
                let from = self.below(bytes.len());
                let length = self.below(64).min(bytes.len() - from.max(at));
                bytes.copy_within(from..from + length, at);
            }
            5 => {
                let given = self.bytes(width);
                let length = given.len().min(end - at);
                bytes[at..at + length].copy_from_slice(&given[..length]);
            }
            6 => drop(bytes.drain(at..end)),
            7 => {
                let count = usize::from(self.byte() % 32);
                let given = self.bytes(count).to_vec();
                bytes.splice(at..at, given);
            }
            8 => self.put_varint(bytes, at),
            _ => {}
        }
    }

    /// Replaces the number that begins at `at`, if one does, with another.
    fn put_varint(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let length = bytes[at..].iter().take_while(|byte| **byte & 0x80 != 0).count() + 1;
        let end = bytes.len().min(at + length);
        let mut number = self.edge();
        let mut encoded = Vec::new();
        while number >= 0x80 {
            encoded.push(number as u8 | 0x80);
            number >>= 7;
        }
        encoded.push(number as u8);
        bytes.splice(at..end, encoded);
    }
}
