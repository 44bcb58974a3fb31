//! This project itself on the mount: cloned with git, checked, and built by cargo with all build output on the mount.
//!
//! A second build must find nothing to do: cargo compares times to the nanosecond, so that a file system which rounds or
//! changes them is found out. Crates come from cargo's own store; nothing is downloaded.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Case, Effort, Outcome, Place, Suite, tool};

pub(super) const SUITE: Suite = Suite {
    name: "checkout",
    programs: &["git"],
    record_sizes: [&["8K"], &["128K"]],
    run,
};

const LIMIT: Duration = Duration::from_secs(1800);

fn run(place: &Place, effort: Effort) -> Result<Vec<Case>> {
    let source = workspace();
    if !source.join(".git").exists() {
        let reason = format!("{} is not a git repository", source.display());
        return Ok(vec![Case::new("clone", Outcome::Skipped(reason))]);
    }
    let work = place.directory("checkout")?;
    let clone = work.join("packstone");
    let mut cases = vec![Case::measured("clone", || {
        git(place, &["clone", "-q", "--no-local", "--"], &[&source, &clone])?;
        files(&clone)
    })];
    if cases[0].has_failed() {
        return Ok(cases);
    }
    cases.push(Case::measured(
        "fsck, gc and a clean status after opening again",
        || {
            place.reopen()?;
            let inside = |arguments: &[&str]| {
                let mut all = vec!["-C".to_owned(), clone.display().to_string()];
                all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
                git(place, &all.iter().map(String::as_str).collect::<Vec<_>>(), &[])
            };
            inside(&["fsck", "--strict", "--full"])?;
            inside(&["gc", "-q"])?;
            inside(&["fsck", "--strict", "--full"])?;
            let changed = inside(&["status", "--porcelain"])?;
            ensure!(changed.is_empty(), "files changed by themselves:\n{changed}");
            files(&clone)
        },
    ));
    // One with few crates below it, and one with C code, threads and a large part of the sources.
    let package = effort.choose("packstone-media", "packstone-pool");
    let command = effort.choose("check", "build");
    cases.push(Case::measured(format!("cargo {command}"), || {
        let said = cargo(place, &clone, command, package)?;
        ensure!(said.contains(package), "it built nothing:\n{said}");
        files(&clone.join("target"))
    }));
    cases.push(Case::measured(
        format!("cargo {command} again finds nothing to do"),
        || nothing_to_do(&cargo(place, &clone, command, package)?),
    ));
    cases.push(Case::measured("nor after opening again", || {
        place.reopen()?;
        nothing_to_do(&cargo(place, &clone, command, package)?)
    }));
    if effort == Effort::Full {
        cases.push(Case::measured(
            "the tests of the crate that was built there",
            || {
                let said = cargo(place, &clone, "test", "packstone-codec")?;
                ensure!(said.contains("test result: ok"), "no test ran:\n{said}");
                files(&clone.join("target"))
            },
        ));
    }
    Ok(cases)
}

/// The sources that this program was built from.
fn workspace() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_owned()
}

fn git(place: &Place, arguments: &[&str], paths: &[&Path]) -> Result<String> {
    let mut command = tool::command("git")?;
    // What this user has configured must not matter, nor who owns the directories.
    command.env("HOME", &place.home).env("GIT_CONFIG_NOSYSTEM", "1");
    // Set where this runs from a hook of git.
    for variable in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
    ] {
        command.env_remove(variable);
    }
    command.envs([
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "safe.directory"),
        ("GIT_CONFIG_VALUE_0", "*"),
    ]);
    command.args(arguments).args(paths);
    tool::run(&mut command, &place.home.join("git.log"), LIMIT)?.well()
}

fn cargo(place: &Place, clone: &Path, what: &str, package: &str) -> Result<String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args([what, "--offline", "--locked", "-p", package])
        .current_dir(clone);
    command
        .env("CARGO_TARGET_DIR", clone.join("target"))
        .env("CARGO_TERM_COLOR", "never");
    // Those are set for the program that runs this, by its own cargo.
    command
        .env_remove("CARGO_BUILD_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    tool::run(&mut command, &place.home.join("cargo.log"), LIMIT)?.well()
}

fn nothing_to_do(said: &str) -> Result<u64> {
    let busy = said.lines().find(|line| {
        let line = line.trim_start();
        line.starts_with("Compiling") || line.starts_with("Checking") || line.starts_with("Dirty")
    });
    ensure!(
        busy.is_none(),
        "cargo found something to do: {}",
        busy.unwrap_or_default()
    );
    ensure!(said.contains("Finished"), "cargo did not finish:\n{said}");
    Ok(1)
}

/// Number of files below `root`.
fn files(root: &Path) -> Result<u64> {
    let mut count = 0;
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in
            std::fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))?
        {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            }
            count += 1;
        }
    }
    Ok(count)
}
