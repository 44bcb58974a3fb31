//! The experiment file: what is compared, on what, doing what.
//!
//! Unknown keys are refused, and every error names its key, because a mistyped option that is ignored would be measured.
//! The `[workload]` table is handed on as it is: its keys belong to the workload.

mod overrides;
#[cfg(test)]
mod tests;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

pub use overrides::{apply_override, keep_arms};
use values::{Size, Texts, Words};

/// An experiment, checked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Short name; the run's directory is called after it.
    pub name: String,
    /// What it is to find out.
    #[serde(default)]
    pub description: String,
    /// Name of the arm that the others are compared with.
    pub control: String,
    /// How often the arms are gone through forwards and backwards.
    #[serde(default = "three")]
    pub rounds: u32,
    /// Whether the control is first compared with itself.
    #[serde(default = "yes")]
    pub noise_pair: bool,
    /// Memory for everything that runs in a turn, the page cache it fills included; none: the machine's.
    #[serde(default)]
    memory_limit: Option<Size>,
    /// What the storage of every turn is made on.
    #[serde(default)]
    pub backing: Backing,
    /// How fast the device may be.
    #[serde(default)]
    pub profile: Profile,
    /// The kinds of storage.
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
    /// What is run; `kind` names the workload.
    pub workload: toml::Table,
    /// Flame graphs of server and daemon.
    #[serde(default)]
    pub flame_graphs: FlameGraphs,
    /// What is measured besides.
    #[serde(default)]
    pub meters: Meters,
}

/// What the storage of every turn is made on: a file that is made for the run, or a device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Backing {
    size: Size,
    /// Where the file is made.
    pub directory: PathBuf,
    /// A whole block device instead of a file; everything on it is lost.
    pub device: Option<PathBuf>,
}

impl Default for Backing {
    fn default() -> Backing {
        Backing {
            size: Size(8 << 30),
            directory: PathBuf::from("/var/tmp"),
            device: None,
        }
    }
}

impl Backing {
    /// Length of the file.
    pub fn size_bytes(&self) -> u64 {
        self.size.0
    }
}

/// How fast the device may be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// A name, or limits.
    #[serde(default)]
    device: DeviceProfile,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum DeviceProfile {
    Named(String),
    Limits(Limits),
}

impl Default for DeviceProfile {
    fn default() -> DeviceProfile {
        DeviceProfile::Named("fast".to_owned())
    }
}

/// What a device may do at most, reads and writes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes in a second.
    pub bytes_per_second: u64,
    /// Requests in a second, flushes included.
    pub operations_per_second: u64,
}

impl Profile {
    /// The limits, or none when the device may be as fast as it is.
    pub fn limits(&self) -> Result<Option<Limits>> {
        match &self.device {
            DeviceProfile::Named(name) if name == "fast" => Ok(None),
            // What Amazon's gp3 volumes do without paying for more.
            DeviceProfile::Named(name) if name == "gp3" => Ok(Some(Limits {
                bytes_per_second: 125_000_000,
                operations_per_second: 3_000,
            })),
            DeviceProfile::Named(name) => bail!(
                "profile.device = \"{name}\" is unknown: choose \"fast\", \"gp3\" or \
                 {{ bytes_per_second = N, operations_per_second = N }}"
            ),
            DeviceProfile::Limits(limits) => {
                ensure!(
                    limits.bytes_per_second > 0 && limits.operations_per_second > 0,
                    "profile.device: both limits must be above 0; leave the profile out for none"
                );
                Ok(Some(*limits))
            }
        }
    }

    /// The profile in words.
    pub fn describe(&self) -> String {
        let name = match &self.device {
            DeviceProfile::Named(name) => name.as_str(),
            DeviceProfile::Limits(_) => "limited",
        };
        match self.limits() {
            Ok(Some(limits)) => format!(
                "{name}: {} MB/s and {} operations/s, reads and writes each",
                limits.bytes_per_second as f64 / 1e6,
                limits.operations_per_second
            ),
            _ => format!("{name}: the device as it is"),
        }
    }
}

/// Kinds of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A pool with one dataset.
    Packstone,
    /// The kernel's ext4.
    Ext4,
    /// The kernel's xfs.
    Xfs,
    /// The kernel's btrfs.
    Btrfs,
    /// ZFS, where the machine has it.
    Zfs,
    /// A directory of the file system that is there.
    Directory,
}

impl Kind {
    /// The name in experiment files.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Packstone => "packstone",
            Kind::Ext4 => "ext4",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
            Kind::Zfs => "zfs",
            Kind::Directory => "directory",
        }
    }

    /// Whether it is made on the backing.
    pub fn uses_backing(self) -> bool {
        self != Kind::Directory
    }
}

/// What a pool's member is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Member {
    /// The same loop device that other arms have their file systems on.
    #[default]
    Device,
    /// The backing file itself, as pools are mostly used; neither throttled nor counted apart from the disk below.
    File,
}

/// One kind of storage with its options.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Its name in tables and the journal.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    #[serde(default)]
    properties: Texts,
    #[serde(default)]
    pool_properties: Texts,
    #[serde(default)]
    mkfs_options: Words,
    /// Options of `mount -o`, with commas between them.
    #[serde(default)]
    pub mount_options: String,
    #[serde(default)]
    settings: Texts,
    #[serde(default)]
    memory_limit: Option<Size>,
    /// What a pool's member is.
    #[serde(default)]
    pub member: Member,
    /// For kind `directory`: where its directories are made; none: the backing's directory.
    #[serde(default)]
    pub path: Option<PathBuf>,
}

impl Arm {
    /// Properties of the dataset (packstone, zfs).
    pub fn properties(&self) -> &BTreeMap<String, String> {
        &self.properties.0
    }

    /// Properties of the pool (packstone, zfs).
    pub fn pool_properties(&self) -> &BTreeMap<String, String> {
        &self.pool_properties.0
    }

    /// Further arguments of mkfs.
    pub fn mkfs_options(&self) -> &[String] {
        &self.mkfs_options.0
    }

    /// What the workload is told, such as `full_page_writes`.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.settings.0
    }

    /// All options in one line.
    pub fn summary(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        for texts in [&self.pool_properties, &self.properties] {
            parts.extend(texts.0.iter().map(|(name, value)| format!("{name}={value}")));
        }
        if !self.mkfs_options.0.is_empty() {
            parts.push(format!("mkfs {}", self.mkfs_options.0.join(" ")));
        }
        if !self.mount_options.is_empty() {
            parts.push(format!("mount -o {}", self.mount_options));
        }
        parts.extend(
            self.settings
                .0
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        if self.kind == Kind::Packstone && self.member == Member::File {
            parts.push("member in a file".to_owned());
        }
        if let Some(Size(bytes)) = self.memory_limit {
            parts.push(format!("memory {} MiB", bytes >> 20));
        }
        parts.join(", ")
    }

    fn check(&self) -> Result<()> {
        let Arm { name, kind, .. } = self;
        let letters = name
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-_.:+= ".contains(letter));
        ensure!(
            letters && !name.is_empty() && !name.starts_with('.'),
            "arm '{name}': a name is made of letters, digits, spaces and - _ . : + ="
        );
        let refuse = |given: bool, key: &str, kinds: &[Kind]| -> Result<()> {
            let fitting: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            ensure!(
                !given || kinds.contains(kind),
                "arm '{name}': {key} means nothing for kind {}, only for {}",
                kind.name(),
                fitting.join(", ")
            );
            Ok(())
        };
        let pools = [Kind::Packstone, Kind::Zfs];
        let made = [Kind::Ext4, Kind::Xfs, Kind::Btrfs];
        refuse(!self.properties.0.is_empty(), "properties", &pools)?;
        refuse(!self.pool_properties.0.is_empty(), "pool_properties", &pools)?;
        refuse(!self.mkfs_options.0.is_empty(), "mkfs_options", &made)?;
        refuse(!self.mount_options.is_empty(), "mount_options", &made)?;
        refuse(self.member == Member::File, "member", &[Kind::Packstone])?;
        refuse(self.path.is_some(), "path", &[Kind::Directory])
    }
}

/// Flame graphs of server and daemon.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FlameGraphs {
    /// Whether they are made, in the first turn of every arm.
    pub enabled: bool,
}

/// What is measured besides the workload's own numbers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Meters {
    /// Whether every arm's storage is probed before the first turn: how fast it is under the profile.
    pub probe: bool,
    /// Milliseconds between two looks at the memory of server and daemon.
    pub memory_interval_milliseconds: u64,
}

impl Default for Meters {
    fn default() -> Meters {
        Meters {
            probe: true,
            memory_interval_milliseconds: 500,
        }
    }
}

fn three() -> u32 {
    3
}

fn yes() -> bool {
    true
}

impl Experiment {
    /// Reads an experiment. The error shows the line and the key.
    pub fn parse(text: &str) -> Result<Experiment> {
        let experiment: Experiment = toml::from_str(text)?;
        experiment.check()?;
        Ok(experiment)
    }

    /// Reads an experiment from its table, such as after [`apply_override`].
    pub fn from_table(table: &toml::Table) -> Result<Experiment> {
        // By way of text, so that errors show where they are.
        Experiment::parse(&toml::to_string_pretty(table).context("the experiment cannot be written as TOML")?)
    }

    /// The arm called `name`.
    pub fn arm(&self, name: &str) -> Result<&Arm> {
        self.arms.iter().find(|arm| arm.name == name).with_context(|| {
            format!(
                "there is no arm '{name}'; there are: {}",
                self.arm_names().join(", ")
            )
        })
    }

    /// Memory that a turn of `arm` may use, if limited.
    pub fn memory_limit_bytes(&self, arm: &Arm) -> Option<u64> {
        arm.memory_limit.or(self.memory_limit).map(|size| size.0)
    }

    fn arm_names(&self) -> Vec<&str> {
        self.arms.iter().map(|arm| arm.name.as_str()).collect()
    }

    fn check(&self) -> Result<()> {
        let letters = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        ensure!(
            !self.name.is_empty() && !self.name.starts_with('.') && self.name.chars().all(letters),
            "name = \"{}\": it names a directory, so use letters, digits and - _ . only",
            self.name
        );
        ensure!(!self.arms.is_empty(), "there is no [[arm]]: add at least one");
        ensure!(self.rounds > 0, "rounds = 0: at least one round is needed");
        ensure!(
            self.meters.memory_interval_milliseconds > 0,
            "meters.memory_interval_milliseconds must be above 0"
        );
        let mut seen = BTreeSet::new();
        for arm in &self.arms {
            arm.check()?;
            ensure!(
                seen.insert(arm.name.as_str()),
                "two arms are called '{}'",
                arm.name
            );
        }
        self.arm(&self.control).context("control")?;
        let limits = self.profile.limits()?;
        for arm in &self.arms {
            let unheld = arm.kind == Kind::Directory || arm.member == Member::File;
            ensure!(
                limits.is_none() || !unheld,
                "arm '{}': a device profile holds only on a device of the lab's own; leave out [profile] or {}",
                arm.name,
                if arm.kind == Kind::Directory {
                    "the arm"
                } else {
                    "member = \"file\""
                }
            );
            ensure!(
                self.backing.device.is_none() || arm.member == Member::Device,
                "arm '{}': member = \"file\" needs a backing file, and backing.device is given",
                arm.name
            );
        }
        ensure!(
            self.backing.size_bytes() >= 64 << 20,
            "backing.size: at least 64M is needed, and more for xfs (300M) and btrfs (110M)"
        );
        let kind = self.workload.get("kind").and_then(toml::Value::as_str);
        ensure!(
            kind.is_some(),
            "workload.kind is missing: it names the workload, such as \"command\""
        );
        Ok(())
    }
}
