//! Block devices: their numbers, and loop devices with direct I/O.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::confinement;
use crate::invoke;

/// Major and minor number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.major, self.minor)
    }
}

impl DeviceNumber {
    fn from_raw(device: u64) -> DeviceNumber {
        DeviceNumber {
            major: rustix::fs::major(device),
            minor: rustix::fs::minor(device),
        }
    }

    /// The number of the device file `path`.
    pub(crate) fn of_device(path: &Path) -> Result<DeviceNumber> {
        let metadata = path
            .metadata()
            .with_context(|| format!("cannot look at {}", path.display()))?;
        Ok(DeviceNumber::from_raw(metadata.rdev()))
    }

    /// The block device below the file system that holds `path`; none where it has no single one.
    pub(crate) fn below(path: &Path) -> Option<DeviceNumber> {
        let device = DeviceNumber::from_raw(path.metadata().ok()?.dev());
        device.sysfs().join("stat").is_file().then_some(device)
    }

    /// What the kernel shows of it.
    pub(crate) fn sysfs(self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{self}"))
    }
}

/// A loop device over a file, detached when it is dropped.
pub(crate) struct LoopDevice {
    path: PathBuf,
    attached: bool,
}

impl LoopDevice {
    /// Attaches `file` to the next free loop device, with direct I/O.
    pub(crate) fn attach(file: &Path) -> Result<LoopDevice> {
        let mut losetup = invoke::program("losetup")?;
        losetup.args(["--direct-io=on", "--find", "--show"]).arg(file);
        let said = invoke::run(&mut losetup).context("cannot attach a loop device")?;
        let device = LoopDevice {
            path: PathBuf::from(said.trim()),
            attached: true,
        };
        let sysfs = DeviceNumber::of_device(&device.path)?.sysfs();
        let direct = std::fs::read_to_string(sysfs.join("loop/dio")).unwrap_or_default();
        ensure!(
            direct.trim() == "1",
            "{} took no direct I/O, so the page cache would count twice: choose a backing.directory on a file system \
             that can do direct I/O",
            device.path.display()
        );
        // The limits of a run that was killed stay with the device's number.
        confinement::forget_limits(DeviceNumber::of_device(&device.path)?);
        Ok(device)
    }

    /// Its path below `/dev`.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Detaches it. Harmless when called again.
    pub(crate) fn detach(&mut self) -> Result<()> {
        if !self.attached {
            return Ok(());
        }
        let detach = || invoke::run(invoke::program("losetup")?.arg("--detach").arg(&self.path));
        // A program that looks at every new device may have it open for a moment.
        if detach().is_err() {
            std::thread::sleep(Duration::from_millis(500));
            detach()?;
        }
        self.attached = false;
        Ok(())
    }
}

/// Detaches every loop device over a file in `directory`; one in use goes when its user does.
pub(super) fn detach_loops_over(directory: &Path) {
    for device in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = std::fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(file.trim()).starts_with(directory) {
            let mut left = LoopDevice {
                path: Path::new("/dev").join(device.file_name()),
                attached: true,
            };
            if let Ok(number) = DeviceNumber::of_device(&left.path) {
                confinement::forget_limits(number);
            }
            if let Err(error) = left.detach() {
                eprintln!("{error:#}");
                left.attached = false;
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = self.detach() {
            eprintln!("cannot detach {}: {error:#}", self.path.display());
        }
    }
}
