//! The kernel's table of mounts, `/proc/self/mountinfo`.
//!
//! One line a mount; fields are separated by blanks, and blanks within a field are written as octal escapes:
//! `id parent major:minor root mountpoint options [optional ...] - type source super-options`.

use super::SUBTYPE;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// Where it is attached.
    pub mountpoint: PathBuf,
    /// What is attached: the dataset, for mounts of this program.
    pub source: String,
    /// The file system's type, with subtype: `fuse.packstone` for mounts of this program.
    pub file_system_type: String,
    /// Whether it was mounted read-only.
    pub read_only: bool,
    /// Device number of its files, major and minor.
    pub device: (u32, u32),
}

impl MountInfo {
    /// Whether this program made it.
    pub fn is_ours(&self) -> bool {
        self.file_system_type.strip_prefix("fuse.") == Some(SUBTYPE)
    }
}

/// What is mounted on exactly this path, topmost where several are. Does not ask the mount itself, so it answers for one
/// whose daemon has died or hangs too.
pub fn mounted_at(path: impl AsRef<Path>) -> Option<MountInfo> {
    let path = path.as_ref();
    let table = all();
    let find = |path: &Path| table.iter().rev().find(|mount| mount.mountpoint == path).cloned();
    // Resolving the whole path would ask the mount; only a path that ends in a link, or in "..", needs it.
    let found = resolve_parent(path).and_then(|path| find(&path));
    found.or_else(|| find(&fs::canonicalize(path).ok()?))
}

/// The path with everything but its last component resolved.
fn resolve_parent(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Some(fs::canonicalize(parent).ok()?.join(name))
}

/// All mounts of this program, in the order they were made.
pub fn mounts() -> Vec<MountInfo> {
    all().into_iter().filter(MountInfo::is_ours).collect()
}

fn all() -> Vec<MountInfo> {
    match fs::read("/proc/self/mountinfo") {
        Ok(table) => table.split(|byte| *byte == b'\n').filter_map(parse).collect(),
        Err(error) => {
            tracing::warn!(%error, "cannot read the mount table");
            Vec::new()
        }
    }
}

fn parse(line: &[u8]) -> Option<MountInfo> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let mountpoint = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    let options = fields.next()?;
    fields.find(|field| *field == b"-")?;
    let file_system_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    Some(MountInfo {
        mountpoint,
        source,
        file_system_type,
        read_only: options.split(|byte| *byte == b',').any(|option| option == b"ro"),
        device: (major.parse().ok()?, minor.parse().ok()?),
    })
}

/// `\040` and the like to the byte they stand for; anything else stays.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, others)) = rest.split_first() {
        let octal = match others.first_chunk::<3>() {
            Some(digits) if *first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)) => {
                Some(
                    digits
                        .iter()
                        .fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0')),
                )
            }
            _ => None,
        };
        match octal {
            Some(value) => {
                bytes.push(value as u8);
                rest = &others[3..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart_with_optional_fields_or_without() {
        for optional in ["", "shared:7 master:2 "] {
            let line = format!(
                "36 25 0:48 / /mnt/my\\040pool\\134x ro,relatime {optional}- fuse.packstone tank/pg rw,user_id=0"
            );
            let mount = parse(line.as_bytes()).expect("a mount");
            assert_eq!(mount.mountpoint, Path::new("/mnt/my pool\\x"));
            assert_eq!(mount.source, "tank/pg");
            assert_eq!(mount.device, (0, 48));
            assert!(mount.is_ours() && mount.read_only);
        }
    }

    #[test]
    fn other_file_systems_are_not_ours() {
        let line = b"36 25 8:1 / / rw - ext4 /dev/sda1 rw";
        assert!(!parse(line).expect("a mount").is_ours());
        let line = b"36 25 0:50 / /x rw - fuse.packstones y rw";
        assert!(!parse(line).expect("a mount").is_ours());
        assert_eq!(parse(b"nonsense"), None);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(mounted_at("/").is_some());
        assert!(mounted_at("/proc/self/no-such").is_none());
    }
}
