//! A tree with one of everything that a copy may lose: holes, links, fifos, devices, attributes, ACLs, odd names, old and
//! far times, strange permissions.
//!
//! What the file system or the user at hand does not allow is left out: whoever compares copies with this tree asks for
//! what is in it, not for what might have been.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use crate::events::Draw;
use crate::process;

/// Seconds and nanoseconds. None is negative: rsync's protocol does not promise those.
const TIMES: &[(i64, i64)] = &[
    (0, 0),
    (1, 999_999_999),
    (981_173_106, 123_456_789),
    (1_700_000_000, 1),
    (2_147_483_647, 0),
    (2_147_483_648, 500_000_000),
    (4_102_444_800, 42),
];

/// Makes the tree in `root`, an empty directory.
pub(super) fn make(root: &Path) -> Result<()> {
    let mut draw = Draw::new(7);
    contents(&root.join("contents"), &mut draw)?;
    names(&root.join("names"))?;
    links(&root.join("links"))?;
    specials(&root.join("specials"))?;
    attributes(&root.join("attributes"))?;
    permissions(&root.join("permissions"))?;
    // Last: making an entry changes the time of its directory.
    times(&root.join("times"))?;
    for directory in [
        "contents",
        "names",
        "links",
        "specials",
        "attributes",
        "permissions",
        "times",
    ] {
        set_time(&root.join(directory), (1_234_567_890, 987_654_321))?;
    }
    Ok(())
}

fn create(directory: &Path) -> Result<()> {
    fs::create_dir(directory).with_context(|| format!("cannot create {}", directory.display()))
}

fn set_time(path: &Path, (seconds, nanoseconds): (i64, i64)) -> Result<()> {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds as _,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .with_context(|| format!("cannot set the time of {}", path.display()))
}

/// Sizes around records and pages; holes at the front, in the middle and at the end.
fn contents(directory: &Path, draw: &mut Draw) -> Result<()> {
    create(directory)?;
    for size in [
        0, 1, 511, 4_095, 4_096, 4_097, 8_191, 8_192, 8_193, 131_071, 131_073, 1_000_000,
    ] {
        let bytes: Vec<u8> = (0..size).map(|_| draw.bits() as u8).collect();
        fs::write(directory.join(format!("random-{size}")), bytes)?;
        fs::write(
            directory.join(format!("text-{size}")),
            "abcdefg\n".repeat(size / 8 + 1),
        )?;
    }
    let holes: &[(&str, u64, &[u64])] = &[
        ("only-a-hole", 3_000_000, &[]),
        ("hole-first", 2_000_000, &[1_999_000]),
        ("hole-last", 5_000_000, &[0]),
        ("holes-between", 9_000_001, &[10, 4_000_000, 8_999_000]),
    ];
    for (name, size, data) in holes {
        let file = File::create(directory.join(name))?;
        file.set_len(*size)?;
        for offset in *data {
            file.write_all_at(&[0xA5; 900], *offset)?;
        }
    }
    Ok(())
}

fn names(directory: &Path) -> Result<()> {
    create(directory)?;
    let mut names: Vec<Vec<u8>> = [
        " ",
        "-rf",
        "*",
        "new\nline",
        "tab\t",
        "a\\b",
        "\"quoted\"",
        "'",
        "$HOME",
        "...",
        "~",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    names.push("Grüße-日本語-🦀".as_bytes().to_vec());
    // The same letter, composed and decomposed: two names.
    names.push("é".as_bytes().to_vec());
    names.push("e\u{301}".as_bytes().to_vec());
    names.push(vec![b'n'; 255]);
    names.push(vec![0xFF, 0xFE, 0x80]);
    names.push(vec![0x01, 0x7F]);
    for name in names {
        let content = format!("{name:?}");
        let path = directory.join(OsString::from_vec(name));
        // Some file systems insist on UTF-8.
        if fs::write(&path, content).is_err() {
            continue;
        }
        set_time(&path, (1_000_000_000, 7))?;
    }
    let mut deep = directory.to_owned();
    for level in 0..30 {
        deep.push(format!("level-{level}"));
        create(&deep)?;
    }
    fs::write(deep.join("bottom"), "bottom")?;
    Ok(())
}

fn links(directory: &Path) -> Result<()> {
    create(directory)?;
    let below = directory.join("below");
    create(&below)?;
    fs::write(directory.join("first"), "one file, several names")?;
    for name in ["second", "below/third", "below/fourth"] {
        fs::hard_link(directory.join("first"), directory.join(name))?;
    }
    let long = "x/".repeat(1_000);
    for (name, target) in [
        ("relative", "below/third"),
        ("dangling", "nowhere"),
        ("itself", "itself"),
        ("to-directory", "below"),
        ("absolute", "/etc/passwd"),
        ("long", long.as_str()),
        ("spaces", " a \n b "),
    ] {
        symlink(target, directory.join(name))?;
        set_time(&directory.join(name), (1_500_000_000, 123_456_789))?;
    }
    Ok(())
}

/// Devices only where they can be made: root may, root of a container may not.
fn specials(directory: &Path) -> Result<()> {
    create(directory)?;
    let mode = Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(CWD, directory.join("fifo"), FileType::Fifo, mode, 0)
        .context("cannot make a fifo")?;
    let _ = rustix::fs::mknodat(CWD, directory.join("socket"), FileType::Socket, mode, 0);
    let device = rustix::fs::makedev(1, 3);
    let _ = rustix::fs::mknodat(
        CWD,
        directory.join("character"),
        FileType::CharacterDevice,
        mode,
        device,
    );
    let _ = rustix::fs::mknodat(
        CWD,
        directory.join("block"),
        FileType::BlockDevice,
        mode,
        rustix::fs::makedev(259, 70_000),
    );
    Ok(())
}

/// Attributes and ACLs only where the file system has them.
fn attributes(directory: &Path) -> Result<()> {
    create(directory)?;
    let new = |name: &str| -> Result<PathBuf> {
        let path = directory.join(name);
        fs::write(&path, name)?;
        Ok(path)
    };
    let file = new("attributes")?;
    for (name, value) in [
        ("user.empty", Vec::new()),
        ("user.text", b"some text".to_vec()),
        ("user.binary", (0..=255).collect()),
        ("user.long", vec![b'v'; 1_500]),
    ] {
        let _ = rustix::fs::setxattr(&file, name, &value, XattrFlags::empty());
    }
    let _ = rustix::fs::setxattr(directory, "user.of-a-directory", b"yes", XattrFlags::empty());
    let acl = new("acl")?;
    set_acl(&["-m", "u:1:rw-,u:12345:r--,g:2:r-x,m::rwx"], &acl);
    let inherited = directory.join("with-a-default-acl");
    create(&inherited)?;
    set_acl(&["-d", "-m", "u:1:rwx,g:2:r-x"], &inherited);
    fs::write(inherited.join("heir"), "heir")?;
    create(&inherited.join("heirs"))?;
    Ok(())
}

fn set_acl(arguments: &[&str], path: &Path) {
    let _ = process::output(Command::new("setfacl").args(arguments).arg("--").arg(path));
}

fn permissions(directory: &Path) -> Result<()> {
    create(directory)?;
    for mode in [
        0o000, 0o001, 0o200, 0o444, 0o555, 0o644, 0o777, 0o1777, 0o2755, 0o4755, 0o6711,
    ] {
        // Only root can copy what its owner may not read.
        if mode & 0o400 == 0 && !process::is_root() {
            continue;
        }
        let path = directory.join(format!("mode-{mode:04o}"));
        fs::write(&path, "x")?;
        if process::is_root() {
            std::os::unix::fs::chown(&path, Some(mode & 0o77), Some(4_000_000_000))?;
        }
        // After the owner: a change of it takes set-user-id away.
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    for mode in [0o700, 0o1777, 0o2775] {
        let path = directory.join(format!("directory-{mode:04o}"));
        create(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn times(directory: &Path) -> Result<()> {
    create(directory)?;
    for (index, time) in TIMES.iter().enumerate() {
        let file = directory.join(format!("file-{index}"));
        fs::write(&file, "x")?;
        set_time(&file, *time)?;
        let link = directory.join(format!("symlink-{index}"));
        symlink("target", &link)?;
        set_time(&link, *time)?;
        let inner = directory.join(format!("directory-{index}"));
        create(&inner)?;
        set_time(&inner, *time)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::tree;

    #[test]
    fn two_of_them_are_the_same_but_for_what_is_made_now() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let (first, second) = (parent.path().join("first"), parent.path().join("second"));
        for root in [&first, &second] {
            fs::create_dir(root).expect("a directory");
            make(root).expect("a tree");
        }
        let found = tree::differences(&first, &second).expect("they can be read");
        let wrong: Vec<&String> = found
            .iter()
            .filter(|line| !line.contains("modified is"))
            .collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        assert!(tree::count(&first).expect("it can be read") > 100);
    }
}
