//! Values of directory entries and extents.
//!
//! | value | bytes |
//! |---|---|
//! | entry, version 1 | `01`, kind u8, ino varint, name (the rest, 1 to 255 bytes) |
//! | extent | record id varint |
//!
//! Extents carry no version: there is one for each page stored, so a byte counts.

use super::DecodeResult;
use super::inode::{decode_kind, encode_kind};
use super::wire::{Reader, put_varint};
use crate::types::{FileKind, Ino};
use packstone_pool::RecordId;

const VERSION: u8 = 1;

/// Longest name in a directory.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: FileKind,
    pub(crate) ino: Ino,
    pub(crate) name: Vec<u8>,
}

impl Entry {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(12 + self.name.len());
        out.extend([VERSION, encode_kind(self.kind)]);
        put_varint(&mut out, self.ino.0);
        out.extend_from_slice(&self.name);
        out
    }

    pub(crate) fn decode(value: &[u8]) -> DecodeResult<Entry> {
        let mut reader = Reader::new(value);
        if reader.byte()? != VERSION {
            return Err("unknown version of a directory entry");
        }
        let kind = decode_kind(reader.byte()?)?;
        let ino = Ino(reader.varint()?);
        let name = reader.remainder().to_vec();
        if ino.0 == 0 {
            return Err("entry without an inode");
        }
        if !is_name(&name) {
            return Err("entry with a bad name");
        }
        Ok(Entry { kind, ino, name })
    }
}

/// Whether a directory may hold this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let dots = name == b"." || name == b"..";
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !dots
        && !name.iter().any(|&byte| byte == 0 || byte == b'/')
}

pub(crate) fn encode_extent(record: RecordId) -> Vec<u8> {
    let mut out = Vec::with_capacity(8);
    put_varint(&mut out, record.0);
    out
}

pub(crate) fn decode_extent(value: &[u8]) -> DecodeResult<RecordId> {
    let mut reader = Reader::new(value);
    let record = RecordId(reader.varint()?);
    reader.finish()?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_and_bad_ones_fail() {
        let entry = Entry {
            kind: FileKind::Fifo,
            ino: Ino(1 << 40),
            name: b"pipe".to_vec(),
        };
        let bytes = entry.encode();
        assert_eq!(Entry::decode(&bytes), Ok(entry));
        let prefix = bytes.len() - 4;
        for length in 0..=prefix {
            assert!(Entry::decode(&bytes[..length]).is_err(), "cut to {length}");
        }
        for (position, byte) in [(0, 9), (1, 99), (prefix, b'/')] {
            let mut bad = bytes.clone();
            bad[position] = byte;
            assert!(Entry::decode(&bad).is_err());
        }
    }

    #[test]
    fn extents_survive_and_bad_ones_fail() {
        assert_eq!(decode_extent(&encode_extent(RecordId(300))), Ok(RecordId(300)));
        assert!(decode_extent(&[]).is_err());
        assert!(decode_extent(&[1, 2]).is_err());
    }
}
