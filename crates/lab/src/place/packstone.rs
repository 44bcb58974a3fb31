//! A pool with one dataset, driven through the `packstone` command as a user would drive it.
//!
//! It has a state directory of its own, so no pool of the machine is touched, and its daemon is this turn's alone.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::backing::Attached;
use super::{DeviceNumber, Storage, Surroundings, drop_caches, sync_file_system, walk_bytes};
use crate::experiment::Arm;
use crate::invoke;
use crate::process;
use crate::turn::{Place, StoredBytes};

const POOL: &str = "lab";
const DATASET: &str = "lab/data";

/// What the pool's member is.
pub(super) enum On {
    Device(Attached),
    File(PathBuf),
}

struct PackstonePlace {
    program: PathBuf,
    state: PathBuf,
    mountpoint: PathBuf,
    directory: PathBuf,
    settings: BTreeMap<String, String>,
    daemon_pid: Option<i32>,
    member: On,
}

pub(super) fn make(arm: &Arm, member: On, surroundings: &Surroundings) -> Result<Box<dyn Storage>> {
    let mountpoint = surroundings.directory.join("mount");
    let mut place = PackstonePlace {
        program: surroundings.packstone.clone(),
        state: surroundings.directory.join("state"),
        directory: mountpoint.join("data"),
        mountpoint,
        settings: arm.settings().clone(),
        daemon_pid: None,
        member,
    };
    make_private_directory(&place.state)?;
    std::fs::create_dir_all(&place.mountpoint)
        .with_context(|| format!("cannot create {}", place.mountpoint.display()))?;
    let member = match &place.member {
        On::Device(device) => device.path().to_owned(),
        On::File(file) => file.clone(),
    };
    let mut create = place.command();
    create.args(["create", POOL]).arg(member).arg("--force");
    invoke::run(with_properties(&mut create, arm.pool_properties()))?;
    let mut dataset = place.command();
    dataset.args(["dataset", "create", DATASET]);
    invoke::run(with_properties(&mut dataset, arm.properties()))?;
    place.mount()?;
    std::fs::create_dir(&place.directory)
        .with_context(|| format!("cannot create {}", place.directory.display()))?;
    sync_file_system(&place.directory)?;
    Ok(Box::new(place))
}

fn make_private_directory(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if path.exists() {
        // Left by the turn before.
        std::fs::remove_dir_all(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot create {}", path.display()))
}

fn with_properties<'a>(command: &'a mut Command, properties: &BTreeMap<String, String>) -> &'a mut Command {
    for (name, value) in properties {
        command.arg("-o").arg(format!("{name}={value}"));
    }
    command
}

impl PackstonePlace {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("PACKSTONE_STATE_DIR", &self.state);
        command
    }

    fn mount(&mut self) -> Result<()> {
        invoke::run(self.command().args(["mount", DATASET]).arg(&self.mountpoint))?;
        let pid = self.status()?["daemon_pid"].as_i64();
        self.daemon_pid = pid.and_then(|pid| i32::try_from(pid).ok());
        Ok(())
    }

    /// Unmounts and waits for the daemon to close the pool.
    fn unmount(&mut self) -> Result<()> {
        if !self.is_mounted() {
            return Ok(());
        }
        let unmount =
            |place: &PackstonePlace| invoke::run(place.command().arg("unmount").arg(&place.mountpoint));
        let start = Instant::now();
        while let Err(error) = unmount(self) {
            // Programs that are just ending still have files open.
            if start.elapsed() > Duration::from_secs(5) {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let Some(pid) = self.daemon_pid.take() else {
            return Ok(());
        };
        process::wait_ended(&[pid], Duration::from_secs(60))
    }

    /// Asks the kernel, so that a mount is found whose command failed afterwards.
    fn is_mounted(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mountpoint = self.mountpoint.to_string_lossy();
        table
            .lines()
            .any(|line| line.split(' ').nth(1) == Some(mountpoint.as_ref()))
    }

    fn status(&self) -> Result<Value> {
        let text = invoke::run(self.command().args(["status", POOL, "--json"]))?;
        serde_json::from_str(&text).context("packstone status --json gave no JSON")
    }

    /// Ends a daemon that would not go.
    fn force_down(&mut self) -> Result<()> {
        let lazily = invoke::run(self.command().args(["unmount", "--lazy"]).arg(&self.mountpoint));
        let Some(pid) = self.daemon_pid.take() else {
            return lazily.map(drop);
        };
        for (signal, patience) in [(Signal::TERM, 20), (Signal::KILL, 10)] {
            if let Some(target) = Pid::from_raw(pid) {
                // It may have ended by itself; whether it runs is asked next.
                let _ = rustix::process::kill_process(target, signal);
            }
            if process::wait_ended(&[pid], Duration::from_secs(patience)).is_ok() {
                break;
            }
        }
        // The mount of a killed daemon stays; unmounting takes it away.
        let _ = super::mounted::unmount(&self.mountpoint);
        process::wait_ended(&[pid], Duration::ZERO)
    }
}

impl Place for PackstonePlace {
    fn directory(&self) -> &Path {
        &self.directory
    }

    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    fn daemon_pids(&self) -> Vec<i32> {
        self.daemon_pid.into_iter().collect()
    }

    fn make_cold(&mut self) -> Result<Option<String>> {
        self.unmount()?;
        let note = drop_caches();
        self.mount()?;
        Ok(note)
    }

    fn stored_bytes(&self) -> Result<StoredBytes> {
        self.settle()?;
        let status = self.status()?;
        let stored = status["datasets"][0]["stored_bytes"].as_u64();
        Ok(StoredBytes {
            logical_bytes: walk_bytes(&self.directory)?.logical_bytes,
            stored_bytes: stored.context("packstone status shows no stored bytes of the dataset")?,
        })
    }

    fn settle(&self) -> Result<()> {
        // The kernel writes what was changed through mappings; then partly written records reach the pool by their age.
        sync_file_system(&self.directory)?;
        std::thread::sleep(self.settle_waits());
        // An fsync makes durable what was committed up to the file's own last change, so this one has to be the newest.
        let marker = self.mountpoint.join("settled");
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::File::options().append(true).create(true).open(&marker)?;
            file.write_all(b".")?;
            file.sync_all()
        };
        write().with_context(|| format!("cannot write {}", marker.display()))
    }
}

impl Storage for PackstonePlace {
    fn device(&self) -> Option<DeviceNumber> {
        match &self.member {
            On::Device(device) => device.number().ok(),
            On::File(file) => DeviceNumber::below(file),
        }
    }

    fn pool_counters(&self) -> Result<BTreeMap<String, u64>> {
        let status = self.status()?;
        let mut counters = BTreeMap::new();
        for name in ["flushes", "checkpoints"] {
            if let Some(count) = status[name].as_u64() {
                counters.insert(name.to_owned(), count);
            }
        }
        for (table, prefix) in [
            ("media_written_bytes", "bytes written: "),
            ("requests", "requests: "),
        ] {
            for (name, count) in status[table].as_object().into_iter().flatten() {
                if let Some(count) = count.as_u64() {
                    counters.insert(format!("{prefix}{name}"), count);
                }
            }
        }
        Ok(counters)
    }

    fn as_place(&mut self) -> &mut dyn Place {
        self
    }

    fn settle_waits(&self) -> Duration {
        /// A little more than the age at which the daemon stores a partly written record.
        const RECORD_AGE: Duration = Duration::from_millis(1_200);
        RECORD_AGE
    }

    fn take_down(&mut self) -> Result<()> {
        let unmounted = self.unmount();
        let outcome = match unmounted {
            Ok(()) => Ok(()),
            Err(error) => self
                .force_down()
                .and(Err(error.context("the pool had to be closed by force"))),
        };
        if let On::Device(device) = &mut self.member {
            device.detach()?;
        }
        outcome
    }
}

impl Drop for PackstonePlace {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            eprintln!("{error:#}");
        }
    }
}
