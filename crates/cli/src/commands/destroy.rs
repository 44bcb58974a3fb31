//! `packstone destroy`: ends a pool. Its label is wiped, so that the member is a pool no more, and a file that `create`
//! made is removed.
//!
//! Leaves out erasing the data: on most media overwriting proves nothing. Use encryption below the pool, or the device's
//! own secure erase.

use crate::failure::Failure;
use crate::lock::{LockMode, PoolLock};
use crate::member;
use crate::names::PoolName;
use crate::open_pool::OpenPool;
use crate::operations::{self, MountTable};
use crate::output::{emit_facts, format_bytes};
use crate::state::{PoolEntry, StateDirectory};
use anyhow::Context;
use packstone_media::Access;
use serde::Serialize;
use std::fs;
use std::time::Duration;

/// What `destroy` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone destroy tank              an empty pool
  packstone destroy tank --force      with every dataset in it
  packstone destroy tank --force --keep")]
pub struct Arguments {
    /// Name of the pool
    pool: PoolName,
    /// Destroy the datasets in it too
    #[arg(long, visible_alias = "yes")]
    force: bool,
    /// Keep the member file that create made; it will hold no pool
    #[arg(long)]
    keep: bool,
    /// Print facts as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Destroyed {
    pool: String,
    removed_files: Vec<String>,
    wiped_members: Vec<String>,
    notes: Vec<String>,
}

/// Destroys the pool.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let state = StateDirectory::locate()?;
    let pool = &arguments.pool;
    let entry = state.entry(pool)?;
    let lock = PoolLock::acquire(&state, pool, LockMode::Exclusive, Duration::from_secs(2))?;
    let lock = if arguments.force {
        lock
    } else {
        refuse_full(lock, pool, &entry)?
    };
    let mut destroyed = Destroyed {
        pool: pool.to_string(),
        removed_files: vec![],
        wiped_members: vec![],
        notes: vec![],
    };
    for member in &entry.members {
        let shown = member.path.to_string_lossy().into_owned();
        if !member.path.exists() {
            destroyed.notes.push(format!("{shown} does not exist any more"));
            continue;
        }
        wipe_member(&entry, &member.path, &mut destroyed)?;
        if member.created_file && !arguments.keep {
            fs::remove_file(&member.path).with_context(|| format!("remove {shown}"))?;
            destroyed.removed_files.push(shown);
        }
    }
    state.remove_entry(pool)?;
    drop(lock);
    emit_facts(arguments.json, &destroyed, |destroyed| {
        let mut text = format!("destroyed pool '{}'\n", destroyed.pool);
        for path in &destroyed.removed_files {
            text.push_str(&format!("removed {path}, which 'packstone create' had made\n"));
        }
        for path in destroyed
            .wiped_members
            .iter()
            .filter(|path| !destroyed.removed_files.contains(path))
        {
            text.push_str(&format!("wiped the label of {path}; it holds no pool any more\n"));
        }
        for note in &destroyed.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text
    })
}

/// Without `--force` the pool must open and hold no dataset. Gives the lock back.
fn refuse_full(lock: PoolLock, pool: &PoolName, entry: &PoolEntry) -> anyhow::Result<PoolLock> {
    let open = OpenPool::open(lock, pool, entry, Access::ReadOnly)
        .with_context(|| format!("see what pool '{pool}' holds (add --force to destroy it unseen)"))?;
    let datasets = operations::list_datasets(&open.pool, pool, &MountTable::new())?;
    if datasets.is_empty() {
        return Ok(open.into_lock());
    }
    let logical_bytes = datasets.iter().map(|dataset| dataset.logical_bytes).sum();
    let names: Vec<_> = datasets.iter().map(|dataset| dataset.name.as_str()).collect();
    Err(Failure::refused(format!(
        "pool '{pool}' holds {} of files in {}, which would be lost; add --force to destroy it with everything in it",
        format_bytes(logical_bytes),
        names.join(", ")
    )))
}

/// Wipes the label, unless the member has come to belong to somebody else.
fn wipe_member(entry: &PoolEntry, path: &std::path::Path, destroyed: &mut Destroyed) -> anyhow::Result<()> {
    let media = member::open(path, Access::ReadWrite)?;
    if let Ok(label) = packstone_pool::read_label(&media)
        && crate::state::hexadecimal(&label.pool_id) != entry.pool_id
    {
        return Err(Failure::refused(format!(
            "{} now holds pool '{}', which is another one; nothing was destroyed. To forget '{}', import the other pool or remove its entry",
            path.display(),
            label.pool_name,
            entry.name
        )));
    }
    packstone_pool::wipe(&media).with_context(|| format!("wipe the label of {}", path.display()))?;
    destroyed.wiped_members.push(path.to_string_lossy().into_owned());
    Ok(())
}
