//! A way in for fuzzers: the decoders of keys and values of a dataset's tree. Only with the feature `fuzzing`.
//!
//! Each answers whether the bytes were believed. Most values have one encoding, and then what is believed must encode to
//! the very same bytes, or the function panics.

use crate::acl::{Acl, inherit};
use crate::layout::{Entry, InodeRecord, Superblock, decode_extent, encode_extent, flags, keys};
use crate::properties::DatasetProperties;
use crate::types::{FileKind, Ino, Timestamp};
use packstone_pool::{RecordId, Stream};

/// Attributes of an inode.
pub fn inode(value: &[u8]) -> bool {
    let Ok(record) = InodeRecord::decode(value) else {
        return false;
    };
    assert_eq!(record.encode(), value);
    true
}

/// A name of a directory.
pub fn entry(value: &[u8]) -> bool {
    let Ok(entry) = Entry::decode(value) else {
        return false;
    };
    assert_eq!(entry.encode(), value);
    let bucket = keys::bucket(42, &entry.name);
    assert!(bucket > 255 && bucket.checked_add(keys::SLOTS).is_some());
    true
}

/// The record of a part of a file.
pub fn extent(value: &[u8]) -> bool {
    let Ok(id) = decode_extent(value) else {
        return false;
    };
    assert_eq!(encode_extent(id), value);
    true
}

/// The superblock.
pub fn superblock(value: &[u8]) -> bool {
    let Ok(superblock) = Superblock::decode(value) else {
        return false;
    };
    assert_eq!(superblock.encode(), value);
    true
}

/// A key of the tree.
pub fn key(bytes: &[u8]) -> bool {
    let Some(key) = keys::parse(bytes) else {
        return false;
    };
    let again = match key {
        keys::Key::Superblock => keys::superblock().to_vec(),
        keys::Key::Orphan(ino) => keys::orphan(ino).to_vec(),
        keys::Key::Inode(ino) => keys::inode(ino).to_vec(),
        keys::Key::Entry(ino, cookie) => keys::entry(ino, cookie).to_vec(),
        keys::Key::Extent(ino, index) => keys::extent(ino, index).to_vec(),
        keys::Key::Xattr(ino, name) => keys::xattr(ino, name),
        keys::Key::Symlink(ino) => keys::symlink(ino).to_vec(),
    };
    assert_eq!(again, bytes);
    true
}

/// An ACL, which is then inherited too.
pub fn acl(value: &[u8]) -> bool {
    let Ok(parsed) = Acl::parse("fuzz", value) else {
        return false;
    };
    if let Some(acl) = &parsed {
        assert_eq!(acl.encode(), value);
    }
    for mode in [0, 0o640, 0o7777] {
        let inherited = inherit("fuzz", value, mode).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(inherited.mode & !0o7777, 0);
        if let Some(access) = inherited.access {
            assert!(matches!(Acl::parse("fuzz", &access), Ok(Some(_))));
        }
    }
    true
}

/// Properties as text: `name=value`, one a line. What is understood must read the same once printed.
pub fn properties(text: &str) -> bool {
    let mut properties = DatasetProperties::default();
    for line in text.lines() {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        if properties.set(name, value).is_err() {
            return false;
        }
        let printed = properties.get(name).unwrap_or_default();
        let mut again = properties;
        assert!(
            again.set(name, &printed).is_ok() && again == properties,
            "{name}={printed}"
        );
    }
    true
}

/// Valid bytes for each decoder here, by its name, for a fuzzer to start from.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let time = Timestamp {
        seconds: -3,
        nanoseconds: 999_999_999,
    };
    let inode = InodeRecord {
        kind: FileKind::Regular,
        stream: Stream::ShortLived,
        record_bytes_log2: 13,
        flags: flags::XATTRS,
        mode: 0o4755,
        nlink: 2,
        uid: u32::MAX,
        gid: 26,
        rdev: 0,
        size_bytes: 1 << 40,
        stored_bytes: 812,
        parent: Ino(0),
        accessed: time,
        modified: time,
        changed: time,
        born: time,
    };
    let directory = InodeRecord {
        kind: FileKind::Directory,
        stream: Stream::Data,
        record_bytes_log2: 0,
        parent: Ino::ROOT,
        ..inode
    };
    let entry = Entry {
        kind: FileKind::Symlink,
        ino: Ino(300),
        name: b"pg_wal".to_vec(),
    };
    let superblock = Superblock {
        record_bytes_log2: 13,
        created: time,
        hash_seed: u64::MAX,
        next_ino: Ino(4097),
    };
    let ino = Ino(77);
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (1u16, 7u16, !0u32),
        (2, 6, 1000),
        (4, 5, !0),
        (0x10, 7, !0),
        (0x20, 4, !0),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    vec![
        ("inode", inode.encode()),
        ("inode", directory.encode()),
        ("entry", entry.encode()),
        ("extent", encode_extent(RecordId(1 << 40))),
        ("superblock", superblock.encode()),
        ("key", keys::superblock().to_vec()),
        ("key", keys::orphan(ino).to_vec()),
        ("key", keys::entry(ino, 1 << 40).to_vec()),
        ("key", keys::extent(ino, 9).to_vec()),
        ("key", keys::xattr(ino, b"user.a")),
        ("key", keys::symlink(ino).to_vec()),
        ("acl", acl),
        (
            "properties",
            b"recordsize=128K\ncompression=zstd-19\natime=relatime".to_vec(),
        ),
    ]
}
