//! ext4, xfs and btrfs on the turn's device.
//!
//! Nothing discards, neither mkfs nor the mounts: discards would punch holes into the file below the device. ext4 is made with its inode
//! tables and its journal written: otherwise the kernel would write them in the background during the turn.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::backing::Attached;
use super::mounted::Mounted;
use super::{DeviceNumber, Storage, Surroundings, drop_caches, sync_file_system, walk_bytes};
use crate::experiment::{Arm, Kind};
use crate::invoke;
use crate::turn::{Place, StoredBytes};

struct FileSystemPlace {
    // Fields are dropped in this order: first unmounted, then detached.
    mounted: Mounted,
    device: Attached,
    kind: Kind,
    directory: PathBuf,
    settings: BTreeMap<String, String>,
    /// Bytes used when it was fresh.
    fresh_bytes: u64,
}

pub(super) fn make(arm: &Arm, device: Attached, surroundings: &Surroundings) -> Result<Box<dyn Storage>> {
    invoke::run(
        invoke::program(&format!("mkfs.{}", arm.kind.name()))?
            .args(mkfs_arguments(arm))
            .arg(device.path()),
    )?;
    let mountpoint = surroundings.directory.join("mount");
    let options = mount_options(arm);
    let mounted = Mounted::new(device.path(), arm.kind.name(), &options, mountpoint)?;
    let directory = mounted.mountpoint().join("data");
    std::fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    sync_file_system(&directory)?;
    Ok(Box::new(FileSystemPlace {
        fresh_bytes: used_bytes(&directory)?,
        mounted,
        device,
        kind: arm.kind,
        directory,
        settings: arm.settings().clone(),
    }))
}

/// The user's options come last and win.
fn mount_options(arm: &Arm) -> String {
    match (arm.kind, arm.mount_options.as_str()) {
        // The others discard only when they are told to.
        (Kind::Btrfs, "") => "nodiscard".to_owned(),
        (Kind::Btrfs, options) => format!("nodiscard,{options}"),
        (_, options) => options.to_owned(),
    }
}

fn mkfs_arguments(arm: &Arm) -> Vec<String> {
    let own: &[&str] = match arm.kind {
        Kind::Ext4 => &["-q", "-F"],
        Kind::Xfs => &["-q", "-f", "-K"],
        Kind::Btrfs => &["-q", "-f", "-K"],
        _ => &[],
    };
    let mut arguments: Vec<String> = own.iter().map(|argument| (*argument).to_owned()).collect();
    arguments.extend(arm.mkfs_options().iter().cloned());
    if arm.kind == Kind::Ext4 {
        // The last -E counts alone, so one that the user gave is continued.
        let extended = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
        match arguments.iter().rposition(|argument| argument == "-E") {
            Some(at) if at + 1 < arguments.len() => {
                // The user's own come last and win.
                arguments[at + 1] = format!("{extended},{}", arguments[at + 1]);
            }
            _ => arguments.extend(["-E".to_owned(), extended.to_owned()]),
        }
    }
    arguments
}

/// Bytes that a file system says are in use.
pub(super) fn used_bytes(path: &Path) -> Result<u64> {
    let figures = rustix::fs::statvfs(path).with_context(|| format!("cannot look at {}", path.display()))?;
    Ok(figures.f_blocks.saturating_sub(figures.f_bfree) * figures.f_frsize)
}

impl Place for FileSystemPlace {
    fn directory(&self) -> &Path {
        &self.directory
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    fn daemon_pids(&self) -> Vec<i32> {
        Vec::new()
    }

    fn make_cold(&mut self) -> Result<Option<String>> {
        self.mounted.unmount()?;
        let note = drop_caches();
        self.mounted.mount()?;
        Ok(note)
    }

    fn stored_bytes(&self) -> Result<StoredBytes> {
        self.settle()?;
        let mut bytes = walk_bytes(&self.directory)?;
        if self.kind == Kind::Btrfs {
            // The blocks of its files are counted before compression.
            bytes.stored_bytes = used_bytes(&self.directory)?.saturating_sub(self.fresh_bytes);
        }
        Ok(bytes)
    }

    fn settle(&self) -> Result<()> {
        sync_file_system(&self.directory)
    }
}

impl Storage for FileSystemPlace {
    fn device(&self) -> Option<DeviceNumber> {
        self.device.number().ok()
    }

    fn pool_counters(&self) -> Result<BTreeMap<String, u64>> {
        Ok(BTreeMap::new())
    }

    fn as_place(&mut self) -> &mut dyn Place {
        self
    }

    fn take_down(&mut self) -> Result<()> {
        self.mounted.take_down()?;
        self.device.detach()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(text: &str) -> Arm {
        let table: toml::Table = text.parse().expect("a table");
        table.try_into().expect("an arm")
    }

    #[test]
    fn extended_options_of_the_user_are_kept() {
        let plain = mkfs_arguments(&arm("name = 'a'\nkind = 'ext4'"));
        assert_eq!(
            plain.last().map(String::as_str),
            Some("nodiscard,lazy_itable_init=0,lazy_journal_init=0")
        );
        let own = mkfs_arguments(&arm(
            "name = 'a'\nkind = 'ext4'\nmkfs_options = '-E stride=4 -O ^has_journal'",
        ));
        let joined = own.join(" ");
        assert!(
            joined.ends_with("-E nodiscard,lazy_itable_init=0,lazy_journal_init=0,stride=4 -O ^has_journal"),
            "{joined}"
        );
    }
}
