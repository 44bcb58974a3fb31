//! `packstone daemon`, hidden: what `mount` starts in the background. See `crate::daemon`.

use crate::daemon::{self, launch};
use crate::names::PoolName;
use crate::state::StateDirectory;

/// What `daemon` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone daemon tank      started by 'packstone mount'; reports on standard output, logs to standard error")]
pub struct Arguments {
    /// Name of the pool
    pool: PoolName,
}

/// Has the pool open until its last mount is gone.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    launch::detach();
    let mut is_reported = false;
    let state = StateDirectory::locate()?;
    let result = daemon::run(&state, &arguments.pool, None, || {
        launch::report(Ok(()));
        is_reported = true;
    });
    if let Err(error) = &result
        && !is_reported
    {
        launch::report(Err(error));
    }
    result
}
