//! Results to bytes. A reply is a header, built last on the stack, and a body in the worker's own buffer.
//!
//! Layouts (offsets in bytes):
//!
//! | structure | fields |
//! |---|---|
//! | attributes, 88 | 0 ino, 8 size, 16 blocks of 512, 24 atime, 32 mtime, 40 ctime, 48 u32 ns of the three, 60 u32 mode, nlink, uid, gid, rdev, blksize, flags |
//! | entry, 128 | 0 node, 8 generation, 16 entry seconds, 24 attribute seconds, 32 u32 ns of both, 40 attributes |
//! | attributes reply, 104 | 0 valid seconds, 8 u32 ns, 12 unused, 16 attributes |
//! | directory entry | 0 ino, 8 cookie, 16 u32 name length, 20 u32 type, 24 name, zeros to a multiple of 8 |
//! | directory entry plus | 0 entry (128), 128 directory entry |
//! | statx reply, 288 | 0 valid seconds, 8 u32 ns, 12 flags, 16 unused (16), 32 `struct statx` as of minor 39 |

use crate::abi::{REPLY_HEADER_BYTES, STATX_BASIC_STATS, STATX_BTIME};
use packstone_fs::{Attributes, DirectoryEntry, FileKind, Statistics, Timestamp};

/// How long the kernel may trust a name, present or absent. All changes pass through it, so only memory pressure
/// needs to drop one; the bound is there to heal mistakes.
pub(crate) const NAME_VALID_SECONDS: u64 = 24 * 3600;
/// How long the kernel may trust attributes. Shorter, because stored sizes change behind it.
pub(crate) const ATTRIBUTES_VALID_SECONDS: u64 = 3600;

const ENTRY_BYTES: usize = 128;
const DIRECTORY_ENTRY_BYTES: usize = 24;
const STAT_BLOCK_BYTES: u64 = 512;

/// The header in front of every reply. `error` is a positive errno or 0.
pub(crate) fn header(unique: u64, error: i32, body_bytes: usize) -> [u8; REPLY_HEADER_BYTES] {
    let mut header = [0; REPLY_HEADER_BYTES];
    header[0..4].copy_from_slice(&((REPLY_HEADER_BYTES + body_bytes) as u32).to_ne_bytes());
    header[4..8].copy_from_slice(&(-error).to_ne_bytes());
    header[8..16].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// The body of a reply under construction. Holds on to its memory between requests.
#[derive(Debug, Default)]
pub(crate) struct ReplyBody {
    pub(crate) bytes: Vec<u8>,
}

impl ReplyBody {
    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_ne_bytes());
    }

    pub(crate) fn zeros(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
    }

    fn attribute_fields(&mut self, attributes: &Attributes) {
        self.u64(attributes.ino.0);
        self.u64(attributes.size_bytes);
        self.u64(attributes.stored_bytes.div_ceil(STAT_BLOCK_BYTES));
        let times = [attributes.accessed, attributes.modified, attributes.changed];
        for time in times {
            self.u64(time.seconds as u64);
        }
        for time in times {
            self.u32(time.nanoseconds);
        }
        self.u32(mode_bits(attributes));
        self.u32(attributes.nlink);
        self.u32(attributes.uid);
        self.u32(attributes.gid);
        self.u32(attributes.rdev as u32);
        self.u32(attributes.block_bytes);
        self.u32(0);
    }

    /// For GETATTR and SETATTR.
    pub(crate) fn attributes(&mut self, attributes: &Attributes) {
        self.u64(ATTRIBUTES_VALID_SECONDS);
        self.u64(0);
        self.attribute_fields(attributes);
    }

    /// For whatever gives the kernel a name with a new reference to its inode.
    pub(crate) fn entry(&mut self, attributes: &Attributes) {
        self.u64(attributes.ino.0);
        self.u64(0); // generation: inode numbers are never reused
        self.u64(NAME_VALID_SECONDS);
        self.u64(ATTRIBUTES_VALID_SECONDS);
        self.u64(0);
        self.attribute_fields(attributes);
    }

    /// A name that does not exist, and may be remembered as such.
    pub(crate) fn absent_entry(&mut self) {
        self.u64(0);
        self.u64(0);
        self.u64(NAME_VALID_SECONDS);
        self.zeros(ENTRY_BYTES - 24);
    }

    /// For OPEN, OPENDIR and behind the entry of CREATE. There are no file handles.
    pub(crate) fn opened(&mut self, open_flags: u32) {
        self.u64(0);
        self.u32(open_flags);
        self.u32(0);
    }

    /// Whether one more directory entry leaves the body within `size_bytes`.
    pub(crate) fn fits_directory_entry(&self, name: &[u8], size_bytes: usize, plus: bool) -> bool {
        let entry_bytes = if plus { ENTRY_BYTES } else { 0 };
        let wanted = entry_bytes + (DIRECTORY_ENTRY_BYTES + name.len()).next_multiple_of(8);
        self.bytes.len() + wanted <= size_bytes
    }

    pub(crate) fn directory_entry(&mut self, entry: &DirectoryEntry) {
        self.u64(entry.ino.0);
        self.u64(entry.cookie);
        self.u32(entry.name.len() as u32);
        self.u32(type_bits(entry.kind) >> 12);
        self.bytes.extend_from_slice(&entry.name);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// With `None` the kernel learns the name only, and holds no reference.
    pub(crate) fn directory_entry_plus(&mut self, entry: &DirectoryEntry, attributes: Option<&Attributes>) {
        match attributes {
            Some(attributes) => self.entry(attributes),
            None => self.zeros(ENTRY_BYTES),
        }
        self.directory_entry(entry);
    }

    pub(crate) fn statistics(&mut self, statistics: &Statistics) {
        self.u64(statistics.blocks);
        self.u64(statistics.blocks_free);
        self.u64(statistics.blocks_available);
        self.u64(0); // inodes: no limit but space
        self.u64(0);
        self.u32(statistics.block_bytes);
        self.u32(statistics.name_bytes_max);
        self.u32(statistics.block_bytes);
        self.zeros(4 + 24);
    }

    pub(crate) fn statx(&mut self, attributes: &Attributes) {
        self.u64(ATTRIBUTES_VALID_SECONDS);
        self.zeros(8 + 16);
        self.u32(STATX_BASIC_STATS | STATX_BTIME);
        self.u32(attributes.block_bytes);
        self.u64(0);
        self.u32(attributes.nlink);
        self.u32(attributes.uid);
        self.u32(attributes.gid);
        self.u32(mode_bits(attributes)); // 16 bits and 16 of padding
        self.u64(attributes.ino.0);
        self.u64(attributes.size_bytes);
        self.u64(attributes.stored_bytes.div_ceil(STAT_BLOCK_BYTES));
        self.u64(0);
        for time in [
            attributes.accessed,
            attributes.born,
            attributes.changed,
            attributes.modified,
        ] {
            self.statx_time(time);
        }
        let (major, minor) = split_device(attributes.rdev as u32);
        self.u32(major);
        self.u32(minor);
        self.zeros(8 + 14 * 8);
    }

    fn statx_time(&mut self, time: Timestamp) {
        self.u64(time.seconds as u64);
        self.u32(time.nanoseconds);
        self.u32(0);
    }
}

/// The file type bits of a mode.
pub(crate) fn type_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::BlockDevice => libc::S_IFBLK,
        FileKind::Regular => libc::S_IFREG,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Socket => libc::S_IFSOCK,
    }
}

fn mode_bits(attributes: &Attributes) -> u32 {
    type_bits(attributes.kind) | (attributes.mode & 0o7777)
}

/// The kernel's 32-bit device number: 12 bits of major between 8 low and 12 high bits of minor.
fn split_device(device: u32) -> (u32, u32) {
    (
        (device >> 8) & 0xfff,
        (device & 0xff) | ((device >> 12) & 0xf_ff00),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use packstone_fs::Ino;

    fn attributes() -> Attributes {
        let time = |seconds| Timestamp {
            seconds,
            nanoseconds: 9,
        };
        Attributes {
            ino: Ino(42),
            kind: FileKind::Regular,
            mode: 0o4755,
            nlink: 2,
            uid: 1000,
            gid: 100,
            rdev: 0,
            size_bytes: 8192,
            stored_bytes: 513,
            block_bytes: 8192,
            accessed: time(1),
            modified: time(-2),
            changed: time(3),
            born: time(4),
        }
    }

    fn u32_at(bytes: &[u8], offset: usize) -> u32 {
        u32::from_ne_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
    }

    fn u64_at(bytes: &[u8], offset: usize) -> u64 {
        u64::from_ne_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
    }

    #[test]
    fn structures_have_the_sizes_the_kernel_checks() {
        let size_of = |write: fn(&mut ReplyBody)| {
            let mut body = ReplyBody::default();
            write(&mut body);
            body.bytes.len()
        };
        assert_eq!(size_of(|body| body.attributes(&attributes())), 104);
        assert_eq!(size_of(|body| body.entry(&attributes())), 128);
        assert_eq!(size_of(|body| body.absent_entry()), 128);
        assert_eq!(size_of(|body| body.opened(0)), 16);
        assert_eq!(size_of(|body| body.statx(&attributes())), 288);
        let statistics = Statistics {
            block_bytes: 1,
            blocks: 2,
            blocks_free: 3,
            blocks_available: 4,
            name_bytes_max: 5,
        };
        let mut body = ReplyBody::default();
        body.statistics(&statistics);
        assert_eq!(body.bytes.len(), 80);
    }

    #[test]
    fn an_entry_holds_the_attributes_behind_its_times() {
        let mut body = ReplyBody::default();
        body.entry(&attributes());
        assert_eq!(u64_at(&body.bytes, 0), 42);
        assert_eq!(u64_at(&body.bytes, 40 + 8), 8192);
        assert_eq!(u64_at(&body.bytes, 40 + 16), 2, "blocks are rounded up");
        assert_eq!(u64_at(&body.bytes, 40 + 32) as i64, -2);
        assert_eq!(u32_at(&body.bytes, 40 + 60), libc::S_IFREG | 0o4755);
        assert_eq!(u32_at(&body.bytes, 40 + 80), 8192);
    }

    #[test]
    fn errors_are_negated_in_the_header() {
        let header = header(7, libc::ENOENT, 0);
        assert_eq!(u32_at(&header, 0), 16);
        assert_eq!(u32_at(&header, 4) as i32, -libc::ENOENT);
        assert_eq!(u64_at(&header, 8), 7);
    }

    #[test]
    fn directory_entries_fill_a_reply_to_the_brim_and_no_further() {
        let entry = DirectoryEntry {
            name: b"ninechars".to_vec(),
            ino: Ino(3),
            kind: FileKind::Directory,
            cookie: 6,
        };
        for (plus, bytes) in [(false, 40), (true, 168)] {
            let mut body = ReplyBody::default();
            assert!(body.fits_directory_entry(&entry.name, bytes, plus));
            assert!(!body.fits_directory_entry(&entry.name, bytes - 1, plus));
            match plus {
                true => body.directory_entry_plus(&entry, None),
                false => body.directory_entry(&entry),
            }
            assert_eq!(body.bytes.len(), bytes);
            assert_eq!(u64_at(&body.bytes, bytes - 40 + 8), 6);
            assert_eq!(u32_at(&body.bytes, bytes - 40 + 20), 4, "DT_DIR");
        }
    }

    #[test]
    fn large_device_numbers_survive() {
        let encoded = |major: u32, minor: u32| (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12);
        for (major, minor) in [(8, 1), (10, 229), (259, 300), (0xfff, 0xf_ffff)] {
            assert_eq!(split_device(encoded(major, minor)), (major, minor));
        }
    }
}
