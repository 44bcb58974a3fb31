//! The memory budget holds: a daemon under load stays within its `memory` property and a constant.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use packstone_harness::events::Generator;
use packstone_harness::fixture::{self, Mounted};
use packstone_harness::process;

/// What the program itself, its threads' stacks, codecs and FUSE buffers may take beside the budget.
const CONSTANT_BYTES: u64 = 192 << 20;

/// Small, so that the load is many times larger and the caches are full all the time.
const BUDGET: &str = "128M";
const BUDGET_BYTES: u64 = 128 << 20;

#[test]
fn daemon_stays_within_its_memory_budget() -> Result<()> {
    if !fixture::can_mount("daemon_stays_within_its_memory_budget") {
        return Ok(());
    }
    let mounted = Mounted::new("4G")?;
    // The budget is taken up when the pool is opened next.
    mounted
        .pool
        .run(["set", &mounted.pool.name, &format!("memory={BUDGET}")])?;
    mounted.remount()?;
    let daemon = mounted.pool.daemon_pid()?;
    let (done, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(process::resident_bytes(daemon).unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let outcome = load(&mounted);
        done.store(true, Ordering::Relaxed);
        outcome
    })?;
    let peak = peak.into_inner();
    println!("the daemon's peak was {} MiB", peak >> 20);
    ensure!(peak > 1 << 20, "the daemon's memory was not measured");
    let limit = BUDGET_BYTES + CONSTANT_BYTES;
    ensure!(
        peak <= limit,
        "the daemon took {} MiB, more than {} MiB",
        peak >> 20,
        limit >> 20
    );
    mounted.finish()
}

/// Large files written and read by several threads, and many small ones.
fn load(mounted: &Mounted) -> Result<()> {
    std::thread::scope(|scope| {
        let large: Vec<_> = (0..4_u64)
            .map(|seed| scope.spawn(move || large_file(mounted, seed)))
            .collect();
        let small = scope.spawn(|| small_files(mounted));
        for thread in large.into_iter().chain([small]) {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a thread of the load panicked"))??;
        }
        Ok(())
    })
}

fn large_file(mounted: &Mounted, seed: u64) -> Result<()> {
    const SIZE_BYTES: usize = 256 << 20;
    let path = mounted.path(format!("large{seed}"));
    let mut generator = Generator::new(seed);
    let mut text = String::new();
    while text.len() < 4 << 20 {
        generator.write_row(&mut text);
    }
    let mut file = File::create(&path)?;
    let mut written = 0;
    while written < SIZE_BYTES {
        // Starting elsewhere each time, so that no two records are alike.
        let start = written / 97 % (1 << 20);
        file.write_all(&text.as_bytes()[start..])
            .with_context(|| format!("{} bytes into a large file", written))?;
        written += text.len() - start;
    }
    file.sync_all()?;
    let mut total = 0;
    let mut reader = File::open(&path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let length = reader.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        total += length;
    }
    ensure!(total == written, "{total} bytes were read, {written} written");
    Ok(())
}

fn small_files(mounted: &Mounted) -> Result<()> {
    for directory in 0..20 {
        let path = mounted.path(format!("small{directory}"));
        fs::create_dir(&path)?;
        for file in 0..500 {
            fs::write(
                path.join(format!("file{file}")),
                format!("{directory} {file}\n").repeat(20),
            )?;
        }
    }
    Ok(())
}
