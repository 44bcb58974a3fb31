//! What workloads and end-to-end tests need from the machine, and saying so when it is not there.
//!
//! A test that cannot run is never silent: [`skip`] writes a line to standard error past the capture of the test
//! framework, and the runner of the tests counts these lines.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process;

/// How a line begins that says a test was skipped; the test's name and the reason follow.
pub const SKIP_PREFIX: &str = "SKIPPED ";

/// Directory of the newest PostgreSQL server on this machine (initdb, postgres, pg_ctl, pgbench). `PG_BIN` overrides.
pub fn postgres_programs() -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os("PG_BIN") {
        return Ok(directory.into());
    }
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                entry.path().join("bin"),
            ))
        })
        .filter(|(_, directory)| directory.join("initdb").exists() && directory.join("pgbench").exists())
        .collect();
    found.sort();
    let newest = found.pop().map(|(_, directory)| directory);
    newest.context("PostgreSQL is not installed (scripts/setup.sh installs it)")
}

/// The `packstone` program beside this one in the build directory. `PACKSTONE_BIN` overrides.
pub fn packstone_program() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("PACKSTONE_BIN") {
        return Ok(program.into());
    }
    let own = std::env::current_exe().context("the path of this program is unknown")?;
    // A test lies in target/PROFILE/deps, the harness in target/PROFILE.
    let mut places = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join("packstone"));
    places
        .find(|path| path.is_file())
        .context("the packstone program is not built: cargo build --workspace --bins")
}

/// Why nothing can be mounted here, if that is so.
pub fn missing_for_mounts() -> Option<String> {
    if !Path::new("/dev/fuse").exists() {
        return Some("/dev/fuse is missing".to_owned());
    }
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    if let Err(error) = opened {
        return Some(format!("/dev/fuse cannot be opened: {error}"));
    }
    if !process::is_root() && program("fusermount3").is_none() {
        return Some("fusermount3 is not installed, and this user is not root".to_owned());
    }
    None
}

/// Why no PostgreSQL cluster can be run here, if that is so.
pub fn missing_for_postgres() -> Option<String> {
    if let Err(error) = postgres_programs() {
        return Some(error.to_string());
    }
    process::User::for_postgres().err().map(|error| error.to_string())
}

/// Finds `name` on the search path.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

/// Says that the test `name` does not run, and why, where nobody can overlook it.
pub fn skip(name: &str, reason: &str) {
    // Not `eprintln!`: the test framework hides that when the test passes.
    let line = format!("\n{SKIP_PREFIX}{name}: {reason}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
