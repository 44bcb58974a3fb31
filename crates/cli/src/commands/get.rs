//! `packstone get`: properties of a pool.

use super::dataset::{render_properties, select};
use crate::access::PoolAccess;
use crate::names::PoolName;
use crate::output::emit_facts;
use crate::state::StateDirectory;
use packstone_media::Access;

/// What `get` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone get tank
  packstone get tank memory --json

Properties of datasets are shown by 'packstone dataset get'.")]
pub struct Arguments {
    /// Name of the pool
    pool: PoolName,
    /// Only these
    properties: Vec<String>,
    /// Print facts as JSON
    #[arg(long)]
    json: bool,
}

/// Shows the properties.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let pool = PoolAccess::reach(&StateDirectory::locate()?, &arguments.pool, Access::ReadOnly)?;
    let properties = pool.pool_properties();
    let properties = pool.finish(properties)?;
    emit_facts(
        arguments.json,
        &select(&properties, &arguments.properties, "pool")?,
        render_properties,
    )
}
