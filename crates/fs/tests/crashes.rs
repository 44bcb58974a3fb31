//! The device loses, keeps and tears unflushed sectors at random; what was promised must be there afterwards. A full pool
//! refuses writes when they are made, and still makes room.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use packstone_fs::{ErrorKind, FileKind, FileSystem, Ino, RenameMode, SetAttributes, Timestamp};
use packstone_media::SimulatedMedia;
use packstone_pool::{BackgroundWork, Pool};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use support::caller;

const RECORD: usize = 4096;
const RECORDS: usize = 16;
const FILES: usize = 4;

/// What the test wrote and what it was promised. Generations count from 1; 0 means never written.
struct Promises {
    written: [[u32; RECORDS]; FILES],
    durable: [[u32; RECORDS]; FILES],
    config_written: u32,
    config_durable: u32,
}

/// A page that says which generation it is, all over.
fn page(generation: u32) -> Vec<u8> {
    generation.to_le_bytes().repeat(RECORD / 4)
}

/// Three and a half records, ending in the middle of one.
fn config(generation: u32) -> Vec<u8> {
    generation.to_le_bytes().repeat(RECORD / 4 * 7 / 2)
}

fn generation_of(bytes: &[u8]) -> u32 {
    let generation = u32::from_le_bytes(bytes[..4].try_into().unwrap());
    assert!(
        bytes.chunks(4).all(|four| four == generation.to_le_bytes()),
        "a mix of generations"
    );
    generation
}

struct World {
    media: Arc<SimulatedMedia>,
    pool: Arc<Pool>,
    fs: FileSystem,
    random: SmallRng,
    promises: Promises,
    files: [Ino; FILES],
    generation: u32,
    seconds: i64,
    /// Pages that crashes took back; without any, this test would say nothing.
    lost: u32,
}

impl World {
    fn new(seed: u64) -> World {
        let media = support::device(64 << 20, &[("recordsize", "4K")]);
        let pool = support::open_pool(&media);
        let fs = support::open(&pool);
        let files = std::array::from_fn(|number| {
            let name = format!("file {number}");
            let ino = fs
                .create(
                    &caller(1),
                    Ino::ROOT,
                    name.as_bytes(),
                    FileKind::Regular,
                    0o600,
                    0,
                )
                .unwrap()
                .ino;
            fs.write(&caller(1), ino, 0, &vec![0; RECORD * RECORDS], false)
                .unwrap();
            ino
        });
        let promises = Promises {
            written: [[0; RECORDS]; FILES],
            durable: [[0; RECORDS]; FILES],
            config_written: 0,
            config_durable: 0,
        };
        fs.sync_all().unwrap();
        World {
            media,
            pool,
            fs,
            random: SmallRng::seed_from_u64(seed),
            promises,
            files,
            generation: 0,
            seconds: 5,
            lost: 0,
        }
    }

    fn operation(&mut self) {
        self.generation += 1;
        let now = caller(self.seconds);
        let file = self.random.random_range(0..FILES);
        match self.random.random_range(0..20) {
            0..10 => {
                let first = self.random.random_range(0..RECORDS);
                let count = self.random.random_range(1..=4.min(RECORDS - first));
                let data = page(self.generation).repeat(count);
                self.fs
                    .write(&now, self.files[file], (first * RECORD) as u64, &data, true)
                    .unwrap();
                self.promises.written[file][first..first + count].fill(self.generation);
            }
            10..13 => {
                self.fs
                    .sync_file(self.files[file], self.random.random_bool(0.5))
                    .unwrap();
                self.promises.durable[file] = self.promises.written[file];
            }
            13..15 => self.replace_config(),
            15 => {
                self.fs.sync_all().unwrap();
                self.promises.durable = self.promises.written;
                self.promises.config_durable = self.promises.config_written;
            }
            16 => self.temporary_file(),
            _ => {
                self.seconds += 1;
                self.fs
                    .step(Timestamp {
                        seconds: self.seconds,
                        nanoseconds: 0,
                    })
                    .unwrap();
                let works = [
                    BackgroundWork::Flush,
                    BackgroundWork::Checkpoint,
                    BackgroundWork::Clean,
                ];
                let work = works[self.random.random_range(0..3)];
                self.pool.step(work, self.seconds as u64 * 1000).unwrap();
            }
        }
    }

    /// As programs save their settings: written in small pieces, renamed over the old, sometimes synced.
    fn replace_config(&mut self) {
        let (now, fs) = (caller(self.seconds), &self.fs);
        let new = fs
            .create(&now, Ino::ROOT, b"config.new", FileKind::Regular, 0o600, 0)
            .unwrap()
            .ino;
        let content = config(self.generation);
        for (number, piece) in content.chunks(1000).enumerate() {
            fs.write(&now, new, number as u64 * 1000, piece, false).unwrap();
        }
        let synced = self.random.random_bool(0.4);
        fs.rename(
            &now,
            Ino::ROOT,
            b"config.new",
            Ino::ROOT,
            b"config",
            RenameMode::Replace,
        )
        .unwrap();
        self.promises.config_written = self.generation;
        if synced {
            fs.sync_file(Ino::ROOT, false).unwrap();
            self.promises.config_durable = self.generation;
        }
        fs.forget(new, 1);
    }

    fn temporary_file(&mut self) {
        let (now, fs) = (caller(self.seconds), &self.fs);
        let ino = fs
            .create(&now, Ino::ROOT, b"temporary", FileKind::Regular, 0o600, 0)
            .unwrap()
            .ino;
        fs.open_file(ino).unwrap();
        fs.write(&now, ino, 0, &page(7).repeat(20), false).unwrap();
        fs.unlink(&now, Ino::ROOT, b"temporary").unwrap();
        if self.random.random_bool(0.5) {
            fs.release(ino).unwrap();
            fs.forget(ino, 1);
        }
    }

    /// Everything in memory goes, and the device does what it likes with what was not flushed.
    fn crash(self, seed: u64) -> World {
        let World {
            media,
            pool,
            fs,
            random,
            mut promises,
            files,
            generation,
            seconds,
            mut lost,
        } = self;
        drop((fs, pool));
        media.crash(seed);
        let pool = support::open_pool(&media);
        let fs = support::open(&pool);
        support::check_clean(&pool);
        for (file, ino) in files.iter().enumerate() {
            let mut data = vec![];
            fs.read(&caller(seconds), *ino, 0, 1 << 20, &mut data).unwrap();
            assert_eq!(data.len(), RECORD * RECORDS);
            for (index, record) in data.chunks(RECORD).enumerate() {
                let found = generation_of(record);
                assert!(found >= promises.durable[file][index], "a synced page was lost");
                assert!(found <= promises.written[file][index], "a page from nowhere");
                lost += u32::from(found < promises.written[file][index]);
                promises.written[file][index] = found;
            }
        }
        promises.durable = promises.written;
        let found = fs.lookup(&caller(seconds), Ino::ROOT, b"config").map(|found| {
            let mut data = vec![];
            fs.read(&caller(seconds), found.ino, 0, 1 << 20, &mut data)
                .unwrap();
            assert_eq!(data.len(), config(1).len(), "a half file");
            fs.forget(found.ino, 1);
            generation_of(&data)
        });
        let found = found.unwrap_or(0);
        assert!(found >= promises.config_durable && found <= promises.config_written);
        (promises.config_written, promises.config_durable) = (found, found);
        let _ = fs.unlink(&caller(seconds), Ino::ROOT, b"config.new");
        let _ = fs.unlink(&caller(seconds), Ino::ROOT, b"temporary");
        World {
            media,
            pool,
            fs,
            random,
            promises,
            files,
            generation,
            seconds,
            lost,
        }
    }
}

#[test]
fn promises_hold_through_crashes() {
    for seed in 0..4 {
        let mut world = World::new(seed);
        for crash in 0..25 {
            println!("seed {seed}, crash {crash}");
            for _ in 0..world.random.random_range(1..150) {
                world.operation();
            }
            world = world.crash(seed * 1000 + crash);
        }
        support::settle(&world.fs, world.seconds + 10);
        let report = support::check_clean(&world.pool);
        assert_eq!(report.orphans, 0, "orphans of crashes are reclaimed");
        assert!(world.lost > 10, "{} pages were lost", world.lost);
    }
}

/// Bytes that do not compress.
fn noise(random: &mut SmallRng, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.random()).collect()
}

#[test]
fn a_full_pool_refuses_writes_at_once_and_makes_room() {
    let media = support::device(64 << 20, &[("recordsize", "8K")]);
    let pool = support::open_pool(&media);
    let fs = support::open(&pool);
    let mut random = SmallRng::seed_from_u64(1);
    let create = |name: &[u8]| {
        fs.create(&caller(1), Ino::ROOT, name, FileKind::Regular, 0o600, 0)
            .map(|new| new.ino)
    };
    let (large, small) = (create(b"large").unwrap(), create(b"small").unwrap());
    let mut written = 0u64;
    let full = loop {
        match fs.write(&caller(2), large, written, &noise(&mut random, 256 << 10), false) {
            Ok(()) => written += 256 << 10,
            Err(error) => break error,
        }
        assert!(written < 64 << 20);
    };
    assert_eq!(full.kind(), ErrorKind::NoSpace);
    assert!(written > 16 << 20, "{written} bytes fit");
    // Small appends are refused when they are made, not when they are synced.
    let mut appended = 0;
    let refused = loop {
        match fs.write(&caller(3), small, appended, &noise(&mut random, 1000), false) {
            Ok(()) => appended += 1000,
            Err(error) => break error,
        }
        assert!(appended < 16 << 20);
    };
    assert_eq!(refused.kind(), ErrorKind::NoSpace);
    fs.sync_all().unwrap();
    assert_eq!(fs.attributes(small).unwrap().size_bytes, appended);
    // Making room always works.
    let cut = SetAttributes {
        size_bytes: Some(written / 2 + 1),
        ..SetAttributes::default()
    };
    fs.set_attributes(&caller(4), large, &cut).unwrap();
    fs.unlink(&caller(4), Ino::ROOT, b"small").unwrap();
    fs.forget(small, 1);
    support::settle(&fs, 10);
    let again = create(b"again").unwrap();
    for part in 0..written / 4 / (256 << 10) {
        fs.write(
            &caller(5),
            again,
            part * (256 << 10),
            &noise(&mut random, 256 << 10),
            false,
        )
        .unwrap();
    }
    fs.close().unwrap();
    support::check_clean(&pool);
}

/// A step that fails on one file must not forget what it was to do for another: its attributes would reach neither the
/// tree nor, at sync_all, the media.
#[test]
fn a_failed_step_forgets_no_other_file() {
    let media = support::device(256 << 20, &[("recordsize", "4K")]);
    let pool = support::open_pool(&media);
    let fs = support::open(&pool);
    let create = |name: &[u8]| {
        let new = fs.create(&caller(1), Ino::ROOT, name, FileKind::Regular, 0o600, 0);
        new.unwrap().ino
    };
    let (buffered, touched, long) = (create(b"buffered"), create(b"touched"), create(b"long"));
    fs.write(&caller(1), buffered, 0, &page(1), false).unwrap();
    fs.write(&caller(1), touched, 0, &page(1), false).unwrap();
    // More records than the caches of nodes hold.
    const LONG_MIB: u64 = 600;
    for block in 0..LONG_MIB {
        let data = page(2).repeat(256);
        fs.write(&caller(1), long, block * (1 << 20), &data, false)
            .unwrap();
    }
    fs.sync_all().unwrap();
    pool.checkpoint_now().unwrap();
    // The first overwrite puts the attributes; those of the second wait.
    fs.write(&caller(49), touched, 0, &page(3), false).unwrap();
    fs.write(&caller(50), touched, 0, &page(4), false).unwrap();
    fs.write(&caller(50), buffered, 10, b"a piece", false).unwrap();
    pool.checkpoint_now().unwrap();
    let mut data = Vec::new();
    for block in 0..LONG_MIB {
        data.clear();
        fs.read(&caller(50), long, block * (1 << 20), 1 << 20, &mut data)
            .unwrap();
    }
    let later = Timestamp {
        seconds: 60,
        nanoseconds: 0,
    };
    media.fail_next_reads(1);
    assert!(fs.step(later).is_err(), "the read that fails was not made");
    fs.sync_all().unwrap();
    drop((fs, pool));
    media.crash_losing_all();
    let pool = support::open_pool(&media);
    let fs = support::open(&pool);
    assert_eq!(fs.attributes(touched).unwrap().modified.seconds, 50);
    assert_eq!(fs.attributes(buffered).unwrap().modified.seconds, 50);
}
