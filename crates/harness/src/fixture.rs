//! What an end-to-end test starts with: a pool in a file, mounted, and perhaps PostgreSQL on it, all undone at the end.
//!
//! The scratch directory lies in `/var/tmp` (`PACKSTONE_TEST_DIR` overrides), because a `/tmp` in memory has no O_DIRECT.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cluster::Cluster;
use crate::packstone::{Member, Pool};
use crate::requirements;
use crate::scratch::{self, Cleanup};

/// Name of the dataset that fixtures mount.
pub const DATASET: &str = "data";

/// True when the test `name`, which mounts, can run here; if not, says so.
pub fn can_mount(name: &str) -> bool {
    runs(name, requirements::missing_for_mounts())
}

/// True when the test `name`, which mounts and runs PostgreSQL, can run here; if not, says so.
pub fn can_run_postgres(name: &str) -> bool {
    runs(
        name,
        requirements::missing_for_mounts().or_else(requirements::missing_for_postgres),
    )
}

/// True when `missing` is nothing; else says that the test `name` is skipped.
pub fn runs(name: &str, missing: Option<String>) -> bool {
    match missing {
        Some(reason) => {
            requirements::skip(name, &reason);
            false
        }
        None => true,
    }
}

/// The parent of all scratch directories of tests.
pub fn test_directory() -> PathBuf {
    std::env::var_os("PACKSTONE_TEST_DIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// A seed from `PACKSTONE_TEST_SEED`, or from the clock; printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("PACKSTONE_TEST_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |time| time.as_nanos() as u64)
    });
    println!("PACKSTONE_TEST_SEED={seed}");
    seed
}

/// A pool in a file with one mounted dataset.
pub struct Mounted {
    /// Undoes everything; tests register what they add.
    pub cleanup: Cleanup,
    /// The scratch directory, on the machine's own file system.
    pub home: PathBuf,
    /// The pool.
    pub pool: Pool,
    /// Where its dataset is mounted.
    pub mountpoint: PathBuf,
}

impl Mounted {
    /// A pool of `size` with a dataset of 8 KiB records, mounted.
    pub fn new(size: &str) -> Result<Mounted> {
        let mounted = Mounted::without_dataset(&test_directory(), size, Member::Plain)?;
        mounted
            .pool
            .create_dataset(DATASET, &["recordsize=8K", "compression=zstd-1"])?;
        mounted
            .pool
            .mount(DATASET, &mounted.mountpoint, &mounted.cleanup)?;
        Ok(mounted)
    }

    /// A pool of `size` on which `packstone postgres create` has made a cluster; the server does not run yet.
    pub fn with_postgres(size: &str) -> Result<(Mounted, Cluster)> {
        Mounted::with_postgres_in(&test_directory(), size, Member::Plain)
    }

    /// As [`Mounted::with_postgres`], with the scratch directory in `parent` and a member of that kind.
    pub fn with_postgres_in(parent: &Path, size: &str, member: Member) -> Result<(Mounted, Cluster)> {
        let mounted = Mounted::without_dataset(parent, size, member)?;
        let data_directory = mounted
            .pool
            .create_postgres(DATASET, &mounted.mountpoint, &mounted.cleanup)?;
        let cluster = Cluster::on(&data_directory, &mounted.home.join("run"))?;
        Ok((mounted, cluster))
    }

    fn without_dataset(parent: &Path, size: &str, member: Member) -> Result<Mounted> {
        let cleanup = Cleanup::new();
        let home = scratch::directory(parent, "packstone-test-", &cleanup)?;
        let pool = Pool::new("tank", &home)?;
        pool.create_on(size, member, &cleanup)?;
        let mountpoint = home.join("mnt");
        Ok(Mounted {
            cleanup,
            home,
            pool,
            mountpoint,
        })
    }

    /// Path of `name` on the mount.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.mountpoint.join(name)
    }

    /// What `df` shows as free on the mount.
    pub fn available_bytes(&self) -> Result<u64> {
        let space = rustix::fs::statvfs(&self.mountpoint)?;
        Ok(space.f_bavail * space.f_frsize)
    }

    /// Unmounts, waits until the pool is closed, and mounts again with a new daemon.
    pub fn remount(&self) -> Result<()> {
        self.pool.unmount(&self.mountpoint)?;
        self.pool.wait_closed()?;
        self.pool.mount_again(DATASET, &self.mountpoint)
    }

    /// Takes away the mount of a daemon that was killed, and mounts again, which recovers the pool.
    pub fn recover(&self) -> Result<()> {
        crate::packstone::detach(&self.mountpoint)?;
        self.pool.mount_again(DATASET, &self.mountpoint)
    }

    /// Unmounts for the last time and lets `packstone check` walk the whole pool.
    pub fn finish(&self) -> Result<()> {
        self.pool.unmount(&self.mountpoint)?;
        self.pool.check()
    }
}
