//! One side of the comparison: a cluster and the storage under it.
//!
//! Both arms run the same server with the same settings but one: on Packstone `full_page_writes` is off, because the pool
//! writes each page whole or not at all; on ext4 it has to be on.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Options;
use crate::cluster::Cluster;
use crate::packstone::{Pool, Status};
use crate::scratch::Cleanup;

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory of the file system that is there.
    Directory,
    /// A pool whose file lies on that file system.
    Packstone,
}

impl Kind {
    /// The name in options, tables and results.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Directory => "directory",
            Kind::Packstone => "packstone",
        }
    }
}

/// One side with its cluster, which is stopped between turns.
pub struct Arm {
    kind: Kind,
    cluster: Cluster,
    pool: Option<Pool>,
    mountpoint: PathBuf,
}

const DATASET: &str = "pg";

impl Arm {
    /// Makes the storage and an empty cluster on it, and leaves the server stopped.
    pub fn set_up(kind: Kind, home: &Path, options: &Options, cleanup: &Cleanup) -> Result<Arm> {
        let directory = home.join(kind.name());
        std::fs::create_dir_all(&directory)?;
        let (mountpoint, run) = (directory.join("pg"), directory.join("run"));
        let (pool, cluster) = match kind {
            Kind::Directory => (None, Cluster::create(&mountpoint, &run)?),
            Kind::Packstone => {
                let pool = Pool::new("bench", &directory)?;
                pool.create(&options.pool_size, cleanup)?;
                let data_directory = pool.create_postgres(DATASET, &mountpoint, cleanup)?;
                (Some(pool), Cluster::on(&data_directory, &run)?)
            }
        };
        let full_page_writes = if kind == Kind::Directory { "on" } else { "off" };
        let cluster = cluster
            .with_setting("full_page_writes", full_page_writes)
            .with_setting("shared_buffers", "128MB")
            // Large enough that no checkpoint falls into a timed run by its own; each run is preceded by one.
            .with_setting("max_wal_size", "8GB")
            .with_setting("checkpoint_timeout", "30min");
        // An empty start shows mistakes before minutes are spent, and leaves a clean-up step.
        cluster.start_with(cleanup)?;
        cluster.stop()?;
        Ok(Arm {
            kind,
            cluster,
            pool,
            mountpoint,
        })
    }

    /// Which side this is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The pool's own figures, for the side that has a pool.
    pub fn status(&self) -> Result<Option<Status>> {
        self.pool.as_ref().map(Pool::status).transpose()
    }

    /// The pool's daemon, if there is one.
    pub fn daemon_pid(&self) -> Option<i32> {
        self.pool.as_ref().and_then(|pool| pool.daemon_pid().ok())
    }

    /// A directory on the disk that is measured, outside of any mount of ours.
    pub fn disk_directory(&self) -> &Path {
        self.mountpoint.parent().unwrap_or(&self.mountpoint)
    }

    /// Forgets everything that any cache holds of the cluster, whose server is stopped.
    pub fn make_cold(&self) -> Result<()> {
        if let Some(pool) = &self.pool {
            pool.unmount(&self.mountpoint)?;
            pool.wait_closed()?;
        }
        rustix::fs::sync();
        if crate::process::is_root() {
            std::fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the kernel's caches")?;
        } else {
            println!("  not root: the kernel's caches stay, so the scan is not fully cold");
        }
        match &self.pool {
            Some(pool) => pool.mount_again(DATASET, &self.mountpoint),
            None => Ok(()),
        }
    }
}
