//! The commands, one file each, and the table that `clap` reads.

mod check;
mod create;
mod daemon;
mod dataset;
mod destroy;
mod estimate;
mod get;
mod import;
mod inspect;
mod lab;
mod mount;
mod postgres;
mod set;
mod status;
mod unmount;

use crate::failure::EXIT_CODES;
use clap::{Parser, Subcommand};

/// The command line.
#[derive(Parser)]
#[command(
    name = "packstone",
    version,
    about = "A compressed, checksummed, crash-safe storage pool, used through a mount",
    long_about = "A compressed, checksummed, crash-safe storage pool in a file or on a block device, used through a mount.\n\n\
        Pools are found by name in a state directory: /var/lib/packstone for root, else $XDG_STATE_HOME/packstone \
        (~/.local/state/packstone). PACKSTONE_STATE_DIR overrides it. RUST_LOG chooses what is logged.",
    after_long_help = after_help(),
    disable_help_subcommand = true,
    arg_required_else_help = true
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

fn after_help() -> String {
    format!(
        "Examples:
  packstone create tank /srv/tank.pack --size 20G
  packstone dataset create tank/pg -o recordsize=8K -o compression=zstd-1
  packstone mount tank/pg /mnt/pg
  packstone status tank
  packstone unmount /mnt/pg

{EXIT_CODES}"
    )
}

/// Every command.
#[derive(Subcommand)]
pub enum Command {
    /// Create a pool in a file or on a block device
    Create(create::Arguments),
    /// Register a pool that is already on a member
    Import(import::Arguments),
    /// Destroy a pool and everything in it
    Destroy(destroy::Arguments),
    /// Create, list, change and destroy datasets
    Dataset(dataset::Arguments),
    /// Show properties of a pool
    Get(get::Arguments),
    /// Change properties of a pool
    Set(set::Arguments),
    /// Mount a dataset
    Mount(mount::Arguments),
    /// Unmount a dataset
    Unmount(unmount::Arguments),
    /// Show how a pool is doing
    Status(status::Arguments),
    /// Verify every structure and every checksum of a pool that is not open
    Check(check::Arguments),
    /// Print structures as they are on the media
    Inspect(inspect::Arguments),
    /// Show what a directory would take, reading only
    Estimate(estimate::Arguments),
    /// Make PostgreSQL clusters on datasets
    Postgres(postgres::Arguments),
    /// Compare kinds of storage by experiment
    Lab(lab::Arguments),
    /// Have a pool open (started by mount)
    #[command(hide = true)]
    Daemon(daemon::Arguments),
}

impl Command {
    /// Does it.
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            Command::Create(arguments) => create::run(arguments),
            Command::Import(arguments) => import::run(arguments),
            Command::Destroy(arguments) => destroy::run(arguments),
            Command::Dataset(arguments) => dataset::run(arguments),
            Command::Get(arguments) => get::run(arguments),
            Command::Set(arguments) => set::run(arguments),
            Command::Mount(arguments) => mount::run(arguments),
            Command::Unmount(arguments) => unmount::run(arguments),
            Command::Status(arguments) => status::run(arguments),
            Command::Check(arguments) => check::run(arguments),
            Command::Inspect(arguments) => inspect::run(arguments),
            Command::Estimate(arguments) => estimate::run(arguments),
            Command::Postgres(arguments) => postgres::run(arguments),
            Command::Lab(arguments) => lab::run(arguments),
            Command::Daemon(arguments) => daemon::run(arguments),
        }
    }

    /// Whether this process will have a pool open until told to stop: it logs more.
    pub fn is_daemon(&self) -> bool {
        match self {
            Command::Daemon(_) => true,
            Command::Mount(arguments) => arguments.foreground,
            _ => false,
        }
    }
}
