//! Renders everything that is committed, as bytes to be compared: what a crash leaves must be one of these renderings.
//!
//! Only trees and records are looked at, never what a mounted file system holds in memory, so a live pool and a recovered
//! one render alike. A dataset that was never mounted, or is being destroyed, is rendered as pairs and records; a mounted
//! one as its files and directories with all attributes, extended attributes and data. Left out is how many bytes are
//! stored for a file, which is counted again after a crash.

use anyhow::{Context, Result, ensure};
use packstone_fs::{Caller, FileKind, FileSystem, Ino, MountOptions, Timestamp};
use packstone_pool::{DatasetState, Pool, RecordId, TreeId};
use std::ops::Bound;
use std::sync::Arc;

/// What the trees of a script hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Values of 8 bytes are the id of a record; see `pool_life`.
    Records,
    /// Files.
    Files,
}

/// Everything committed in the pool.
pub fn render(pool: &Arc<Pool>, content: Content) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for dataset in pool.datasets()? {
        put(&mut out, dataset.name.as_bytes());
        out.push(u8::from(dataset.state == DatasetState::Active));
        for (name, value) in &dataset.properties {
            put(&mut out, name.as_bytes());
            put(&mut out, value.as_bytes());
        }
        let usage = pool.tree_usage(dataset.tree);
        number(&mut out, usage.records);
        number(&mut out, usage.logical_bytes);
        let is_mounted = content == Content::Files
            && dataset.state == DatasetState::Active
            && pool
                .last(dataset.tree, Bound::Unbounded, Bound::Unbounded)?
                .is_some();
        if is_mounted {
            files(&mut out, pool, &dataset.name)?;
        } else {
            pairs(&mut out, pool, dataset.tree, content)?;
        }
    }
    Ok(out)
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn pairs(out: &mut Vec<u8>, pool: &Pool, tree: TreeId, content: Content) -> Result<()> {
    let pairs = pool.scan(tree, Bound::Unbounded, Bound::Unbounded, usize::MAX)?;
    let mut ids = Vec::new();
    for (key, value) in &pairs {
        put(out, key);
        put(out, value);
        if let (Content::Records, Ok(id)) = (content, <[u8; 8]>::try_from(value.as_slice())) {
            ids.push(RecordId(u64::from_le_bytes(id)));
        }
    }
    for record in pool.read_records(&ids)? {
        put(out, &record);
    }
    Ok(())
}

fn files(out: &mut Vec<u8>, pool: &Arc<Pool>, dataset: &str) -> Result<()> {
    let options = MountOptions { read_only: true };
    let fs = FileSystem::open_with_seed(pool.clone(), dataset, options, &reader(), 0)?;
    let mut waiting = vec![(Ino::ROOT, b"/".to_vec())];
    while let Some((ino, path)) = waiting.pop() {
        put(out, &path);
        let kind = inode(out, &fs, ino).with_context(|| String::from_utf8_lossy(&path).into_owned())?;
        if kind != FileKind::Directory {
            continue;
        }
        let mut entries = fs.read_directory(ino, 0, usize::MAX)?;
        entries.sort_by(|a, b| b.name.cmp(&a.name));
        for entry in entries {
            if matches!(entry.name.as_slice(), b"." | b"..") {
                continue;
            }
            let path = [&path, entry.name.as_slice(), b"/"].concat();
            waiting.push((entry.ino, path));
        }
    }
    Ok(())
}

/// Attributes and content of one inode.
fn inode(out: &mut Vec<u8>, fs: &FileSystem, ino: Ino) -> Result<FileKind> {
    let attributes = fs.attributes(ino)?;
    let Timestamp { seconds, nanoseconds } = attributes.modified;
    for value in [
        ino.0,
        attributes.kind as u64,
        u64::from(attributes.mode),
        u64::from(attributes.nlink),
        u64::from(attributes.uid),
        u64::from(attributes.gid),
        attributes.rdev,
        attributes.size_bytes,
        u64::from(attributes.block_bytes),
        seconds as u64,
        u64::from(nanoseconds),
        attributes.changed.seconds as u64,
        attributes.born.seconds as u64,
    ] {
        number(out, value);
    }
    let names = fs.list_xattrs(ino)?;
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        put(out, name);
        put(out, &fs.get_xattr(ino, name)?);
    }
    match attributes.kind {
        FileKind::Regular => put(out, &content(fs, ino)?),
        FileKind::Symlink => put(out, &fs.read_symlink(ino)?),
        _ => {}
    }
    Ok(attributes.kind)
}

/// All bytes of a file.
pub fn content(fs: &FileSystem, ino: Ino) -> Result<Vec<u8>> {
    let size_bytes = fs.attributes(ino)?.size_bytes as usize;
    ensure!(
        size_bytes < 16 << 20,
        "a file of {size_bytes} bytes is not of these scripts"
    );
    let mut data = Vec::with_capacity(size_bytes);
    while data.len() < size_bytes {
        let before = data.len();
        let mut piece = Vec::new();
        fs.read(&reader(), ino, before as u64, size_bytes - before, &mut piece)?;
        ensure!(!piece.is_empty(), "a file ends before its size");
        data.extend_from_slice(&piece);
    }
    Ok(data)
}

fn reader() -> Caller {
    Caller {
        uid: 0,
        gid: 0,
        umask: 0,
        now: Timestamp::default(),
    }
}
