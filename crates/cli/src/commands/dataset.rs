//! `packstone dataset create|list|get|set|destroy`.
//!
//! Goes through the pool's daemon when one runs, else opens the pool for the length of the command.

use crate::access::PoolAccess;
use crate::dataset_properties;
use crate::facts::{DatasetDestroyed, DatasetStatus, render_datasets};
use crate::failure::Failure;
use crate::names::{DatasetName, PoolName, parse_assignments};
use crate::output::{Table, emit_facts, format_bytes};
use crate::state::StateDirectory;
use packstone_media::Access;
use std::collections::BTreeMap;

/// What `dataset` takes.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:
  packstone dataset create tank/pg -o recordsize=8K -o compression=zstd-1
  packstone dataset list
  packstone dataset set tank/pg compression=lz4
  packstone dataset destroy tank/pg --force",
    disable_help_subcommand = true
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create an empty dataset
    #[command(after_help = "Examples:
  packstone dataset create tank/mail
  packstone dataset create tank/pg -o recordsize=8K -o compression=zstd-1")]
    Create {
        /// POOL/NAME
        dataset: DatasetName,
        /// Set a property; may be repeated
        #[arg(short = 'o', long = "option", value_name = "NAME=VALUE")]
        options: Vec<String>,
        /// Print facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// List datasets with their sizes
    #[command(after_help = "Examples:
  packstone dataset list
  packstone dataset list tank --json")]
    List {
        /// Only those of this pool
        pool: Option<PoolName>,
        /// Print facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show properties of a dataset
    #[command(after_help = "Examples:
  packstone dataset get tank/pg
  packstone dataset get tank/pg compression --json")]
    Get {
        /// POOL/NAME
        dataset: DatasetName,
        /// Only these
        properties: Vec<String>,
        /// Print facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Change properties of a dataset; they apply to what is written from then on
    #[command(after_help = "Examples:
  packstone dataset set tank/pg compression=zstd-3
  packstone dataset set tank/pg atime=off recordsize=16K")]
    Set {
        /// POOL/NAME
        dataset: DatasetName,
        /// What to change
        #[arg(required = true, value_name = "NAME=VALUE")]
        changes: Vec<String>,
        /// Print facts as JSON
        #[arg(long)]
        json: bool,
    },
    /// Destroy a dataset and every file in it
    #[command(after_help = "Examples:
  packstone dataset destroy tank/old              an empty one
  packstone dataset destroy tank/old --force      with its files")]
    Destroy {
        /// POOL/NAME
        dataset: DatasetName,
        /// Destroy its files too
        #[arg(long, visible_alias = "yes")]
        force: bool,
        /// Print facts as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Does what was asked.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let state = StateDirectory::locate()?;
    match &arguments.command {
        Command::Create {
            dataset,
            options,
            json,
        } => {
            let properties = parse_assignments(options)?;
            // Checked here too, so that a wrong property does not even open the pool.
            dataset_properties::validate(&properties)?;
            let created = with_pool(&state, &dataset.pool, Access::ReadWrite, |pool| {
                pool.create_dataset(dataset, &properties)
            })?;
            emit_facts(*json, &created, |_| {
                format!("created {dataset}\nnext: packstone mount {dataset} DIRECTORY\n")
            })
        }
        Command::List { pool, json } => {
            let datasets = list(&state, pool.as_ref())?;
            emit_facts(*json, &datasets, |datasets| render_datasets(datasets))
        }
        Command::Get {
            dataset,
            properties,
            json,
        } => {
            let status = with_pool(&state, &dataset.pool, Access::ReadOnly, |pool| {
                pool.dataset(dataset)
            })?;
            show_properties(&status, properties, *json)
        }
        Command::Set {
            dataset,
            changes,
            json,
        } => {
            let changes = dataset_properties::validate(&parse_assignments(changes)?)?;
            let status = with_pool(&state, &dataset.pool, Access::ReadWrite, |pool| {
                pool.set_dataset(dataset, &changes)
            })?;
            emit_facts(*json, &status, |status| match &status.mountpoint {
                Some(mountpoint) => format!(
                    "set; {dataset} is mounted on {mountpoint}: the change applies to what is written from now on\n"
                ),
                None => String::new(),
            })
        }
        Command::Destroy { dataset, force, json } => {
            let destroyed = with_pool(&state, &dataset.pool, Access::ReadWrite, |pool| {
                pool.destroy_dataset(dataset, *force)
            })?;
            emit_facts(*json, &destroyed, render_destroyed)
        }
    }
}

fn with_pool<T>(
    state: &StateDirectory,
    name: &PoolName,
    access: Access,
    work: impl FnOnce(&PoolAccess) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let pool = PoolAccess::reach(state, name, access)?;
    let result = work(&pool);
    pool.finish(result)
}

fn list(state: &StateDirectory, pool: Option<&PoolName>) -> anyhow::Result<Vec<DatasetStatus>> {
    let names = match pool {
        Some(name) => vec![name.clone()],
        None => state.pools()?,
    };
    let mut datasets = Vec::new();
    for name in names {
        datasets.extend(with_pool(
            state,
            &name,
            Access::ReadOnly,
            PoolAccess::list_datasets,
        )?);
    }
    Ok(datasets)
}

fn show_properties(status: &DatasetStatus, wanted: &[String], json: bool) -> anyhow::Result<()> {
    emit_facts(
        json,
        &select(&status.properties, wanted, "dataset")?,
        render_properties,
    )
}

/// Those asked for, or all.
pub fn select(
    properties: &BTreeMap<String, String>,
    wanted: &[String],
    what: &str,
) -> anyhow::Result<BTreeMap<String, String>> {
    if wanted.is_empty() {
        return Ok(properties.clone());
    }
    let find = |name: &String| match properties.get(name) {
        Some(value) => Ok((name.clone(), value.clone())),
        None => {
            let known: Vec<_> = properties.keys().map(String::as_str).collect();
            Err(Failure::usage(format!(
                "unknown {what} property '{}'; there are: {}",
                name.escape_debug(),
                known.join(", ")
            )))
        }
    };
    wanted.iter().map(find).collect()
}

/// A table of names and values.
pub fn render_properties(properties: &BTreeMap<String, String>) -> String {
    let mut table = Table::new(&["property", "value"]);
    for (name, value) in properties {
        table.row(vec![name.clone(), value.clone()]);
    }
    table.render()
}

fn render_destroyed(destroyed: &DatasetDestroyed) -> String {
    let size = format_bytes(destroyed.logical_bytes);
    match destroyed.complete {
        true => format!("destroyed {} ({size} of files)\n", destroyed.dataset),
        false => format!(
            "destroying {} ({size} of files) in the background; 'packstone dataset list' shows when it is done\n",
            destroyed.dataset
        ),
    }
}
