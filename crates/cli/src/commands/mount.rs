//! `packstone mount`: starts the pool's daemon when none runs, and asks it to mount.
//!
//! A daemon may be on its way out just then, or another `mount` may start one at the same moment: both are waited for.

use crate::control::client::Client;
use crate::daemon::{self, MountRequest, launch};
use crate::facts::MountStatus;
use crate::failure::{FailureKind, kind_of};
use crate::lock::PoolLock;
use crate::mountpoint;
use crate::names::DatasetName;
use crate::output::emit_facts;
use crate::state::StateDirectory;
use crate::transport;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for a daemon that is closing.
const CLOSING_PATIENCE: Duration = Duration::from_secs(120);

/// What `mount` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone mount tank/pg /mnt/pg
  packstone mount tank/pg /mnt/pg --read-only
  packstone mount tank/pg /mnt/pg --foreground      stays, logging to the terminal; Ctrl-C unmounts

A mount made by root serves every user, with file permissions checked by the kernel; one made by another user serves that
user. The daemon logs to POOL.log in the state directory, and ends with its last mount.")]
pub struct Arguments {
    /// POOL/NAME
    dataset: DatasetName,
    /// An empty directory
    mountpoint: PathBuf,
    /// Run the daemon in this process
    #[arg(long)]
    pub foreground: bool,
    /// No writing through this mount
    #[arg(long)]
    read_only: bool,
    /// Threads that answer the kernel
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Print facts as JSON
    #[arg(long)]
    json: bool,
}

/// Mounts.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let state = StateDirectory::locate()?;
    let request = MountRequest {
        dataset: arguments.dataset.dataset.clone(),
        mountpoint: mountpoint::absolute(&arguments.mountpoint)?,
        read_only: arguments.read_only,
        threads: arguments.threads.map(usize::from),
        transport: transport::from_environment()?,
    };
    if arguments.foreground {
        let shown = request.mountpoint.display().to_string();
        let dataset = &arguments.dataset;
        return daemon::run(&state, &dataset.pool, Some(&request), || {
            eprintln!("{dataset} is mounted on {shown}; Ctrl-C unmounts it")
        });
    }
    let mounted = mount_through_daemon(&state, &arguments.dataset, &request)?;
    emit_facts(arguments.json, &mounted, |mounted| {
        format!("mounted {} on {}\n", mounted.dataset, mounted.mountpoint)
    })
}

/// Mounts in the background.
pub fn mount_dataset(
    state: &StateDirectory,
    dataset: &DatasetName,
    path: &Path,
) -> anyhow::Result<MountStatus> {
    let mountpoint = mountpoint::absolute(path)?;
    let request = MountRequest {
        dataset: dataset.dataset.clone(),
        mountpoint,
        read_only: false,
        threads: None,
        transport: transport::from_environment()?,
    };
    mount_through_daemon(state, dataset, &request)
}

fn mount_through_daemon(
    state: &StateDirectory,
    dataset: &DatasetName,
    request: &MountRequest,
) -> anyhow::Result<MountStatus> {
    let pool = &dataset.pool;
    state.entry(pool)?;
    let body = serde_json::to_value(request)?;
    let deadline = Instant::now() + CLOSING_PATIENCE;
    loop {
        let outcome = match Client::connect(state, pool)? {
            Some(client) => client.post("/mounts", &body),
            None => match launch::launch(state, pool) {
                Ok(()) => continue,
                // Another `mount` may have been quicker to start it; if it listens, ask it.
                Err(error)
                    if kind_of(&error) == FailureKind::Busy && Client::connect(state, pool)?.is_some() =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            },
        };
        match outcome {
            Err(error) if kind_of(&error) == FailureKind::Closing && Instant::now() < deadline => {
                PoolLock::wait_until_free(state, pool, deadline.saturating_duration_since(Instant::now()))?;
            }
            outcome => return outcome,
        }
    }
}
