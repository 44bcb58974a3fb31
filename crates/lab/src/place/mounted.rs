//! A mount of a kernel file system, unmounted when it is dropped.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::mount::UnmountFlags;

use crate::invoke;

pub(super) struct Mounted {
    source: PathBuf,
    kind: &'static str,
    options: String,
    mountpoint: PathBuf,
    is_mounted: bool,
}

impl Mounted {
    /// Mounts `source` on a new directory `mountpoint`.
    pub(super) fn new(
        source: &Path,
        kind: &'static str,
        options: &str,
        mountpoint: PathBuf,
    ) -> Result<Mounted> {
        std::fs::create_dir_all(&mountpoint)
            .with_context(|| format!("cannot create {}", mountpoint.display()))?;
        let mut mounted = Mounted {
            source: source.to_owned(),
            kind,
            options: options.to_owned(),
            mountpoint,
            is_mounted: false,
        };
        mounted.mount()?;
        Ok(mounted)
    }

    pub(super) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Mounts again what was unmounted.
    pub(super) fn mount(&mut self) -> Result<()> {
        let mut mount = invoke::program("mount")?;
        mount.args(["-t", self.kind]);
        if !self.options.is_empty() {
            mount.args(["-o", &self.options]);
        }
        invoke::run(mount.arg(&self.source).arg(&self.mountpoint))?;
        self.is_mounted = true;
        Ok(())
    }

    /// Unmounts; waits a little for programs that are just ending.
    pub(super) fn unmount(&mut self) -> Result<()> {
        if self.is_mounted {
            unmount(&self.mountpoint)?;
            self.is_mounted = false;
        }
        Ok(())
    }

    /// Unmounts at any price: what still uses it keeps it, out of sight.
    pub(super) fn take_down(&mut self) -> Result<()> {
        let Err(error) = self.unmount() else {
            // Fails when something was put there while nothing was mounted; the run's directory shows it.
            let _ = std::fs::remove_dir(&self.mountpoint);
            return Ok(());
        };
        rustix::mount::unmount(&self.mountpoint, UnmountFlags::DETACH)
            .with_context(|| format!("cannot take {} away", self.mountpoint.display()))?;
        self.is_mounted = false;
        Err(error.context("unmounted lazily"))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            eprintln!("{error:#}");
        }
    }
}

pub(super) fn unmount(mountpoint: &Path) -> Result<()> {
    const TRIES: u32 = 25;
    let mut tries = 0;
    loop {
        match rustix::mount::unmount(mountpoint, UnmountFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if tries < TRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(200));
            }
            Err(error) => {
                return Err(error).with_context(|| {
                    format!(
                        "cannot unmount {}: does a program still use it?",
                        mountpoint.display()
                    )
                });
            }
        }
    }
}
