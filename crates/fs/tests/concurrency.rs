//! Many threads on one file system. What is asserted holds whatever the order in which they run; afterwards the whole
//! dataset is checked.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use packstone_fs::{ErrorKind, FileKind, FileSystem, Ino, RenameMode, SetAttributes, Timestamp};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicBool, Ordering};
use support::caller;

const RECORD: usize = 4096;

fn file(fs: &FileSystem, name: &[u8]) -> Ino {
    fs.create(&caller(5), Ino::ROOT, name, FileKind::Regular, 0o600, 0)
        .unwrap()
        .ino
}

/// Every write fills a record with one byte value, so a record with two values was torn.
#[test]
fn records_are_never_torn() {
    let pool = support::pool(&[("recordsize", "4K"), ("compression", "lz4")]);
    let fs = support::open(&pool);
    let ino = file(&fs, b"shared");
    let records = 32;
    fs.write(&caller(5), ino, 0, &vec![1; records * RECORD], false)
        .unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|thread| {
                let fs = &fs;
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(thread);
                    for _ in 0..3000 {
                        let index = random.random_range(0..records);
                        let count = random.random_range(1..=3.min(records - index));
                        let data = vec![random.random_range(1..=255u8); count * RECORD];
                        fs.write(&caller(6), ino, (index * RECORD) as u64, &data, true)
                            .unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                let mut data = vec![];
                while !stop.load(Ordering::Relaxed) {
                    data.clear();
                    fs.read(&caller(6), ino, 0, records * RECORD, &mut data).unwrap();
                    assert_eq!(data.len(), records * RECORD);
                    for record in data.chunks(RECORD) {
                        assert!(
                            record.iter().all(|byte| *byte == record[0] && *byte != 0),
                            "torn record"
                        );
                    }
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs.sync_file(ino, false).unwrap();
                fs.step(Timestamp {
                    seconds: 100,
                    nanoseconds: 0,
                })
                .unwrap();
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    fs.close().unwrap();
    support::check_clean(&pool);
}

/// Appends of odd sizes by one thread, seen by readers: always a prefix of the sequence, however buffered.
#[test]
fn readers_see_a_prefix_of_small_appends() {
    let pool = support::pool(&[("recordsize", "16K")]);
    let fs = support::open(&pool);
    let ino = file(&fs, b"log");
    let stop = AtomicBool::new(false);
    let byte_at = |offset: usize| (offset % 251) as u8 + 1;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut data = vec![];
                    fs.read(&caller(6), ino, 0, 1 << 20, &mut data).unwrap();
                    assert!(
                        data.iter()
                            .enumerate()
                            .all(|(offset, byte)| *byte == byte_at(offset))
                    );
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs.sync_file(ino, true).unwrap();
                fs.step(Timestamp {
                    seconds: 100,
                    nanoseconds: 0,
                })
                .unwrap();
            }
        });
        let mut random = SmallRng::seed_from_u64(9);
        let mut size = 0;
        while size < 300_000 {
            let length = random.random_range(1..700);
            let data: Vec<u8> = (size..size + length).map(byte_at).collect();
            fs.write(&caller(6), ino, size as u64, &data, false).unwrap();
            size += length;
        }
        stop.store(true, Ordering::Relaxed);
    });
    fs.close().unwrap();
    support::check_clean(&pool);
}

/// Threads create, rename, exchange, link and remove in the same few directories: no deadlock, no panic, only errors that
/// such races may give, and a sound tree.
#[test]
fn names_survive_races() {
    let pool = support::pool(&[("recordsize", "4K"), ("compression", "none")]);
    let fs = support::open(&pool);
    let names: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let mut roots = vec![Ino::ROOT];
    for name in [b"one", b"two"] {
        roots.push(
            fs.create_directory(&caller(5), Ino::ROOT, name, 0o755)
                .unwrap()
                .ino,
        );
    }
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (fs, roots) = (&fs, &roots);
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(thread);
                let mut directories = roots.clone();
                for _ in 0..4000 {
                    let parent = directories[random.random_range(0..directories.len())];
                    let other = directories[random.random_range(0..directories.len())];
                    let (name, new) = (names[random.random_range(0..4)], names[random.random_range(0..4)]);
                    let outcome = name_operation(fs, &mut random, &mut directories, parent, other, name, new);
                    if let Err(error) = outcome {
                        let possible = [
                            ErrorKind::NotFound,
                            ErrorKind::AlreadyExists,
                            ErrorKind::IsDirectory,
                            ErrorKind::NotDirectory,
                            ErrorKind::DirectoryNotEmpty,
                            ErrorKind::InvalidInput,
                            ErrorKind::NotPermitted,
                        ];
                        assert!(possible.contains(&error.kind()), "{error}");
                    }
                    directories.truncate(6);
                }
            });
        }
    });
    support::settle(&fs, 1000);
    fs.close().unwrap();
    let report = support::check_clean(&pool);
    // Directories that the test still refers to are orphans until they are forgotten; reopening forgets them.
    drop(fs);
    let fs = support::open(&pool);
    support::settle(&fs, 2000);
    assert_eq!(support::check_clean(&pool).orphans, 0);
    assert!(report.directories >= 3);
}

fn name_operation(
    fs: &FileSystem,
    random: &mut SmallRng,
    directories: &mut Vec<Ino>,
    parent: Ino,
    other: Ino,
    name: &[u8],
    new: &[u8],
) -> packstone_fs::Result<()> {
    let caller = caller(6);
    match random.random_range(0..10) {
        0 | 1 => {
            let ino = fs.create(&caller, parent, name, FileKind::Regular, 0o600, 0)?.ino;
            let written = fs.write(&caller, ino, 0, &[7; 5000], false);
            fs.forget(ino, 1);
            written
        }
        2 => {
            directories.push(fs.create_directory(&caller, parent, name, 0o755)?.ino);
            Ok(())
        }
        3 | 4 => {
            let mode =
                [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange][random.random_range(0..3)];
            fs.rename(&caller, parent, name, other, new, mode)
        }
        5 => {
            let ino = fs.lookup(&caller, parent, name)?.ino;
            let linked = fs.link(&caller, ino, other, new);
            fs.forget(ino, 1 + u64::from(linked.is_ok()));
            linked.map(|_| ())
        }
        6 => fs.remove_directory(&caller, parent, name),
        7 => fs.read_directory(parent, 0, 100).map(|_| ()),
        8 => {
            let ino = fs.lookup(&caller, parent, name)?.ino;
            let change = SetAttributes {
                mode: Some(0o640),
                ..SetAttributes::default()
            };
            let changed = fs.set_attributes(&caller, ino, &change);
            fs.forget(ino, 1);
            changed.map(|_| ())
        }
        _ => fs.unlink(&caller, parent, name),
    }
}

/// Files are opened, unlinked, written and released while others do the same; nothing is left behind.
#[test]
fn unlinked_files_go_when_nobody_holds_them() {
    let pool = support::pool(&[("recordsize", "4K"), ("compression", "lz4")]);
    let fs = support::open(&pool);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let fs = &fs;
            scope.spawn(move || {
                let name = format!("file {thread}");
                for round in 0..200 {
                    let ino = file(fs, name.as_bytes());
                    fs.open_file(ino).unwrap();
                    fs.write(&caller(6), ino, 0, &[round as u8 | 1; 10_000], false)
                        .unwrap();
                    fs.unlink(&caller(6), Ino::ROOT, name.as_bytes()).unwrap();
                    fs.forget(ino, 1);
                    let mut data = vec![];
                    fs.read(&caller(6), ino, 9_999, 10, &mut data).unwrap();
                    assert_eq!(data, [round as u8 | 1]);
                    fs.release(ino).unwrap();
                    assert_eq!(fs.attributes(ino).unwrap_err().kind(), ErrorKind::NotFound);
                }
            });
        }
    });
    support::settle(&fs, 1000);
    let report = support::check_clean(&pool);
    assert_eq!((report.files, report.orphans, report.references.len()), (0, 0, 0));
}
