//! Mean time of 8 KiB writes and of uncached 8 KiB reads in a directory, on a mount or not:
//!
//! `cargo run --release -p packstone-fuse --example latency -- DIRECTORY [WRITES]`

#![allow(missing_docs, clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

const PAGE_BYTES: usize = 8192;

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let Some(directory) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: latency DIRECTORY [WRITES]");
        std::process::exit(2);
    };
    let pages: u64 = arguments
        .next()
        .map_or(20_000, |text| text.to_str().unwrap().parse().unwrap());
    let path = directory.join("packstone-latency");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    let mut page: Vec<u8> = (0..PAGE_BYTES).map(|index| (index / 16) as u8).collect();
    for (what, permute) in [
        ("sequential, new", false),
        ("sequential, again", false),
        ("scattered, again", true),
    ] {
        let started = Instant::now();
        for index in 0..pages {
            // An odd factor visits every page of a power of two once, and nearly all otherwise.
            let at = if permute {
                index.wrapping_mul(0x9e37_79b1) % pages
            } else {
                index
            };
            page[..8].copy_from_slice(&index.to_ne_bytes());
            file.write_all_at(&page, at * PAGE_BYTES as u64).unwrap();
        }
        let mean_us = started.elapsed().as_secs_f64() * 1e6 / pages as f64;
        println!("write {what}: {mean_us:.1} us");
    }
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let started = Instant::now();
    for index in 0..pages {
        let at = index.wrapping_mul(0x9e37_79b1) % pages;
        file.read_exact_at(&mut page, at * PAGE_BYTES as u64).unwrap();
    }
    println!(
        "read scattered, mostly uncached: {:.1} us",
        started.elapsed().as_secs_f64() * 1e6 / pages as f64
    );
    std::fs::remove_file(&path).unwrap();
}
