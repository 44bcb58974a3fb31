//! `packstone postgres create`: a dataset with the right properties, mounted, with a PostgreSQL cluster on it.
//!
//! Checks what can be checked (programs, user, dataset, mountpoint) before it makes anything. A dataset or mount that
//! exists already is used as it is, so the command can be repeated after a failure.

use crate::access::PoolAccess;
use crate::dataset_properties;
use crate::facts::DatasetStatus;
use crate::failure::{Failure, FailureKind, kind_of};
use crate::mountpoint;
use crate::names::{DatasetName, parse_size};
use crate::output::{emit_facts, spinner};
use crate::postgres::{self, ClusterOptions, Owner};
use crate::state::StateDirectory;
use packstone_media::Access;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A PostgreSQL page, which must lie in one record.
const PAGE_BYTES: u64 = 8192;

/// What `postgres` takes.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:
  packstone postgres create tank/pg /mnt/pg",
    disable_help_subcommand = true
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a cluster: dataset, mount, initdb, settings
    #[command(after_help = "Examples:
  packstone postgres create tank/pg /mnt/pg
  packstone postgres create tank/pg /mnt/pg --version 15 --port 5433
  packstone postgres create tank/pg /mnt/pg --user alice --compression zstd-3

The data directory (PGDATA) is MOUNTPOINT/data. The dataset is created unless it exists, and mounted unless it is.
Settings that differ on Packstone are in PGDATA/packstone.conf, each with its reason. The server is not started.")]
    Create(CreateArguments),
}

#[derive(clap::Args)]
struct CreateArguments {
    /// POOL/NAME
    dataset: DatasetName,
    /// An empty directory, or where the dataset is mounted already; created if missing
    mountpoint: PathBuf,
    /// Major version of PostgreSQL; the newest installed when left out
    #[arg(long, value_name = "N")]
    version: Option<u32>,
    /// Owner of the cluster [default: postgres, or yourself if you are not root]
    #[arg(long)]
    user: Option<String>,
    /// Port of the server [default: 5432]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Record size of the dataset, at least 8K
    #[arg(long, default_value = "8K")]
    recordsize: String,
    /// Compression of the dataset
    #[arg(long, default_value = "zstd-1")]
    compression: String,
    /// Locale of the cluster
    #[arg(long, default_value = "C.UTF-8")]
    locale: String,
    /// Print facts as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Created {
    dataset: String,
    mountpoint: String,
    data_directory: String,
    log_file: String,
    user: String,
    port: u16,
    socket_directory: String,
    program_directory: String,
    start_command: String,
    stop_command: String,
    connect_command: String,
}

/// Does what was asked.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Create(arguments) => create(arguments),
    }
}

fn create(arguments: &CreateArguments) -> anyhow::Result<()> {
    let properties = check_properties(arguments)?;
    let programs = postgres::find(arguments.version)?;
    let owner = choose_owner(arguments.user.as_deref())?;
    let state = StateDirectory::locate()?;
    let status = find_or_create(&state, &arguments.dataset, &properties)?;
    let mountpoint = mount(&state, arguments, &status)?;
    let options = ClusterOptions {
        mountpoint: mountpoint.clone(),
        owner,
        port: arguments.port,
        locale: arguments.locale.clone(),
    };
    let progress = spinner("initdb".to_string());
    let cluster = postgres::make(&programs, &options);
    progress.finish_and_clear();
    let cluster = cluster?;
    let shown = |path: &Path| path.to_string_lossy().into_owned();
    let prefix = match options.owner == Owner::myself() {
        true => String::new(),
        false => format!("runuser -u {} -- ", options.owner.name),
    };
    let control = format!(
        "{prefix}{} -D {}",
        shown(&programs.path("pg_ctl")),
        shown(&cluster.data_directory)
    );
    let port = arguments.port.unwrap_or(5432);
    let created = Created {
        dataset: arguments.dataset.to_string(),
        mountpoint: shown(&mountpoint),
        data_directory: shown(&cluster.data_directory),
        log_file: shown(&cluster.log_file),
        start_command: format!("{control} -l {} start", shown(&cluster.log_file)),
        stop_command: format!("{control} stop"),
        connect_command: format!("{prefix}psql -h {} -p {port} postgres", cluster.socket_directory),
        user: options.owner.name,
        port,
        socket_directory: cluster.socket_directory,
        program_directory: shown(&programs.directory),
    };
    emit_facts(arguments.json, &created, render)
}

fn render(created: &Created) -> String {
    format!(
        "made a PostgreSQL cluster on {}, owned by {}\n\
         data directory (PGDATA): {}\n\
         settings for Packstone:  {}/packstone.conf\n\n\
         start:    {}\n\
         connect:  {}\n\
         stop:     {}\n\
         then:     packstone unmount {}\n",
        created.dataset,
        created.user,
        created.data_directory,
        created.data_directory,
        created.start_command,
        created.connect_command,
        created.stop_command,
        created.mountpoint
    )
}

/// `full_page_writes=off` stands on records that hold a whole page.
fn check_properties(arguments: &CreateArguments) -> anyhow::Result<BTreeMap<String, String>> {
    let wanted = BTreeMap::from([
        ("recordsize".to_string(), arguments.recordsize.clone()),
        ("compression".to_string(), arguments.compression.clone()),
    ]);
    let properties = dataset_properties::validate(&wanted)?;
    if parse_size(&arguments.recordsize)? < PAGE_BYTES {
        return Err(too_small(&arguments.recordsize));
    }
    Ok(properties)
}

fn too_small(recordsize: &str) -> anyhow::Error {
    Failure::usage(format!(
        "recordsize {recordsize} is smaller than a page of PostgreSQL (8K): page writes would not be atomic; use 8K or more"
    ))
}

fn choose_owner(user: Option<&str>) -> anyhow::Result<Owner> {
    let is_root = rustix::process::geteuid().is_root();
    let owner = match user {
        None if !is_root => Owner::myself(),
        None => Owner::by_name("postgres")?,
        Some(name) => Owner::by_name(name)?,
    };
    if !is_root && owner != Owner::myself() {
        return Err(Failure::error(
            FailureKind::NotPermitted,
            format!("only root can make a cluster for another user ({})", owner.name),
        ));
    }
    Ok(owner)
}

fn find_or_create(
    state: &StateDirectory,
    dataset: &DatasetName,
    properties: &BTreeMap<String, String>,
) -> anyhow::Result<DatasetStatus> {
    let pool = PoolAccess::reach(state, &dataset.pool, Access::ReadWrite)?;
    let found = match pool.dataset(dataset) {
        Err(error) if kind_of(&error) == FailureKind::NotFound => pool.create_dataset(dataset, properties),
        found => found,
    };
    let status = pool.finish(found)?;
    if status.recordsize_bytes < PAGE_BYTES {
        return Err(too_small(&format!("{} of {dataset}", status.recordsize_bytes)));
    }
    Ok(status)
}

/// Mounts the dataset unless it is mounted there already.
fn mount(
    state: &StateDirectory,
    arguments: &CreateArguments,
    status: &DatasetStatus,
) -> anyhow::Result<PathBuf> {
    let path = &arguments.mountpoint;
    if !path.exists() && !mountpoint::is_dead_mount(path) {
        std::fs::create_dir_all(path)
            .map_err(|error| anyhow::Error::new(error).context(format!("create {}", path.display())))?;
    }
    let path = mountpoint::absolute(path)?;
    if status.mountpoint.as_deref() != path.to_str() {
        super::mount::mount_dataset(state, &arguments.dataset, &path)?;
    }
    Ok(path)
}
