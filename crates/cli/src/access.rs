//! How a command reaches a pool: through its daemon if one runs, else by opening it for the length of the command.
//!
//! Deciding is a race by nature (a daemon may start or end at any moment), so the lock decides: whoever gets it opens the
//! pool; whoever does not asks the holder's socket; when neither works the holder is another command, and is waited for.

use crate::control::client::Client;
use crate::facts::{DatasetDestroyed, DatasetStatus, PoolStatus};
use crate::lock::{PoolLock, busy};
use crate::names::{DatasetName, PoolName};
use crate::open_pool::{OpenPool, lock_mode};
use crate::operations::{self, MountTable};
use crate::state::StateDirectory;
use packstone_media::Access;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long to wait for another command to be done with the pool.
const PATIENCE: Duration = Duration::from_secs(10);

/// A pool that a command can ask.
pub enum PoolAccess {
    /// A daemon has it open.
    Daemon(Client),
    /// This process has.
    Local(OpenPool),
}

impl PoolAccess {
    /// Finds the daemon or opens the pool.
    pub fn reach(state: &StateDirectory, name: &PoolName, access: Access) -> anyhow::Result<PoolAccess> {
        let entry = state.entry(name)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let holder = match PoolLock::try_acquire(state, name, lock_mode(access))? {
                Ok(lock) => return Ok(PoolAccess::Local(OpenPool::open(lock, name, &entry, access)?)),
                Err(holder) => holder,
            };
            if let Some(client) = Client::connect(state, name)? {
                return Ok(PoolAccess::Daemon(client));
            }
            if Instant::now() >= deadline {
                return Err(busy(name, &holder));
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Every figure of the pool.
    pub fn status(&self) -> anyhow::Result<PoolStatus> {
        match self {
            PoolAccess::Daemon(client) => client.get("/status"),
            PoolAccess::Local(open) => {
                let mut status = operations::status(&open.pool, &open.name, &MountTable::new())?;
                status.state = "closed".to_string();
                // "Opened for reading only" is about this command, not about the pool.
                status.stopped = None;
                Ok(status)
            }
        }
    }

    /// Every dataset.
    pub fn list_datasets(&self) -> anyhow::Result<Vec<DatasetStatus>> {
        match self {
            PoolAccess::Daemon(client) => client.get("/datasets"),
            PoolAccess::Local(open) => operations::list_datasets(&open.pool, &open.name, &MountTable::new()),
        }
    }

    /// One dataset.
    pub fn dataset(&self, name: &DatasetName) -> anyhow::Result<DatasetStatus> {
        match self {
            PoolAccess::Daemon(client) => client.get(&format!("/datasets/{}", name.dataset)),
            PoolAccess::Local(open) => operations::dataset(&open.pool, name, &MountTable::new()),
        }
    }

    /// Makes a dataset.
    pub fn create_dataset(
        &self,
        name: &DatasetName,
        properties: &BTreeMap<String, String>,
    ) -> anyhow::Result<DatasetStatus> {
        match self {
            PoolAccess::Daemon(client) => client.post(
                "/datasets",
                &json!({"name": name.dataset, "properties": properties}),
            ),
            PoolAccess::Local(open) => operations::create_dataset(&open.pool, name, properties),
        }
    }

    /// Changes properties of a dataset.
    pub fn set_dataset(
        &self,
        name: &DatasetName,
        changes: &BTreeMap<String, String>,
    ) -> anyhow::Result<DatasetStatus> {
        match self {
            PoolAccess::Daemon(client) => client.patch(
                &format!("/datasets/{}", name.dataset),
                &json!({"properties": changes}),
            ),
            PoolAccess::Local(open) => {
                operations::set_dataset_properties(&open.pool, name, changes, &MountTable::new())
            }
        }
    }

    /// Destroys a dataset: wholly when this process has the pool, else begun, with the daemon freeing it in the background.
    pub fn destroy_dataset(&self, name: &DatasetName, force: bool) -> anyhow::Result<DatasetDestroyed> {
        match self {
            PoolAccess::Daemon(client) => client.delete(&format!("/datasets/{}?force={force}", name.dataset)),
            PoolAccess::Local(open) => {
                let begun = operations::begin_destroy(&open.pool, name, force, &MountTable::new())?;
                while operations::destroy_step(&open.pool, &name.dataset)? {}
                Ok(DatasetDestroyed {
                    complete: true,
                    ..begun
                })
            }
        }
    }

    /// Pool-wide properties.
    pub fn pool_properties(&self) -> anyhow::Result<BTreeMap<String, String>> {
        match self {
            PoolAccess::Daemon(client) => client.get("/properties"),
            PoolAccess::Local(open) => operations::pool_properties(&open.pool),
        }
    }

    /// Changes pool-wide properties.
    pub fn set_pool_properties(
        &self,
        changes: &BTreeMap<String, String>,
    ) -> anyhow::Result<BTreeMap<String, String>> {
        match self {
            PoolAccess::Daemon(client) => client.patch("/properties", &json!({"properties": changes})),
            PoolAccess::Local(open) => operations::set_pool_properties(&open.pool, changes),
        }
    }

    /// Gives the pool back; to be called also when the work failed.
    pub fn finish<T>(self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        let closed = match self {
            PoolAccess::Daemon(_) => Ok(()),
            PoolAccess::Local(open) => open.close(),
        };
        let value = result?;
        closed?;
        Ok(value)
    }
}
