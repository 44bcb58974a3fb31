//! Where a suite runs: a dataset that is mounted, or the control, an ordinary file system of this machine.
//!
//! The control tells a defect of Packstone from a trait of the machine, its kernel or the suite itself: what fails there
//! too says nothing about Packstone. It is ext4 in a file where loop devices can be had, else a plain directory.
//!
//! Invariant: everything made here is undone by [`Place::finish`], and by the clean-up when that is never reached.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::fixture::{self, Mounted};
use crate::packstone::{detach, is_mounted};
use crate::process;
use crate::scratch::{self, Cleanup};

/// A sparse file, so that only what is written counts.
const CONTROL_SIZE: &str = "8G";

enum Medium {
    Packstone(Box<Mounted>),
    /// ext4 in this file.
    Loop(PathBuf),
    Directory,
}

/// A file system for a suite to run on, and a directory beside it for what the suite needs elsewhere.
pub struct Place {
    medium: Medium,
    cleanup: Cleanup,
    /// Root of the file system, or the directory that stands for it.
    pub root: PathBuf,
    /// A directory on the machine's own file system.
    pub home: PathBuf,
}

impl Place {
    /// A new pool of `size` with one dataset of `record_size`, mounted. `interrupted` undoes it if the program is
    /// interrupted.
    pub fn packstone(size: &str, record_size: &str, interrupted: &Cleanup) -> Result<Place> {
        let record_size = format!("recordsize={record_size}");
        let mounted = Mounted::with_properties(size, &[&record_size, "compression=lz4"])?;
        undo_on_interrupt(&mounted.cleanup, interrupted);
        let home = mounted.home.join("beside");
        std::fs::create_dir(&home).with_context(|| format!("cannot create {}", home.display()))?;
        Ok(Place {
            cleanup: mounted.cleanup.clone(),
            root: mounted.mountpoint.clone(),
            medium: Medium::Packstone(Box::new(mounted)),
            home,
        })
    }

    /// The control.
    pub fn control(interrupted: &Cleanup) -> Result<Place> {
        let cleanup = Cleanup::new();
        undo_on_interrupt(&cleanup, interrupted);
        let home = scratch::directory(&fixture::test_directory(), "packstone-control-", &cleanup)?;
        let (image, root) = (home.join("ext4"), home.join("mnt"));
        std::fs::create_dir(&root)?;
        let medium = match make_ext4(&image, &root, &cleanup) {
            Ok(()) => Medium::Loop(image),
            // No loop device, no mkfs, not root: a directory still tells most of it.
            Err(_) => Medium::Directory,
        };
        Ok(Place {
            medium,
            cleanup,
            root,
            home,
        })
    }

    /// What the place is, for a report.
    pub fn describe(&self) -> &'static str {
        match self.medium {
            Medium::Packstone(_) => "packstone",
            Medium::Loop(_) => "ext4 on a loop device",
            Medium::Directory => "a plain directory",
        }
    }

    /// True when the root is a mount of its own that may be remounted without harm to the machine.
    pub fn is_own_mount(&self) -> bool {
        !matches!(self.medium, Medium::Directory) && is_mounted(&self.root)
    }

    /// True on Packstone.
    pub fn is_packstone(&self) -> bool {
        matches!(self.medium, Medium::Packstone(_))
    }

    /// A new directory called `name` on the file system.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    /// Unmounts and mounts again, so that what is read next comes from the media and not from a cache.
    pub fn reopen(&self) -> Result<()> {
        match &self.medium {
            Medium::Packstone(mounted) => mounted.remount(),
            Medium::Loop(image) => {
                process::run(Command::new("umount").arg("--").arg(&self.root))?;
                mount_ext4(image, &self.root)
            }
            Medium::Directory => Ok(()),
        }
    }

    /// Undoes everything; on Packstone after `packstone check` has walked the whole pool.
    pub fn finish(self) -> Result<()> {
        let checked = match &self.medium {
            Medium::Packstone(mounted) => mounted.finish(),
            Medium::Loop(_) | Medium::Directory => Ok(()),
        };
        self.cleanup.run();
        checked
    }
}

fn undo_on_interrupt(cleanup: &Cleanup, interrupted: &Cleanup) {
    let undone = cleanup.clone();
    interrupted.push("undo a suite's place", move || {
        undone.run();
        Ok(())
    });
}

fn make_ext4(image: &Path, root: &Path, cleanup: &Cleanup) -> Result<()> {
    process::run(
        Command::new("truncate")
            .args(["-s", CONTROL_SIZE, "--"])
            .arg(image),
    )?;
    process::run(Command::new("mkfs.ext4").args(["-q", "-F", "--"]).arg(image))?;
    let mounted = root.to_owned();
    cleanup.push(format!("unmount {}", root.display()), move || {
        if is_mounted(&mounted) {
            detach(&mounted)
        } else {
            Ok(())
        }
    });
    mount_ext4(image, root)
}

fn mount_ext4(image: &Path, root: &Path) -> Result<()> {
    process::run(
        Command::new("mount")
            .args(["-o", "loop", "--"])
            .args([image, root]),
    )?;
    Ok(())
}
