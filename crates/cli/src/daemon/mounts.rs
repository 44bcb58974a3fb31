//! The mounts of one daemon: which dataset is where, and how mounts come and go.
//!
//! Two locks. `work` is held through a whole mount, unmount or close, which can take long (a flush); `table` only for a
//! look. So `status` never waits for an unmount. `closing` is set with both held and never unset: from then on nothing
//! mounts, and the main thread goes its way out.
//!
//! A file system is closed, which makes its data durable, before its mount leaves the table.

use super::server::MountRequest;
use crate::facts::{MountStatus, Unmounted};
use crate::failure::{Failure, FailureKind, describe};
use crate::mountpoint;
use crate::names::PoolName;
use crate::operations::{self, MountTable};
use crate::transport;
use anyhow::Context;
use packstone_fs::{FileSystem, MountOptions};
use packstone_fuse::{ErrorKind, MountConfig, Mounted};
use packstone_pool::Pool;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the way out waits for programs to close their files before it takes a mount away lazily.
const CLOSE_PATIENCE: Duration = Duration::from_secs(3);

/// What is mounted.
pub struct Mounts {
    pool: Arc<Pool>,
    name: PoolName,
    work: Mutex<()>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    closing: bool,
    /// There has been a mount, however short.
    used: bool,
    active: BTreeMap<String, Arc<ActiveMount>>,
}

struct ActiveMount {
    file_system: Arc<FileSystem>,
    mounted: Mounted,
    status: MountStatus,
}

impl Mounts {
    /// No mounts yet.
    pub fn new(pool: Arc<Pool>, name: PoolName) -> Mounts {
        Mounts {
            pool,
            name,
            work: Mutex::new(()),
            table: Mutex::default(),
        }
    }

    /// Every mount, by dataset.
    pub fn list(&self) -> Vec<MountStatus> {
        self.table
            .lock()
            .active
            .values()
            .map(|active| active.status.clone())
            .collect()
    }

    /// Requests of the kernel to all mounts, by the protocol's names.
    pub fn requests(&self) -> BTreeMap<String, u64> {
        let mut requests = BTreeMap::new();
        for active in self.table.lock().active.values() {
            for (name, count) in active.mounted.statistics().requests {
                *requests.entry(name.to_string()).or_insert(0) += count;
            }
        }
        requests
    }

    /// Dataset to mountpoint.
    pub fn table(&self) -> MountTable {
        let table = self.table.lock();
        table
            .active
            .iter()
            .map(|(dataset, active)| (dataset.clone(), active.status.mountpoint.clone()))
            .collect()
    }

    /// Every mounted file system, for background work.
    pub fn file_systems(&self) -> Vec<Arc<FileSystem>> {
        self.table
            .lock()
            .active
            .values()
            .map(|active| active.file_system.clone())
            .collect()
    }

    /// Lets a mounted dataset read its properties again.
    pub fn reload_properties(&self, dataset: &str) -> anyhow::Result<()> {
        let active = self.table.lock().active.get(dataset).cloned();
        match active {
            Some(active) => active
                .file_system
                .reload_properties()
                .with_context(|| format!("reload the properties of {dataset}")),
            None => Ok(()),
        }
    }

    /// Whether there has been a mount, though it may be gone again.
    pub fn is_used(&self) -> bool {
        self.table.lock().used
    }

    /// Whether the daemon is on its way out.
    pub fn is_closing(&self) -> bool {
        self.table.lock().closing
    }

    /// Runs work that must not meet a mount of the same dataset.
    pub fn while_nothing_mounts<T>(
        &self,
        work: impl FnOnce(&MountTable) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let _work = self.work.lock();
        work(&self.table())
    }

    /// Mounts a dataset.
    pub fn mount(&self, request: &MountRequest) -> anyhow::Result<MountStatus> {
        let _work = self.work.lock();
        let name = self.name.dataset(&request.dataset)?;
        {
            let table = self.table.lock();
            if table.closing {
                return Err(Failure::error(
                    FailureKind::Closing,
                    format!("the daemon of pool '{}' is closing; ask again", self.name),
                ));
            }
            if let Some(active) = table.active.get(&request.dataset) {
                return Err(Failure::busy(format!(
                    "{name} is already mounted on {}",
                    active.status.mountpoint
                )));
            }
        }
        operations::find_active(&self.pool, &name)?;
        let transport = transport::choose(request.transport.as_deref())?;
        let mountpoint = mountpoint::prepare(&request.mountpoint)?;
        let options = MountOptions {
            read_only: request.read_only,
        };
        let opened = FileSystem::open(
            self.pool.clone(),
            &request.dataset,
            options,
            &operations::caller_now(),
        );
        let file_system = Arc::new(opened.with_context(|| format!("open {name}"))?);
        let mut config = MountConfig::new(&mountpoint, name.to_string());
        config.read_only = request.read_only;
        if let Some(threads) = request.threads {
            config.threads = threads;
        }
        config.transport = transport;
        let mounted = match packstone_fuse::mount(file_system.clone(), config) {
            Ok(mounted) => mounted,
            Err(error) => {
                close_file_system(&file_system, &name.to_string())?;
                return Err(error).with_context(|| format!("mount {name} on {}", mountpoint.display()));
            }
        };
        let status = MountStatus {
            dataset: name.to_string(),
            mountpoint: mountpoint.to_string_lossy().into_owned(),
            read_only: request.read_only,
            daemon_pid: std::process::id(),
            transport: mounted.transport().to_string(),
        };
        let (mountpoint, transport) = (&status.mountpoint, &status.transport);
        tracing::info!(dataset = %name, mountpoint, read_only = status.read_only, transport, "mounted");
        let active = ActiveMount {
            file_system,
            mounted,
            status: status.clone(),
        };
        let mut table = self.table.lock();
        table.used = true;
        table.active.insert(request.dataset.clone(), Arc::new(active));
        Ok(status)
    }

    /// Takes a mount away; with `lazy` also while files on it are open. Begins closing when it was the last.
    pub fn unmount(&self, dataset: &str, lazy: bool) -> anyhow::Result<Unmounted> {
        let _work = self.work.lock();
        let found = self.table.lock().active.get(dataset).cloned();
        let Some(active) = found else {
            return Err(Failure::not_found(format!(
                "{}/{} is not mounted",
                self.name,
                dataset.escape_debug()
            )));
        };
        match active.mounted.unmount() {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Busy && !lazy => {
                return Err(Failure::busy(format!(
                    "{} is in use: programs have files open on it; stop them ('fuser -vm {0}' lists them), or add --lazy",
                    active.status.mountpoint
                )));
            }
            Err(error) if error.kind() == ErrorKind::Busy => {
                return unmount_lazily(&active);
            }
            Err(error) => return Err(error).with_context(|| format!("unmount {}", active.status.mountpoint)),
        }
        let closed = self.retire(dataset, &active, "unmounted");
        let closing = {
            let mut table = self.table.lock();
            table.closing |= table.active.is_empty();
            table.closing
        };
        closed?;
        let status = &active.status;
        Ok(Unmounted {
            dataset: status.dataset.clone(),
            mountpoint: status.mountpoint.clone(),
            lazy: false,
            closing,
        })
    }

    /// Closes what a plain `umount` or the kernel has taken away.
    pub fn reap(&self) {
        // Work in progress looks after its own mount; there will be another look.
        let Some(_work) = self.work.try_lock() else { return };
        let active = self.snapshot();
        for (dataset, active) in active.iter().filter(|(_, active)| !active.mounted.is_alive()) {
            // An error was logged where it happened, and there is nobody to give it to.
            let _ = self.retire(dataset, active, "mount has ended");
        }
    }

    /// Begins closing if nothing is mounted and nothing is about to be.
    pub fn begin_closing_if_empty(&self) -> bool {
        let Some(_work) = self.work.try_lock() else {
            return false;
        };
        let mut table = self.table.lock();
        table.closing |= table.active.is_empty();
        table.closing
    }

    /// From now on nothing mounts.
    pub fn begin_closing(&self) {
        let _work = self.work.lock();
        self.table.lock().closing = true;
    }

    /// Takes every mount away, lazily where programs keep files open for longer than a moment.
    pub fn close_all(&self) {
        self.begin_closing();
        let _work = self.work.lock();
        for (dataset, active) in self.snapshot() {
            let how = end_mount(&active);
            // An error was logged where it happened; the others must be closed all the same.
            let _ = self.retire(&dataset, &active, how);
        }
    }

    fn snapshot(&self) -> Vec<(String, Arc<ActiveMount>)> {
        self.table
            .lock()
            .active
            .iter()
            .map(|(dataset, active)| (dataset.clone(), active.clone()))
            .collect()
    }

    /// Makes everything durable and forgets the mount.
    fn retire(&self, dataset: &str, active: &ActiveMount, how: &str) -> anyhow::Result<()> {
        let closed = close_file_system(&active.file_system, &active.status.dataset);
        self.table.lock().active.remove(dataset);
        tracing::info!(
            dataset = active.status.dataset,
            mountpoint = active.status.mountpoint,
            "{how}"
        );
        closed
    }
}

/// The mount leaves the tree now and the table when its last file is closed: see [`Mounts::reap`].
fn unmount_lazily(active: &ActiveMount) -> anyhow::Result<Unmounted> {
    let status = &active.status;
    active
        .mounted
        .unmount_lazily()
        .with_context(|| format!("unmount {}", status.mountpoint))?;
    tracing::info!(
        dataset = status.dataset,
        mountpoint = status.mountpoint,
        "unmounted lazily: served until its last file is closed"
    );
    Ok(Unmounted {
        dataset: status.dataset.clone(),
        mountpoint: status.mountpoint.clone(),
        lazy: true,
        closing: false,
    })
}

fn end_mount(active: &ActiveMount) -> &'static str {
    let mountpoint = &active.status.mountpoint;
    let deadline = Instant::now() + CLOSE_PATIENCE;
    loop {
        match active.mounted.unmount() {
            Ok(()) => return "unmounted",
            Err(_) if !active.mounted.is_alive() => return "mount has ended",
            Err(error) if error.kind() == ErrorKind::Busy && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(100))
            }
            Err(error) => {
                tracing::warn!(mountpoint, %error, "still in use: unmounting lazily; programs with files open there get errors from now on");
                if let Err(error) = active.mounted.unmount_lazily() {
                    tracing::error!(mountpoint, %error, "could not unmount");
                }
                return "unmounted lazily";
            }
        }
    }
}

fn close_file_system(file_system: &FileSystem, name: &str) -> anyhow::Result<()> {
    file_system.close().map_err(|error| {
        let error = anyhow::Error::new(error).context(format!("close {name}"));
        tracing::error!(
            dataset = name,
            error = describe(&error),
            "could not make everything durable"
        );
        error
    })
}
