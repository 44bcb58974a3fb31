//! Random lives from one seed, compared with a model that knows what was promised.

/// What to simulate.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {}

/// Simulates; true when every life kept its promises.
pub fn run(_options: &Options) -> anyhow::Result<bool> {
    anyhow::bail!("not there yet")
}
