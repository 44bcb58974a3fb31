//! What 8 KiB operations take in a directory, on a mount or not: mean, median and 99th percentile.
//!
//! `cargo run --release -p packstone-fuse --example latency -- DIRECTORY [PAGES]`
//!
//! | operation | is |
//! |---|---|
//! | extend | writing behind the end of a new file |
//! | rewrite | each page of it again, in order |
//! | overwrite | its pages in scattered order |
//! | write + fdatasync | a scattered page and a sync of it, a tenth as often |
//! | read cached | a page the kernel holds |
//! | read uncached | a page it does not; the daemon may |
//! | scan | the file in order after the kernel has forgotten it, 128 KiB at a time |
//!
//! Pages look like rows of a database: numbers that count, words, and some noise. They shrink to about a third.

#![allow(missing_docs, clippy::unwrap_used)]

use rustix::fs::{Advice, fadvise};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PAGE_BYTES: usize = 8192;
const ROW_BYTES: usize = 128;
const SCAN_BYTES: usize = 128 << 10;
const WORDS: [&str; 8] = [
    "pending",
    "shipped",
    "returned",
    "account",
    "invoice",
    "customer",
    "warehouse",
    "payment",
];

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    let Some(directory) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: latency DIRECTORY [PAGES]");
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
    let mut noise = 0x9e37_79b9_7f4a_7c15;
    let contents: Vec<Vec<u8>> = (0..256).map(|number| page(number, &mut noise)).collect();
    let write = |index: u64, at: u64| {
        let content = &contents[(index.wrapping_mul(31) % 256) as usize];
        file.write_all_at(content, at * PAGE_BYTES as u64).unwrap();
    };
    // An odd factor visits every page of a power of two once, and nearly all otherwise.
    let scattered = |index: u64| index.wrapping_mul(0x9e37_79b1) % pages;
    measure("extend", pages, |index| write(index, index));
    measure("rewrite", pages, |index| write(index + 7, index));
    measure("overwrite", pages, |index| write(index + 3, scattered(index)));
    measure("write + fdatasync", pages / 10, |index| {
        write(index + 5, scattered(index));
        file.sync_data().unwrap();
    });
    file.sync_all().unwrap();
    let mut buffer = vec![0; PAGE_BYTES];
    forget(&file);
    fadvise(&file, 0, None, Advice::Random).unwrap();
    let mut read = |index| {
        file.read_exact_at(&mut buffer, scattered(index) * PAGE_BYTES as u64)
            .unwrap()
    };
    measure("read uncached", pages, &mut read);
    measure("read cached", pages, &mut read);
    forget(&file);
    fadvise(&file, 0, None, Advice::Normal).unwrap();
    let mut buffer = vec![0; SCAN_BYTES];
    let chunks = pages * PAGE_BYTES as u64 / SCAN_BYTES as u64;
    measure("scan", chunks, |index| {
        file.read_exact_at(&mut buffer, index * SCAN_BYTES as u64)
            .unwrap();
    });
    std::fs::remove_file(&path).unwrap();
}

fn forget(file: &File) {
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

fn measure(what: &str, count: u64, mut operation: impl FnMut(u64)) {
    let mut times: Vec<Duration> = Vec::with_capacity(count as usize);
    for index in 0..count {
        let started = Instant::now();
        operation(index);
        times.push(started.elapsed());
    }
    let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
    let mean = microseconds(times.iter().sum()) / count.max(1) as f64;
    times.sort_unstable();
    let percentile = |percent: usize| {
        times
            .get(times.len() * percent / 100)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "{what:<18} mean {mean:>7.1} us   p50 {:>7.1}   p99 {:>7.1}",
        microseconds(percentile(50)),
        microseconds(percentile(99))
    );
}

/// Rows with a key that counts, a balance, words and a little that does not compress.
fn page(number: u64, noise: &mut u64) -> Vec<u8> {
    let mut page = Vec::with_capacity(PAGE_BYTES);
    while page.len() < PAGE_BYTES {
        let row = number * (PAGE_BYTES / ROW_BYTES) as u64 + (page.len() / ROW_BYTES) as u64;
        *noise ^= *noise << 13;
        *noise ^= *noise >> 7;
        *noise ^= *noise << 17;
        let (word, other) = (WORDS[(*noise % 8) as usize], WORDS[(*noise >> 8) as usize % 8]);
        let mut text = format!(
            "{row:010}|{word}|{:09}|{other}|{:016x}|",
            *noise % 1_000_000_000,
            *noise
        );
        text.extend(std::iter::repeat_n(' ', ROW_BYTES.saturating_sub(text.len())));
        page.extend_from_slice(&text.as_bytes()[..ROW_BYTES]);
    }
    page
}
