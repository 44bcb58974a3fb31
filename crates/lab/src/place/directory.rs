//! A directory of the file system that is there, as it is. Nothing is made fresh but the directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{DeviceNumber, Storage, Surroundings, drop_caches, sync_file_system, walk_bytes};
use crate::experiment::Arm;
use crate::turn::{Place, StoredBytes};

struct DirectoryPlace {
    path: PathBuf,
    settings: BTreeMap<String, String>,
    exists: bool,
}

pub(super) fn make(arm: &Arm, surroundings: &Surroundings) -> Result<Box<dyn Storage>> {
    let name = format!("packstone-lab-data-{}", std::process::id());
    let parent = arm.path.as_deref().unwrap_or(&surroundings.directory);
    let path = parent.join(name);
    std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(Box::new(DirectoryPlace {
        path,
        settings: arm.settings().clone(),
        exists: true,
    }))
}

impl Place for DirectoryPlace {
    fn directory(&self) -> &Path {
        &self.path
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    fn daemon_pids(&self) -> Vec<i32> {
        Vec::new()
    }

    fn make_cold(&mut self) -> Result<Option<String>> {
        self.settle()?;
        Ok(drop_caches())
    }

    fn stored_bytes(&self) -> Result<StoredBytes> {
        self.settle()?;
        walk_bytes(&self.path)
    }

    fn settle(&self) -> Result<()> {
        sync_file_system(&self.path)
    }
}

impl Storage for DirectoryPlace {
    fn device(&self) -> Option<DeviceNumber> {
        DeviceNumber::below(&self.path)
    }

    fn pool_counters(&self) -> Result<BTreeMap<String, u64>> {
        Ok(BTreeMap::new())
    }

    fn as_place(&mut self) -> &mut dyn Place {
        self
    }

    fn take_down(&mut self) -> Result<()> {
        if self.exists {
            std::fs::remove_dir_all(&self.path)
                .with_context(|| format!("cannot remove {}", self.path.display()))?;
            self.exists = false;
        }
        Ok(())
    }
}

impl Drop for DirectoryPlace {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            eprintln!("{error:#}");
        }
    }
}
