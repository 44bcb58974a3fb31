//! A crash between any two transactions of an operation that takes several: a long cut, a long hole, a deleted file that
//! is reclaimed, a dataset that is destroyed. What is found afterwards is a whole state, and the operation can go on.
//!
//! Each piece is tried durable and lost: in the one case the state is exactly that between the pieces.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use packstone_fs::{
    AllocateMode, Error, ErrorKind, FileKind, FileSystem, Ino, SetAttributes, Timestamp, destroy_step,
};
use packstone_media::{Media, SimulatedMedia};
use packstone_pool::{
    DatasetState, Failpoint, FailpointHandler, Failpoints, OpenOptions, Pool, PoolState, RecordId,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use support::{DATASET, caller};

const RECORD: usize = 4096;
/// Records of the file: four pieces, the last of them short.
const RECORDS: u64 = 3 * PIECE + 500;
/// Records of one piece.
const PIECE: u64 = 1024;

/// Fails between two pieces, the n-th time, once the test has done what it wants done before.
struct Trap {
    left: Mutex<u64>,
    reached: Mutex<Sender<bool>>,
    proceed: Mutex<Receiver<()>>,
}

impl FailpointHandler for Trap {
    fn reach(&self, point: Failpoint) -> Result<(), String> {
        if point != Failpoint::BetweenPieces {
            return Ok(());
        }
        let mut left = self.left.lock();
        *left = left.wrapping_sub(1);
        if *left != 0 {
            return Ok(());
        }
        self.reached.lock().send(true).unwrap();
        self.proceed.lock().recv().unwrap();
        Err("the test asks for it".into())
    }
}

/// What becomes of the pieces before the crash.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pieces {
    Durable,
    Lost,
    AsItComes,
}

fn record(index: u64) -> Vec<u8> {
    (index as u32 + 1).to_le_bytes().repeat(RECORD / 4)
}

/// A device with one long file, all of it durable.
fn device() -> Arc<SimulatedMedia> {
    let media = support::device(256 << 20, &[("recordsize", "4K")]);
    let pool = support::open_pool(&media);
    let fs = support::open(&pool);
    let new = fs.create(&caller(1), Ino::ROOT, b"long", FileKind::Regular, 0o600, 0);
    let long = new.unwrap().ino;
    for index in 0..RECORDS {
        let offset = index * RECORD as u64;
        fs.write(&caller(1), long, offset, &record(index), false).unwrap();
    }
    fs.forget(long, 1);
    fs.close().unwrap();
    drop(fs);
    pool.close().unwrap();
    media
}

/// Runs `operation` until it is between two pieces for the `count`-th time, and crashes there. None if it ended before.
fn crash_between(
    device: &SimulatedMedia,
    (count, pieces): (u64, Pieces),
    prepare: impl FnOnce(&Arc<Pool>),
    operation: impl FnOnce(&Arc<Pool>) -> Result<(), Error> + Send,
) -> Option<Arc<SimulatedMedia>> {
    let media = Arc::new(device.fork());
    let (reached, reports) = channel();
    let (go, proceed) = channel();
    let ended = reached.clone();
    let trap = Trap {
        left: Mutex::new(count),
        reached: Mutex::new(reached),
        proceed: Mutex::new(proceed),
    };
    let member: Arc<dyn Media> = media.clone();
    let options = OpenOptions {
        memory_bytes: Some(16 << 20),
        failpoints: Failpoints::new(Arc::new(trap)),
        ..OpenOptions::default()
    };
    let pool = Arc::new(Pool::open(vec![member], &options).unwrap());
    prepare(&pool);
    let crashed = std::thread::scope(|scope| {
        // Goes with this closure: where the test fails, the trap does not wait for ever.
        let go = go;
        let running = scope.spawn(|| {
            let outcome = operation(&pool);
            ended.send(false).unwrap();
            outcome
        });
        let crashed = reports.recv().unwrap();
        if crashed {
            if pieces == Pieces::Durable {
                pool.sync(pool.last_commit()).unwrap();
            }
            go.send(()).unwrap();
        }
        let outcome = running.join().unwrap();
        assert_eq!(outcome.is_err(), crashed, "{outcome:?}");
        crashed
    });
    assert_eq!(pool.statistics().state != PoolState::Open, crashed);
    drop(pool);
    match pieces {
        Pieces::AsItComes => media.crash(count),
        _ => media.crash_losing_all(),
    }
    crashed.then_some(media)
}

/// Tries every place between two pieces in every way; `verify` gets what is on the device, and how many pieces are done if
/// that is certain.
fn at_every_joint(
    least: u64,
    prepare: impl Fn(&Arc<Pool>),
    operation: impl Fn(&Arc<Pool>) -> Result<(), Error> + Sync,
    verify: impl Fn(&Arc<SimulatedMedia>, Option<u64>),
) {
    let device = device();
    for pieces in [Pieces::Durable, Pieces::Lost, Pieces::AsItComes] {
        let mut count = 0;
        while let Some(media) = crash_between(&device, (count + 1, pieces), &prepare, &operation) {
            count += 1;
            println!("{pieces:?}, joint {count}");
            verify(&media, (pieces == Pieces::Durable).then_some(count));
        }
        assert!(count >= least, "{count} joints are fewer than {least}");
    }
}

fn look_up(fs: &FileSystem) -> Result<Ino, Error> {
    let found = fs.lookup(&caller(2), Ino::ROOT, b"long")?;
    Ok(found.ino)
}

fn cut(fs: &FileSystem, size_bytes: u64) -> Result<(), Error> {
    let change = SetAttributes {
        size_bytes: Some(size_bytes),
        ..SetAttributes::default()
    };
    fs.set_attributes(&caller(3), look_up(fs)?, &change).map(drop)
}

/// The whole file, record by record.
fn content(fs: &FileSystem) -> Vec<Vec<u8>> {
    let ino = look_up(fs).unwrap();
    let size_bytes = fs.attributes(ino).unwrap().size_bytes;
    let mut all = Vec::new();
    while (all.len() as u64) < size_bytes {
        let mut data = Vec::new();
        fs.read(&caller(4), ino, all.len() as u64, 1 << 20, &mut data)
            .unwrap();
        assert!(!data.is_empty(), "the file ends before its size");
        all.extend(data);
    }
    assert_eq!(all.len() as u64, size_bytes);
    all.chunks(RECORD).map(<[u8]>::to_vec).collect()
}

/// Nothing is wrong with the files, nor, once closed, with the pool's books.
fn close_clean(media: &Arc<SimulatedMedia>, pool: &Arc<Pool>, fs: &FileSystem) {
    fs.close().unwrap();
    let files = support::check_clean(pool);
    assert_eq!(files.orphans, 0);
    pool.close().unwrap();
    let mut references = files.references;
    references.sort_unstable();
    assert_eq!(records_of_whole_pool(media), references);
}

fn records_of_whole_pool(media: &Arc<SimulatedMedia>) -> Vec<RecordId> {
    let member: Arc<dyn Media> = media.clone();
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let report = packstone_pool::check(&Pool::open(vec![member], &options).unwrap(), &mut |_, _| {}).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    report.records
}

#[test]
fn a_cut_that_crashes_leaves_a_shorter_whole_file() {
    const KEPT_BYTES: u64 = 10 * RECORD as u64 + 100;
    at_every_joint(
        4,
        |_| {},
        |pool| cut(&support::open(pool), KEPT_BYTES),
        |media, done| {
            let pool = support::open_pool(media);
            let fs = support::open(&pool);
            support::check_clean(&pool);
            let found = content(&fs);
            let length = found.len() as u64;
            let gone = RECORDS - length;
            // The record that holds the new end goes last, with the bytes behind that end.
            assert!(
                gone.is_multiple_of(PIECE) || length == 11,
                "{length} records are left"
            );
            let expected = done.map(|done| RECORDS.saturating_sub(done * PIECE).max(11));
            assert!(
                expected.is_none_or(|expected| expected == length),
                "{length} records"
            );
            assert!((0..).zip(&found).all(|(index, found)| *found == record(index)));
            cut(&fs, KEPT_BYTES).unwrap();
            let found = content(&fs);
            assert_eq!((found.len(), found[10].len()), (11, 100));
            close_clean(media, &pool, &fs);
        },
    );
}

#[test]
fn a_hole_that_crashes_leaves_a_whole_file_with_a_shorter_hole() {
    const FROM: u64 = 5;
    const HOLE: u64 = 2 * PIECE + 300;
    let punch = |fs: &FileSystem| {
        let (offset, length) = (FROM * RECORD as u64, HOLE * RECORD as u64);
        fs.allocate(&caller(3), look_up(fs)?, offset, length, AllocateMode::PunchHole)
    };
    at_every_joint(
        3,
        |_| {},
        |pool| punch(&support::open(pool)),
        |media, done| {
            let pool = support::open_pool(media);
            let fs = support::open(&pool);
            support::check_clean(&pool);
            let verify = |hole: u64| {
                let found = content(&fs);
                assert_eq!(found.len() as u64, RECORDS, "the size changed");
                for (index, found) in (0..).zip(&found) {
                    let zero = (FROM..FROM + hole).contains(&index);
                    let expected = if zero { vec![0; RECORD] } else { record(index) };
                    assert!(*found == expected, "record {index}, hole of {hole}");
                }
            };
            let zeros = content(&fs)
                .iter()
                .filter(|found| found[..] == [0; RECORD])
                .count() as u64;
            assert!(
                zeros.is_multiple_of(PIECE) || zeros == HOLE,
                "{zeros} records are zero"
            );
            assert!(
                done.is_none_or(|done| zeros == (done * PIECE).min(HOLE)),
                "{zeros} records"
            );
            verify(zeros);
            punch(&fs).unwrap();
            verify(HOLE);
            close_clean(media, &pool, &fs);
        },
    );
}

#[test]
fn a_deleted_file_is_reclaimed_through_crashes() {
    at_every_joint(
        3,
        |_| {},
        |pool| {
            let fs = support::open(pool);
            let ino = look_up(&fs)?;
            fs.unlink(&caller(3), Ino::ROOT, b"long")?;
            fs.forget(ino, 1);
            let now = Timestamp {
                seconds: 4,
                nanoseconds: 0,
            };
            while fs.step(now)? {}
            Ok(())
        },
        |media, done| {
            let pool = support::open_pool(media);
            let left = support::check_clean(&pool);
            let fs = support::open(&pool);
            match look_up(&fs) {
                Ok(_) => {
                    assert_eq!(done, None, "a durable removal is forgotten");
                    assert_eq!(content(&fs).len() as u64, RECORDS, "a half file");
                    assert_eq!(left.orphans, 0);
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound);
                    assert_eq!(left.orphans, 1);
                    let gone = RECORDS - left.references.len() as u64;
                    assert!(
                        done.is_none_or(|done| gone == done * PIECE),
                        "{gone} records gone"
                    );
                    support::settle(&fs, 5);
                    assert_eq!(pool.tree_usage(pool.dataset(DATASET).unwrap().tree).records, 0);
                }
            }
            close_clean(media, &pool, &fs);
        },
    );
}

#[test]
fn a_dataset_is_destroyed_through_crashes() {
    at_every_joint(
        4,
        |pool| {
            pool.mark_dataset_destroying(DATASET).unwrap();
            pool.sync(pool.last_commit()).unwrap();
        },
        |pool| {
            while destroy_step(pool, DATASET)? {}
            Ok(())
        },
        |media, done| {
            let pool = support::open_pool(media);
            let found = pool.dataset(DATASET).unwrap();
            assert_eq!(found.state, DatasetState::Destroying);
            let left = pool.tree_usage(found.tree).records;
            // Each piece takes 1024 keys, among them the few that are no records.
            let keys = (RECORDS - left).div_ceil(PIECE);
            assert!(done.is_none_or(|done| keys == done), "{left} records are left");
            let mut steps = 0;
            while destroy_step(&pool, DATASET).unwrap() {
                steps += 1;
            }
            assert!(steps <= 4, "{steps} steps");
            assert!(pool.dataset(DATASET).is_err());
            pool.close().unwrap();
            assert_eq!(records_of_whole_pool(media), []);
        },
    );
}
