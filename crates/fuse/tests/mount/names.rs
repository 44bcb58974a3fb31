//! Directories, renames, links, special files, extended attributes, permissions.

use crate::fixture::Fixture;
use rustix::fs::{CWD, FileType, Mode, RenameFlags, XattrFlags, makedev, mknodat, renameat_with};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

#[test]
fn thousands_of_names_are_listed_once_each_and_removed() {
    let Some(fixture) = Fixture::new() else { return };
    let directory = fixture.path("many");
    fs::create_dir(&directory).unwrap();
    let names: BTreeSet<String> = (0..5_000)
        .map(|index| format!("{index}-{}", "x".repeat(index % 90)))
        .collect();
    for name in &names {
        fs::write(directory.join(name), name).unwrap();
    }
    let listed: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .collect();
    assert_eq!(listed.len(), names.len());
    let found: BTreeSet<String> = listed
        .iter()
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, names);
    for entry in &listed {
        assert!(entry.file_type().unwrap().is_file());
        assert_eq!(entry.metadata().unwrap().len(), entry.file_name().len() as u64);
    }
    assert_eq!(
        fs::remove_dir(&directory).unwrap_err().kind(),
        io::ErrorKind::DirectoryNotEmpty
    );
    // Removing while listing: stable cookies.
    for entry in fs::read_dir(&directory).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::remove_dir(&directory).unwrap();
    assert_eq!(fs::read_dir(fixture.mounted.mountpoint()).unwrap().count(), 0);
}

#[test]
fn a_listing_follows_changes() {
    let Some(fixture) = Fixture::new() else { return };
    let count = || fs::read_dir(fixture.mounted.mountpoint()).unwrap().count();
    for index in 0..20 {
        fs::write(fixture.path(&format!("file{index}")), b"").unwrap();
        assert_eq!(count(), index + 1);
        assert_eq!(count(), index + 1, "from the cache");
    }
    fs::remove_file(fixture.path("file7")).unwrap();
    assert_eq!(count(), 19);
    fs::rename(fixture.path("file8"), fixture.path("file9")).unwrap();
    assert_eq!(count(), 18);
}

#[test]
fn names_that_were_absent_appear_when_made() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("later");
    assert!(fs::metadata(&path).is_err());
    let repeated = fixture.requests_of(|| assert!(fs::metadata(&path).is_err()));
    assert_eq!(repeated.total(), 0, "absence is remembered: {repeated:?}");
    fs::write(&path, b"now").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"now");
    fs::rename(&path, fixture.path("elsewhere")).unwrap();
    assert!(fs::metadata(&path).is_err());
    fs::create_dir(&path).unwrap();
    assert!(fs::metadata(&path).unwrap().is_dir());
}

#[test]
fn renames_replace_refuse_and_exchange() {
    let Some(fixture) = Fixture::new() else { return };
    let (first, second) = (fixture.path("first"), fixture.path("second"));
    fs::write(&first, b"1").unwrap();
    fs::write(&second, b"2").unwrap();
    let refused = renameat_with(CWD, &first, CWD, &second, RenameFlags::NOREPLACE).unwrap_err();
    assert_eq!(refused, rustix::io::Errno::EXIST);
    renameat_with(CWD, &first, CWD, &second, RenameFlags::EXCHANGE).unwrap();
    assert_eq!(
        (fs::read(&first).unwrap(), fs::read(&second).unwrap()),
        (b"2".to_vec(), b"1".to_vec())
    );
    fs::rename(&first, &second).unwrap();
    assert_eq!(fs::read(&second).unwrap(), b"2");
    assert!(fs::metadata(&first).is_err());
    let whiteout = renameat_with(CWD, &second, CWD, &first, RenameFlags::WHITEOUT).unwrap_err();
    assert_eq!(whiteout, rustix::io::Errno::INVAL);
    fs::create_dir_all(fixture.path("a/b/c")).unwrap();
    fs::create_dir(fixture.path("d")).unwrap();
    fs::rename(fixture.path("a/b"), fixture.path("d/b")).unwrap();
    assert!(fs::metadata(fixture.path("d/b/c")).unwrap().is_dir());
    assert_eq!(
        fs::metadata(fixture.path("d/b/..")).unwrap().ino(),
        fs::metadata(fixture.path("d")).unwrap().ino()
    );
    assert!(
        fs::rename(fixture.path("d"), fixture.path("d/b/c/d")).is_err(),
        "into itself"
    );
}

#[test]
fn hard_links_share_an_inode_and_count() {
    let Some(fixture) = Fixture::new() else { return };
    fs::write(fixture.path("one"), b"shared").unwrap();
    fs::hard_link(fixture.path("one"), fixture.path("two")).unwrap();
    let (one, two) = (
        fs::metadata(fixture.path("one")).unwrap(),
        fs::metadata(fixture.path("two")).unwrap(),
    );
    assert_eq!((one.ino(), one.nlink(), two.nlink()), (two.ino(), 2, 2));
    fs::remove_file(fixture.path("one")).unwrap();
    assert_eq!(fs::metadata(fixture.path("two")).unwrap().nlink(), 1);
    assert_eq!(fs::read(fixture.path("two")).unwrap(), b"shared");
}

#[test]
fn symlinks_and_special_files_are_what_they_were_made() {
    let Some(fixture) = Fixture::new() else { return };
    symlink("some/where else", fixture.path("link")).unwrap();
    assert_eq!(
        fs::read_link(fixture.path("link")).unwrap().to_str(),
        Some("some/where else")
    );
    mknodat(
        CWD,
        fixture.path("pipe"),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert!(fs::metadata(fixture.path("pipe")).unwrap().file_type().is_fifo());
    std::os::unix::net::UnixListener::bind(fixture.path("socket")).unwrap();
    assert!(
        fs::metadata(fixture.path("socket"))
            .unwrap()
            .file_type()
            .is_socket()
    );
    if rustix::process::geteuid().is_root() {
        let device = makedev(259, 70_000);
        mknodat(
            CWD,
            fixture.path("device"),
            FileType::BlockDevice,
            Mode::from_raw_mode(0o600),
            device,
        )
        .unwrap();
        let metadata = fs::metadata(fixture.path("device")).unwrap();
        assert!(metadata.file_type().is_block_device());
        assert_eq!(metadata.rdev(), device);
    }
}

#[test]
fn xattrs_are_set_listed_and_removed() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    fs::write(&path, b"").unwrap();
    let set = |name, value, flags| rustix::fs::setxattr(&path, name, value, flags);
    set("user.colour", &b"red"[..], XattrFlags::empty()).unwrap();
    assert_eq!(
        set("user.colour", b"x", XattrFlags::CREATE).unwrap_err(),
        rustix::io::Errno::EXIST
    );
    assert_eq!(
        set("user.other", b"x", XattrFlags::REPLACE).unwrap_err(),
        rustix::io::Errno::NODATA
    );
    set("user.long", &[7; 2000], XattrFlags::CREATE).unwrap();
    let mut value = [0u8; 4096];
    let length = rustix::fs::getxattr(&path, "user.long", &mut value[..]).unwrap();
    assert_eq!(&value[..length], [7; 2000]);
    assert_eq!(
        rustix::fs::getxattr(&path, "user.long", &mut value[..10]).unwrap_err(),
        rustix::io::Errno::RANGE
    );
    assert_eq!(rustix::fs::getxattr_query(&path, "user.long").unwrap(), 2000);
    let length = rustix::fs::listxattr(&path, &mut value[..]).unwrap();
    let names: BTreeSet<&[u8]> = value[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!(names, BTreeSet::from([&b"user.colour"[..], b"user.long"]));
    rustix::fs::removexattr(&path, "user.colour").unwrap();
    let gone = rustix::fs::getxattr(&path, "user.colour", &mut value[..]).unwrap_err();
    assert_eq!(gone, rustix::io::Errno::NODATA);
}

#[test]
fn times_and_modes_are_set() {
    use std::os::unix::fs::PermissionsExt;
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    fs::write(&path, b"").unwrap();
    let file = fs::File::open(&path).unwrap();
    let before_1970 = std::time::UNIX_EPOCH - std::time::Duration::from_nanos(1_500_000_000);
    let times = fs::FileTimes::new()
        .set_modified(before_1970)
        .set_accessed(std::time::UNIX_EPOCH);
    file.set_times(times).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (-2, 500_000_000));
    assert_eq!((metadata.atime(), metadata.atime_nsec()), (0, 0));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o1604)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o1604);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(7), Some(8)).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (7, 8));
    }
}

#[test]
fn names_that_are_too_long_are_refused() {
    let Some(fixture) = Fixture::new() else { return };
    fs::write(fixture.path(&"n".repeat(255)), b"").unwrap();
    let error = fs::write(fixture.path(&"n".repeat(256)), b"").unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(rustix::io::Errno::NAMETOOLONG.raw_os_error())
    );
}

#[test]
fn the_file_system_shows_its_size() {
    let Some(fixture) = Fixture::new() else { return };
    let statistics = rustix::fs::statvfs(fixture.mounted.mountpoint()).unwrap();
    assert!(statistics.f_blocks > 0 && statistics.f_bavail <= statistics.f_blocks);
    assert_eq!(statistics.f_namemax, 255);
}
