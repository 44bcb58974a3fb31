//! `rsync` there and back, of a large tree and of one with everything that a copy may lose.
//!
//! What comes back must be what went: by a comparison of our own that names path and field, and by rsync's, which reads
//! every byte on both sides. The large tree is copied to the machine's own file system first, so that nothing else can
//! change it meanwhile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Case, Effort, Outcome, Place, Suite, motley, tool, tree};

pub(super) const SUITE: Suite = Suite {
    name: "rsync",
    programs: &["rsync", "setfacl"],
    record_sizes: [&["8K"], &["8K", "128K"]],
    run,
};

const LIMIT: Duration = Duration::from_secs(1200);

/// Everything rsync can carry: hard links, ACLs, attributes, holes, owners by number, devices and fifos.
///
/// With a modify window of -1, times differ if their nanoseconds do. By default rsync takes two times of the same second
/// for equal and leaves a directory with the time at which the copy made it, so that whether the nanoseconds come over
/// depends on how long ago the original was made.
const EVERYTHING: &[&str] = &["-aHAXS", "--numeric-ids", "--modify-window=-1"];

/// Differences shown; the first few tell.
const SHOWN: usize = 20;

fn run(place: &Place, effort: Effort) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let motley = place.home.join("motley");
    std::fs::create_dir(&motley)?;
    motley::make(&motley)?;
    cases.extend(there_and_back(place, "motley tree", &motley)?);
    cases.push(made_on_the_place(place)?);
    let sources: &[&str] = effort.choose(
        &["/usr/include/linux"],
        &["/usr/include", "/usr/share/doc", "/usr/lib/git-core"],
    );
    for (number, source) in sources.iter().map(Path::new).enumerate() {
        if !source.is_dir() {
            let reason = format!("there is no {}", source.display());
            cases.push(Case::new(
                format!("{}: there", source.display()),
                Outcome::Skipped(reason),
            ));
            continue;
        }
        let still = place.home.join(format!("still-{number}"));
        copy(place, source, &still)?;
        cases.extend(there_and_back(place, &source.display().to_string(), &still)?);
    }
    Ok(cases)
}

/// `original` to the place and from there back, with the place opened anew in between.
fn there_and_back(place: &Place, name: &str, original: &Path) -> Result<Vec<Case>> {
    let there = place.root.join(format!(
        "copy-{}",
        original.file_name().unwrap_or_default().to_string_lossy()
    ));
    let back = original.with_extension("back");
    let mut cases = vec![Case::measured(format!("{name}: there"), || {
        copy(place, original, &there)?;
        same(place, original, &there)
    })];
    place.reopen()?;
    cases.push(Case::measured(
        format!("{name}: the same after opening again"),
        || same(place, original, &there),
    ));
    cases.push(Case::measured(format!("{name}: and back"), || {
        copy(place, &there, &back)?;
        same(place, original, &back)
    }));
    Ok(cases)
}

/// The tree made where it is copied, so that what the machine's own file system lacks is tried as well.
fn made_on_the_place(place: &Place) -> Result<Case> {
    let (original, second) = (
        place.directory("motley-made-here")?,
        place.root.join("motley-copied-here"),
    );
    Ok(Case::measured("motley tree: made and copied on it", || {
        motley::make(&original)?;
        place.reopen()?;
        copy(place, &original, &second)?;
        same(place, &original, &second)
    }))
}

fn copy(place: &Place, from: &Path, to: &Path) -> Result<()> {
    let mut command = tool::command("rsync")?;
    // The slash means: what is in it.
    command
        .args(EVERYTHING)
        .arg("--")
        .arg(inside(from))
        .arg(inside(to));
    tool::run(&mut command, &place.home.join("rsync.log"), LIMIT)?.well()?;
    Ok(())
}

fn inside(path: &Path) -> PathBuf {
    path.join("")
}

fn same(place: &Place, original: &Path, copy: &Path) -> Result<u64> {
    let found = tree::differences(original, copy)?;
    let shown = found.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n");
    ensure!(found.is_empty(), "{} differences:\n{shown}", found.len());
    // Names, kinds, sizes and checksums alone: everything else has been compared, and better explained, above.
    let mut command = tool::command("rsync")?;
    command.args([
        "-rlHc",
        "--devices",
        "--specials",
        "--dry-run",
        "--delete",
        "--out-format=%i %n",
        "--",
    ]);
    command.arg(inside(original)).arg(inside(copy));
    let said = tool::run(&mut command, &place.home.join("rsync-compare.log"), LIMIT)?.well()?;
    ensure!(said.trim().is_empty(), "rsync finds differences:\n{said}");
    tree::count(original)
}
