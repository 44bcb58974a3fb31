//! Scripts of files and directories, on a dataset of 4 KiB records.

use super::Script;
use crate::exhaustive::life::{DATASET, Life};
use crate::exhaustive::observe::Content;
use anyhow::Result;
use packstone_fs::{AllocateMode, FileKind, Ino, RenameMode, SetAttributes, XattrMode, destroy_step};
use packstone_pool::BackgroundWork;
use rand::Rng;

const SIZE_BYTES: u64 = 32 << 20;

pub(super) fn scripts() -> Vec<Script> {
    let script = |name, run| Script {
        name,
        size_bytes: SIZE_BYTES,
        content: Content::Files,
        by_chance_of_8: if name == "long-cut" { 1 } else { 8 },
        prepare: a_few_files,
        run,
    };
    vec![
        script("create-write-fsync", create_write_fsync),
        script("write-over", write_over),
        script("append", append),
        script("replace-by-rename", replace_by_rename),
        script("truncate", truncate),
        script("punch", punch),
        script("unlink-open", unlink_open),
        script("link", link),
        script("xattr", xattr),
        script("exchange", exchange),
        script("unnamed", unnamed),
        script("copy-range", copy_range),
        script("directories", directories),
        script("attributes", attributes),
        script("files-and-checkpoints", files_and_checkpoints),
        script("files-reopened", files_reopened),
        script("destroy", destroy),
        script("long-cut", long_cut),
    ]
}

const FIRST: &str = "first";
const SECOND: &str = "second";

fn find(life: &mut Life, name: &str) -> Result<Ino> {
    let now = life.now();
    Ok(life.fs()?.lookup(&now, Ino::ROOT, name.as_bytes())?.ino)
}

fn a_few_files(life: &mut Life) -> Result<()> {
    for (name, length) in [(FIRST, 20_000), (SECOND, 9_000), ("third", 0)] {
        let ino = life.create_file(Ino::ROOT, name)?;
        life.write(ino, 0, length)?;
    }
    let now = life.now();
    life.fs()?
        .create_directory(&now, Ino::ROOT, b"directory", 0o755)?;
    life.fs()?.sync_all()?;
    life.checkpoint()
}

fn create_write_fsync(life: &mut Life) -> Result<()> {
    for (name, length) in [("new", 5_000), ("newer", 300), ("newest", 14_000)] {
        let ino = life.create_file(Ino::ROOT, name)?;
        life.write(ino, 0, length)?;
        life.fsync(ino)?;
    }
    Ok(())
}

fn write_over(life: &mut Life) -> Result<()> {
    let ino = find(life, FIRST)?;
    for _ in 0..6 {
        // A whole record, and a piece of one.
        let record = life.random.random_range(0..4);
        life.write(ino, record * 4096, 4096)?;
        life.fsync(ino)?;
        let offset = life.random.random_range(0..16_000);
        life.write(ino, offset, 700)?;
        life.fsync(ino)?;
    }
    Ok(())
}

fn append(life: &mut Life) -> Result<()> {
    let ino = find(life, SECOND)?;
    let mut end = 9_000;
    for round in 0..8 {
        let length = life.random.random_range(100..1900);
        life.write(ino, end, length)?;
        end += length as u64;
        if round % 2 == 1 {
            life.fsync(ino)?;
        }
    }
    life.step_files()?;
    life.fs()?.sync_all()?;
    life.trace.acknowledge();
    Ok(())
}

fn replace_by_rename(life: &mut Life) -> Result<()> {
    for round in 0..4 {
        let ino = life.create_file(Ino::ROOT, "settings.new")?;
        for piece in 0..3 {
            life.write(ino, piece * 1000, 1000)?;
        }
        if round % 2 == 0 {
            life.fsync(ino)?;
        }
        let now = life.now();
        let (from, to) = (b"settings.new".as_slice(), b"settings".as_slice());
        life.fs()?
            .rename(&now, Ino::ROOT, from, Ino::ROOT, to, RenameMode::Replace)?;
        life.fs()?.forget(ino, 1);
        if round % 2 == 1 {
            life.fsync(Ino::ROOT)?;
        }
    }
    Ok(())
}

fn set_size(life: &mut Life, ino: Ino, size_bytes: u64) -> Result<()> {
    let now = life.now();
    let change = SetAttributes {
        size_bytes: Some(size_bytes),
        ..SetAttributes::default()
    };
    life.fs()?.set_attributes(&now, ino, &change)?;
    Ok(())
}

fn truncate(life: &mut Life) -> Result<()> {
    let ino = find(life, FIRST)?;
    for size_bytes in [17_000, 8_192, 8_100, 30_000, 5_000, 0, 4_097] {
        set_size(life, ino, size_bytes)?;
        if size_bytes % 2 == 0 {
            life.write(ino, size_bytes, 500)?;
        }
        life.fsync(ino)?;
    }
    Ok(())
}

fn punch(life: &mut Life) -> Result<()> {
    let ino = find(life, FIRST)?;
    for (offset, length, mode) in [
        (4_096, 4_096, AllocateMode::PunchHole),
        (9_000, 5_000, AllocateMode::PunchHole),
        (18_000, 10_000, AllocateMode::ZeroRange { keep_size: false }),
        (100, 200, AllocateMode::ZeroRange { keep_size: true }),
        (40_000, 4_096, AllocateMode::Allocate),
    ] {
        let now = life.now();
        life.fs()?.allocate(&now, ino, offset, length, mode)?;
        life.fsync(ino)?;
        life.write(ino, offset + 1000, 300)?;
    }
    life.fsync(ino)
}

fn unlink_open(life: &mut Life) -> Result<()> {
    for (name, released_first) in [(FIRST, false), (SECOND, true)] {
        let ino = find(life, name)?;
        life.fs()?.open_file(ino)?;
        let now = life.now();
        life.fs()?.unlink(&now, Ino::ROOT, name.as_bytes())?;
        if released_first {
            life.fs()?.release(ino)?;
            life.fs()?.forget(ino, 1);
        }
        life.fsync(Ino::ROOT)?;
        if !released_first {
            life.write(ino, 0, 6_000)?;
            life.fs()?.release(ino)?;
            life.fs()?.forget(ino, 1);
        }
        life.step_files()?;
        life.sync()?;
    }
    Ok(())
}

fn link(life: &mut Life) -> Result<()> {
    let ino = find(life, FIRST)?;
    for name in [b"link", b"more"] {
        let now = life.now();
        life.fs()?.link(&now, ino, Ino::ROOT, name)?;
        life.fsync(ino)?;
    }
    let now = life.now();
    life.fs()?.unlink(&now, Ino::ROOT, FIRST.as_bytes())?;
    life.fsync(Ino::ROOT)?;
    let now = life.now();
    life.fs()?.unlink(&now, Ino::ROOT, b"link")?;
    life.write(ino, 2_000, 100)?;
    life.fsync(ino)
}

fn xattr(life: &mut Life) -> Result<()> {
    let ino = find(life, SECOND)?;
    for (name, length) in [("user.a", 10), ("user.b", 3_000), ("user.a", 700)] {
        let now = life.now();
        let value = vec![length as u8; length];
        life.fs()?
            .set_xattr(&now, ino, name.as_bytes(), &value, XattrMode::Set)?;
        life.fsync(ino)?;
    }
    let now = life.now();
    life.fs()?.remove_xattr(&now, ino, b"user.b")?;
    life.fsync(ino)
}

fn exchange(life: &mut Life) -> Result<()> {
    let ino = find(life, FIRST)?;
    for _ in 0..3 {
        life.write(ino, 3_000, 200)?;
        let now = life.now();
        let (one, other) = (FIRST.as_bytes(), SECOND.as_bytes());
        life.fs()?
            .rename(&now, Ino::ROOT, one, Ino::ROOT, other, RenameMode::Exchange)?;
        life.fsync(Ino::ROOT)?;
    }
    let directory = find(life, "directory")?;
    let now = life.now();
    life.fs()?.rename(
        &now,
        Ino::ROOT,
        b"directory",
        Ino::ROOT,
        SECOND.as_bytes(),
        RenameMode::Exchange,
    )?;
    life.fsync(directory)?;
    life.fsync(Ino::ROOT)
}

fn unnamed(life: &mut Life) -> Result<()> {
    for (number, name) in [b"one", b"two"].into_iter().enumerate() {
        let now = life.now();
        let ino = life.fs()?.create_unnamed(&now, Ino::ROOT, 0o600)?.ino;
        life.fs()?.open_file(ino)?;
        life.write(ino, 0, 5_000)?;
        life.fsync(ino)?;
        let now = life.now();
        life.fs()?.link(&now, ino, Ino::ROOT, name)?;
        if number == 0 {
            life.fsync(ino)?;
        }
        life.fs()?.release(ino)?;
        life.fs()?.forget(ino, 2);
    }
    // And one that never gets a name.
    let now = life.now();
    let ino = life.fs()?.create_unnamed(&now, Ino::ROOT, 0o600)?.ino;
    life.write(ino, 0, 5_000)?;
    life.fs()?.sync_all()?;
    life.trace.acknowledge();
    life.fs()?.forget(ino, 1);
    life.step_files()?;
    life.sync()
}

fn copy_range(life: &mut Life) -> Result<()> {
    let (from, to) = (find(life, FIRST)?, find(life, "third")?);
    for (from_offset, to_offset, length) in [(0, 0, 8_192), (5_000, 8_000, 9_000), (0, 30_000, 4_096)] {
        let now = life.now();
        life.fs()?
            .copy_range(&now, from, from_offset, to, to_offset, length)?;
        life.fsync(to)?;
    }
    Ok(())
}

fn directories(life: &mut Life) -> Result<()> {
    let directory = find(life, "directory")?;
    let now = life.now();
    let inner = life.fs()?.create_directory(&now, directory, b"inner", 0o700)?.ino;
    let ino = life.create_file(inner, "file")?;
    life.write(ino, 0, 2_000)?;
    life.fsync(ino)?;
    let now = life.now();
    life.fs()?.rename(
        &now,
        directory,
        b"inner",
        Ino::ROOT,
        b"moved",
        RenameMode::NoReplace,
    )?;
    life.fsync(Ino::ROOT)?;
    let now = life.now();
    life.fs()?.unlink(&now, inner, b"file")?;
    life.fs()?.remove_directory(&now, Ino::ROOT, b"moved")?;
    life.fsync(Ino::ROOT)?;
    let now = life.now();
    life.fs()?
        .create_symlink(&now, directory, b"symlink", b"../first")?;
    life.fs()?
        .create(&now, directory, b"pipe", FileKind::Fifo, 0o600, 0)?;
    life.fsync(directory)
}

fn attributes(life: &mut Life) -> Result<()> {
    let ino = find(life, FIRST)?;
    for (mode, uid) in [(0o600, 5), (0o4755, 6), (0o644, 0)] {
        let now = life.now();
        let change = SetAttributes {
            mode: Some(mode),
            uid: Some(uid),
            modified: Some(now.now),
            ..SetAttributes::default()
        };
        life.fs()?.set_attributes(&now, ino, &change)?;
        life.fsync(ino)?;
        life.write(ino, 100, 100)?;
    }
    life.step_files()?;
    life.fsync(ino)
}

fn files_and_checkpoints(life: &mut Life) -> Result<()> {
    let ino = find(life, FIRST)?;
    for round in 0..5 {
        let offset = life.random.random_range(0..20_000);
        life.write(ino, offset, 3_000)?;
        let new = life.create_file(Ino::ROOT, &format!("new {round}"))?;
        life.write(new, 0, 1_000)?;
        life.step_files()?;
        life.checkpoint()?;
        let now = life.now();
        life.fs()?
            .unlink(&now, Ino::ROOT, format!("new {round}").as_bytes())?;
        life.fs()?.forget(new, 1);
        life.fsync(Ino::ROOT)?;
        life.step(BackgroundWork::Flush)?;
    }
    Ok(())
}

fn files_reopened(life: &mut Life) -> Result<()> {
    for cleanly in [true, false, true] {
        let ino = find(life, SECOND)?;
        life.write(ino, 7_000, 3_000)?;
        life.fsync(ino)?;
        let now = life.now();
        life.fs()?.open_file(ino)?;
        life.fs()?.rename(
            &now,
            Ino::ROOT,
            FIRST.as_bytes(),
            Ino::ROOT,
            b"other",
            RenameMode::Replace,
        )?;
        life.create_file(Ino::ROOT, FIRST)?;
        life.reopen(cleanly)?;
    }
    life.step_files()?;
    life.sync()
}

fn destroy(life: &mut Life) -> Result<()> {
    life.unmount()?;
    life.pool.mark_dataset_destroying(DATASET)?;
    life.sync()?;
    while destroy_step(&life.pool, DATASET)? {
        life.step(BackgroundWork::Flush)?;
    }
    life.sync()?;
    life.checkpoint()?;
    life.pool.create_dataset(DATASET, Default::default())?;
    life.sync()
}

/// More records than one transaction takes.
fn long_cut(life: &mut Life) -> Result<()> {
    let ino = find(life, "third")?;
    let now = life.now();
    let data = b"0123456789abcdef".repeat(256);
    for record in 0..1_030_u64 {
        life.fs()?.write(&now, ino, record * 4096, &data, false)?;
    }
    life.fsync(ino)?;
    let now = life.now();
    let change = SetAttributes {
        size_bytes: Some(3 * 4096 + 5),
        ..SetAttributes::default()
    };
    life.fs()?.set_attributes(&now, ino, &change)?;
    life.fsync(ino)
}
