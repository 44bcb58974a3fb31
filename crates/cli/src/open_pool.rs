//! A pool opened by this process: lock, members and `Pool`, taken in that order and given back in the reverse.

use crate::failpoints;
use crate::lock::{LockMode, PoolLock};
use crate::member;
use crate::names::{PoolName, parse_size};
use crate::state::{PoolEntry, StateDirectory};
use anyhow::Context;
use packstone_media::Access;
use packstone_pool::{OpenOptions, Pool};
use std::sync::Arc;

/// A pool that this process alone may change.
pub struct OpenPool {
    /// The pool.
    pub pool: Arc<Pool>,
    /// Its name.
    pub name: PoolName,
    access: Access,
    // Dropped after the pool: fields drop in order.
    lock: PoolLock,
}

/// The mode of the lock that goes with an access.
pub fn lock_mode(access: Access) -> LockMode {
    match access {
        Access::ReadOnly => LockMode::Shared,
        Access::ReadWrite => LockMode::Exclusive,
    }
}

impl OpenPool {
    /// Opens and recovers the pool under a lock already held.
    pub fn open(
        lock: PoolLock,
        name: &PoolName,
        entry: &PoolEntry,
        access: Access,
    ) -> anyhow::Result<OpenPool> {
        OpenPool::open_with(lock, name, entry, access, None)
    }

    /// Opens the members for writing and the pool for reading only: nothing is written until a repair says so.
    pub fn open_unwritten(lock: PoolLock, name: &PoolName, entry: &PoolEntry) -> anyhow::Result<OpenPool> {
        let context = || format!("open pool '{name}'");
        let members = member::open_all(entry, Access::ReadWrite).with_context(context)?;
        let options = OpenOptions {
            read_only: true,
            memory_bytes: None,
            failpoints: failpoints::from_environment()?,
        };
        let pool = Pool::open(members, &options).with_context(context)?;
        Ok(OpenPool {
            pool: Arc::new(pool),
            name: name.clone(),
            access: Access::ReadWrite,
            lock,
        })
    }

    fn open_with(
        lock: PoolLock,
        name: &PoolName,
        entry: &PoolEntry,
        access: Access,
        memory_bytes: Option<u64>,
    ) -> anyhow::Result<OpenPool> {
        let context = || format!("open pool '{name}'");
        let members = member::open_all(entry, access).with_context(context)?;
        let options = OpenOptions {
            read_only: access == Access::ReadOnly,
            memory_bytes,
            failpoints: failpoints::from_environment()?,
        };
        let pool = Pool::open(members, &options).with_context(context)?;
        for note in pool.notes() {
            tracing::error!(pool = %name, "{note}");
        }
        Ok(OpenPool {
            pool: Arc::new(pool),
            name: name.clone(),
            access,
            lock,
        })
    }

    /// As [`OpenPool::open`] for writing, with the memory that the pool's properties ask for. They can be read only when the
    /// pool is open: one that opened with another budget is closed and opened again, which is quick just then.
    pub fn open_with_its_memory(
        lock: PoolLock,
        name: &PoolName,
        entry: &PoolEntry,
    ) -> anyhow::Result<OpenPool> {
        let context = || format!("open pool '{name}'");
        let mut open = OpenPool::open(lock, name, entry, Access::ReadWrite)?;
        let wanted = open
            .pool
            .properties()
            .with_context(context)?
            .get("memory")
            .and_then(|memory| parse_size(memory).ok());
        let Some(memory_bytes) =
            wanted.filter(|wanted| *wanted != open.pool.statistics().memory_budget_bytes)
        else {
            return Ok(open);
        };
        open.pool.close().with_context(context)?;
        let OpenPool { pool, lock, .. } = open;
        let notes = pool.notes();
        // The members' own locks go with the last reference.
        drop(pool);
        open = OpenPool::open_with(lock, name, entry, Access::ReadWrite, Some(memory_bytes))?;
        open.pool.keep_notes(notes);
        Ok(open)
    }

    /// Takes the lock and opens; the error names whoever has it open.
    pub fn open_by_name(state: &StateDirectory, name: &PoolName, access: Access) -> anyhow::Result<OpenPool> {
        let entry = state.entry(name)?;
        let lock = PoolLock::acquire(state, name, lock_mode(access), std::time::Duration::from_secs(2))?;
        OpenPool::open(lock, name, &entry, access)
    }

    /// Gives up a pool that was only read, keeping the lock.
    pub fn into_lock(self) -> PoolLock {
        self.lock
    }

    /// Lets go of a closed pool: first of the members, with the last reference to the pool, then of the lock, so that whoever
    /// gets the lock finds the members free. `holder` is the last who knows the pool, but for programs that still have files
    /// of a lazily ended mount open: then the lock stays until this process is gone.
    pub fn give_back<T>(self, holder: Arc<T>) {
        drop(holder);
        let OpenPool { pool, lock, .. } = self;
        if Arc::into_inner(pool).is_none() {
            std::mem::forget(lock);
        }
    }

    /// Makes everything durable and gives the pool back.
    pub fn close(self) -> anyhow::Result<()> {
        match self.access {
            Access::ReadOnly => Ok(()),
            Access::ReadWrite => self
                .pool
                .close()
                .with_context(|| format!("close pool '{}'", self.name)),
        }
    }
}
