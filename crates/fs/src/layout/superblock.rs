//! Superblock of a dataset, under its reserved key.
//!
//! | field | bytes |
//! |---|---|
//! | version | u8, 1 |
//! | record size when created | u8, log2 of bytes |
//! | created | seconds zigzag varint, nanoseconds varint |
//! | hash seed | varint |
//! | next ino | varint: no inode has this number or a greater one |
//!
//! Inode numbers are handed out from memory below `next ino`, which is raised by a block at a time before any number
//! of the block is used: numbers may be skipped after a crash, and never repeat.

use super::DecodeResult;
use super::wire::{Reader, put_timestamp, put_varint};
use crate::types::{Ino, Timestamp};

const VERSION: u8 = 1;

/// What holds for the whole dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) record_bytes_log2: u8,
    pub(crate) created: Timestamp,
    /// Secret key of the name hash, so that nobody can choose names that collide.
    pub(crate) hash_seed: u64,
    pub(crate) next_ino: Ino,
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, self.record_bytes_log2];
        put_timestamp(&mut out, self.created);
        put_varint(&mut out, self.hash_seed);
        put_varint(&mut out, self.next_ino.0);
        out
    }

    pub(crate) fn decode(value: &[u8]) -> DecodeResult<Superblock> {
        let mut reader = Reader::new(value);
        if reader.byte()? != VERSION {
            return Err("unknown version of the superblock");
        }
        let superblock = Superblock {
            record_bytes_log2: reader.byte()?,
            created: reader.timestamp()?,
            hash_seed: reader.varint()?,
            next_ino: Ino(reader.varint()?),
        };
        reader.finish()?;
        if superblock.next_ino <= Ino::ROOT {
            return Err("next inode number below the root");
        }
        Ok(superblock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_and_every_cut_fails() {
        let created = Timestamp {
            seconds: 1_700_000_000,
            nanoseconds: 5,
        };
        let superblock = Superblock {
            record_bytes_log2: 13,
            created,
            hash_seed: u64::MAX,
            next_ino: Ino(4097),
        };
        let bytes = superblock.encode();
        assert_eq!(Superblock::decode(&bytes), Ok(superblock));
        for length in 0..bytes.len() {
            assert!(Superblock::decode(&bytes[..length]).is_err());
        }
    }
}
