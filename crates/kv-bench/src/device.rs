//! What reached the device below a directory, whoever wrote it, and what files take there.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Unit of the kernel's counters and of `st_blocks`.
const SECTOR_BYTES: u64 = 512;
/// Which field of a device's `stat` counts sectors written.
const SECTORS_WRITTEN_AT: usize = 6;

/// The block device that a directory lies on.
pub struct Device {
    directory: File,
    /// `None` where the file system lies on no block device.
    stat: Option<PathBuf>,
}

impl Device {
    /// The device below `directory`.
    pub fn below(directory: &Path) -> Result<Device> {
        let file = File::open(directory).with_context(|| format!("open {}", directory.display()))?;
        let device = file.metadata()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        Ok(Device {
            directory: file,
            stat: stat.is_file().then_some(stat),
        })
    }

    /// Writes out all that waits, and says how many bytes the device has been given so far. `None` if nobody counts them.
    pub fn settle(&self) -> Result<Option<u64>> {
        rustix::fs::syncfs(&self.directory).context("sync the file system")?;
        let Some(path) = &self.stat else {
            return Ok(None);
        };
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let sectors = text.split_whitespace().nth(SECTORS_WRITTEN_AT);
        let sectors: u64 = sectors
            .context("too few fields")
            .and_then(|field| field.parse().context("no number"))
            .with_context(|| format!("read {}", path.display()))?;
        Ok(Some(sectors * SECTOR_BYTES))
    }
}

/// Blocks allocated to all files below `directory`, in bytes.
pub fn allocated_bytes(directory: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        total += if metadata.is_dir() {
            allocated_bytes(&entry.path())?
        } else {
            metadata.blocks() * SECTOR_BYTES
        };
    }
    Ok(total)
}
