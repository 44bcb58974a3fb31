//! Devices that fail for real under a running daemon: no room below a sparse member, reads that end in EIO.
//!
//! The room runs out on a small tmpfs that holds the member, and comes back when it is mounted larger. Reads fail because the
//! file behind a loop device was cut short. A loop device over a full file system is not used for writes: some kernels
//! call a short write whole, which no program above can notice.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use packstone_harness::events::Draw;
use packstone_harness::fixture::{self, DATASET};
use packstone_harness::packstone::Pool;
use packstone_harness::process;
use packstone_harness::requirements;
use packstone_harness::scratch::{self, Cleanup};
use serde_json::Value;

const FILE_BYTES: usize = 1 << 20;
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
const EROFS: i32 = rustix::io::Errno::ROFS.raw_os_error();

/// A tmpfs of a given size in a scratch directory.
struct Small {
    cleanup: Cleanup,
    home: PathBuf,
    directory: PathBuf,
}

impl Small {
    fn new(size: &str) -> Result<Small> {
        let cleanup = Cleanup::new();
        let home = scratch::directory(&fixture::test_directory(), "packstone-test-", &cleanup)?;
        let directory = home.join("small");
        fs::create_dir(&directory)?;
        let options = format!("size={size}");
        process::run(
            Command::new("mount")
                .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
                .arg(&directory),
        )?;
        let mounted = directory.clone();
        cleanup.push("unmount the tmpfs", move || {
            process::run(Command::new("umount").arg(&mounted)).map(drop)
        });
        Ok(Small {
            cleanup,
            home,
            directory,
        })
    }

    fn resize(&self, size: &str) -> Result<()> {
        let options = format!("remount,size={size}");
        process::run(Command::new("mount").args(["-o", &options]).arg(&self.directory))?;
        Ok(())
    }

    /// A sparse file that claims more room than there is.
    fn sparse_file(&self, size_bytes: u64) -> Result<PathBuf> {
        let path = self.directory.join("tank.pack");
        File::create(&path)?.set_len(size_bytes)?;
        Ok(path)
    }
}

/// True when the test, which needs root to mount a tmpfs, can run here.
fn can_mount_small(name: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    let missing = requirements::missing_for_mounts();
    fixture::runs(
        name,
        missing.or_else(|| (!root).then(|| "only root mounts a tmpfs".to_owned())),
    )
}

/// Bytes that no codec can shrink, the same for the same number.
fn noise(number: u64) -> Vec<u8> {
    let mut draw = Draw::new(number);
    (0..FILE_BYTES / 8)
        .flat_map(|_| draw.bits().to_le_bytes())
        .collect()
}

fn write_synced(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn status(pool: &Pool) -> Result<Value> {
    let text = pool.run(["status", &pool.name, "--json"])?;
    serde_json::from_str(&text).context("status prints no JSON")
}

#[test]
fn a_write_that_fails_stops_the_pool_and_loses_nothing() -> Result<()> {
    if !can_mount_small("a_write_that_fails_stops_the_pool_and_loses_nothing") {
        return Ok(());
    }
    let small = Small::new("48M")?;
    let mut pool = Pool::new("tank", &small.home)?;
    pool.member = small.sparse_file(256 << 20)?;
    pool.run(["create", "tank", &pool.member.to_string_lossy()])?;
    pool.create_dataset(DATASET, &["recordsize=8K"])?;
    let mountpoint = small.home.join("mnt");
    pool.mount(DATASET, &mountpoint, &small.cleanup)?;
    let file = |number: u64| mountpoint.join(format!("file{number}"));

    // The pool believes that it has room, and finds out.
    let mut acknowledged = 0;
    let failed = loop {
        match write_synced(&file(acknowledged), &noise(acknowledged)) {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
        ensure!(acknowledged < 100, "100 MiB fitted into 48");
    };
    ensure!(acknowledged > 10, "only {acknowledged} files fitted");
    let errno = failed.raw_os_error();
    ensure!(
        errno == Some(EIO) || errno == Some(EROFS),
        "the program saw {failed}"
    );
    // Nothing more is promised, whatever is asked.
    for _ in 0..3 {
        let refused = write_synced(&mountpoint.join("later"), b"x");
        ensure!(
            refused.as_ref().err().and_then(std::io::Error::raw_os_error) == Some(EROFS),
            "after the failure a write gave {refused:?}"
        );
    }
    // `status` says what happened, and reads go on.
    let told = status(&pool)?;
    ensure!(told["state"] == "read-only", "state is {}", told["state"]);
    let reason = told["stopped"].as_str().unwrap_or_default();
    ensure!(
        reason.contains("No space left on device") && reason.contains("tank.pack"),
        "the reason is '{reason}'"
    );
    ensure!(
        told["members"][0]["state"] == "failed",
        "the member is {}",
        told["members"][0]
    );
    let text = pool.run(["status", "tank"])?;
    ensure!(text.contains("ATTENTION"), "status says\n{text}");
    for number in 0..acknowledged {
        ensure!(fs::read(file(number))? == noise(number), "file{number} differs");
    }
    // The unmount says that not everything could be written; then the device is mended.
    let unmounted = pool.output(["unmount", &mountpoint.to_string_lossy()])?;
    ensure!(
        !unmounted.status.success(),
        "the unmount claims that all was written"
    );
    pool.wait_closed()?;
    small.resize("400M")?;
    pool.check()?;
    pool.mount_again(DATASET, &mountpoint)?;
    for number in 0..acknowledged {
        ensure!(
            fs::read(file(number))? == noise(number),
            "file{number} was acknowledged and differs"
        );
    }
    write_synced(&mountpoint.join("later"), b"x").context("a mended pool takes no writes")?;
    ensure!(status(&pool)?["state"] == "open", "a mended pool is not open");
    pool.unmount(&mountpoint)?;
    pool.check()
}

#[test]
fn a_read_that_fails_names_the_file() -> Result<()> {
    if !can_mount_small("a_read_that_fails_names_the_file") {
        return Ok(());
    }
    let small = Small::new("300M")?;
    let backing = small.sparse_file(256 << 20)?;
    let Ok(device) = process::run(Command::new("losetup").args(["-f", "--show"]).arg(&backing)) else {
        requirements::skip("a_read_that_fails_names_the_file", "there is no loop device");
        return Ok(());
    };
    let device = device.trim().to_owned();
    let attached = device.clone();
    small.cleanup.push(format!("detach {device}"), move || {
        process::run(Command::new("losetup").args(["-d", &attached])).map(drop)
    });
    let mut pool = Pool::new("tank", &small.home)?;
    pool.member = PathBuf::from(&device);
    pool.run(["create", "tank", &device])?;
    pool.create_dataset(DATASET, &["recordsize=8K"])?;
    let mountpoint = small.home.join("mnt");
    pool.mount(DATASET, &mountpoint, &small.cleanup)?;
    fs::create_dir(mountpoint.join("d"))?;
    for number in 0..40 {
        write_synced(&mountpoint.join(format!("d/file{number}")), &noise(number))?;
    }
    // With nothing in any cache the device must be asked.
    pool.unmount(&mountpoint)?;
    pool.wait_closed()?;
    pool.mount_again(DATASET, &mountpoint)?;
    File::options().write(true).open(&backing)?.set_len(20 << 20)?;
    let file = File::open(mountpoint.join("d/file30"))?;
    let mut bytes = [0; 100];
    let read = file.read_at(&mut bytes, 80 * 8192 + 5);
    let errno = read.as_ref().err().and_then(std::io::Error::raw_os_error);
    ensure!(errno == Some(EIO), "the program saw {read:?}");
    drop(file);

    let told = status(&pool)?;
    let Some(error) = told["recent_errors"].as_array().and_then(|errors| errors.last()) else {
        bail!("status names no error: {told}");
    };
    let first_record = error["record"].as_u64().unwrap_or_default();
    ensure!(
        error["kind"] == "media"
            && error["dataset"] == "tank/data"
            && error["path"] == "/d/file30"
            && error["member"] == device.as_str()
            && error["count"].as_u64() > Some(0)
            && error["offset_bytes"].as_u64() == Some(first_record * 8192)
            && error["last_seconds"].as_i64() > Some(1_600_000_000),
        "status says {error}"
    );
    ensure!(
        told["members"][0]["read_errors"].as_u64() > Some(0),
        "{}",
        told["members"]
    );
    let text = pool.run(["status", "tank"])?;
    ensure!(
        text.contains("tank/data:/d/file30, record"),
        "status says\n{text}"
    );
    let log = fs::read_to_string(pool.state_directory().join("tank.log"))?;
    ensure!(
        log.lines()
            .any(|line| line.contains("ERROR") && line.contains("/d/file30") && line.contains("record")),
        "the log says\n{log}"
    );
    // What can still be read is still served, and writes that reach the device go on.
    ensure!(
        fs::read(mountpoint.join("d/file2"))? == noise(2),
        "a whole file differs"
    );
    ensure!(told["state"] == "open", "a failed read stopped the pool");
    pool.unmount(&mountpoint)
}
