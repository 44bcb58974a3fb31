//! Recognises what already lies on a member, so that `create` never overwrites it unasked.
//!
//! A second opinion beside `packstone_pool::probe`: a table of magic numbers at fixed offsets, then `blkid` when the system
//! has it, then whether the head and tail of the member hold anything but zeros. Only reads. The offsets are the
//! published ones of each format (libblkid's probes list them all).
//!
//! Leaves out formats whose only mark is in the middle of the device, or that have none: those count as unknown data
//! because their first or last MiB is not zero.

use anyhow::Context;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// How much of the head and the tail must be zero for a member to count as empty.
const EDGE_BYTES: u64 = 1 << 20;

struct Magic {
    offset_bytes: u64,
    bytes: &'static [u8],
    name: &'static str,
}

const fn magic(offset_bytes: u64, bytes: &'static [u8], name: &'static str) -> Magic {
    Magic {
        offset_bytes,
        bytes,
        name,
    }
}

/// Partition tables stand last: a file system in the first sectors says more than the boot signature behind it.
const MAGICS: &[Magic] = &[
    magic(0x438, &[0x53, 0xEF], "an ext2, ext3 or ext4 file system"),
    magic(0, b"XFSB", "an xfs file system"),
    magic(0x10040, b"_BHRfS_M", "a btrfs file system"),
    magic(0x1018, &[0xc6, 0x85, 0x73, 0xf6], "a bcache or bcachefs member"),
    magic(4096 - 10, b"SWAPSPACE2", "swap space"),
    magic(4096 - 10, b"SWAP-SPACE", "swap space"),
    magic(65536 - 10, b"SWAPSPACE2", "swap space"),
    magic(0, b"LUKS\xba\xbe", "a LUKS encrypted volume"),
    magic(0x218, b"LVM2 001", "an LVM physical volume"),
    magic(0x018, b"LVM2 001", "an LVM physical volume"),
    magic(0x200, b"LABELONE", "an LVM physical volume"),
    magic(0x1000, &[0xfc, 0x4e, 0x2b, 0xa9], "a Linux RAID member"),
    magic(0, &[0xfc, 0x4e, 0x2b, 0xa9], "a Linux RAID member"),
    magic(0x400, &[0x10, 0x20, 0xf5, 0xf2], "an f2fs file system"),
    magic(0x8001, b"CD001", "an ISO 9660 file system"),
    magic(0x8000, b"JFS1", "a jfs file system"),
    magic(0x10034, b"ReIsEr", "a reiserfs file system"),
    magic(0, b"hsqs", "a squashfs file system"),
    magic(0x400, &[0xe2, 0xe1, 0xf5, 0xe0], "an erofs file system"),
    magic(3, b"NTFS    ", "an NTFS file system"),
    magic(3, b"EXFAT   ", "an exFAT file system"),
    magic(0x52, b"FAT32   ", "a FAT file system"),
    magic(0x36, b"FAT1", "a FAT file system"),
    magic(0, b"bvx", "an Apple disk image"),
    magic(0, b"QFI\xfb", "a qcow2 disk image"),
    magic(0, b"KDMV", "a VMware disk image"),
    magic(0, b"conectix", "a VHD disk image"),
    magic(0x200, b"EFI PART", "a GPT partition table"),
    magic(0x1000, b"EFI PART", "a GPT partition table"),
    magic(0x1fe, &[0x55, 0xaa], "a partition table or boot sector"),
];

/// Uberblocks of ZFS: 128 KiB into the label, every KiB, in either byte order; labels stand at 0 and 256 KiB.
const ZFS_UBERBLOCK: u64 = 0x00bab10c;

/// What the member holds, as in "an xfs file system"; `None` when nothing is to be seen.
pub fn recognise(path: &Path) -> anyhow::Result<Option<String>> {
    if let Some(name) = recognise_format(path)? {
        return Ok(Some(name));
    }
    let context = || format!("look at what {} holds", path.display());
    let file = File::open(path).with_context(context)?;
    let size_bytes = size_of(&file).with_context(context)?;
    let edge_bytes = EDGE_BYTES.min(size_bytes);
    for offset_bytes in [0, size_bytes - edge_bytes] {
        let edge = read_up_to(&file, offset_bytes, edge_bytes).with_context(context)?;
        if edge.iter().any(|byte| *byte != 0) {
            return Ok(Some("data of an unknown kind".to_string()));
        }
    }
    Ok(None)
}

/// The same, of known formats only.
pub fn recognise_format(path: &Path) -> anyhow::Result<Option<String>> {
    let context = || format!("look at what {} holds", path.display());
    let file = File::open(path).with_context(context)?;
    let head = read_up_to(&file, 0, EDGE_BYTES).with_context(context)?;
    Ok(recognise_head(&head)
        .map(str::to_string)
        .or_else(|| ask_blkid(path)))
}

fn recognise_head(head: &[u8]) -> Option<&'static str> {
    let holds = |magic: &&Magic| {
        let start = magic.offset_bytes as usize;
        head.get(start..start + magic.bytes.len()) == Some(magic.bytes)
    };
    // ZFS goes first: its label leaves room for a boot sector of somebody else.
    if holds_zfs(head) {
        return Some("a ZFS pool member");
    }
    MAGICS.iter().find(holds).map(|magic| magic.name)
}

fn holds_zfs(head: &[u8]) -> bool {
    let uberblocks = |label: usize| (label + (128 << 10)..label + (256 << 10)).step_by(1024);
    [0, 256 << 10].into_iter().flat_map(uberblocks).any(|offset| {
        let Some(bytes) = head
            .get(offset..offset + 8)
            .and_then(|bytes| <[u8; 8]>::try_from(bytes).ok())
        else {
            return false;
        };
        u64::from_le_bytes(bytes) == ZFS_UBERBLOCK || u64::from_be_bytes(bytes) == ZFS_UBERBLOCK
    })
}

fn size_of(file: &File) -> std::io::Result<u64> {
    // Seeking gives the size of files and of block devices alike.
    use std::io::{Seek, SeekFrom};
    let mut file = file;
    file.seek(SeekFrom::End(0))
}

fn read_up_to(file: &File, offset_bytes: u64, length_bytes: u64) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; length_bytes as usize];
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset_bytes + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

/// `blkid` knows more formats than the table; a missing or failing `blkid` is no opinion.
fn ask_blkid(path: &Path) -> Option<String> {
    let program = ["/usr/sbin/blkid", "/sbin/blkid"]
        .into_iter()
        .find(|program| Path::new(program).exists())?;
    let output = Command::new(program)
        .args(["-p", "-o", "export"])
        .arg(path)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(key))
            .map(str::to_string)
    };
    match (value("TYPE="), value("PTTYPE=")) {
        (Some(kind), _) => Some(format!("content of type '{kind}' (says blkid)")),
        (None, Some(kind)) => Some(format!("a partition table of type '{kind}' (says blkid)")),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognise_bytes(size_bytes: u64, marks: &[(u64, &[u8])]) -> Option<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size_bytes).unwrap();
        for (offset_bytes, bytes) in marks {
            file.as_file().write_all_at(bytes, *offset_bytes).unwrap();
        }
        recognise(file.path()).unwrap()
    }

    #[test]
    fn zeros_are_empty_and_anything_at_the_edges_is_not() {
        assert_eq!(recognise_bytes(0, &[]), None);
        assert_eq!(recognise_bytes(64 << 20, &[]), None);
        assert!(recognise_bytes(64 << 20, &[(0, b"x")]).is_some());
        assert!(recognise_bytes(64 << 20, &[((64 << 20) - 1, b"x")]).is_some());
        assert!(recognise_bytes(100, &[(99, b"x")]).is_some());
    }

    #[test]
    fn every_magic_is_recognised() {
        for magic in MAGICS {
            let found = recognise_bytes(8 << 20, &[(magic.offset_bytes, magic.bytes)]).unwrap();
            assert_eq!(found, magic.name);
        }
        assert_eq!(
            recognise_bytes(8 << 20, &[(132 << 10, &ZFS_UBERBLOCK.to_le_bytes())]).unwrap(),
            "a ZFS pool member"
        );
    }

    #[test]
    fn a_file_system_wins_over_its_boot_sector() {
        let found = recognise_bytes(8 << 20, &[(0x1fe, &[0x55, 0xaa]), (0x52, b"FAT32   ")]).unwrap();
        assert_eq!(found, "a FAT file system");
    }
}
