//! Limits of a turn by control groups: how fast the device may be, and how much memory everything in the turn may use.
//!
//! | hierarchy | device | memory |
//! |---|---|---|
//! | version 1 | `blkio.throttle.*_device` of the **root** group, which this process joins for the turn | `memory.limit_in_bytes` of a group for the turn |
//! | version 2 | `io.max` of a group for the turn | `memory.max` of the same group |
//!
//! What is limited is the device that the arm's storage lies on, a loop device of the lab's own, not the disk below: the
//! loop driver's own requests to the disk are outside of every group that matters here.
//!
//! Version 1 charges buffered writes to whoever writes them back, and that is a kernel thread, in the root group. A rule
//! there holds for it, for ext4's journal thread, and for every process that is in the root group too: every arm gets the
//! same limits, all of its I/O together. Version 2 knows who made a page dirty (on ext4, xfs and btrfs) and charges them,
//! but kernel threads of file systems that write on their own account, such as ext4's journal, stay outside: an arm
//! on such a file system is limited a little less. The probe shows what each arm really reached.
//!
//! Groups and rules are removed when the confinement is dropped.

mod groups;

use anyhow::{Context, Result, bail};

use crate::experiment::Limits;
use crate::place::DeviceNumber;
use groups::{Group, Hierarchy, Version};

/// This process and all it starts are limited until this is dropped.
pub(crate) struct Confinement {
    /// The group that holds the rule for the device, and the rules that undo it.
    device_group: Option<Group>,
    undo_device: Vec<(String, String)>,
    /// Kept so that dropping it brings this process back.
    _memory_group: Option<Group>,
}

/// How limits will be held, for the report; an error when they cannot be.
pub(crate) fn describe(limits: Option<Limits>, memory: bool) -> Result<Option<String>> {
    let mut parts = Vec::new();
    if limits.is_some() {
        parts.push(match device_hierarchy()?.version {
            Version::One => "device limited by the root group of cgroup v1 blkio",
            Version::Two => "device limited by cgroup v2 io.max",
        });
    }
    if memory {
        parts.push(match memory_hierarchy()?.version {
            Version::One => "memory limited by cgroup v1",
            Version::Two => "memory limited by cgroup v2",
        });
    }
    Ok((!parts.is_empty()).then(|| parts.join(", ")))
}

fn device_hierarchy() -> Result<Hierarchy> {
    Hierarchy::find("blkio", "io").context(
        "a device profile needs control groups that limit I/O (cgroup v1 blkio, or cgroup v2 with the controller io), \
         and this machine has none mounted; leave out [profile]",
    )
}

fn memory_hierarchy() -> Result<Hierarchy> {
    Hierarchy::find("memory", "memory").context(
        "memory_limit needs control groups that limit memory, and this machine has none mounted; leave it out",
    )
}

impl Confinement {
    /// Enters the groups. Comes before the storage is made, so that its daemon is in them too.
    pub(crate) fn enter(limits: Option<Limits>, memory_bytes: Option<u64>) -> Result<Confinement> {
        let name = format!("packstone-lab-{}", std::process::id());
        let mut device_group = None;
        if limits.is_some() {
            let hierarchy = device_hierarchy()?;
            device_group = Some(match hierarchy.version {
                Version::One => hierarchy.enter_root()?,
                Version::Two => hierarchy.enter_new(&name)?,
            });
        }
        let mut memory_group = None;
        if let Some(bytes) = memory_bytes {
            let hierarchy = memory_hierarchy()?;
            let file = match hierarchy.version {
                Version::One => "memory.limit_in_bytes",
                Version::Two => "memory.max",
            };
            match &device_group {
                // One hierarchy, one group.
                Some(group) if hierarchy.version == Version::Two && group.version() == Version::Two => {
                    group.write(file, &bytes.to_string())?;
                }
                _ => {
                    let group = hierarchy.enter_new(&name)?;
                    group.write(file, &bytes.to_string())?;
                    memory_group = Some(group);
                }
            }
        }
        Ok(Confinement {
            device_group,
            undo_device: Vec::new(),
            _memory_group: memory_group,
        })
    }

    /// Limits the device from now on.
    pub(crate) fn limit_device(&mut self, device: Option<DeviceNumber>, limits: Limits) -> Result<()> {
        let (Some(group), Some(device)) = (&self.device_group, device) else {
            bail!("there is no device of its own that could be limited");
        };
        for (file, rule, undo) in rules(group.version(), device, limits) {
            group.write(file, &rule)?;
            self.undo_device.push((file.to_owned(), undo));
        }
        Ok(())
    }

    /// Lets the device be as fast as it is again. Harmless when called again.
    pub(crate) fn free_device(&mut self) {
        let Some(group) = &self.device_group else { return };
        for (file, undo) in self.undo_device.drain(..) {
            if let Err(error) = group.write(&file, &undo) {
                eprintln!("a limit of a device stays: {error:#}");
            }
        }
    }
}

impl Drop for Confinement {
    fn drop(&mut self) {
        self.free_device();
    }
}

/// Takes away the limits that a killed run has left on a loop device. Only version 1 keeps them; its group is the root.
pub(crate) fn forget_limits(device: DeviceNumber) {
    let unused = Limits {
        bytes_per_second: 1,
        operations_per_second: 1,
    };
    if let Some(hierarchy) = Hierarchy::find("blkio", "io")
        && hierarchy.version == Version::One
    {
        for (file, _, undo) in rules(Version::One, device, unused) {
            // Fails where this user may not, who then has no loop device either.
            let _ = std::fs::write(hierarchy.root().join(file), undo);
        }
    }
}

/// File, rule, and the rule that undoes it.
fn rules(version: Version, device: DeviceNumber, limits: Limits) -> Vec<(&'static str, String, String)> {
    let Limits {
        bytes_per_second: bytes,
        operations_per_second: operations,
    } = limits;
    match version {
        Version::One => [
            ("blkio.throttle.read_bps_device", bytes),
            ("blkio.throttle.write_bps_device", bytes),
            ("blkio.throttle.read_iops_device", operations),
            ("blkio.throttle.write_iops_device", operations),
        ]
        .into_iter()
        .map(|(file, limit)| (file, format!("{device} {limit}"), format!("{device} 0")))
        .collect(),
        Version::Two => vec![(
            "io.max",
            format!("{device} rbps={bytes} wbps={bytes} riops={operations} wiops={operations}"),
            format!("{device} rbps=max wbps=max riops=max wiops=max"),
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_both_versions_limit_and_undo() {
        let device = DeviceNumber { major: 7, minor: 3 };
        let limits = Limits {
            bytes_per_second: 125_000_000,
            operations_per_second: 3_000,
        };
        let one = rules(Version::One, device, limits);
        assert_eq!(one.len(), 4);
        assert_eq!(
            one[1],
            (
                "blkio.throttle.write_bps_device",
                "7:3 125000000".to_owned(),
                "7:3 0".to_owned()
            )
        );
        let two = rules(Version::Two, device, limits);
        assert_eq!(
            two[0].1,
            "7:3 rbps=125000000 wbps=125000000 riops=3000 wiops=3000"
        );
        assert_eq!(two[0].2, "7:3 rbps=max wbps=max riops=max wiops=max");
    }
}
