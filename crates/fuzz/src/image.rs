//! The target of whole images: a small pool with files in it is changed as the input says, and then lived with.
//!
//! | byte | says |
//! |---|---|
//! | 0 | which image (bits 0-1), what is done with it (other bits, see `life`) |
//! | rest | changes, see `mutation`, until the input ends |
//!
//! Images: closed cleanly; with a log to replay; one with a deeper record table, nearly full, with a log to replay.

mod life;
mod mutation;

use crate::input::Input;
use packstone_fs::{Caller, FileKind, FileSystem, Ino, MountOptions, SetAttributes, Timestamp, XattrMode};
use packstone_media::{Media, SimulatedImage, SimulatedMedia};
use packstone_pool::fuzzing::{Map, map};
use packstone_pool::{CreateOptions, MEMORY_BYTES_MIN, OpenOptions, Pool};
use std::sync::{Arc, OnceLock};

/// The dataset with files.
pub(crate) const DATASET: &str = "files";
const SEGMENT_BYTES: u32 = 256 << 10;
const SECTOR_BYTES: u32 = 4096;
const SIZE_BYTES: [u64; 3] = [8 << 20, 8 << 20, 6 << 20];

type Made<T> = Result<T, Box<dyn std::error::Error>>;

/// A whole image, and where what is in it.
struct Base {
    image: SimulatedImage,
    map: Map,
}

/// Changes an image as `bytes` say and lives with it.
pub(crate) fn live(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let choices = input.byte();
    let base = base(usize::from(choices) % SIZE_BYTES.len());
    let media = Arc::new(SimulatedMedia::from_snapshot(&base.image, SECTOR_BYTES));
    mutation::apply(&mut input, &base.map, &media);
    life::of_reader(&media, choices);
    life::of_writer(&media, choices);
}

pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut seeds = Vec::new();
    for image in 0..3u8 {
        seeds.push(("image", vec![image]));
        for kind in 0..mutation::KINDS {
            seeds.push(("image", vec![image, kind, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
            seeds.push((
                "image",
                vec![image | 0x30, kind, 0x80, 0, 2, 0x20, 1, 3, 9, 2, 1, 0, 0, 1],
            ));
        }
    }
    // One field after the other of what recovery trusts first: label, slot, header of a batch.
    for (kind, fields) in [(3u8, 8..96u8), (14, 24..136), (4, 16..72)] {
        for field in fields.step_by(4) {
            // One change, of kind 2 (a number at an edge), four bytes wide.
            let change = [0, 2, field, 2, if field % 8 == 0 { 19 } else { 14 }];
            let chosen: &[u8] = if kind == 4 { &[field] } else { &[] };
            seeds.push(("image", [&[1, kind], chosen, &change].concat()));
        }
    }
    seeds
}

/// A pool like the first image, whole and open, on a device of its own.
pub(crate) fn small_pool() -> packstone_pool::Result<Pool> {
    open(
        &Arc::new(SimulatedMedia::from_snapshot(&base(0).image, SECTOR_BYTES)),
        false,
    )
}

/// The user who does everything, at the beginning of time.
pub(crate) fn start() -> Caller {
    Caller {
        uid: 0,
        gid: 0,
        umask: 0o022,
        now: Timestamp {
            seconds: 1_700_000_000,
            nanoseconds: 0,
        },
    }
}

fn open(media: &Arc<SimulatedMedia>, read_only: bool) -> packstone_pool::Result<Pool> {
    let options = OpenOptions {
        read_only,
        memory_bytes: Some(MEMORY_BYTES_MIN),
        ..OpenOptions::default()
    };
    Pool::open(vec![media.clone() as Arc<dyn Media>], &options)
}

fn base(number: usize) -> &'static Base {
    static BASES: [OnceLock<Base>; 3] = [const { OnceLock::new() }; 3];
    BASES[number].get_or_init(|| make(number).unwrap_or_else(|error| panic!("image {number}: {error}")))
}

fn make(number: usize) -> Made<Base> {
    let media = Arc::new(SimulatedMedia::new(SIZE_BYTES[number]));
    let options = CreateOptions {
        name: "tank".into(),
        pool_id: *b"a pool of fuzzes",
        segment_bytes: Some(SEGMENT_BYTES),
        properties: [("memory".to_string(), "64M".to_string())].into(),
    };
    Pool::create(&[media.clone() as Arc<dyn Media>], &options)?;
    let pool = Arc::new(open(&media, false)?);
    let lz4 = [("compression".to_string(), "lz4".to_string())];
    pool.create_dataset(DATASET, lz4.into())?;
    pool.create_dataset("other", Default::default())?;
    let files = FileSystem::open_with_seed(pool.clone(), DATASET, MountOptions::default(), &start(), 42)?;
    populate(&files)?;
    for file in 0..[20, 20, 700][number] {
        let created = files.create(
            &start(),
            Ino::ROOT,
            format!("many-{file}").as_bytes(),
            FileKind::Regular,
            0o644,
            0,
        )?;
        files.write(
            &start(),
            created.ino,
            0,
            &content(file, 600 + file as usize % 5000),
            false,
        )?;
    }
    files.sync_all()?;
    pool.checkpoint_now()?;
    // What follows stays in the log, unless the pool is closed.
    for file in 0..12 {
        let created = files.create(
            &start(),
            Ino::ROOT,
            format!("late-{file}").as_bytes(),
            FileKind::Regular,
            0o600,
            0,
        )?;
        files.write(&start(), created.ino, 0, &content(file, 9000), false)?;
        files.unlink(&start(), Ino::ROOT, format!("many-{file}").as_bytes())?;
        files.sync_all()?;
    }
    if number == 0 {
        files.close()?;
        pool.close()?;
    }
    let image = media.snapshot();
    let media: Arc<dyn Media> = Arc::new(SimulatedMedia::from_snapshot(&image, SECTOR_BYTES));
    Ok(Base {
        image,
        map: map(&media)?,
    })
}

/// One of everything, the first few with known inode numbers: the directories `d` and `d/e` (2, 3), a file of many
/// records (4), a sparse one (5), a symlink (6).
fn populate(files: &FileSystem) -> Made<()> {
    let caller = start();
    let directory = files.create_directory(&caller, Ino::ROOT, b"d", 0o755)?.ino;
    let below = files.create_directory(&caller, directory, b"e", 0o755)?.ino;
    let large = files
        .create(&caller, below, b"large", FileKind::Regular, 0o4755, 0)?
        .ino;
    files.write(&caller, large, 0, &content(1, 100_000), false)?;
    let sparse = files
        .create(&caller, directory, b"sparse", FileKind::Regular, 0o644, 0)?
        .ino;
    files.write(&caller, sparse, 5000, b"near the start", false)?;
    files.write(&caller, sparse, 1 << 40, b"far away", false)?;
    files.create_symlink(&caller, Ino::ROOT, b"link", b"d/e/large")?;
    files.create(&caller, Ino::ROOT, b"pipe", FileKind::Fifo, 0o600, 0)?;
    files.create(&caller, Ino::ROOT, b"device", FileKind::CharDevice, 0o600, 0x105)?;
    files.link(&caller, large, Ino::ROOT, b"second name")?;
    files.set_xattr(&caller, large, b"user.note", &content(2, 300), XattrMode::Set)?;
    files.set_xattr(
        &caller,
        directory,
        b"system.posix_acl_default",
        &acl(),
        XattrMode::Set,
    )?;
    files.set_xattr(
        &caller,
        sparse,
        b"system.posix_acl_access",
        &acl(),
        XattrMode::Set,
    )?;
    files.create(&caller, directory, b"heir", FileKind::Regular, 0o666, 0)?;
    let times = SetAttributes {
        modified: Some(Timestamp {
            seconds: -5,
            nanoseconds: 7,
        }),
        ..SetAttributes::default()
    };
    files.set_attributes(&caller, large, &times)?;
    // An orphan: unlinked while somebody has it open.
    let orphan = files
        .create(&caller, Ino::ROOT, b"orphan", FileKind::Regular, 0o600, 0)?
        .ino;
    files.open_file(orphan)?;
    files.write(&caller, orphan, 0, &content(3, 20_000), false)?;
    files.unlink(&caller, Ino::ROOT, b"orphan")?;
    Ok(())
}

fn acl() -> Vec<u8> {
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (1u16, 7u16, !0u32),
        (2, 6, 1000),
        (4, 5, !0),
        (0x10, 7, !0),
        (0x20, 4, !0),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

/// Bytes that compress to a half or so.
fn content(seed: u32, length: usize) -> Vec<u8> {
    let mut state = u64::from(seed) * 2 + 1;
    let noise = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (*state >> 56) as u8
    };
    (0..length)
        .map(|at| if at % 2 == 0 { noise(&mut state) } else { b'x' })
        .collect()
}
