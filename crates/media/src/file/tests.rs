//! Real files, on the disk of the temporary directory and in memory.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::*;

const MIB: u64 = 1 << 20;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T>, kind: MediaErrorKind, words: &str) -> MediaError {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(
        error.to_string().contains(words),
        "\"{words}\" is not in: {error}"
    );
    error
}

/// Bytes that differ from sector to sector.
fn pattern(length: usize, salt: u8) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(length);
    for (index, byte) in buffer.iter_mut().enumerate() {
        *byte = (index / 97) as u8 ^ salt;
    }
    buffer
}

fn assert_reads_and_writes(path: &Path) {
    let media = FileMedia::create(path, MIB, CreateMode::New).unwrap();
    assert_eq!((media.size_bytes(), media.sector_bytes()), (MIB, 4096));
    let data = pattern(64 * 1024, 3);
    media.write(8192, &data).unwrap();
    // Memory of any alignment gives the same.
    let unaligned = [&[0u8; 1], &pattern(8192, 5)[..]].concat();
    media.write(MIB - 8192, &unaligned[1..]).unwrap();
    media.flush().unwrap();
    drop(media);

    let media = FileMedia::open(path, Access::ReadOnly).unwrap();
    let mut read = AlignedBuffer::zeroed(64 * 1024);
    media.read(8192, &mut read).unwrap();
    assert!(read == data);
    let mut odd = vec![0xff; 8193];
    media.read(MIB - 8192, &mut odd[1..]).unwrap();
    assert_eq!(odd[1..], unaligned[1..]);
    media.read(0, &mut odd[..4096]).unwrap();
    assert_eq!(odd[..4096], [0; 4096]);
    assert_eq!(std::fs::metadata(path).unwrap().len(), MIB);
}

#[test]
fn a_file_on_disk_reads_and_writes() {
    assert_reads_and_writes(&directory().path().join("pool"));
}

#[test]
fn a_file_in_memory_reads_and_writes() {
    let shared_memory = Path::new("/dev/shm");
    let Ok(directory) = tempfile::tempdir_in(shared_memory) else {
        say_skipped(format_args!("{} cannot be written here", shared_memory.display()));
        return;
    };
    assert_reads_and_writes(&directory.path().join("pool"));
}

#[test]
fn direct_and_cached_media_see_each_other() {
    let directory = directory();
    let path = directory.path().join("pool");
    let media = FileMedia::create(&path, MIB, CreateMode::New).unwrap();
    media.write(4096, &pattern(4096, 1)).unwrap();
    media.flush().unwrap();
    let through_cache = std::fs::read(&path).unwrap();
    assert_eq!(through_cache[4096..8192], pattern(4096, 1)[..]);
    let flags = rustix::fs::fcntl_getfl(&media.file).unwrap();
    assert_eq!(flags.contains(rustix::fs::OFlags::DIRECT), media.is_direct());
}

#[test]
fn without_direct_io_everything_works_through_the_cache() {
    let directory = directory();
    let path = directory.path().join("pool");
    let mut media = FileMedia::create(&path, MIB, CreateMode::New).unwrap();
    let flags = rustix::fs::fcntl_getfl(&media.file).unwrap();
    rustix::fs::fcntl_setfl(&media.file, flags - rustix::fs::OFlags::DIRECT).unwrap();
    media.is_direct = false;
    let mut odd = vec![7; 4097];
    media.write(0, &odd[1..]).unwrap();
    media.flush().unwrap();
    odd.fill(0);
    media.read(0, &mut odd[1..]).unwrap();
    assert_eq!(odd[1..], [7; 4096]);
}

#[test]
fn a_new_file_is_private_and_its_room_is_allocated() {
    let directory = directory();
    let path = directory.path().join("pool");
    let media = FileMedia::create(&path, 4 * MIB, CreateMode::New).unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(media.is_preallocated(), metadata.blocks() * 512 >= 4 * MIB);
    media.discard(0, MIB).unwrap();
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!(
        after.blocks(),
        metadata.blocks(),
        "a preallocated file keeps its room"
    );
}

#[test]
fn a_sparse_file_says_so_and_gives_room_back() {
    let directory = directory();
    let path = directory.path().join("pool");
    std::fs::File::create(&path).unwrap().set_len(4 * MIB).unwrap();
    let media = FileMedia::open(&path, Access::ReadWrite).unwrap();
    assert!(!media.is_preallocated());
    media.write(0, &pattern(MIB as usize, 1)).unwrap();
    media.flush().unwrap();
    let before = std::fs::metadata(&path).unwrap().blocks();
    media.discard(0, MIB).unwrap();
    media.flush().unwrap();
    let after = std::fs::metadata(&path).unwrap().blocks();
    assert!(after < before, "{after} blocks after, {before} before");
    assert_eq!(media.counters().discards, 1);
}

#[test]
fn creating_never_replaces_unless_told() {
    let directory = directory();
    let path = directory.path().join("pool");
    std::fs::write(&path, b"precious").unwrap();
    refusal(
        FileMedia::create(&path, MIB, CreateMode::New),
        MediaErrorKind::AlreadyExists,
        "exists already",
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    drop(FileMedia::create(&path, MIB, CreateMode::Overwrite).unwrap());
    assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 0));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), MIB);
}

#[test]
fn what_cannot_be_created_leaves_nothing_behind() {
    let directory = directory();
    let path = directory.path().join("pool");
    for size_bytes in [0, 1, 4095, MIB + 512] {
        refusal(
            FileMedia::create(&path, size_bytes, CreateMode::New),
            MediaErrorKind::InvalidInput,
            "multiple of 4096",
        );
    }
    // Larger than any file system: refused as too large or as no room, and removed again.
    let error = FileMedia::create(&path, 1 << 62, CreateMode::New).unwrap_err();
    assert_eq!(error.kind(), MediaErrorKind::NoSpace, "{error}");
    assert!(!path.exists());
    let missing = directory.path().join("missing/pool");
    refusal(
        FileMedia::create(&missing, MIB, CreateMode::New),
        MediaErrorKind::NotFound,
        "missing/pool",
    );
    refusal(
        FileMedia::create(directory.path(), MIB, CreateMode::Overwrite),
        MediaErrorKind::InvalidInput,
        "not a regular file",
    );
}

#[test]
fn what_cannot_be_opened_is_told_precisely() {
    let directory = directory();
    let path = directory.path().join("pool");
    refusal(
        FileMedia::open(&path, Access::ReadOnly),
        MediaErrorKind::NotFound,
        "cannot open",
    );
    std::fs::write(&path, [1; 4095]).unwrap();
    refusal(
        FileMedia::open(&path, Access::ReadWrite),
        MediaErrorKind::TooSmall,
        "4095 bytes",
    );
    for path in [directory.path(), Path::new("/dev/null")] {
        refusal(
            FileMedia::open(path, Access::ReadOnly),
            MediaErrorKind::InvalidInput,
            "neither a regular file",
        );
    }
    // Bytes after the last whole sector are not used.
    std::fs::write(&path, [1; 9000]).unwrap();
    assert_eq!(
        FileMedia::open(&path, Access::ReadOnly).unwrap().size_bytes(),
        8192
    );
}

#[test]
fn a_second_writer_is_refused_and_told_who_is_first() {
    let directory = directory();
    let path = directory.path().join("pool");
    let media = FileMedia::create(&path, MIB, CreateMode::New).unwrap();
    media.write(0, &pattern(4096, 9)).unwrap();
    for access in [Access::ReadWrite, Access::ReadOnly] {
        refusal(
            FileMedia::open(&path, access),
            MediaErrorKind::Busy,
            "this process has it open",
        );
    }
    refusal(
        FileMedia::create(&path, MIB, CreateMode::Overwrite),
        MediaErrorKind::Busy,
        "this process",
    );
    let mut read = AlignedBuffer::zeroed(4096);
    media.read(0, &mut read).unwrap();
    assert!(read == pattern(4096, 9), "a refused overwrite changes nothing");
    drop(media);
    let first = FileMedia::open(&path, Access::ReadOnly).unwrap();
    let second = FileMedia::open(&path, Access::ReadOnly).unwrap();
    refusal(
        FileMedia::open(&path, Access::ReadWrite),
        MediaErrorKind::Busy,
        "this process",
    );
    drop((first, second));
    FileMedia::open(&path, Access::ReadWrite).unwrap();
}

/// A helper process: the test below runs this test binary again with this variable set.
const HOLD_VARIABLE: &str = "PACKSTONE_TEST_HOLD_MEDIA";

#[test]
fn another_process_that_holds_it_is_named() {
    if let Some(path) = std::env::var_os(HOLD_VARIABLE) {
        let _media = FileMedia::open(&PathBuf::from(path), Access::ReadWrite).unwrap();
        println!("\nholding");
        // Until the other side closes the pipe.
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
        return;
    }
    let directory = directory();
    let path = directory.path().join("pool");
    drop(FileMedia::create(&path, MIB, CreateMode::New).unwrap());
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "file::tests::another_process_that_holds_it_is_named",
            "--nocapture",
        ])
        .env(HOLD_VARIABLE, &path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(holder.stdout.take().unwrap()));
    assert!(
        lines.any(|line| line.unwrap() == "holding"),
        "the holder did not come up"
    );

    let error = FileMedia::open(&path, Access::ReadWrite);
    refusal(error, MediaErrorKind::Busy, &format!("(process {})", holder.id()));
    refusal(
        FileMedia::open(&path, Access::ReadOnly),
        MediaErrorKind::Busy,
        "packstone_media",
    );

    // However the holder ends, the lock is gone with it.
    holder.kill().unwrap();
    holder.wait().unwrap();
    FileMedia::open(&path, Access::ReadWrite).unwrap();
}

#[test]
fn requests_off_the_sectors_or_beyond_the_end_change_nothing() {
    let directory = directory();
    let path = directory.path().join("pool");
    let media = FileMedia::create(&path, MIB, CreateMode::New).unwrap();
    let mut buffer = pattern(8192, 1);
    for (offset, length) in [
        (1, 4096),
        (512, 4096),
        (0, 100),
        (MIB, 4096),
        (MIB - 4096, 8192),
        (u64::MAX - 4095, 4096),
    ] {
        let kind = MediaErrorKind::InvalidInput;
        refusal(media.write(offset, &buffer[..length]), kind, "cannot write");
        refusal(media.read(offset, &mut buffer[..length]), kind, "cannot read");
        refusal(media.discard(offset, length as u64), kind, "cannot discard");
    }
    assert_eq!(media.counters().errors(), 18);
    media.read(MIB, &mut []).unwrap();
    drop(media);
    assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn a_media_opened_for_reading_is_not_written() {
    let directory = directory();
    let path = directory.path().join("pool");
    drop(FileMedia::create(&path, MIB, CreateMode::New).unwrap());
    let media = FileMedia::open(&path, Access::ReadOnly).unwrap();
    refusal(
        media.write(0, &pattern(4096, 1)),
        MediaErrorKind::PermissionDenied,
        "reading only",
    );
    refusal(
        media.discard(0, 4096),
        MediaErrorKind::PermissionDenied,
        "reading only",
    );
    assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn a_file_cut_short_behind_our_back_is_an_error() {
    let directory = directory();
    let path = directory.path().join("pool");
    let media = FileMedia::create(&path, MIB, CreateMode::New).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(8192)
        .unwrap();
    let mut buffer = AlignedBuffer::zeroed(8192);
    media.read(0, &mut buffer).unwrap();
    refusal(
        media.read(4096, &mut buffer),
        MediaErrorKind::Unavailable,
        "shorter than when it was opened",
    );
}

#[test]
fn after_a_failed_flush_every_flush_fails() {
    let directory = directory();
    let path = directory.path().join("pool");
    let mut media = FileMedia::create(&path, MIB, CreateMode::New).unwrap();
    media.flush().unwrap();
    // A pipe cannot be synced, which is the failure that needs no broken device.
    let (pipe, _writer) = std::io::pipe().unwrap();
    let good = std::mem::replace(&mut media.file, File::from(std::os::fd::OwnedFd::from(pipe)));
    let error = media.flush().unwrap_err();
    assert_eq!(error.kind(), MediaErrorKind::Unavailable);
    assert!(error.io_error().is_some());
    media.file = good;
    refusal(
        media.flush(),
        MediaErrorKind::Unavailable,
        "an earlier flush failed",
    );
    refusal(
        media.flush(),
        MediaErrorKind::Unavailable,
        "an earlier flush failed",
    );
    assert_eq!((media.counters().flushes, media.counters().errors()), (1, 3));
}

#[test]
fn counters_count() {
    let directory = directory();
    let media = FileMedia::create(&directory.path().join("pool"), MIB, CreateMode::New).unwrap();
    assert_eq!(media.counters(), MediaCounters::default());
    media.write(0, &pattern(8192, 1)).unwrap();
    media.read(0, &mut pattern(4096, 1)).unwrap();
    media.read(0, &mut pattern(4096, 1)).unwrap();
    media.flush().unwrap();
    media.discard(0, 4096).unwrap();
    let expected = MediaCounters {
        reads: 2,
        writes: 1,
        flushes: 1,
        discards: 1,
        read_bytes: 8192,
        written_bytes: 8192,
        read_errors: 0,
        write_errors: 0,
    };
    assert_eq!(media.counters(), expected);
}

/// A loop device over a file; gone when dropped.
struct LoopDevice(PathBuf);

impl LoopDevice {
    /// `None` where this user may not make one.
    fn over(file: &Path) -> Option<LoopDevice> {
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| LoopDevice(String::from_utf8(output.stdout).unwrap().trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn a_block_device_reads_writes_discards_and_is_claimed() {
    let directory = directory();
    let path = directory.path().join("disk");
    std::fs::File::create(&path).unwrap().set_len(4 * MIB).unwrap();
    let Some(device) = LoopDevice::over(&path) else {
        say_skipped(format_args!("no loop device can be made here"));
        return;
    };
    let media = FileMedia::open(&device.0, Access::ReadWrite).unwrap();
    assert_eq!((media.size_bytes(), media.sector_bytes()), (4 * MIB, 4096));
    assert!(media.is_block_device() && media.is_preallocated());
    media.write(MIB, &pattern(MIB as usize, 4)).unwrap();
    media.flush().unwrap();
    let mut read = AlignedBuffer::zeroed(MIB as usize);
    media.read(MIB, &mut read).unwrap();
    assert!(read == pattern(MIB as usize, 4));
    let before = std::fs::metadata(&path).unwrap().blocks();
    media.discard(MIB, MIB).unwrap();
    assert!(
        std::fs::metadata(&path).unwrap().blocks() < before,
        "the discard reached the device"
    );

    // Another node of the same device: not the same inode, so only the kernel's claim protects it.
    let number = std::fs::metadata(&device.0).unwrap().rdev();
    let alias = directory.path().join("alias");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &alias,
        rustix::fs::FileType::BlockDevice,
        mode,
        number,
    )
    .unwrap();
    for (name, words) in [
        (&device.0, "this process has it open"),
        (&alias, "stop what uses it"),
    ] {
        refusal(
            FileMedia::open(name, Access::ReadWrite),
            MediaErrorKind::Busy,
            words,
        );
    }
    refusal(
        FileMedia::create(&device.0, MIB, CreateMode::Overwrite),
        MediaErrorKind::InvalidInput,
        "block device",
    );
}

/// Says past the capture of the test framework that the running test does nothing here; `make test` counts these lines.
fn say_skipped(reason: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let thread = std::thread::current();
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED {}: {reason}",
        thread.name().unwrap_or("a test")
    );
}
