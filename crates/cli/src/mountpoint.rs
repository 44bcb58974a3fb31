//! Mountpoints: what may become one, and which mount a path belongs to.
//!
//! The mountpoint of a daemon that died answers every call with "Transport endpoint is not connected". Such a mount of
//! ours is taken away before the next one is made there, and by `packstone unmount`.

use crate::failure::Failure;
use crate::names::DatasetName;
use anyhow::Context;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A mount of ours that the kernel lists.
#[derive(Clone, Debug)]
pub struct ListedMount {
    /// The dataset it shows.
    pub dataset: DatasetName,
    /// Where.
    pub mountpoint: PathBuf,
}

/// The mount of ours on exactly this path, dead or alive.
pub fn listed_at(path: &Path) -> anyhow::Result<Option<ListedMount>> {
    let Some(mount) = packstone_fuse::mounted_at(path).filter(|mount| mount.is_ours()) else {
        return Ok(None);
    };
    let dataset = mount
        .source
        .parse()
        .with_context(|| format!("understand the mount on {}", path.display()))?;
    Ok(Some(ListedMount {
        dataset,
        mountpoint: mount.mountpoint,
    }))
}

/// The absolute path of a mountpoint, without asking a mount that may be dead.
pub fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    if path.to_str().is_none() {
        return Err(Failure::usage(format!(
            "'{}' is not UTF-8, which a mountpoint must be here",
            path.display()
        )));
    }
    match fs::canonicalize(path) {
        Ok(found) => return Ok(found),
        Err(error) if is_dead(&error) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::not_found(format!(
                "{0} does not exist; create it first: mkdir -p {0}",
                path.display()
            )));
        }
        Err(error) => return Err(error).with_context(|| format!("look at {}", path.display())),
    }
    crate::member::absolute_path(path)
}

/// Checks that a dataset can be mounted here, taking away a dead mount of ours first.
pub fn prepare(path: &Path) -> anyhow::Result<PathBuf> {
    if !path.is_absolute() {
        return Err(Failure::usage(format!(
            "mountpoint '{}' is not an absolute path",
            path.display()
        )));
    }
    let path = absolute(path)?;
    let shown = path.display().to_string();
    if let Some(listed) = listed_at(&path)? {
        if !is_dead_mount(&path) {
            return Err(Failure::busy(format!(
                "{} is already mounted on {shown}",
                listed.dataset
            )));
        }
        tracing::warn!(mountpoint = shown, dataset = %listed.dataset, "taking away the mount of a daemon that died");
        packstone_fuse::unmount_path(&path, true)
            .with_context(|| format!("take away the dead mount on {shown}"))?;
    }
    let metadata = fs::metadata(&path).with_context(|| format!("look at mountpoint {shown}"))?;
    if !metadata.is_dir() {
        return Err(Failure::usage(format!("mountpoint {shown} is not a directory")));
    }
    let mut entries = fs::read_dir(&path).with_context(|| format!("look at mountpoint {shown}"))?;
    if entries.next().is_some() {
        return Err(Failure::refused(format!(
            "mountpoint {shown} is not empty: a mount would hide what is there; use an empty directory"
        )));
    }
    Ok(path)
}

/// Whether a mount whose daemon is gone stands here.
pub fn is_dead_mount(path: &Path) -> bool {
    fs::metadata(path).is_err_and(|error| is_dead(&error))
}

fn is_dead(error: &io::Error) -> bool {
    // The last two while the kernel takes down what the daemon has left behind.
    let dead = [libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED];
    error.raw_os_error().is_some_and(|number| dead.contains(&number))
}
