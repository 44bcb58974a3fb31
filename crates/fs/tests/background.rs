//! Background work goes on for the other files when it fails for one: damage of a file must neither keep deleted files
//! from being reclaimed nor other attributes from being written out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use packstone_fs::{ErrorKind, FileKind, FileSystem, Ino, Timestamp};
use packstone_pool::Pool;
use std::sync::Arc;
use support::{DATASET, caller};

const RECORD: usize = 4096;
/// Records of the deleted file: reclaiming it takes several steps.
const LONG_RECORDS: usize = 4000;

fn create(fs: &FileSystem, name: &[u8]) -> Ino {
    let new = fs.create(&caller(1), Ino::ROOT, name, FileKind::Regular, 0o600, 0);
    new.unwrap().ino
}

/// Deletes a long file; most of it waits to be reclaimed.
fn delete_long_file(fs: &FileSystem, pool: &Pool) {
    let long = create(fs, b"long");
    let data = vec![7; RECORD * LONG_RECORDS];
    for (block, piece) in data.chunks(1 << 20).enumerate() {
        fs.write(&caller(1), long, (block as u64) << 20, piece, false)
            .unwrap();
    }
    fs.unlink(&caller(2), Ino::ROOT, b"long").unwrap();
    fs.forget(long, 1);
    assert!(records(pool) > 2000, "nothing is left to be reclaimed");
}

fn records(pool: &Pool) -> u64 {
    pool.tree_usage(pool.dataset(DATASET).unwrap().tree).records
}

/// Makes what the tree says of a record of a file unreadable.
fn damage_extent(pool: &Pool, ino: Ino, index: u64) {
    let key = [&ino.0.to_be_bytes()[..], &[2], &index.to_be_bytes()].concat();
    let tree = pool.dataset(DATASET).unwrap().tree;
    assert!(pool.get(tree, &key).unwrap().is_some());
    let mut transaction = pool.begin();
    transaction.put(tree, &key, b"no record");
    pool.commit(transaction).unwrap();
}

fn at(seconds: i64) -> Timestamp {
    Timestamp {
        seconds,
        nanoseconds: 0,
    }
}

fn pool() -> Arc<Pool> {
    support::pool(&[("recordsize", "4K")])
}

#[test]
fn a_file_that_cannot_be_counted_is_told_once() {
    let pool = pool();
    let fs = support::open(&pool);
    let counted = create(&fs, b"counted");
    for fill in 1..4 {
        fs.write(&caller(1), counted, 0, &[fill; 3 * RECORD], false)
            .unwrap();
    }
    // Ends as by a crash: the count of stored bytes is not written.
    drop(fs);
    damage_extent(&pool, counted, 1);
    let fs = support::open(&pool);
    delete_long_file(&fs, &pool);
    let before = records(&pool);
    assert_eq!(fs.lookup(&caller(2), Ino::ROOT, b"counted").unwrap().ino, counted);
    let failed = fs.step(at(3)).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Damaged);
    assert!(records(&pool) < before, "the step that failed reclaimed nothing");
    support::settle(&fs, 3);
    assert_eq!(records(&pool), 3);
}

#[test]
fn a_file_that_cannot_be_flushed_delays_no_other() {
    let pool = pool();
    let fs = support::open(&pool);
    let (broken, touched) = (create(&fs, b"broken"), create(&fs, b"touched"));
    for file in [broken, touched] {
        fs.write(&caller(1), file, 0, &[1; RECORD], false).unwrap();
    }
    fs.sync_all().unwrap();
    fs.write(&caller(2), broken, 10, b"a piece", false).unwrap();
    damage_extent(&pool, broken, 0);
    // The first overwrite puts the attributes; those of the second wait.
    fs.write(&caller(3), touched, 0, &[2; RECORD], false).unwrap();
    fs.write(&caller(4), touched, 0, &[3; RECORD], false).unwrap();
    delete_long_file(&fs, &pool);
    for _ in 0..5 {
        assert_eq!(fs.step(at(60)).unwrap_err().kind(), ErrorKind::Damaged);
    }
    assert_eq!(records(&pool), 2, "the deleted file was not reclaimed");
    drop(fs);
    let fs = support::open(&pool);
    assert_eq!(fs.attributes(touched).unwrap().modified.seconds, 4);
}
