//! `packstone status`: how a pool is doing, from its daemon or, when none runs, from the media.

use crate::access::PoolAccess;
use crate::facts::PoolStatus;
use crate::names::PoolName;
use crate::output::{emit, emit_json};
use crate::state::StateDirectory;
use packstone_media::Access;

/// What `status` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone status              every registered pool
  packstone status tank
  packstone status tank --json | jq .compression_ratio

With --json and a pool, one object; without a pool, a list. The fields are described in docs/cli.md.")]
pub struct Arguments {
    /// Name of the pool; all of them when left out
    pool: Option<PoolName>,
    /// Print facts as JSON
    #[arg(long)]
    json: bool,
}

/// Shows the status.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let state = StateDirectory::locate()?;
    if let Some(name) = &arguments.pool {
        let status = status_of(&state, name)?;
        return match arguments.json {
            true => emit_json(&status),
            false => emit(&status.render()),
        };
    }
    let names = state.pools()?;
    if names.is_empty() && !arguments.json {
        return emit(&format!(
            "no pool is registered in {}; 'packstone create' makes one\n",
            state.path().display()
        ));
    }
    let statuses = names
        .iter()
        .map(|name| status_of(&state, name))
        .collect::<anyhow::Result<Vec<_>>>()?;
    match arguments.json {
        true => emit_json(&statuses),
        false => emit(
            &statuses
                .iter()
                .map(PoolStatus::render)
                .collect::<Vec<_>>()
                .join("\n"),
        ),
    }
}

fn status_of(state: &StateDirectory, name: &PoolName) -> anyhow::Result<PoolStatus> {
    let pool = PoolAccess::reach(state, name, Access::ReadOnly)?;
    let status = pool.status();
    pool.finish(status)
}
