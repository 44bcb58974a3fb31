//! `packstone import`: registers a pool that is already on a member, under the name in its label.

use crate::failure::{Failure, FailureKind};
use crate::member;
use crate::names::PoolName;
use crate::output::{emit_facts, format_bytes};
use crate::state::{MemberEntry, PoolEntry, StateDirectory, hexadecimal};
use anyhow::Context;
use packstone_media::Access;
use packstone_pool::{ErrorKind, LabelSummary};
use serde::Serialize;
use std::path::PathBuf;

/// What `import` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone import /srv/tank.pack
  packstone import /dev/vdb

Nothing is written to the member. A pool that is registered already under another path gets the new path.")]
pub struct Arguments {
    /// File or block device that holds a pool
    member: PathBuf,
    /// Print facts as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Imported {
    pool: String,
    pool_id: String,
    format_version: u32,
    capacity_bytes: u64,
    path: String,
}

/// Registers the pool.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let path = member::absolute_path(&arguments.member)?;
    let media = member::open(&path, Access::ReadOnly)?;
    let label = read_label(&media, &path)?;
    let pool: PoolName = label.pool_name.parse().map_err(|error: anyhow::Error| {
        Failure::error(
            FailureKind::Unsupported,
            format!(
                "the pool on {} has a name this version does not take: {error}",
                path.display()
            ),
        )
    })?;
    if label.member_count != 1 {
        return Err(Failure::error(
            FailureKind::Unsupported,
            format!(
                "{} is member {} of {} of pool '{pool}'; this version works with one member",
                path.display(),
                label.member_index,
                label.member_count
            ),
        ));
    }
    let pool_id = hexadecimal(&label.pool_id);
    let state = StateDirectory::locate()?;
    if let Some(entry) = state.find_entry(&pool)?
        && entry.pool_id != pool_id
    {
        return Err(Failure::refused(format!(
            "another pool named '{pool}' is registered, on {}; it must be destroyed before this one can be imported",
            entry.members[0].path.display()
        )));
    }
    let entry = PoolEntry {
        name: pool.to_string(),
        pool_id,
        members: vec![MemberEntry {
            path: path.clone(),
            created_file: false,
            lossy: None,
        }],
    };
    state.write_entry(&entry)?;
    let imported = Imported {
        pool: entry.name,
        pool_id: entry.pool_id,
        format_version: label.format_version,
        capacity_bytes: label.capacity_bytes,
        path: path.to_string_lossy().into_owned(),
    };
    emit_facts(arguments.json, &imported, |imported| {
        format!(
            "registered pool '{}' of {} on {}\n",
            imported.pool,
            format_bytes(imported.capacity_bytes),
            imported.path
        )
    })
}

fn read_label(
    media: &std::sync::Arc<dyn packstone_media::Media>,
    path: &std::path::Path,
) -> anyhow::Result<LabelSummary> {
    packstone_pool::read_label(media)
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                Failure::not_found(format!("{} does not hold a packstone pool", path.display()))
            }
            ErrorKind::Unsupported => anyhow::Error::new(error).context(format!(
                "{} was written by a newer packstone than this one ({}); use that version",
                path.display(),
                env!("CARGO_PKG_VERSION")
            )),
            _ => anyhow::Error::new(error),
        })
        .with_context(|| format!("import {}", path.display()))
}
