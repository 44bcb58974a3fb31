//! Value of an inode's attributes, about 50 bytes.
//!
//! | field | bytes |
//! |---|---|
//! | version | u8, 1 |
//! | kind | u8: 1 regular, 2 directory, 3 symlink, 4 fifo, 5 socket, 6 character device, 7 block device |
//! | stream | u8: 0 data, 1 short-lived |
//! | record size | u8: log2 of bytes, 0 before the first write |
//! | flags | u8, see [`flags`] |
//! | mode (07777), nlink, uid, gid, rdev, size, stored bytes, parent | varint each |
//! | accessed, modified, changed, born | seconds zigzag varint, nanoseconds varint each |
//!
//! Size of a directory is the number of its entries. Parent is 0 for what is not a directory, and the root's own
//! number for the root.

use super::DecodeResult;
use super::wire::{Reader, put_timestamp, put_varint};
use crate::types::{FileKind, Ino, Timestamp};
use packstone_pool::Stream;

const VERSION: u8 = 1;

/// Record sizes are powers of two from 4 KiB to 1 MiB.
pub(crate) const RECORD_BYTES_LOG2: std::ops::RangeInclusive<u8> = 12..=20;

/// Bits that save a look-up of attributes that files rarely have.
pub(crate) mod flags {
    /// Has `security.capability`.
    pub(crate) const CAPABILITY: u8 = 1;
    /// Has an access ACL that says more than the mode.
    pub(crate) const ACCESS_ACL: u8 = 2;
    /// Directory with a default ACL.
    pub(crate) const DEFAULT_ACL: u8 = 4;
    /// Has, or once had, extended attributes.
    pub(crate) const XATTRS: u8 = 8;
    /// Records were overwritten after this value was put: stored bytes must be counted again after a crash.
    pub(crate) const STORED_INEXACT: u8 = 16;
    pub(crate) const ALL: u8 = 31;
}

/// Attributes of an inode as they lie in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeRecord {
    pub(crate) kind: FileKind,
    pub(crate) stream: Stream,
    pub(crate) record_bytes_log2: u8,
    pub(crate) flags: u8,
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u64,
    pub(crate) size_bytes: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) parent: Ino,
    pub(crate) accessed: Timestamp,
    pub(crate) modified: Timestamp,
    pub(crate) changed: Timestamp,
    pub(crate) born: Timestamp,
}

impl InodeRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(72);
        let stream = match self.stream {
            Stream::Data => 0,
            Stream::ShortLived => 1,
        };
        out.extend([
            VERSION,
            encode_kind(self.kind),
            stream,
            self.record_bytes_log2,
            self.flags,
        ]);
        for number in [
            u64::from(self.mode),
            u64::from(self.nlink),
            u64::from(self.uid),
            u64::from(self.gid),
            self.rdev,
        ] {
            put_varint(&mut out, number);
        }
        for number in [self.size_bytes, self.stored_bytes, self.parent.0] {
            put_varint(&mut out, number);
        }
        for time in [self.accessed, self.modified, self.changed, self.born] {
            put_timestamp(&mut out, time);
        }
        out
    }

    pub(crate) fn decode(value: &[u8]) -> DecodeResult<InodeRecord> {
        let mut reader = Reader::new(value);
        if reader.byte()? != VERSION {
            return Err("unknown version of an inode");
        }
        let kind = decode_kind(reader.byte()?)?;
        let stream = match reader.byte()? {
            0 => Stream::Data,
            1 => Stream::ShortLived,
            _ => return Err("unknown stream"),
        };
        let record_bytes_log2 = reader.byte()?;
        let flags = reader.byte()?;
        let record = InodeRecord {
            kind,
            stream,
            record_bytes_log2,
            flags,
            mode: reader.varint_u32()?,
            nlink: reader.varint_u32()?,
            uid: reader.varint_u32()?,
            gid: reader.varint_u32()?,
            rdev: reader.varint()?,
            size_bytes: reader.varint()?,
            stored_bytes: reader.varint()?,
            parent: Ino(reader.varint()?),
            accessed: reader.timestamp()?,
            modified: reader.timestamp()?,
            changed: reader.timestamp()?,
            born: reader.timestamp()?,
        };
        reader.finish()?;
        if record_bytes_log2 != 0 && !RECORD_BYTES_LOG2.contains(&record_bytes_log2) {
            return Err("record size out of range");
        }
        if flags & !flags::ALL != 0 || record.mode > 0o7777 || record.size_bytes > i64::MAX as u64 {
            return Err("flags, mode or size out of range");
        }
        if (kind == FileKind::Directory) != (record.parent.0 != 0) {
            return Err("parent of what is not a directory, or a directory without one");
        }
        Ok(record)
    }

    /// Bytes in a full record; `None` before the first write.
    pub(crate) fn record_bytes(&self) -> Option<u64> {
        (self.record_bytes_log2 != 0).then(|| 1 << self.record_bytes_log2)
    }
}

pub(super) fn encode_kind(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::Symlink => 3,
        FileKind::Fifo => 4,
        FileKind::Socket => 5,
        FileKind::CharDevice => 6,
        FileKind::BlockDevice => 7,
    }
}

pub(super) fn decode_kind(byte: u8) -> DecodeResult<FileKind> {
    Ok(match byte {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::Symlink,
        4 => FileKind::Fifo,
        5 => FileKind::Socket,
        6 => FileKind::CharDevice,
        7 => FileKind::BlockDevice,
        _ => return Err("unknown kind of inode"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> InodeRecord {
        let time = Timestamp {
            seconds: -3,
            nanoseconds: 999_999_999,
        };
        InodeRecord {
            kind: FileKind::Regular,
            stream: Stream::ShortLived,
            record_bytes_log2: 13,
            flags: flags::XATTRS,
            mode: 0o4755,
            nlink: 2,
            uid: u32::MAX,
            gid: 26,
            rdev: 0,
            size_bytes: i64::MAX as u64,
            stored_bytes: 812,
            parent: Ino(0),
            accessed: time,
            modified: time,
            changed: time,
            born: time,
        }
    }

    #[test]
    fn survives_and_every_cut_fails() {
        let bytes = example().encode();
        assert_eq!(InodeRecord::decode(&bytes), Ok(example()));
        for length in 0..bytes.len() {
            assert!(InodeRecord::decode(&bytes[..length]).is_err());
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(InodeRecord::decode(&longer).is_err());
    }

    #[test]
    fn any_bytes_decode_or_fail() {
        let bytes = example().encode();
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[position] ^= 1 << bit;
                if let Ok(record) = InodeRecord::decode(&bad) {
                    assert_eq!(record.encode(), bad, "one value has one encoding");
                }
            }
        }
    }
}
