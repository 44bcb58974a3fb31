//! Comparing two directory trees by what a copy is meant to carry over, and saying which path differs in what.
//!
//! | entry | compared |
//! |---|---|
//! | any | kind, permissions, owner, group, `user.*` attributes and ACLs, time of modification in ns |
//! | file | size and every byte; which other names in the tree are links to it |
//! | symlink | target; permissions and attributes not, they have none of their own |
//! | device | device number |
//!
//! Never compared, because a copy does not carry them or a file system decides them: times of access and change, inode
//! numbers, the size and link count of directories, blocks, `security.*` and `trusted.*` attributes, the root's own entry.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// One entry of a tree, without the bytes of files.
struct Entry {
    path: PathBuf,
    fields: Vec<(&'static str, String)>,
    is_file: bool,
}

/// A tree by path below its root. Ordered by bytes, whatever the locale is.
type Listing = BTreeMap<OsString, Entry>;

/// What of `copy` differs from `original`, a line each; empty if nothing does.
pub(super) fn differences(original: &Path, copy: &Path) -> Result<Vec<String>> {
    let (first, second) = (list(original)?, list(copy)?);
    let mut found = Vec::new();
    for (name, entry) in &first {
        match second.get(name) {
            None => found.push(format!("{name:?} is missing in {}", copy.display())),
            Some(other) => compare(name, entry, other, &mut found)?,
        }
    }
    let extra = second.keys().filter(|name| !first.contains_key(*name));
    found.extend(extra.map(|name| format!("{name:?} is only in {}", copy.display())));
    Ok(found)
}

/// Number of entries below `root`.
pub(super) fn count(root: &Path) -> Result<u64> {
    Ok(list(root)?.len() as u64)
}

fn compare(name: &OsStr, first: &Entry, second: &Entry, found: &mut Vec<String>) -> Result<()> {
    let before = found.len();
    for (field, value) in &first.fields {
        let other = second.fields.iter().find(|(known, _)| known == field);
        let other = other.map_or("nothing", |(_, other)| other);
        if value != other {
            found.push(format!("{name:?}: {field} is {other} in place of {value}"));
        }
    }
    if first.is_file
        && second.is_file
        && found.len() == before
        && let Some(offset) = first_difference(&first.path, &second.path)?
    {
        found.push(format!("{name:?}: bytes differ from {offset} on"));
    }
    Ok(())
}

fn list(root: &Path) -> Result<Listing> {
    let mut listing = Listing::new();
    // The first name of every file with several; the others name it.
    let mut links: BTreeMap<(u64, u64), Vec<OsString>> = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        let entries =
            std::fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.strip_prefix(root).unwrap_or(&path).as_os_str().to_owned();
            let metadata = path
                .symlink_metadata()
                .with_context(|| format!("cannot look at {}", path.display()))?;
            if metadata.is_dir() {
                open.push(path.clone());
            } else if metadata.nlink() > 1 {
                links
                    .entry((metadata.dev(), metadata.ino()))
                    .or_default()
                    .push(name.clone());
            }
            let fields = describe(&path, &metadata)?;
            listing.insert(
                name,
                Entry {
                    path,
                    fields,
                    is_file: metadata.is_file(),
                },
            );
        }
    }
    for mut names in links.into_values() {
        names.sort();
        let joined = format!("{names:?}");
        for name in &names {
            if let Some(entry) = listing.get_mut(name) {
                entry.fields.push(("the set of names", joined.clone()));
            }
        }
    }
    Ok(listing)
}

fn describe(path: &Path, metadata: &std::fs::Metadata) -> Result<Vec<(&'static str, String)>> {
    let kind = metadata.file_type();
    let kind_name = match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "symlink",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_char_device() => "character device",
        () => "block device",
    };
    let mut fields = vec![
        ("kind", kind_name.to_owned()),
        ("owner", metadata.uid().to_string()),
        ("group", metadata.gid().to_string()),
        (
            "modified",
            format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec()),
        ),
    ];
    if kind.is_symlink() {
        fields.push(("target", format!("{:?}", std::fs::read_link(path)?)));
        return Ok(fields);
    }
    fields.push(("mode", format!("{:o}", metadata.mode() & 0o7777)));
    if kind.is_file() {
        fields.push(("size", metadata.size().to_string()));
    }
    if kind.is_char_device() || kind.is_block_device() {
        fields.push(("device", metadata.rdev().to_string()));
    }
    fields.push(("attributes", attributes(path)?));
    Ok(fields)
}

/// Attributes that programs set, and ACLs.
fn attributes(path: &Path) -> Result<String> {
    let mut names = vec![0_u8; 64 << 10];
    let length = match rustix::fs::llistxattr(path, &mut names) {
        Ok(length) => length,
        // A file system without attributes: then there are none.
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(String::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot list the attributes of {}", path.display()));
        }
    };
    let mut shown: Vec<String> = Vec::new();
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        if name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_") {
            let mut value = vec![0_u8; 64 << 10];
            let length = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value)
                .with_context(|| format!("cannot read an attribute of {}", path.display()))?;
            shown.push(format!(
                "{}={:?}",
                String::from_utf8_lossy(name),
                &value[..length]
            ));
        }
    }
    shown.sort();
    Ok(shown.join(" "))
}

/// Where two files begin to differ.
fn first_difference(first: &Path, second: &Path) -> Result<Option<u64>> {
    let open = |path: &Path| File::open(path).with_context(|| format!("cannot open {}", path.display()));
    let (mut first, mut second) = (open(first)?, open(second)?);
    let (mut left, mut right) = (vec![0_u8; 256 << 10], vec![0_u8; 256 << 10]);
    let mut offset = 0;
    loop {
        let length = fill(&mut first, &mut left)?;
        let other = fill(&mut second, &mut right)?;
        let differs = left[..length]
            .iter()
            .zip(&right[..other])
            .position(|(one, two)| one != two);
        if let Some(at) = differs.or((length != other).then_some(length.min(other))) {
            return Ok(Some(offset + at as u64));
        }
        if length == 0 {
            return Ok(None);
        }
        offset += length as u64;
    }
}

fn fill(file: &mut File, buffer: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            length => filled += length,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn tree(name: &str, parent: &Path) -> PathBuf {
        let root = parent.join(name);
        std::fs::create_dir_all(root.join("below")).expect("directories");
        std::fs::write(root.join("below/file"), b"0123456789").expect("a file");
        std::fs::hard_link(root.join("below/file"), root.join("second name")).expect("a link");
        std::os::unix::fs::symlink("below/file", root.join("symlink")).expect("a symlink");
        let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for path in ["below/file", "below"] {
            let file = File::open(root.join(path)).expect("it is there");
            file.set_modified(time).expect("a time");
        }
        let times = rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            },
            last_modification: rustix::fs::Timespec {
                tv_sec: 2,
                tv_nsec: 3,
            },
        };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, root.join("symlink"), &times, flags).expect("a time");
        root
    }

    /// What `change` does to a copy is found, and named.
    fn finds(change: impl Fn(&Path), expected: &str) {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let (original, copy) = (tree("original", parent.path()), tree("copy", parent.path()));
        assert_eq!(
            differences(&original, &copy).expect("they can be read"),
            Vec::<String>::new()
        );
        change(&copy);
        let found = differences(&original, &copy)
            .expect("they can be read")
            .join("\n");
        assert!(found.contains(expected), "{found:?} does not say {expected:?}");
    }

    #[test]
    fn each_kind_of_difference_is_found_and_named() {
        use std::os::unix::fs::{FileExt, PermissionsExt};
        let write = |path: &Path| File::options().write(true).open(path).expect("it is there");
        finds(
            |copy| {
                let file = write(&copy.join("below/file"));
                file.write_all_at(b"x", 4).expect("a write");
                file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000))
                    .expect("a time");
            },
            "\"below/file\": bytes differ from 4 on",
        );
        finds(
            |copy| {
                let time = UNIX_EPOCH + Duration::new(1_000_000_000, 1);
                write(&copy.join("below/file"))
                    .set_modified(time)
                    .expect("a time");
            },
            "modified is 1000000000.000000001 in place of 1000000000.000000000",
        );
        finds(
            |copy| {
                let mode = std::fs::Permissions::from_mode(0o600);
                std::fs::set_permissions(copy.join("below/file"), mode).expect("a mode");
            },
            "mode is 600",
        );
        finds(
            |copy| std::fs::remove_file(copy.join("symlink")).expect("a removal"),
            "\"symlink\" is missing",
        );
        finds(
            |copy| std::fs::write(copy.join("more"), b"").expect("a file"),
            "\"more\" is only in",
        );
        finds(
            |copy| {
                std::fs::remove_file(copy.join("second name")).expect("a removal");
                std::fs::copy(copy.join("below/file"), copy.join("second name")).expect("a copy");
            },
            "the set of names",
        );
    }
}
