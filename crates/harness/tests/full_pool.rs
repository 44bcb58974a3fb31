//! A pool that is full refuses writes, still deletes, and gives the room back; overwriting never fills it.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use packstone_harness::events::Draw;
use packstone_harness::fixture::{self, Mounted};

const BLOCK_BYTES: usize = 8192;

/// Bytes that no codec can shrink, the same for the same `block` and `version`.
fn block(block: u64, version: u64) -> Vec<u8> {
    let mut draw = Draw::new(block << 32 | version);
    (0..BLOCK_BYTES / 8)
        .flat_map(|_| draw.bits().to_le_bytes())
        .collect()
}

#[test]
fn full_pool_refuses_writes_and_still_deletes() -> Result<()> {
    if !fixture::can_mount("full_pool_refuses_writes_and_still_deletes") {
        return Ok(());
    }
    let mounted = Mounted::new("256M")?;
    let free_at_first = mounted.available_bytes()?;
    for round in 0..3 {
        let files = fill(&mounted, round)?;
        let written_bytes: u64 = files.iter().map(|size_bytes| *size_bytes as u64).sum();
        ensure!(
            written_bytes >= free_at_first / 10 * 8,
            "round {round}: {written_bytes} bytes fitted, df promised {free_at_first}"
        );
        // What was written is whole, the file that met the end of the room aside.
        for (index, size_bytes) in files.iter().enumerate() {
            let bytes = std::fs::read(mounted.path(format!("file{index}")))?;
            ensure!(
                bytes.len() >= *size_bytes,
                "file{index} has {} bytes, {size_bytes} were written",
                bytes.len()
            );
            ensure!(
                bytes[..BLOCK_BYTES] == block(index as u64, round),
                "file{index} has other bytes"
            );
        }
        // Nothing may be needed for a delete: not one refusal.
        for index in 0..=files.len() {
            match std::fs::remove_file(mounted.path(format!("file{index}"))) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound && index == files.len() => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("round {round}: deleting file{index}"));
                }
            }
        }
        File::open(&mounted.mountpoint)?.sync_all()?;
        wait_for_room(&mounted, free_at_first)?;
    }
    mounted.finish()
}

/// Writes files of 4 MiB until there is no room, and returns how many bytes of each were accepted.
fn fill(mounted: &Mounted, round: u64) -> Result<Vec<usize>> {
    const FILE_BLOCKS: u64 = 512;
    let mut files = Vec::new();
    loop {
        let index = files.len() as u64;
        ensure!(
            index < 200,
            "a pool of 256 MiB took {} MiB of random bytes",
            index * 4
        );
        let written = write_blocks(&mounted.path(format!("file{index}")), index, round, FILE_BLOCKS);
        match written {
            Ok(size_bytes) => files.push(size_bytes),
            Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(files),
            Err(error) => bail!("a full pool must say ENOSPC, it said: {error}"),
        }
    }
}

fn write_blocks(path: &Path, index: u64, round: u64, blocks: u64) -> std::io::Result<usize> {
    let mut file = File::create(path)?;
    let mut written = 0;
    for number in 0..blocks {
        let bytes = if number == 0 {
            block(index, round)
        } else {
            block(index << 16 | number, round)
        };
        file.write_all(&bytes)?;
        written += bytes.len();
    }
    file.sync_all()?;
    Ok(written)
}

/// Freed room comes back after a checkpoint at the latest, which the pool makes by itself. The next round writes into it,
/// so that a promise of `df` which cannot be kept is found out.
fn wait_for_room(mounted: &Mounted, free_at_first: u64) -> Result<()> {
    let enough = free_at_first / 10 * 9;
    packstone_harness::process::wait_until(Duration::from_secs(60), "the room of deleted files", || {
        mounted
            .available_bytes()
            .is_ok_and(|available| available >= enough)
    })
}

/// A file a quarter of the pool is overwritten at random until several times the pool's size has gone through it.
#[test]
fn overwriting_for_ever_never_fills_the_pool() -> Result<()> {
    if !fixture::can_mount("overwriting_for_ever_never_fills_the_pool") {
        return Ok(());
    }
    const BLOCKS: u64 = 8192;
    const POOL_BYTES: u64 = 256 << 20;
    let mounted = Mounted::new("256M")?;
    let path = mounted.path("file");
    let mut draw = Draw::new(fixture::seed());
    let mut versions = vec![0_u64; BLOCKS as usize];
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    for number in 0..BLOCKS {
        file.write_all_at(&block(number, 0), number * BLOCK_BYTES as u64)?;
    }
    let rounds = 4 * POOL_BYTES / BLOCK_BYTES as u64;
    for round in 1..=rounds {
        let number = draw.below(BLOCKS);
        let written = file.write_all_at(&block(number, round), number * BLOCK_BYTES as u64);
        written.with_context(|| format!("overwrite {round} of {rounds}"))?;
        versions[number as usize] = round;
        if round % 512 == 0 {
            file.sync_data()
                .with_context(|| format!("fdatasync after overwrite {round} of {rounds}"))?;
        }
    }
    file.sync_all()?;
    drop(file);
    mounted.remount()?;
    let file = File::open(&path)?;
    let mut bytes = vec![0; BLOCK_BYTES];
    for (number, version) in versions.iter().enumerate() {
        file.read_exact_at(&mut bytes, (number * BLOCK_BYTES) as u64)?;
        ensure!(
            bytes == block(number as u64, *version),
            "block {number} is not the one written in round {version}"
        );
    }
    drop(file);
    mounted.finish()
}
