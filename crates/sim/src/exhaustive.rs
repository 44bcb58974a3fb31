//! Short scripts, crashed at every call of the device with every subset of the sectors that were not flushed.

/// What to explore.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {}

/// Explores; true when every state kept its promises.
pub fn run(_options: &Options) -> anyhow::Result<bool> {
    anyhow::bail!("not there yet")
}
