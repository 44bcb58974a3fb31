//! The daemon aborts at named joints of the pool; what was synced is there afterwards, and nothing is half.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use packstone_harness::fixture::{self, DATASET, Mounted};
use packstone_harness::{packstone, process};

/// Files written at most; the daemon must have aborted long before.
const FILES_MAX: u32 = 400;
const FILE_BYTES: usize = 300_000;

/// Bytes that do not compress, different for each file.
fn content(number: u32) -> Vec<u8> {
    let mut state = u64::from(number) + 1;
    (0..FILE_BYTES)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Mounts with a daemon that aborts as `failpoints` says.
fn mount_armed(mounted: &Mounted, failpoints: &str) -> Result<()> {
    mounted.pool.unmount(&mounted.mountpoint)?;
    let mut command = mounted.pool.command();
    command
        .env("PACKSTONE_FAILPOINTS", failpoints)
        .args(["mount", &mounted.pool.dataset(DATASET)])
        .arg(&mounted.mountpoint);
    process::run(&mut command)?;
    Ok(())
}

/// Recovers with a daemon that is not armed, and looks at the first `acknowledged` files; the one after may be anything that
/// begins as it was written.
fn verify(mounted: &Mounted, acknowledged: u32) -> Result<()> {
    // A daemon that was closing has taken its mount away before it aborted.
    if packstone::is_mounted(&mounted.mountpoint) {
        packstone::detach(&mounted.mountpoint)?;
    }
    mounted.pool.mount_again(DATASET, &mounted.mountpoint)?;
    for number in 0..acknowledged {
        let bytes = fs::read(mounted.path(format!("file{number}")))
            .with_context(|| format!("file{number} of {acknowledged} that were synced"))?;
        ensure!(
            bytes == content(number),
            "file{number} is not the one that was synced"
        );
    }
    Ok(())
}

/// Writes and syncs files until the daemon is gone; answers how many were acknowledged.
fn write_until_abort(mounted: &Mounted, first: u32) -> Result<u32> {
    let daemon = mounted.pool.daemon_pid()?;
    let mut number = first;
    while write_synced(&mounted.path(format!("file{number}")), &content(number)).is_ok() {
        number += 1;
        ensure!(number < FILES_MAX, "the daemon never aborted");
    }
    process::wait_ended(&[daemon], Duration::from_secs(30))?;
    Ok(number)
}

#[test]
fn synced_files_survive_aborts_in_the_log() -> Result<()> {
    if !fixture::can_mount("synced_files_survive_aborts_in_the_log") {
        return Ok(());
    }
    let mounted = Mounted::new("512M")?;
    let mut acknowledged = 0;
    for failpoints in [
        "before-last-batch=abort@7",
        "before-log-flush=abort@5",
        "after-log-flush=abort@6",
    ] {
        mount_armed(&mounted, failpoints)?;
        let before = acknowledged;
        acknowledged = write_until_abort(&mounted, before)?;
        ensure!(
            acknowledged > before,
            "nothing was acknowledged before {failpoints}"
        );
        verify(&mounted, acknowledged)?;
    }
    mounted.finish()
}

#[test]
fn synced_files_survive_aborts_in_a_checkpoint() -> Result<()> {
    if !fixture::can_mount("synced_files_survive_aborts_in_a_checkpoint") {
        return Ok(());
    }
    let mounted = Mounted::new("512M")?;
    let mut acknowledged = 0;
    // The first checkpoint is that of opening; the second comes when enough was written, or at the unmount.
    for failpoints in ["between-nodes-and-slot=abort@2", "between-slot-copies=abort@2"] {
        mount_armed(&mounted, failpoints)?;
        let daemon = mounted.pool.daemon_pid()?;
        for number in acknowledged..acknowledged + 10 {
            write_synced(&mounted.path(format!("file{number}")), &content(number))?;
        }
        acknowledged += 10;
        process::terminate(daemon);
        process::wait_ended(&[daemon], Duration::from_secs(30))?;
        verify(&mounted, acknowledged)?;
    }
    // A daemon that aborts while it recovers leaves all for the next.
    mounted.pool.kill_daemon()?;
    mounted.pool.unmount(&mounted.mountpoint)?;
    let mut command = mounted.pool.command();
    command
        .env("PACKSTONE_FAILPOINTS", "after-replay=abort")
        .args(["mount", &mounted.pool.dataset(DATASET)])
        .arg(&mounted.mountpoint);
    ensure!(
        process::run(&mut command).is_err(),
        "the daemon did not abort while it opened the pool"
    );
    mounted.pool.mount_again(DATASET, &mounted.mountpoint)?;
    for number in 0..acknowledged {
        ensure!(
            fs::read(mounted.path(format!("file{number}")))? == content(number),
            "file{number} is not the one that was synced"
        );
    }
    mounted.finish()
}
