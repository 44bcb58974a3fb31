//! The scripts: short lives with one thing in the middle of each. What each does is in its name and its few lines.

mod files;
mod pool;

use super::life::Life;
use super::observe::Content;
use anyhow::Result;

/// A short life.
pub struct Script {
    /// Name on the command line.
    pub name: &'static str,
    /// Size of the device.
    pub size_bytes: u64,
    /// What its trees hold.
    pub content: Content,
    /// Share of the variants by chance that it gets.
    pub by_chance_of_8: u64,
    /// Brings the pool to where the script begins; closed cleanly afterwards. Crashes here are not tried.
    pub prepare: fn(&mut Life) -> Result<()>,
    /// The life whose every moment is tried.
    pub run: fn(&mut Life) -> Result<()>,
}

/// All of them.
pub fn all() -> Vec<Script> {
    pool::scripts().into_iter().chain(files::scripts()).collect()
}

fn nothing(_: &mut Life) -> Result<()> {
    Ok(())
}
