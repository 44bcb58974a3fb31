//! Storage of the arms, one file a kind, made freshly for each turn.
//!
//! ```text
//!  backing file ─► loop device (direct I/O) ─────────────┬─► mkfs, mount          ext4, xfs, btrfs
//!  or the user's device ─────────────────────────────────┼─► zpool create         zfs
//!                                                        └─► packstone create     a pool with the device as its member
//!  directory of a file system that is there ────────────────────────────────────► directory
//! ```
//!
//! All arms lie on the same blocks of the same file, which have been written before the first turn: none pays for
//! allocating them. A pool lies on the loop device too, although it could use the file itself: only so are its bytes
//! counted, and its speed limited, exactly where those of the others are. `member = "file"` chooses the file.
//!
//! Everything that is made here is taken down when it is dropped, in the opposite order, also after an error.

mod backing;
mod block;
mod directory;
mod filesystem;
mod mounted;
mod packstone;
mod zfs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

pub(crate) use backing::Backing;
pub use block::DeviceNumber;

use crate::experiment::{Arm, Kind, Member};
use crate::invoke;
use crate::process;
use crate::turn::{Place, StoredBytes};

/// A place as the runner sees it.
pub(crate) trait Storage: Place {
    /// The block device whose counters show the arm's I/O, if there is one.
    fn device(&self) -> Option<DeviceNumber>;
    /// A pool's own counters since it was opened, by name; empty for other kinds.
    fn pool_counters(&self) -> Result<BTreeMap<String, u64>>;
    /// The place as workloads see it.
    fn as_place(&mut self) -> &mut dyn Place;
    /// How long [`Place::settle`] merely waits for the storage to do of its own accord what no request brings about. Not
    /// counted as time of a phase.
    fn settle_waits(&self) -> Duration {
        Duration::ZERO
    }
    /// Takes everything down, and says what could not be. Dropping does the same, and can only print it.
    fn take_down(&mut self) -> Result<()>;
}

/// Where the run keeps what is removed when it ends.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// Directory of this run alone; mountpoints, state and scratch lie in it.
    pub directory: PathBuf,
    /// The program `packstone`.
    pub packstone: PathBuf,
}

/// Makes the storage of `arm`. The backing is there for every kind but `directory`.
pub(crate) fn make(
    arm: &Arm,
    backing: Option<&Backing>,
    surroundings: &Surroundings,
) -> Result<Box<dyn Storage>> {
    let device = || backing.context("the backing of the run is missing");
    let made = match (arm.kind, arm.member) {
        (Kind::Directory, _) => directory::make(arm, surroundings),
        (Kind::Packstone, Member::File) => {
            let file = device()?
                .file()
                .context("member = \"file\" needs a backing file")?;
            packstone::make(arm, packstone::On::File(file.to_owned()), surroundings)
        }
        (Kind::Packstone, Member::Device) => {
            packstone::make(arm, packstone::On::Device(device()?.attach()?), surroundings)
        }
        (Kind::Zfs, _) => zfs::make(arm, device()?.attach()?, surroundings),
        (Kind::Ext4 | Kind::Xfs | Kind::Btrfs, _) => filesystem::make(arm, device()?.attach()?, surroundings),
    };
    made.with_context(|| format!("cannot make the storage of arm '{}'", arm.name))
}

/// What `arm` needs and this machine has not; empty when everything is there.
pub(crate) fn missing(arm: &Arm, packstone: &Path) -> Vec<String> {
    let mut missing = Vec::new();
    let mut need = |name: &str| {
        if invoke::find_program(name).is_none() {
            missing.push(format!(
                "the program {name} (package {})",
                invoke::package_of(name)
            ));
        }
    };
    match arm.kind {
        Kind::Directory => {}
        Kind::Packstone => need("losetup"),
        Kind::Ext4 | Kind::Xfs | Kind::Btrfs => {
            need("losetup");
            need(&format!("mkfs.{}", arm.kind.name()));
        }
        Kind::Zfs => {
            need("zpool");
            need("zfs");
        }
    }
    if arm.kind == Kind::Packstone {
        if !packstone.is_file() {
            missing.push(format!("the program {}", packstone.display()));
        }
        if !Path::new("/dev/fuse").exists() {
            missing.push("/dev/fuse (the kernel's module fuse)".to_owned());
        }
    }
    if arm.kind.uses_backing() && !process::is_root() {
        missing.push("root, for loop devices and mounts".to_owned());
    }
    if arm.kind == Kind::Zfs && !Path::new("/dev/zfs").exists() {
        missing.push("/dev/zfs (the kernel's module zfs)".to_owned());
    }
    missing
}

/// Unmounts and detaches what a run that was killed has left in its directory, as far as that can be done. A pool's daemon
/// ends with its mount.
pub(crate) fn take_down_leftovers(directory: &Path) {
    let mountpoint = directory.join("mount");
    // Fails where nothing is mounted, and what is still mounted is told by whoever removes the directory.
    let _ = rustix::mount::unmount(&mountpoint, rustix::mount::UnmountFlags::empty());
    block::detach_loops_over(directory);
}

/// Says why the user's device cannot be the backing, if it is one.
pub(crate) fn check_device(wanted: &crate::experiment::Backing, force: bool) -> Result<()> {
    match &wanted.device {
        Some(device) => backing::refuse_used(device, force),
        None => Ok(()),
    }
}

/// Drops the kernel's clean caches; a note when this user may not.
fn drop_caches() -> Option<String> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3")
        .err()
        .map(|error| {
            format!("the kernel's caches could not be dropped ({error}), so what was to be cold is warm")
        })
}

/// Lengths and allocated blocks of everything below `directory`, on that file system.
fn walk_bytes(directory: &Path) -> Result<StoredBytes> {
    use std::os::unix::fs::MetadataExt;
    const BLOCK_BYTES: u64 = 512;
    let mut total = StoredBytes::default();
    let mut open = vec![directory.to_owned()];
    let device = directory.metadata()?.dev();
    // A file with several names counts once.
    let mut linked = std::collections::HashSet::new();
    while let Some(path) = open.pop() {
        for entry in std::fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Servers remove files of their own at any time.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot look at {}", entry.path().display()));
                }
            };
            if metadata.dev() != device
                || (metadata.nlink() > 1 && !metadata.is_dir() && !linked.insert(metadata.ino()))
            {
                continue;
            }
            total.stored_bytes += metadata.blocks() * BLOCK_BYTES;
            if metadata.is_dir() {
                open.push(entry.path());
            } else {
                total.logical_bytes += metadata.len();
            }
        }
    }
    Ok(total)
}

/// Writes out the file system that holds `directory`.
fn sync_file_system(directory: &Path) -> Result<()> {
    let opened =
        std::fs::File::open(directory).with_context(|| format!("cannot open {}", directory.display()))?;
    rustix::fs::syncfs(&opened).with_context(|| format!("cannot write out {}", directory.display()))?;
    opened
        .sync_all()
        .with_context(|| format!("cannot write out {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_counts_lengths_blocks_and_links_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let below = directory.path().join("below");
        std::fs::create_dir(&below).expect("a directory");
        std::fs::write(below.join("file"), vec![1; 10_000]).expect("a file");
        std::fs::hard_link(below.join("file"), directory.path().join("link")).expect("a link");
        let hole = std::fs::File::create(directory.path().join("hole")).expect("a file");
        hole.set_len(1 << 30).expect("a hole");
        let bytes = walk_bytes(directory.path()).expect("bytes");
        assert_eq!(bytes.logical_bytes, 10_000 + (1 << 30));
        assert!(bytes.stored_bytes < 1 << 20, "{bytes:?}");
    }
}
