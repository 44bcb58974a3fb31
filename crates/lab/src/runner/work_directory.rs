//! The directory of a run that is gone when the run ends: backing file, mountpoint, a pool's state, scratch.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::place::{self, Surroundings};
use crate::process;

/// Sockets lie in it, and their paths may have some 100 bytes.
const PATH_BYTES_MAX: usize = 60;

const PREFIX: &str = "packstone-lab-";

pub(super) struct WorkDirectory {
    path: PathBuf,
    scratch: PathBuf,
}

impl WorkDirectory {
    /// Makes it in `parent`. Other users can pass through, because PostgreSQL runs as one.
    pub(super) fn create(parent: &Path) -> Result<WorkDirectory> {
        let parent = parent
            .canonicalize()
            .with_context(|| format!("backing.directory: cannot look at {}", parent.display()))?;
        remove_leftovers(&parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        ensure!(
            path.as_os_str().len() <= PATH_BYTES_MAX,
            "backing.directory: {} is too long for the sockets that lie in it; choose a shorter one",
            parent.display()
        );
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let directory = WorkDirectory {
            scratch: path.join("scratch"),
            path,
        };
        std::fs::create_dir(&directory.scratch)
            .with_context(|| format!("cannot create {}", directory.scratch.display()))?;
        for path in [&directory.path, &directory.scratch] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
                .with_context(|| format!("cannot open {} to others", path.display()))?;
        }
        Ok(directory)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn scratch(&self) -> &Path {
        &self.scratch
    }

    pub(super) fn surroundings(&self, packstone: &Path) -> Surroundings {
        Surroundings {
            directory: self.path.clone(),
            packstone: packstone.to_owned(),
        }
    }

    /// Copies the small files of the scratch directory and the pool's log to `target`; none when there are none.
    pub(super) fn keep_scratch(&self, target: &Path) -> Option<PathBuf> {
        let mut kept = 0;
        for from in [&self.scratch, &self.path.join("state")] {
            kept += copy_small_files(from, target).unwrap_or(0);
        }
        (kept > 0).then(|| target.to_owned())
    }
}

/// Takes down what runs left that were killed: their mounts, loop devices and files.
fn remove_leftovers(parent: &Path) {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        let Some(pid) = pid.filter(|pid: &i32| !process::exists(*pid)) else {
            continue;
        };
        eprintln!(
            "taking down what process {pid} left in {}",
            entry.path().display()
        );
        place::take_down_leftovers(&entry.path());
        // Removes the directory, unless something is still mounted there.
        drop(WorkDirectory {
            scratch: entry.path().join("scratch"),
            path: entry.path(),
        });
    }
}

fn copy_small_files(from: &Path, target: &Path) -> std::io::Result<u32> {
    const SMALL_BYTES: u64 = 16 << 20;
    let mut copied = 0;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        let to = target.join(entry.file_name());
        if metadata.is_dir() {
            copied += copy_small_files(&entry.path(), &to)?;
        } else if metadata.is_file() && (1..=SMALL_BYTES).contains(&metadata.len()) {
            std::fs::create_dir_all(target)?;
            std::fs::copy(entry.path(), to)?;
            copied += 1;
        }
    }
    Ok(copied)
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        // Never what lies on a file system that is still mounted there.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let prefix = self.path.to_string_lossy();
        let still = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(1))
            .find(|at| at.starts_with(prefix.as_ref()));
        if let Some(mount) = still {
            eprintln!("{mount} is still mounted, so {prefix} stays: unmount it and remove the directory");
        } else if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {prefix}: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_dead_runs_go_and_those_of_living_ones_stay() {
        let parent = tempfile::tempdir().expect("a directory");
        // No process has the largest number there is.
        let dead = parent.path().join(format!("{PREFIX}{}", i32::MAX));
        let living = parent.path().join(format!("{PREFIX}{}", std::process::id()));
        let other = parent.path().join(format!("{PREFIX}data"));
        for directory in [&dead, &living, &other] {
            std::fs::create_dir_all(directory.join("scratch")).expect("a directory");
        }
        remove_leftovers(parent.path());
        assert!(!dead.exists() && living.exists() && other.exists());
    }

    #[test]
    fn it_is_removed_and_logs_are_kept() {
        let parent = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let directory = WorkDirectory::create(parent.path()).expect("a work directory");
        let path = directory.path().to_owned();
        let kept = parent.path().join("kept");
        assert_eq!(directory.keep_scratch(&kept), None);
        std::fs::create_dir(directory.scratch().join("pg")).expect("a directory");
        std::fs::write(directory.scratch().join("pg/log"), "what happened").expect("a log");
        assert_eq!(directory.keep_scratch(&kept), Some(kept.clone()));
        assert!(kept.join("pg/log").is_file());
        drop(directory);
        assert!(!path.exists());
    }
}
