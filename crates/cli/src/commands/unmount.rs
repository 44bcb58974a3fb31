//! `packstone unmount`: by mountpoint or by dataset; the last unmount closes the pool, and is waited for.

use crate::control::client::Client;
use crate::facts::Unmounted;
use crate::failure::{Failure, FailureKind, kind_of};
use crate::lock::PoolLock;
use crate::mountpoint::{self, ListedMount};
use crate::names::DatasetName;
use crate::output::{emit_facts, spinner};
use crate::state::StateDirectory;
use anyhow::Context;
use std::path::Path;
use std::time::Duration;

/// How long to wait for the daemon to close the pool.
const CLOSING_PATIENCE: Duration = Duration::from_secs(300);

/// What `unmount` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone unmount /mnt/pg
  packstone unmount tank/pg
  packstone unmount /mnt/pg --lazy      although programs have files open there

A plain 'umount /mnt/pg' does as well. The last unmount closes the pool. The mount of a daemon that died is taken away too.")]
pub struct Arguments {
    /// Mountpoint, or POOL/NAME
    #[arg(value_name = "MOUNTPOINT|DATASET")]
    target: String,
    /// Take it out of the tree although files are open; it ends when the last of them is closed
    #[arg(long)]
    lazy: bool,
    /// Print facts as JSON
    #[arg(long)]
    json: bool,
}

/// Unmounts.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let state = StateDirectory::locate()?;
    let unmounted = match find(&arguments.target)? {
        Target::Listed(listed) => unmount_listed(&state, &listed, arguments.lazy)?,
        Target::Dataset(dataset) => unmount_dataset(&state, &dataset, arguments.lazy)?,
    };
    emit_facts(arguments.json, &unmounted, |unmounted| {
        let mut text = format!("unmounted {} from {}\n", unmounted.dataset, unmounted.mountpoint);
        if unmounted.lazy {
            text.push_str(
                "note: programs still have files open there; the pool is closed when the last of them is\n",
            );
        }
        text
    })
}

enum Target {
    Listed(ListedMount),
    Dataset(DatasetName),
}

/// A path that is a mount of ours, else a dataset name.
fn find(target: &str) -> anyhow::Result<Target> {
    let path = mountpoint::absolute(Path::new(target));
    if let Ok(path) = &path
        && let Some(listed) = mountpoint::listed_at(path)?
    {
        return Ok(Target::Listed(listed));
    }
    if !target.starts_with(['/', '.'])
        && let Ok(dataset) = target.parse()
    {
        return Ok(Target::Dataset(dataset));
    }
    let path = path?;
    Err(Failure::not_found(format!(
        "no packstone dataset is mounted on {}",
        path.display()
    )))
}

fn unmount_listed(state: &StateDirectory, listed: &ListedMount, lazy: bool) -> anyhow::Result<Unmounted> {
    match unmount_dataset(state, &listed.dataset, lazy) {
        // No daemon of ours knows this mount: it is dead, or belongs to another state directory.
        Err(error) if kind_of(&error) == FailureKind::NotFound => {}
        outcome => return outcome,
    }
    let shown = listed.mountpoint.to_string_lossy().into_owned();
    let is_dead = mountpoint::is_dead_mount(&listed.mountpoint);
    packstone_fuse::unmount_path(&listed.mountpoint, lazy || is_dead)
        .with_context(|| format!("unmount {shown}"))?;
    Ok(Unmounted {
        dataset: listed.dataset.to_string(),
        mountpoint: shown,
        lazy: lazy && !is_dead,
        closing: false,
    })
}

fn unmount_dataset(state: &StateDirectory, dataset: &DatasetName, lazy: bool) -> anyhow::Result<Unmounted> {
    let Some(client) = Client::connect(state, &dataset.pool)? else {
        return Err(Failure::not_found(format!(
            "{dataset} is not mounted: no daemon has pool '{}' open",
            dataset.pool
        )));
    };
    let unmounted: Unmounted = client.delete(&format!("/mounts/{}?lazy={lazy}", dataset.dataset))?;
    if unmounted.closing {
        let progress = spinner(format!("closing pool '{}'", dataset.pool));
        let free = PoolLock::wait_until_free(state, &dataset.pool, CLOSING_PATIENCE);
        progress.finish_and_clear();
        if !free? {
            return Err(Failure::busy(format!(
                "{dataset} is unmounted, but its daemon is still closing the pool; see {}",
                state.log_path(&dataset.pool).display()
            )));
        }
    }
    Ok(unmounted)
}
