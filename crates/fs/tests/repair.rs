//! Repair of files and directories: each kind of inconsistency is mended or left and told, and a clean check follows.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use packstone_fs::{FileKind, FileSystem, Ino, check, name_damage, repair};
use packstone_media::SimulatedMedia;
use packstone_pool::{Pool, RecordId, Transaction, TreeId};
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;
use support::{DATASET, caller};

struct Example {
    media: Arc<SimulatedMedia>,
    directory: Ino,
    file: Ino,
}

fn example() -> Example {
    let media = support::device(64 << 20, &[("recordsize", "4K")]);
    let pool = support::open_pool(&media);
    let fs = support::open(&pool);
    let at = caller(5);
    let directory = fs.create_directory(&at, Ino::ROOT, b"d", 0o755).unwrap().ino;
    fs.create_directory(&at, directory, b"below", 0o755).unwrap();
    let mut file = Ino(0);
    for number in 0..3 {
        let name = format!("f{number}");
        file = fs
            .create(&at, directory, name.as_bytes(), FileKind::Regular, 0o600, 0)
            .unwrap()
            .ino;
        fs.write(&at, file, 4096, &[number + 1; 10_000], false).unwrap();
        fs.set_xattr(&at, file, b"user.a", b"b", packstone_fs::XattrMode::Set)
            .unwrap();
    }
    fs.create_symlink(&at, Ino::ROOT, b"l", b"target").unwrap();
    fs.close().unwrap();
    pool.close().unwrap();
    Example {
        media,
        directory,
        file,
    }
}

fn tree(pool: &Pool) -> TreeId {
    pool.dataset(DATASET).unwrap().tree
}

fn commit(pool: &Pool, fill: impl FnOnce(&mut Transaction)) {
    let mut transaction = pool.begin();
    fill(&mut transaction);
    pool.commit(transaction).unwrap();
}

fn problems(pool: &Pool) -> Vec<String> {
    check(pool, DATASET, &mut |_, _| {}).unwrap().problems
}

fn all_pairs(pool: &Pool) -> Vec<(Vec<u8>, Vec<u8>)> {
    pool.scan(tree(pool), Bound::Unbounded, Bound::Unbounded, 10_000)
        .unwrap()
}

fn inode_key(ino: Ino) -> Vec<u8> {
    [&ino.0.to_be_bytes()[..], &[0]].concat()
}

fn look(pool: &Arc<Pool>, names: &[&[u8]]) -> packstone_fs::Result<Ino> {
    let fs: FileSystem = support::open(pool);
    let mut at = Ino::ROOT;
    for name in names {
        at = fs.lookup(&caller(6), at, name)?.ino;
    }
    Ok(at)
}

#[test]
fn a_sound_dataset_is_left_as_it_is() {
    let pool = support::open_pool(&example().media);
    let before = (all_pairs(&pool), pool.last_commit());
    assert_eq!(repair(&pool, DATASET, &caller(9)).unwrap(), Vec::<String>::new());
    assert_eq!((all_pairs(&pool), pool.last_commit()), before);
}

/// Every field of every value, one byte after the other: what a repair mends it mends for good, and what it cannot mend it
/// neither changes for the worse nor calls mended.
#[test]
fn whatever_is_damaged_repair_ends_and_repeats_nothing() {
    let media = example().media;
    let (mut mended, mut left) = (0, 0);
    let original = support::open_pool(&Arc::new(media.fork()));
    for (key, value) in all_pairs(&original) {
        for (position, mask) in (0..value.len()).flat_map(|at| [(at, 0x01), (at, 0x40)]) {
            let pool = support::open_pool(&Arc::new(media.fork()));
            let mut bad = value.clone();
            bad[position] ^= mask;
            commit(&pool, |transaction| transaction.put(tree(&pool), &key, &bad));
            let before = problems(&pool).len();
            let Ok(lines) = repair(&pool, DATASET, &caller(9)) else {
                left += 1;
                continue;
            };
            let after = problems(&pool);
            assert!(after.len() <= before, "{key:02x?} byte {position}: {after:?}");
            match after.is_empty() {
                true if !lines.is_empty() => mended += 1,
                true => {}
                false => left += 1,
            }
            assert_eq!(
                repair(&pool, DATASET, &caller(9)).unwrap(),
                Vec::<String>::new(),
                "a second repair finds something"
            );
        }
    }
    println!("{mended} mended, {left} left to people");
    assert!(mended > 50, "{mended} mended, {left} left");
}

#[test]
fn a_name_without_an_inode_goes_and_an_inode_without_a_name_is_found() {
    let example = example();
    let pool = support::open_pool(&example.media);
    let entries = |pool: &Pool| {
        let pairs = all_pairs(pool).into_iter();
        pairs.filter(|(key, _)| {
            key.len() == 17 && key[8] == 1 && key[..8] == example.directory.0.to_be_bytes()
        })
    };
    // The name of the last file is lost; another entry now leads to an inode that never was.
    let (lost, value) = entries(&pool).find(|(_, value)| value.ends_with(b"f2")).unwrap();
    let mut nowhere = value.clone();
    nowhere[2] = 0x7f;
    nowhere.truncate(value.len() - 2);
    nowhere.extend(b"f2");
    commit(&pool, |transaction| transaction.put(tree(&pool), &lost, &nowhere));
    assert!(!problems(&pool).is_empty());
    let lines = repair(&pool, DATASET, &caller(9)).unwrap().join("\n");
    assert!(lines.contains("does not exist"), "{lines}");
    assert!(lines.contains("/lost+found/inode-"), "{lines}");
    support::check_clean(&pool);
    assert!(look(&pool, &[b"d", b"f2"]).is_err());
    let name = format!("inode-{}", example.file);
    let found = look(&pool, &[b"lost+found", name.as_bytes()]).unwrap();
    assert_eq!(found, example.file);
    let fs = support::open(&pool);
    let mut data = vec![];
    fs.read(&caller(6), found, 4096, 10_000, &mut data).unwrap();
    assert_eq!(data, [3; 10_000]);
}

#[test]
fn a_directory_without_a_name_is_found_with_what_is_in_it() {
    let example = example();
    let pool = support::open_pool(&example.media);
    let (name, _) = all_pairs(&pool)
        .into_iter()
        .find(|(key, value)| key[..8] == Ino::ROOT.0.to_be_bytes() && key[8] == 1 && value.ends_with(b"d"))
        .unwrap();
    commit(&pool, |transaction| transaction.delete(tree(&pool), &name));
    repair(&pool, DATASET, &caller(9)).unwrap();
    support::check_clean(&pool);
    let directory = format!("inode-{}", example.directory);
    let found = look(&pool, &[b"lost+found", directory.as_bytes(), b"f2"]).unwrap();
    assert_eq!(found, example.file);
}

#[test]
fn an_orphan_key_of_a_named_file_does_not_cost_the_file() {
    let example = example();
    let pool = support::open_pool(&example.media);
    let orphan = |ino: u64| [&0u64.to_be_bytes()[..], &[1], &ino.to_be_bytes()].concat();
    commit(&pool, |transaction| {
        transaction.put(tree(&pool), &orphan(example.file.0), b"");
        transaction.put(tree(&pool), &orphan(4000), b"");
    });
    assert_eq!(problems(&pool).len(), 2);
    repair(&pool, DATASET, &caller(9)).unwrap();
    support::check_clean(&pool);
    assert_eq!(look(&pool, &[b"d", b"f2"]).unwrap(), example.file);
}

#[test]
fn deleted_files_are_reclaimed() {
    let example = example();
    let pool = support::open_pool(&example.media);
    let fs = support::open(&pool);
    let at = caller(7);
    let directory = fs.lookup(&at, Ino::ROOT, b"d").unwrap().ino;
    fs.lookup(&at, directory, b"f2").unwrap();
    fs.unlink(&at, directory, b"f2").unwrap();
    // As after a crash: the kernel never gave the inode back.
    pool.sync(pool.last_commit()).unwrap();
    drop((fs, pool));
    example.media.crash_losing_all();
    let pool = support::open_pool(&example.media);
    assert_eq!(check(&pool, DATASET, &mut |_, _| {}).unwrap().orphans, 1);
    let lines = repair(&pool, DATASET, &caller(9)).unwrap();
    assert_eq!(lines, ["reclaim 1 deleted files"]);
    assert_eq!(check(&pool, DATASET, &mut |_, _| {}).unwrap().orphans, 0);
}

#[test]
fn remains_of_an_inode_are_left_to_people() {
    let example = example();
    let pool = support::open_pool(&example.media);
    commit(&pool, |transaction| {
        transaction.delete(tree(&pool), &inode_key(example.file))
    });
    let before = problems(&pool);
    repair(&pool, DATASET, &caller(9)).unwrap();
    assert_eq!(problems(&pool), before);
}

#[test]
fn damaged_files_are_listed_with_path_and_range() {
    let example = example();
    let pool = support::open_pool(&example.media);
    let report = check(&pool, DATASET, &mut |_, _| {}).unwrap();
    let last: HashSet<RecordId> = report.references.iter().rev().take(1).copied().collect();
    let found = name_damage(&pool, DATASET, &last).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, "/d/f2");
    assert_eq!((found[0].start_bytes, found[0].end_bytes), (12_288, 14_096));
    assert_eq!(name_damage(&pool, DATASET, &HashSet::new()).unwrap(), vec![]);
}
