//! Keys of a dataset's tree.
//!
//! | bytes | key |
//! |---|---|
//! | ino u64 BE, `00` | attributes of an inode |
//! | ino u64 BE, `01`, cookie u64 BE | one name of a directory |
//! | ino u64 BE, `02`, record index u64 BE | one record of a file |
//! | ino u64 BE, `03`, name | one extended attribute |
//! | ino u64 BE, `04` | target of a symlink |
//! | 0 u64, `00` | superblock |
//! | 0 u64, `01`, ino u64 BE | orphan: an inode without a name that still exists |
//!
//! Big-endian numbers make byte order numeric order: all of an inode lies together, its attributes first, names in
//! cookie order, records in file order. Cookie: 55 bits of the name's keyed hash (never 0), then 8 bits that tell
//! colliding names apart; so it is below 2^63, above 255, and stays the same as long as the name exists.

use crate::types::Ino;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Type bytes.
pub(crate) mod tags {
    pub(crate) const INODE: u8 = 0;
    pub(crate) const ENTRY: u8 = 1;
    pub(crate) const EXTENT: u8 = 2;
    pub(crate) const XATTR: u8 = 3;
    pub(crate) const SYMLINK: u8 = 4;
    /// Sorts behind every key of an inode.
    pub(crate) const END: u8 = 0xff;
}

/// Owner of the superblock and the orphan keys; no inode has this number.
pub(crate) const RESERVED: Ino = Ino(0);

/// Names that may share one hash.
pub(crate) const SLOTS: u64 = 256;

fn short(ino: Ino, tag: u8) -> [u8; 9] {
    let mut key = [0; 9];
    key[..8].copy_from_slice(&ino.0.to_be_bytes());
    key[8] = tag;
    key
}

fn numbered(ino: Ino, tag: u8, number: u64) -> [u8; 17] {
    let mut key = [0; 17];
    key[..9].copy_from_slice(&short(ino, tag));
    key[9..].copy_from_slice(&number.to_be_bytes());
    key
}

pub(crate) fn inode(ino: Ino) -> [u8; 9] {
    short(ino, tags::INODE)
}

pub(crate) fn entry(directory: Ino, cookie: u64) -> [u8; 17] {
    numbered(directory, tags::ENTRY, cookie)
}

pub(crate) fn extent(ino: Ino, index: u64) -> [u8; 17] {
    numbered(ino, tags::EXTENT, index)
}

pub(crate) fn symlink(ino: Ino) -> [u8; 9] {
    short(ino, tags::SYMLINK)
}

pub(crate) fn xattr(ino: Ino, name: &[u8]) -> Vec<u8> {
    [&short(ino, tags::XATTR), name].concat()
}

/// Sorts behind all extended attributes of the inode.
pub(crate) fn xattr_end(ino: Ino) -> [u8; 9] {
    symlink(ino)
}

/// Sorts behind everything of the inode.
pub(crate) fn end(ino: Ino) -> [u8; 9] {
    short(ino, tags::END)
}

pub(crate) fn superblock() -> [u8; 9] {
    inode(RESERVED)
}

pub(crate) fn orphan(ino: Ino) -> [u8; 17] {
    numbered(RESERVED, tags::ENTRY, ino.0)
}

/// First cookie of the bucket of `name`; the bucket has [`SLOTS`] cookies.
pub(crate) fn bucket(seed: u64, name: &[u8]) -> u64 {
    let hash = xxh3_64_with_seed(name, seed) >> 9;
    hash.max(1) << 8
}

/// A key taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key<'a> {
    Superblock,
    Orphan(Ino),
    Inode(Ino),
    Entry(Ino, u64),
    Extent(Ino, u64),
    Xattr(Ino, &'a [u8]),
    Symlink(Ino),
}

/// `None`: no key of ours.
pub(crate) fn parse(key: &[u8]) -> Option<Key<'_>> {
    let (ino, rest) = key.split_first_chunk::<8>()?;
    let (&tag, rest) = rest.split_first()?;
    let ino = Ino(u64::from_be_bytes(*ino));
    let number = || <[u8; 8]>::try_from(rest).ok().map(u64::from_be_bytes);
    match (ino, tag) {
        (RESERVED, tags::INODE) if rest.is_empty() => Some(Key::Superblock),
        (RESERVED, tags::ENTRY) => number().map(|orphan| Key::Orphan(Ino(orphan))),
        (RESERVED, _) => None,
        (_, tags::INODE) if rest.is_empty() => Some(Key::Inode(ino)),
        (_, tags::ENTRY) => number().map(|cookie| Key::Entry(ino, cookie)),
        (_, tags::EXTENT) => number().map(|index| Key::Extent(ino, index)),
        (_, tags::XATTR) if !rest.is_empty() => Some(Key::Xattr(ino, rest)),
        (_, tags::SYMLINK) if rest.is_empty() => Some(Key::Symlink(ino)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_parse_back() {
        let ino = Ino(77);
        assert_eq!(parse(&inode(ino)), Some(Key::Inode(ino)));
        assert_eq!(parse(&entry(ino, 5)), Some(Key::Entry(ino, 5)));
        assert_eq!(parse(&extent(ino, u64::MAX)), Some(Key::Extent(ino, u64::MAX)));
        assert_eq!(parse(&xattr(ino, b"user.a")), Some(Key::Xattr(ino, b"user.a")));
        assert_eq!(parse(&symlink(ino)), Some(Key::Symlink(ino)));
        assert_eq!(parse(&superblock()), Some(Key::Superblock));
        assert_eq!(parse(&orphan(ino)), Some(Key::Orphan(ino)));
        for bad in [
            &b""[..],
            b"\0\0\0\0\0\0\0\x01",
            b"\0\0\0\0\0\0\0\x01\x02\0",
            b"\0\0\0\0\0\0\0\x01\x09",
            b"\0\0\0\0\0\0\0\x01\x03",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_inode_lies_together_in_order() {
        let ino = Ino(300);
        let keys = [
            inode(ino).to_vec(),
            entry(ino, 1 << 60).to_vec(),
            extent(ino, 0).to_vec(),
            extent(ino, 256).to_vec(),
            xattr(ino, b"a"),
            xattr(ino, &[0xff; 255]),
            xattr_end(ino).to_vec(),
            end(ino).to_vec(),
            inode(Ino(301)).to_vec(),
        ];
        assert!(keys.is_sorted());
    }

    #[test]
    fn cookies_stay_in_their_range() {
        for name in [&b"a"[..], b"b", b"pg_wal", &[0; 255]] {
            let first = bucket(42, name);
            assert!(first >= 256 && first + SLOTS - 1 < 1 << 63 && first % SLOTS == 0);
        }
        assert_ne!(bucket(1, b"same"), bucket(2, b"same"));
    }
}
