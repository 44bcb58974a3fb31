//! ZFS on the turn's device, where the machine has its tools and its module.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::backing::Attached;
use super::{DeviceNumber, Storage, Surroundings, drop_caches, sync_file_system, walk_bytes};
use crate::experiment::Arm;
use crate::invoke;
use crate::turn::{Place, StoredBytes};

struct ZfsPlace {
    pool: String,
    imported: bool,
    device: Attached,
    directory: PathBuf,
    mountpoint: PathBuf,
    settings: BTreeMap<String, String>,
}

pub(super) fn make(arm: &Arm, device: Attached, surroundings: &Surroundings) -> Result<Box<dyn Storage>> {
    let mountpoint = surroundings.directory.join("mount");
    let mut place = ZfsPlace {
        pool: format!("packstone-lab-{}", std::process::id()),
        imported: false,
        device,
        directory: mountpoint.join("data"),
        mountpoint,
        settings: arm.settings().clone(),
    };
    let mut create = invoke::program("zpool")?;
    create.args(["create", "-f", "-m"]).arg(&place.mountpoint);
    for (name, value) in arm.pool_properties() {
        create.arg("-o").arg(format!("{name}={value}"));
    }
    for (name, value) in arm.properties() {
        create.arg("-O").arg(format!("{name}={value}"));
    }
    invoke::run(create.arg(&place.pool).arg(place.device.path()))?;
    place.imported = true;
    std::fs::create_dir(&place.directory)
        .with_context(|| format!("cannot create {}", place.directory.display()))?;
    Ok(Box::new(place))
}

impl Place for ZfsPlace {
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
        invoke::run(invoke::program("zpool")?.args(["export", &self.pool]))?;
        self.imported = false;
        let note = drop_caches();
        invoke::run(
            invoke::program("zpool")?
                .args(["import", "-d"])
                .arg(self.device.path())
                .arg(&self.pool),
        )?;
        self.imported = true;
        Ok(note)
    }

    fn stored_bytes(&self) -> Result<StoredBytes> {
        self.settle()?;
        let used = invoke::run(invoke::program("zfs")?.args(["get", "-Hpo", "value", "used", &self.pool]))?;
        Ok(StoredBytes {
            logical_bytes: walk_bytes(&self.directory)?.logical_bytes,
            stored_bytes: used.trim().parse().context("zfs get used gave no number")?,
        })
    }

    fn settle(&self) -> Result<()> {
        sync_file_system(&self.directory)?;
        invoke::run(invoke::program("zpool")?.args(["sync", &self.pool])).map(drop)
    }
}

impl Storage for ZfsPlace {
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
        if self.imported {
            invoke::run(invoke::program("zpool")?.args(["destroy", "-f", &self.pool]))?;
            self.imported = false;
            // Absent when ZFS has removed it itself.
            let _ = std::fs::remove_dir(&self.mountpoint);
        }
        self.device.detach()
    }
}

impl Drop for ZfsPlace {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            eprintln!("{error:#}");
        }
    }
}
