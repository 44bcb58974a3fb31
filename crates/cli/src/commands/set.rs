//! `packstone set`: changes properties of a pool.

use crate::access::PoolAccess;
use crate::names::{PoolName, parse_assignments};
use crate::output::emit_facts;
use crate::pool_properties;
use crate::state::StateDirectory;
use packstone_media::Access;

/// What `set` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone set tank memory=1G

Properties:
  memory   budget of the daemon for caches and write buffers (default 512M, at least 16M)

Properties of datasets are set by 'packstone dataset set'.")]
pub struct Arguments {
    /// Name of the pool
    pool: PoolName,
    /// What to change
    #[arg(required = true, value_name = "NAME=VALUE")]
    changes: Vec<String>,
    /// Print facts as JSON
    #[arg(long)]
    json: bool,
}

/// Changes the properties.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let changes = pool_properties::validate(&parse_assignments(&arguments.changes)?)?;
    let pool = PoolAccess::reach(&StateDirectory::locate()?, &arguments.pool, Access::ReadWrite)?;
    let is_open = matches!(pool, PoolAccess::Daemon(_));
    let properties = pool.set_pool_properties(&changes);
    let properties = pool.finish(properties)?;
    emit_facts(arguments.json, &properties, |_| match is_open {
        true => "set; the change takes effect when the pool is opened next\n".to_string(),
        false => String::new(),
    })
}
