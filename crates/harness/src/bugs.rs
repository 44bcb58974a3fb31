//! Proof that the net catches: deliberate bugs, put into a copy of the sources one at a time, and which test finds each.
//!
//! A bug is a patch in `crates/harness/bugs`; the text before its first `diff` line says what it breaks. The sources are
//! copied to `target/bugs/tree` and built there, so the checkout is never touched. Every catcher runs until it fails or
//! its time is up; what is measured is the time from its start to its first complaint, without compiling.
//!
//! A patch that no longer applies is a defect of this table: a unit test tries them all against the sources.

mod catchers;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::{layout, process, render};
use catchers::{CATCHERS, Catch};

/// What to try.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Only bugs whose names contain this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Longest run of one catcher, in seconds
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Stop trying a bug once one catcher has found it
    #[arg(long)]
    first: bool,
    /// One object a bug, as JSON lines
    #[arg(long)]
    json: bool,
}

/// A deliberate bug.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bug {
    name: String,
    what: String,
    patch: PathBuf,
}

/// What became of one bug.
#[derive(Debug, Serialize)]
struct Finding {
    bug: String,
    what: String,
    catches: Vec<Catch>,
}

impl Finding {
    fn is_caught(&self) -> bool {
        self.catches.iter().any(|catch| catch.caught_by.is_some())
    }
}

/// Tries the bugs; true when each was caught by something, and nothing was "caught" in sources without a bug.
pub fn run(options: &Options) -> Result<bool> {
    let root = layout::workspace_root()?;
    let bugs: Vec<Bug> = bugs_in(&root)?
        .into_iter()
        .filter(|bug| options.only.as_ref().is_none_or(|text| bug.name.contains(text)))
        .collect();
    ensure!(!bugs.is_empty(), "no bug of that name in crates/harness/bugs");
    let tree = target_directory(&root).join("bugs/tree");
    let limit = Duration::from_secs(options.seconds);
    let mut findings = Vec::new();
    for bug in &bugs {
        eprintln!("{}: {}", bug.name, bug.what);
        copy_sources(&root, &tree)?;
        apply(&bug.patch, &tree)?;
        let finding = Finding {
            bug: bug.name.clone(),
            what: bug.what.clone(),
            catches: try_catchers(&tree, limit, options.first)?,
        };
        if options.json {
            println!("{}", serde_json::to_string(&finding)?);
        }
        findings.push(finding);
    }
    // Without this a test that always fails would look like a perfect net.
    eprintln!("no bug: the sources as they are");
    copy_sources(&root, &tree)?;
    let healthy = try_catchers(&tree, limit, false)?;
    if !options.json {
        print_table(&findings);
    }
    let false_alarms: Vec<&Catch> = healthy.iter().filter(|catch| catch.caught_by.is_some()).collect();
    for alarm in &false_alarms {
        println!("false alarm of {}: {:?}", alarm.catcher, alarm.caught_by);
    }
    let missed = findings.iter().filter(|finding| !finding.is_caught()).count();
    println!(
        "{} bugs, {missed} not caught, {} false alarms",
        findings.len(),
        false_alarms.len()
    );
    Ok(missed == 0 && false_alarms.is_empty())
}

fn try_catchers(tree: &Path, limit: Duration, first: bool) -> Result<Vec<Catch>> {
    let mut catches = Vec::new();
    for catcher in &CATCHERS {
        let catch = catcher.run(tree, limit)?;
        eprintln!("  {}", catch.in_words());
        let caught = catch.caught_by.is_some();
        catches.push(catch);
        if caught && first {
            break;
        }
    }
    Ok(catches)
}

fn print_table(findings: &[Finding]) {
    let rows: Vec<Vec<String>> = findings
        .iter()
        .flat_map(|finding| {
            finding.catches.iter().enumerate().map(|(number, catch)| {
                let bug = if number == 0 {
                    finding.bug.clone()
                } else {
                    String::new()
                };
                let seconds = catch.caught_by.as_ref().map(|_| format!("{:.1}", catch.seconds));
                vec![
                    bug,
                    catch.catcher.clone(),
                    catch.caught_by.clone().unwrap_or_else(|| "-".to_owned()),
                    seconds.unwrap_or_default(),
                ]
            })
        })
        .collect();
    println!(
        "{}",
        render::table(&["bug", "tried", "caught by", "after s"], 3, &rows)
    );
}

/// All bugs, by name.
fn bugs_in(root: &Path) -> Result<Vec<Bug>> {
    let directory = root.join("crates/harness/bugs");
    let mut bugs = Vec::new();
    for entry in
        std::fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?
    {
        let patch = entry?.path();
        if patch.extension().is_none_or(|extension| extension != "patch") {
            continue;
        }
        let text = std::fs::read_to_string(&patch)?;
        let what = text.split("\ndiff ").next().unwrap_or_default();
        let name = patch
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        ensure!(
            !what.trim().is_empty() && text.contains("\ndiff "),
            "{name}: a bug begins with what it breaks, and goes on with a diff"
        );
        bugs.push(Bug {
            name,
            what: what.split_whitespace().collect::<Vec<_>>().join(" "),
            patch,
        });
    }
    bugs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(bugs)
}

fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Brings the copy up to date; files that did not change keep their times, so that little is built anew.
fn copy_sources(root: &Path, tree: &Path) -> Result<()> {
    let listed = process::run(
        Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root),
    )?;
    for name in listed.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), tree.join(name));
        let Ok(content) = std::fs::read(&from) else {
            continue;
        };
        if std::fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        if let Some(directory) = to.parent() {
            std::fs::create_dir_all(directory)?;
        }
        std::fs::copy(&from, &to).with_context(|| format!("cannot copy {name}"))?;
        // A copy takes the time over, which would hide from the build that a bug was taken out again.
        std::fs::File::options()
            .append(true)
            .open(&to)?
            .set_modified(std::time::SystemTime::now())?;
    }
    Ok(())
}

fn apply(patch: &Path, tree: &Path) -> Result<()> {
    process::run(
        Command::new("git")
            .args(["apply", "--recount"])
            .arg(patch)
            .current_dir(tree)
            // The copy lies in a checkout, and git would look for the files there.
            .env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree)),
    )
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_still_fits_the_sources() -> Result<()> {
        let root = layout::workspace_root()?;
        let bugs = bugs_in(&root)?;
        assert!(bugs.len() >= 10, "only {} bugs", bugs.len());
        for bug in bugs {
            process::run(
                Command::new("git")
                    .args(["apply", "--check", "--recount"])
                    .arg(&bug.patch)
                    .current_dir(&root),
            )
            .with_context(|| format!("{} no longer applies: make it anew", bug.name))?;
        }
        Ok(())
    }
}
