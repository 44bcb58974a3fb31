//! What the control socket asks of a daemon: [`crate::operations`] on its pool, and its mounts.

use super::Daemon;
use super::server::MountRequest;
use crate::facts::{DatasetDestroyed, DatasetStatus, MountStatus, PoolStatus, Unmounted};
use crate::failure::{Failure, FailureKind};
use crate::operations;
use std::collections::BTreeMap;

type Properties = BTreeMap<String, String>;

impl Daemon {
    /// Every figure, with those that only a daemon knows.
    pub fn status(&self) -> anyhow::Result<PoolStatus> {
        let mut status = operations::status(&self.pool, &self.name, &self.mounts.table())?;
        status.daemon_pid = Some(std::process::id());
        status.uptime_seconds = self.started.elapsed().as_secs();
        for mount in self.mounts.list() {
            let dataset = status
                .datasets
                .iter_mut()
                .find(|dataset| dataset.name == mount.dataset);
            if let Some(dataset) = dataset {
                dataset.transport = Some(mount.transport);
            }
        }
        status.requests = self.mounts.requests();
        if self.mounts.is_closing() {
            status.state = "closing".to_string();
        }
        Ok(status)
    }

    /// Every dataset.
    pub fn list_datasets(&self) -> anyhow::Result<Vec<DatasetStatus>> {
        operations::list_datasets(&self.pool, &self.name, &self.mounts.table())
    }

    /// One dataset.
    pub fn dataset(&self, dataset: &str) -> anyhow::Result<DatasetStatus> {
        operations::dataset(&self.pool, &self.name.dataset(dataset)?, &self.mounts.table())
    }

    /// Makes a dataset.
    pub fn create_dataset(&self, dataset: &str, properties: &Properties) -> anyhow::Result<DatasetStatus> {
        self.refuse_when_closing()?;
        operations::create_dataset(&self.pool, &self.name.dataset(dataset)?, properties)
    }

    /// Changes properties of a dataset; a mounted one uses them for what is written from now on.
    pub fn set_dataset(&self, dataset: &str, changes: &Properties) -> anyhow::Result<DatasetStatus> {
        self.refuse_when_closing()?;
        let status = operations::set_dataset_properties(
            &self.pool,
            &self.name.dataset(dataset)?,
            changes,
            &self.mounts.table(),
        )?;
        self.mounts.reload_properties(dataset)?;
        Ok(status)
    }

    /// Marks a dataset; the files thread empties it.
    pub fn destroy_dataset(&self, dataset: &str, force: bool) -> anyhow::Result<DatasetDestroyed> {
        self.refuse_when_closing()?;
        self.mounts.while_nothing_mounts(|table| {
            operations::begin_destroy(&self.pool, &self.name.dataset(dataset)?, force, table)
        })
    }

    /// Mounts a dataset.
    pub fn mount(&self, request: &MountRequest) -> anyhow::Result<MountStatus> {
        self.mounts.mount(request)
    }

    /// Takes a mount away; when it was the last, the daemon closes and ends.
    pub fn unmount(&self, dataset: &str, lazy: bool) -> anyhow::Result<Unmounted> {
        self.mounts.unmount(dataset, lazy)
    }

    /// Pool-wide properties.
    pub fn pool_properties(&self) -> anyhow::Result<Properties> {
        operations::pool_properties(&self.pool)
    }

    /// Changes pool-wide properties; `memory` is taken up at the next open.
    pub fn set_pool_properties(&self, changes: &Properties) -> anyhow::Result<Properties> {
        self.refuse_when_closing()?;
        operations::set_pool_properties(&self.pool, changes)
    }

    fn refuse_when_closing(&self) -> anyhow::Result<()> {
        match self.mounts.is_closing() {
            true => Err(Failure::error(
                FailureKind::Closing,
                format!("the daemon of pool '{}' is closing; ask again", self.name),
            )),
            false => Ok(()),
        }
    }
}
