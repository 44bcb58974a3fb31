//! `check` must find what is wrong, `destroy_step` must leave nothing, and damaged keys must give errors.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use packstone_fs::{ErrorKind, FileKind, Ino, check, destroy_step};
use packstone_media::SimulatedMedia;
use packstone_pool::kv::{Durability, Store};
use packstone_pool::{Pool, Transaction, TreeId};
use std::ops::Bound;
use std::sync::Arc;
use support::{DATASET, caller};

/// A directory with a subdirectory, files with records and a second link, a symlink, attributes.
fn example() -> Arc<Pool> {
    support::open_pool(&example_device())
}

fn example_device() -> Arc<SimulatedMedia> {
    let media = support::device(64 << 20, &[("recordsize", "4K")]);
    let pool = support::open_pool(&media);
    let fs = support::open(&pool);
    let at = caller(5);
    let directory = fs.create_directory(&at, Ino::ROOT, b"d", 0o755).unwrap().ino;
    fs.create_directory(&at, directory, b"below", 0o755).unwrap();
    for number in 0..3 {
        let name = format!("f{number}");
        let ino = fs
            .create(&at, directory, name.as_bytes(), FileKind::Regular, 0o600, 0)
            .unwrap()
            .ino;
        fs.write(&at, ino, 4096, &[number + 1; 10_000], false).unwrap();
        fs.set_xattr(&at, ino, b"user.a", b"b", packstone_fs::XattrMode::Set)
            .unwrap();
        fs.link(&at, ino, Ino::ROOT, name.as_bytes()).unwrap();
    }
    fs.create_symlink(&at, Ino::ROOT, b"l", b"target").unwrap();
    fs.close().unwrap();
    pool.close().unwrap();
    media
}

fn tree(pool: &Pool) -> TreeId {
    pool.dataset(DATASET).unwrap().tree
}

fn commit(pool: &Pool, fill: impl FnOnce(&mut Transaction)) {
    let mut transaction = pool.begin();
    fill(&mut transaction);
    pool.commit(transaction).unwrap();
}

#[test]
fn a_sound_dataset_has_no_problems() {
    let pool = example();
    let report = support::check_clean(&pool);
    assert_eq!(
        (report.files, report.directories, report.others, report.orphans),
        (3, 3, 1, 0)
    );
    assert_eq!(report.references.len(), 9);
    assert_eq!(report.logical_bytes, 3 * 14_096);
}

#[test]
fn every_missing_key_is_noticed() {
    let pool = example();
    let tree = tree(&pool);
    let pairs = pool.scan(tree, Bound::Unbounded, Bound::Unbounded, 1000).unwrap();
    for (key, value) in &pairs {
        commit(&pool, |transaction| transaction.delete(tree, key));
        // A missing record of a sparse file is a hole: it shows in the count of stored bytes.
        let report = check(&pool, DATASET, &mut |_, _| {}).unwrap();
        let unnoticed = key[8] == 3 && report.problems.is_empty();
        assert!(
            !report.problems.is_empty() || unnoticed,
            "{key:02x?} is not missed"
        );
        commit(&pool, |transaction| transaction.put(tree, key, value));
    }
    support::check_clean(&pool);
}

/// Any change of any byte of a value gives a problem, or another file system that is as sound; never a panic, neither here
/// nor in the operations.
#[test]
fn damaged_values_give_errors_and_no_panic() {
    let pool = example();
    let tree = tree(&pool);
    let pairs = pool.scan(tree, Bound::Unbounded, Bound::Unbounded, 1000).unwrap();
    let mut noticed = 0;
    for (key, value) in &pairs {
        for position in 0..value.len() {
            let mut bad = value.clone();
            bad[position] ^= 0x81;
            commit(&pool, |transaction| transaction.put(tree, key, &bad));
            let report = check(&pool, DATASET, &mut |_, _| {}).unwrap();
            noticed += u32::from(!report.problems.is_empty());
            use_everything(&pool);
        }
        commit(&pool, |transaction| transaction.put(tree, key, value));
    }
    assert!(noticed > 100);
    support::check_clean(&pool);
}

/// Reads all there is, without changing anything, and takes errors as they come.
fn use_everything(pool: &Arc<Pool>) {
    let options = packstone_fs::MountOptions { read_only: true };
    let Ok(fs) = packstone_fs::FileSystem::open(pool.clone(), DATASET, options, &caller(5)) else {
        return;
    };
    let mut waiting = vec![Ino::ROOT];
    let mut steps = 0;
    while let Some(directory) = waiting.pop().filter(|_| steps < 100) {
        steps += 1;
        for entry in fs.read_directory(directory, 2, 100).unwrap_or_default() {
            let Ok(found) = fs.lookup(&caller(5), directory, &entry.name) else {
                continue;
            };
            let mut data = vec![];
            let _ = fs.read(&caller(5), found.ino, 0, 1 << 20, &mut data);
            let _ = (
                fs.read_symlink(found.ino),
                fs.list_xattrs(found.ino),
                fs.get_xattr(found.ino, b"user.a"),
            );
            let _ = fs.seek(found.ino, 0, packstone_fs::Seek::Hole);
            if found.kind == FileKind::Directory {
                waiting.push(found.ino);
            }
        }
    }
}

/// The same, and everything is changed and destroyed too. What comes of it need not make sense.
#[test]
fn changing_damaged_datasets_gives_errors_and_no_panic() {
    let media = example_device();
    let pool = support::open_pool(&Arc::new(media.fork()));
    let pairs = pool
        .scan(tree(&pool), Bound::Unbounded, Bound::Unbounded, 1000)
        .unwrap();
    for (key, value) in &pairs {
        for (position, mask) in (0..value.len()).flat_map(|position| [(position, 0x03), (position, 0x80)]) {
            let pool = support::open_pool(&Arc::new(media.fork()));
            let mut bad = value.clone();
            bad[position] ^= mask;
            commit(&pool, |transaction| transaction.put(tree(&pool), key, &bad));
            change_everything(&pool);
            pool.mark_dataset_destroying(DATASET).unwrap();
            let mut steps = 0;
            while destroy_step(&pool, DATASET).unwrap_or(false) {
                steps += 1;
                assert!(steps < 100);
            }
        }
    }
}

fn change_everything(pool: &Arc<Pool>) {
    let (at, options) = (caller(9), packstone_fs::MountOptions::default());
    let Ok(fs) = packstone_fs::FileSystem::open(pool.clone(), DATASET, options, &at) else {
        return;
    };
    let mut found = vec![];
    let mut directories = vec![Ino::ROOT];
    for depth in 0..3 {
        for directory in std::mem::take(&mut directories) {
            for entry in fs.read_directory(directory, 2, 100).unwrap_or_default() {
                if let Ok(attributes) = fs.lookup(&at, directory, &entry.name) {
                    directories.push(attributes.ino);
                    found.push((directory, entry.name, attributes.ino, depth));
                }
            }
        }
    }
    for (directory, name, ino, _) in &found {
        let _ = fs.write(&at, *ino, 5000, &[7; 5000], true);
        let cut = packstone_fs::SetAttributes {
            size_bytes: Some(4500),
            mode: Some(0o700),
            ..Default::default()
        };
        let _ = fs.set_attributes(&at, *ino, &cut);
        let _ = fs.allocate(&at, *ino, 100, 10_000, packstone_fs::AllocateMode::PunchHole);
        let _ = fs.remove_xattr(&at, *ino, b"user.a");
        let _ = fs.create_directory(&at, *directory, b"new", 0o755);
        let _ = fs.rename(
            &at,
            *directory,
            name,
            Ino::ROOT,
            b"moved",
            packstone_fs::RenameMode::Exchange,
        );
        let _ = fs.rename(
            &at,
            *directory,
            name,
            Ino::ROOT,
            b"moved",
            packstone_fs::RenameMode::Replace,
        );
    }
    for (directory, name, ino, _) in found {
        let _ = (
            fs.unlink(&at, directory, &name),
            fs.remove_directory(&at, directory, &name),
        );
        fs.forget(ino, 100);
    }
    for round in 0..20 {
        let _ = fs.step(packstone_fs::Timestamp {
            seconds: 100 * round,
            nanoseconds: 0,
        });
    }
    let _ = fs.close();
}

#[test]
fn damaged_files_are_named_in_errors() {
    let pool = example();
    let fs = support::open(&pool);
    let directory = fs.lookup(&caller(6), Ino::ROOT, b"d").unwrap().ino;
    let ino = fs.lookup(&caller(6), directory, b"f1").unwrap().ino;
    let key = [&ino.0.to_be_bytes()[..], &[2], &1u64.to_be_bytes()].concat();
    commit(&pool, |transaction| {
        transaction.put(tree(&pool), &key, &[0xff, 0xff, 0x7f])
    });
    let error = fs.read(&caller(6), ino, 0, 20_000, &mut vec![]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(
        error.message.contains("/d/f1") && error.message.contains("record 1"),
        "{error}"
    );
}

#[test]
fn destroying_leaves_nothing() {
    let pool = example();
    let refused = destroy_step(&pool, DATASET).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    pool.mark_dataset_destroying(DATASET).unwrap();
    let opened = packstone_fs::FileSystem::open(pool.clone(), DATASET, Default::default(), &caller(5));
    assert_eq!(opened.err().map(|error| error.kind()), Some(ErrorKind::Busy));
    let tree = tree(&pool);
    let mut steps = 1;
    while destroy_step(&pool, DATASET).unwrap() {
        steps += 1;
        assert!(steps < 10);
    }
    assert!(pool.dataset(DATASET).is_err());
    assert_eq!(pool.tree_usage(tree).records, 0);
    assert!(
        pool.scan(tree, Bound::Unbounded, Bound::Unbounded, 1)
            .unwrap()
            .is_empty()
    );
}

/// An old superblock above newer files, as a bug or an attacker would leave it.
#[test]
fn inode_numbers_in_use_are_not_given_out_again() {
    let device = example_device();
    let pool = support::open_pool(&device);
    let superblock = [&0u64.to_be_bytes()[..], &[0]].concat();
    // Version, record size, created at 0, hash seed 42, next inode number 2.
    commit(&pool, |transaction| {
        transaction.put(tree(&pool), &superblock, &[1, 13, 0, 0, 42, 2])
    });
    let open = |read_only| {
        let options = packstone_fs::MountOptions { read_only };
        packstone_fs::FileSystem::open(pool.clone(), DATASET, options, &caller(5))
    };
    let error = open(false)
        .err()
        .expect("a new file would take an old one's place");
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.message.contains("read-only"), "{error}");
    let fs = open(true).unwrap();
    fs.lookup(&caller(5), Ino::ROOT, b"f0").unwrap();
}

/// A key of a key-value tree may look like the place of a record in a file. Destroying the tree frees no record by it.
#[test]
fn destroying_a_key_value_tree_frees_nobody_elses_records() {
    let media = example_device();
    let pool = support::open_pool(&media);
    let store = Store::on(pool.clone());
    let pairs = store.tree("pairs").unwrap();
    let mut writer = store.begin();
    for id in 0..64u8 {
        let key = [&7u64.to_be_bytes()[..], &[2], &u64::from(id).to_be_bytes()].concat();
        writer.put(pairs, &key, &[id]).unwrap();
    }
    writer.commit(Durability::Durable).unwrap();
    pool.checkpoint_now().unwrap();
    pool.mark_dataset_destroying("pairs").unwrap();
    while destroy_step(&pool, "pairs").unwrap() {}
    pool.close().unwrap();
    drop((store, pool));

    let pool = support::open_pool(&media);
    support::check_clean(&pool);
    let fs = support::open(&pool);
    let file = fs.lookup(&caller(6), Ino::ROOT, b"f1").unwrap().ino;
    let mut content = Vec::new();
    fs.read(&caller(6), file, 4096, 10_000, &mut content).unwrap();
    assert!(content == [2; 10_000]);
}
