//! What is done with an image, whole or not: everything a user, a daemon and an administrator would do, in short.
//!
//! Errors are fine everywhere. What is not: a panic, work that does not end, a directory that lists without end, an
//! answer longer than what was asked for.

use super::{DATASET, open, start};
use crate::requests::settle;
use packstone_fs::{
    AllocateMode, Attributes, FileKind, FileSystem, Ino, MountOptions, RenameMode, Seek, SetAttributes,
    XattrMode,
};
use packstone_media::{Media, SimulatedMedia};
use packstone_pool::inspect::{Target, inspect};
use packstone_pool::{BackgroundWork, Pool, SegmentId, StepOutcome, TreeId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Inodes that are visited, and names that are looked up.
const VISITED_MAX: usize = 100;
const LOOKUPS_MAX: usize = 250;
/// More entries than all names of an image.
const ENTRIES_MAX: usize = 4096;
const READ_BYTES: usize = 48 << 10;
/// Far more than a pool of some MiB has to do.
const STEPS_MAX: usize = 2_000;

/// Opens for reading only: check, inspect, mount, walk.
pub(super) fn of_reader(media: &Arc<SimulatedMedia>, choices: u8) {
    let target = match choices / 8 % 8 {
        0 => Target::Label,
        1 => Target::Checkpoints,
        2 => Target::Segments,
        3 => Target::Segment(SegmentId(u32::from(choices / 64))),
        4 => Target::Table,
        5 => Target::Tree(TreeId(16)),
        6 => Target::Tree(TreeId::CATALOG),
        _ => Target::Record(packstone_pool::RecordId(9)),
    };
    let before = media.media_changes();
    let _ = inspect(&[media.clone() as Arc<dyn Media>], target, &mut |_| Ok(()));
    if let Ok(pool) = open(media, true) {
        let pool = Arc::new(pool);
        let _ = packstone_pool::check(&pool, &mut |_, _| {});
        look_at(&pool);
        let _ = packstone_fs::check(&pool, DATASET, &mut |_, _| {});
        let options = MountOptions { read_only: true };
        if let Ok(files) = FileSystem::open_with_seed(pool.clone(), DATASET, options, &start(), 42) {
            walk(&files);
            let _ = files.close();
        }
        let _ = pool.close();
    }
    assert_eq!(
        media.media_changes(),
        before,
        "a pool opened for reading was written to"
    );
}

/// Opens for writing: mount, walk, change, background work, close, and again.
pub(super) fn of_writer(media: &Arc<SimulatedMedia>, choices: u8) {
    let Ok(pool) = open(media, false) else { return };
    let pool = Arc::new(pool);
    if let Ok(files) =
        FileSystem::open_with_seed(pool.clone(), DATASET, MountOptions::default(), &start(), 42)
    {
        let found = walk(&files);
        change(&files, &found);
        settle(&files);
        let _ = files.sync_all();
        walk(&files);
        let _ = files.close();
    }
    look_at(&pool);
    let _ = pool.create_dataset("new", Default::default());
    for number in 0..3 {
        for work in [
            BackgroundWork::Flush,
            BackgroundWork::Clean,
            BackgroundWork::Checkpoint,
        ] {
            background(&pool, work, number * 1_000_000);
        }
    }
    if choices & 4 != 0 {
        destroy(&pool);
    }
    let _ = packstone_fs::check(&pool, DATASET, &mut |_, _| {});
    let _ = packstone_pool::check(&pool, &mut |_, _| {});
    let _ = pool.close();
    drop(pool);
    if choices & 0x80 != 0 {
        of_reader(media, choices);
    }
}

fn background(pool: &Pool, work: BackgroundWork, now_ms: u64) {
    for _ in 0..STEPS_MAX {
        if !matches!(pool.step(work, now_ms), Ok(StepOutcome::Progress)) {
            return;
        }
    }
    panic!("background work of the pool does not end: {work:?}");
}

fn destroy(pool: &Pool) {
    if pool.mark_dataset_destroying(DATASET).is_err() {
        return;
    }
    for _ in 0..STEPS_MAX {
        if !matches!(packstone_fs::destroy_step(pool, DATASET), Ok(true)) {
            return;
        }
    }
    panic!("destroying a dataset does not end");
}

fn look_at(pool: &Pool) {
    let _ = (pool.statistics(), pool.space(), pool.properties());
    for dataset in pool.datasets().unwrap_or_default() {
        let _ = pool.tree_usage(dataset.tree);
        let _ = packstone_fs::DatasetProperties::parse(&dataset.properties);
    }
}

/// A name and what it names.
struct Found {
    parent: Ino,
    name: Vec<u8>,
    attributes: Attributes,
}

/// Visits what can be reached from the root, names first.
fn walk(files: &FileSystem) -> Vec<Found> {
    let mut found = Vec::new();
    let (mut open, mut seen) = (vec![Ino::ROOT], BTreeSet::from([Ino::ROOT]));
    let mut lookups = 0;
    while let Some(directory) = open.pop() {
        for entry in list(files, directory) {
            lookups += 1;
            if lookups > LOOKUPS_MAX {
                break;
            }
            let Ok(attributes) = files.lookup(&start(), directory, &entry.name) else {
                continue;
            };
            if attributes.kind == FileKind::Directory && seen.insert(attributes.ino) {
                open.push(attributes.ino);
            }
            files.forget(attributes.ino, 1);
            if found.len() < VISITED_MAX {
                visit(files, &attributes);
                found.push(Found {
                    parent: directory,
                    name: entry.name,
                    attributes,
                });
            }
        }
        if let Ok(attributes) = files.lookup(&start(), directory, b"..") {
            files.forget(attributes.ino, 1);
        }
    }
    found
}

fn list(files: &FileSystem, directory: Ino) -> Vec<packstone_fs::DirectoryEntry> {
    let (mut entries, mut after) = (Vec::new(), 0);
    while let Ok(more) = files.read_directory(directory, after, 64) {
        assert!(more.len() <= 64, "more names than were asked for");
        let Some(last) = more.last() else { break };
        assert!(
            more.iter().all(|entry| entry.cookie > after),
            "a directory lists backwards"
        );
        after = last.cookie;
        entries.extend(more);
        assert!(entries.len() < ENTRIES_MAX, "a directory lists without end");
    }
    entries
}

fn visit(files: &FileSystem, attributes: &Attributes) {
    let ino = attributes.ino;
    let _ = files.attributes(ino);
    if let Ok(names) = files.list_xattrs(ino) {
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let _ = files.get_xattr(ino, name);
        }
    }
    let _ = files.read_symlink(ino);
    let mut buffer = Vec::new();
    let size_bytes = attributes.size_bytes;
    for offset in [0, size_bytes / 2, size_bytes.saturating_sub(10), u64::MAX - 5] {
        buffer.clear();
        let _ = files.read(&start(), ino, offset, READ_BYTES, &mut buffer);
        assert!(buffer.len() <= READ_BYTES, "more bytes than were asked for");
    }
    let mut offset = 0;
    for number in 0..40 {
        let what = if number % 2 == 0 { Seek::Data } else { Seek::Hole };
        match files.seek(ino, offset, what) {
            Ok(next) => {
                assert!(next >= offset, "seek goes backwards");
                offset = next;
            }
            Err(_) => break,
        }
    }
}

/// A little of every kind of change, on what was found.
fn change(files: &FileSystem, found: &[Found]) {
    let caller = start();
    let bytes = [7u8; 10_000];
    for (number, found_one) in found.iter().enumerate() {
        let (ino, size_bytes) = (found_one.attributes.ino, found_one.attributes.size_bytes);
        match number % 9 {
            0 => drop(files.write(&caller, ino, size_bytes / 2, &bytes, true)),
            1 => drop(files.write(&caller, ino, size_bytes, &bytes[..100], false)),
            2 => drop(resize(files, ino, size_bytes / 2)),
            3 => drop(resize(files, ino, size_bytes.saturating_add(100_000))),
            4 => drop(files.allocate(&caller, ino, size_bytes / 3, 20_000, AllocateMode::PunchHole)),
            5 => {
                let zero = AllocateMode::ZeroRange { keep_size: false };
                let _ = files.allocate(&caller, ino, size_bytes / 2, 5_000, zero);
            }
            6 => {
                let mode = SetAttributes {
                    mode: Some(0o640),
                    uid: Some(5),
                    ..SetAttributes::default()
                };
                let _ = files.set_attributes(&caller, ino, &mode);
                let _ = files.set_xattr(&caller, ino, b"user.new", b"value", XattrMode::Set);
                let _ = files.remove_xattr(&caller, ino, b"user.note");
            }
            7 => {
                let _ = files.copy_range(
                    &caller,
                    ino,
                    0,
                    found[number / 2].attributes.ino,
                    size_bytes,
                    30_000,
                );
            }
            _ => drop(files.sync_file(ino, number % 2 == 0)),
        }
    }
    change_names(files, found);
}

fn resize(files: &FileSystem, ino: Ino, size_bytes: u64) -> packstone_fs::Result<Attributes> {
    let size = SetAttributes {
        size_bytes: Some(size_bytes),
        ..SetAttributes::default()
    };
    files.set_attributes(&start(), ino, &size)
}

fn change_names(files: &FileSystem, found: &[Found]) {
    let caller = start();
    let directories: Vec<&Found> = found
        .iter()
        .filter(|found| found.attributes.kind == FileKind::Directory)
        .collect();
    for directory in directories.iter().take(6) {
        let ino = directory.attributes.ino;
        for other in directories.iter().take(6) {
            let to = other.attributes.ino;
            let _ = files.rename(
                &caller,
                directory.parent,
                &directory.name,
                to,
                b"moved",
                RenameMode::Replace,
            );
            let _ = files.rename(
                &caller,
                to,
                b"moved",
                directory.parent,
                &directory.name,
                RenameMode::NoReplace,
            );
            let _ = files.rename(
                &caller,
                directory.parent,
                &directory.name,
                other.parent,
                &other.name,
                RenameMode::Exchange,
            );
        }
        let _ = files.create(&caller, ino, b"created", FileKind::Regular, 0o644, 0);
        let _ = files.create_directory(&caller, ino, b"made", 0o755);
        let _ = files.create_symlink(&caller, ino, b"pointer", b"somewhere");
        if let Ok(unnamed) = files.create_unnamed(&caller, ino, 0o600) {
            let _ = files.link(&caller, unnamed.ino, ino, b"named");
            files.forget(unnamed.ino, 1);
        }
        let _ = files.remove_directory(&caller, directory.parent, &directory.name);
    }
    for pair in found.chunks(2).take(20) {
        let [first, second] = pair else { break };
        let _ = files.link(&caller, first.attributes.ino, second.parent, b"another link");
        let _ = files.rename(
            &caller,
            first.parent,
            &first.name,
            second.parent,
            &second.name,
            RenameMode::Replace,
        );
    }
    for found in found.iter().skip(1).step_by(2) {
        let _ = files.open_file(found.attributes.ino);
        let _ = files.unlink(&caller, found.parent, &found.name);
        let _ = files.release(found.attributes.ino);
    }
}
