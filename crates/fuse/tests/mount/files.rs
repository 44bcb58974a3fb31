//! Data of files: writes and reads, sizes, holes, mappings, unlinked and unnamed files.

use crate::fixture::{Fixture, say_skipped};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

fn editable(path: &std::path::Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap()
}

/// Bytes that differ from page to page.
fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|index| (index / 512) as u8 ^ (index as u8) ^ seed)
        .collect()
}

#[test]
fn what_was_written_is_read_back_with_its_attributes() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    let data = pattern(3 * 1024 * 1024 + 77, 1);
    fs::write(&path, &data).unwrap();
    assert_eq!(fs::read(&path).unwrap(), data);
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), data.len() as u64);
    assert_eq!(metadata.nlink(), 1);
    assert_eq!(metadata.uid(), rustix::process::geteuid().as_raw());
    assert!(metadata.mtime() > 1_600_000_000);
    metadata.created().expect("the time of birth comes over STATX");
}

#[test]
fn parts_are_overwritten_in_place_and_appends_go_to_the_end() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    let mut expected = pattern(100_000, 2);
    fs::write(&path, &expected).unwrap();
    let file = editable(&path);
    for (offset, length) in [(0usize, 10usize), (4090, 20), (8192, 8192), (99_999, 5000)] {
        let patch = pattern(length, 3);
        file.write_all_at(&patch, offset as u64).unwrap();
        expected.resize(expected.len().max(offset + length), 0);
        expected[offset..offset + length].copy_from_slice(&patch);
    }
    let mut first = OpenOptions::new().append(true).open(&path).unwrap();
    let mut second = OpenOptions::new().append(true).open(&path).unwrap();
    for round in 0..50u8 {
        first.write_all(&[round; 7]).unwrap();
        second.write_all(&[round; 5]).unwrap();
        expected.extend([round; 12]);
    }
    assert_eq!(fs::read(&path).unwrap(), expected);
}

#[test]
fn sizes_change_by_truncation_and_by_opening() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    fs::write(&path, pattern(20_000, 4)).unwrap();
    let file = editable(&path);
    file.set_len(5_000).unwrap();
    file.set_len(9_000).unwrap();
    let mut expected = pattern(20_000, 4);
    expected.truncate(5_000);
    expected.resize(9_000, 0);
    assert_eq!(fs::read(&path).unwrap(), expected);
    drop(File::create(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0, "O_TRUNC");
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn holes_are_made_found_and_read_as_zeros() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    let file = editable(&path);
    let mut expected = pattern(1 << 20, 5);
    file.write_all_at(&expected, 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 256 << 10, 128 << 10).unwrap();
    expected[256 << 10..384 << 10].fill(0);
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 1000, 2000).unwrap();
    expected[1000..3000].fill(0);
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 4 << 20).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 2 << 20).unwrap();
    expected.resize(2 << 20, 0);
    assert!(fs::read(&path).unwrap() == expected);
    let hole = rustix::fs::seek(&file, SeekFrom::Hole(0)).unwrap();
    assert!(hole >= 256 << 10 || hole == 1000 || hole == 0, "{hole}");
    let data = rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap();
    assert!(data <= 8192, "{data}");
    let beyond = rustix::fs::seek(&file, SeekFrom::Data(5 << 20)).unwrap_err();
    assert_eq!(beyond, rustix::io::Errno::NXIO);
}

#[test]
fn mappings_see_writes_and_writes_see_mappings() {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    let mut expected = pattern(64 * 1024, 6);
    let file = editable(&path);
    file.write_all_at(&expected, 0).unwrap();
    let length = expected.len();
    // SAFETY: a fresh mapping of a file that stays this long; it is used within its length and unmapped once.
    unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let address = mmap(std::ptr::null_mut(), length, access, MapFlags::SHARED, &file, 0).unwrap();
        let memory = std::slice::from_raw_parts_mut(address.cast::<u8>(), length);
        assert!(memory == expected);
        file.write_all_at(b"by a write", 10_000).unwrap();
        assert_eq!(&memory[10_000..10_010], b"by a write");
        memory[30_000..30_012].copy_from_slice(b"by a mapping");
        msync(address, length, MsyncFlags::SYNC).unwrap();
        munmap(address, length).unwrap();
    }
    expected[10_000..10_010].copy_from_slice(b"by a write");
    expected[30_000..30_012].copy_from_slice(b"by a mapping");
    let written = fixture.mounted.statistics().count("WRITE");
    assert!(
        written >= 3,
        "the mapped page must have been written, {written} writes"
    );
    // Around the page cache, from the daemon.
    let mut direct = Vec::new();
    let mut opened = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut opened, OFlags::DIRECT.bits() as i32);
    opened
        .read(true)
        .open(&path)
        .unwrap()
        .read_to_end(&mut direct)
        .unwrap();
    assert!(direct == expected);
}

/// More of them at the same moment than there are workers: each seek makes the kernel write a page back, which a worker
/// has to serve.
#[test]
fn pages_stored_through_mappings_are_data_before_anybody_syncs() {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let Some(fixture) = Fixture::new() else { return };
    const LENGTH: usize = 4 << 20;
    let at_once = 3 * std::thread::available_parallelism().map_or(4, |cores| 4.max(2 * cores.get()));
    let start = std::sync::Barrier::new(at_once);
    let seek = |number: usize| {
        let file = editable(&fixture.path(&format!("file-{number}")));
        file.set_len(LENGTH as u64).unwrap();
        for round in 1..6 {
            let stored = round * 600_000;
            // SAFETY: a fresh mapping of a file that stays this long; it is used within its length and unmapped once.
            unsafe {
                let access = ProtFlags::READ | ProtFlags::WRITE;
                let address = mmap(std::ptr::null_mut(), LENGTH, access, MapFlags::SHARED, &file, 0).unwrap();
                address.cast::<u8>().add(stored).write(7);
                start.wait();
                let behind = (stored - 500_000) as u64;
                let found = rustix::fs::seek(&file, SeekFrom::Data(behind));
                assert!(
                    matches!(found, Ok(found) if found >= behind && found <= stored as u64),
                    "the byte at {stored} is data, found {found:?}"
                );
                munmap(address, LENGTH).unwrap();
            }
        }
        let behind_all = rustix::fs::seek(&file, SeekFrom::Data(LENGTH as u64 - 100));
        assert_eq!(behind_all, Err(rustix::io::Errno::NXIO));
    };
    std::thread::scope(|scope| {
        for number in 0..at_once {
            scope.spawn({
                let seek = &seek;
                move || seek(number)
            });
        }
    });
}

#[test]
fn an_unlinked_open_file_keeps_its_data() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    let mut file = editable(&path);
    file.write_all(&pattern(50_000, 7)).unwrap();
    file.sync_all().unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all_at(b"still here", 40_000).unwrap();
    file.rewind().unwrap();
    let mut data = Vec::new();
    file.read_to_end(&mut data).unwrap();
    let mut expected = pattern(50_000, 7);
    expected[40_000..40_010].copy_from_slice(b"still here");
    assert!(data == expected);
}

#[test]
fn an_unnamed_file_can_be_given_a_name() {
    let Some(fixture) = Fixture::new() else { return };
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let unnamed = rustix::fs::open(fixture.mounted.mountpoint(), flags, Mode::from_raw_mode(0o640)).unwrap();
    let file = File::from(unnamed);
    file.write_all_at(b"content", 0).unwrap();
    assert_eq!(fs::read_dir(fixture.mounted.mountpoint()).unwrap().count(), 0);
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    let target = fixture.path("named");
    rustix::fs::linkat(CWD, source, CWD, &target, AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"content");
    let metadata = fs::metadata(&target).unwrap();
    assert_eq!((metadata.nlink(), metadata.mode() & 0o777), (1, 0o640));
}

#[test]
fn locks_are_seen_by_other_open_files() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    let (first, second) = (editable(&path), editable(&path));
    rustix::fs::flock(&first, FlockOperation::LockExclusive).unwrap();
    let refused = rustix::fs::flock(&second, FlockOperation::NonBlockingLockExclusive).unwrap_err();
    assert_eq!(refused, rustix::io::Errno::WOULDBLOCK);
    drop(first);
    rustix::fs::flock(&second, FlockOperation::NonBlockingLockExclusive).unwrap();
}

#[test]
fn ranges_are_copied_between_files() {
    let Some(fixture) = Fixture::new() else { return };
    let data = pattern(300_000, 8);
    fs::write(fixture.path("from"), &data).unwrap();
    let (from, to) = (editable(&fixture.path("from")), editable(&fixture.path("to")));
    let (mut from_offset, mut to_offset) = (1_000u64, 50_000u64);
    while from_offset < 201_000 {
        let rest = (201_000 - from_offset) as usize;
        let copied =
            rustix::fs::copy_file_range(&from, Some(&mut from_offset), &to, Some(&mut to_offset), rest);
        assert!(copied.unwrap() > 0);
    }
    let copied = fs::read(fixture.path("to")).unwrap();
    assert_eq!(copied.len(), 250_000);
    assert!(copied[..50_000].iter().all(|byte| *byte == 0) && copied[50_000..] == data[1_000..201_000]);
}

#[test]
fn direct_and_synchronous_writes_arrive_whole() {
    use std::os::unix::fs::OpenOptionsExt;
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    let flags = (OFlags::DIRECT | OFlags::DSYNC).bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(flags)
        .open(&path);
    let file = file.unwrap();
    let page = pattern(8192 + 4096, 9);
    let aligned = page.as_ptr().align_offset(4096);
    let statistics = fixture.requests_of(|| {
        for round in 0..10 {
            file.write_all_at(&page[aligned..aligned + 8192], round * 8192)
                .unwrap();
        }
    });
    assert_eq!(statistics.count("WRITE"), 10);
    assert_eq!(statistics.count("FSYNC"), 10, "O_DSYNC");
    let data = fs::read(&path).unwrap();
    assert!(
        data.len() == 81_920
            && data
                .chunks(8192)
                .all(|chunk| chunk == &page[aligned..aligned + 8192])
    );
}

#[test]
fn writing_clears_suid_when_an_ordinary_user_writes() {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() {
        say_skipped(format_args!("needs root to become another user"));
        return;
    }
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("program");
    fs::write(&path, b"program").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all(b"by root")
        .unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().mode() & 0o7777,
        0o6777,
        "root keeps them"
    );
    let directory = path.parent().unwrap().parent().unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = std::process::Command::new("dd");
    command.args(["if=/dev/zero", "bs=1", "count=1", "conv=notrunc", "status=none"]);
    command.arg(format!("of={}", path.display()));
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    assert!(command.status().unwrap().success());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
}
