//! `pjdfstest`: what POSIX says of errno, permissions and times of every call on names.
//!
//! Two runs: everything but remounts, then only the cases for EROFS, which remount the file system read-only and so must
//! not follow cases that leave unlinked files open. The users are two that every Debian has. Remounts go past the helper
//! `mount.fuse3`, which knows only programs of libfuse.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Case, Effort, Outcome, Place, Suite, tool};
use crate::{process, requirements};

pub(super) const SUITE: Suite = Suite {
    name: "pjdfstest",
    programs: &["pjdfstest"],
    record_sizes: [&["8K"], &["8K", "128K"]],
    run,
};

const LIMIT: Duration = Duration::from_secs(300);

/// Pauses between changes whose times must differ: above the tick of the coarsest kernel, 10 ms.
const PAUSE_S: f64 = 0.02;

fn run(place: &Place, _effort: Effort) -> Result<Vec<Case>> {
    let mut cases = run_once(place, "all", false, &[])?;
    // Where the root is a directory on the machine's own file system, that one would be remounted.
    if process::is_root() && place.is_own_mount() {
        // It may be open no more after a run in which a case leaked a descriptor of an unlinked file.
        let only_remounts = run_once(place, "remounts", true, &["erofs"])?;
        cases.retain(|case| only_remounts.iter().all(|other| other.name != case.name));
        cases.extend(only_remounts);
    }
    Ok(cases)
}

fn run_once(place: &Place, name: &str, remounts: bool, patterns: &[&str]) -> Result<Vec<Case>> {
    let work = place.directory(&format!("pjdfstest-{name}"))?;
    // Sockets two directories down must fit into the 108 bytes of an address, wherever the place lies. Not for remounts,
    // which look for the mount point in the path.
    let short = short_name(&work)?;
    let path = if remounts { &work } else { &short.link };
    let elsewhere = place.home.join(format!("elsewhere-{name}"));
    std::fs::create_dir(&elsewhere)?;
    let configuration = place.home.join(format!("{name}.toml"));
    std::fs::write(&configuration, configure(remounts)).context("cannot write the configuration")?;
    let mut command = tool::command("pjdfstest")?;
    command.env("PATH", with_plain_mount(&place.home.join(format!("bin-{name}")))?);
    command.arg("-c").arg(&configuration).arg("-p").arg(path);
    // Cases for EXDEV want a second file system.
    command.arg("-s").arg(&elsewhere).arg("--").args(patterns);
    let ended = tool::run(&mut command, &place.home.join(format!("{name}.log")), LIMIT)?;
    let cases = parse(&ended.output);
    // It ends with an error when a case failed, which its own line says; without any case it did not run.
    if cases.is_empty() {
        ended.well()?;
        anyhow::bail!("it ran no case");
    }
    Ok(cases)
}

/// A symlink with a short path.
struct ShortName {
    link: PathBuf,
    _directory: tempfile::TempDir,
}

fn short_name(target: &Path) -> Result<ShortName> {
    let directory = tempfile::Builder::new()
        .prefix("p")
        .tempdir_in("/tmp")
        .context("cannot create a directory")?;
    // Other users come through here.
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))?;
    let link = directory.path().join("w");
    std::os::unix::fs::symlink(target, &link)?;
    Ok(ShortName {
        link,
        _directory: directory,
    })
}

/// All features that Linux has. `utimensat` includes times after 2038.
fn configure(remounts: bool) -> String {
    format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutimensat = {{}}\nutime_now = {{}}\n\
         stat_st_birthtime = {{}}\n[settings]\nnaptime = {PAUSE_S}\nallow_remount = {remounts}\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"bin\", \"bin\"]]\n"
    )
}

/// A search path with a `mount` in front that calls no helper.
fn with_plain_mount(directory: &Path) -> Result<std::ffi::OsString> {
    std::fs::create_dir(directory)?;
    let mount = requirements::program("mount").unwrap_or_else(|| PathBuf::from("/usr/bin/mount"));
    let script = directory.join("mount");
    std::fs::write(
        &script,
        format!("#!/bin/sh\nexec {} -i \"$@\"\n", mount.display()),
    )?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    let others = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(directory.to_owned()).chain(std::env::split_paths(&others));
    Ok(std::env::join_paths(all)?)
}

/// Lines of cases are `NAME ok`, `NAME FAILED` or `NAME skipped`; lines that begin with a tab say why.
fn parse(output: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in output.lines() {
        if let Some(outcome) = outcome_of(line) {
            let name = line.split_whitespace().next().unwrap_or_default();
            cases.push(Case::new(name, outcome));
        } else if let (Some(detail), Some(case)) = (line.strip_prefix('\t'), cases.last_mut())
            && let Outcome::Failed(said) | Outcome::Skipped(said) = &mut case.outcome
        {
            said.push_str(detail);
            said.push('\n');
        }
    }
    cases
}

fn outcome_of(line: &str) -> Option<Outcome> {
    let mut words = line.split_whitespace();
    let (name, word, end) = (words.next()?, words.next()?, words.next());
    if line.starts_with(char::is_whitespace) || !name.contains("::") || end.is_some() {
        return None;
    }
    match word {
        "ok" => Some(Outcome::Passed),
        "FAILED" => Some(Outcome::Failed(String::new())),
        "skipped" => Some(Outcome::Skipped(String::new())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_with_their_reasons() {
        let output = "unlink::enoent                                 ok
rename::exdev_target                     skipped
\tNo secondary file-system has been configured.
open::etxtbsy                                     FAILED
\tassertion `left == right` failed
  left: Ok(3)
   4: core::ops::function::FnOnce::call_once

Summary: 1 failed, 1 skipped, 1 passed, 0 expected failures, 3 total
";
        let cases = parse(output);
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["unlink::enoent", "rename::exdev_target", "open::etxtbsy"]);
        assert_eq!(cases[0].outcome, Outcome::Passed);
        assert!(matches!(&cases[1].outcome, Outcome::Skipped(why) if why.contains("secondary")));
        assert!(matches!(&cases[2].outcome, Outcome::Failed(said) if said.contains("left == right")));
    }
}
