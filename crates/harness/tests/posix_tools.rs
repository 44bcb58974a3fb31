//! Programs that people use every day, run on a mount: git, tar, rsync, and plain files in numbers.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use packstone_harness::events::Draw;
use packstone_harness::fixture::{self, Mounted};
use packstone_harness::{process, requirements};

/// Runs `script` with `arguments` as `$1` and so on; stops at the first command that fails.
fn shell(script: &str, arguments: &[&Path]) -> Result<String> {
    process::run(Command::new("sh").args(["-euc", script, "sh"]).args(arguments))
}

fn needs(test: &str, program: &str) -> bool {
    let missing = requirements::program(program)
        .is_none()
        .then(|| format!("{program} is not installed"));
    fixture::can_mount(test) && fixture::runs(test, missing)
}

/// A small tree with most kinds of entries, made on the machine's own file system.
fn make_tree(root: &Path) -> Result<()> {
    let mut draw = Draw::new(11);
    for directory in 0..12 {
        let path = root.join(format!("directory {directory}/inside"));
        fs::create_dir_all(&path)?;
        for file in 0..25 {
            let length = draw.below(40_000) as usize;
            let text: Vec<u8> = (0..length)
                .map(|index| b'a' + ((index / 7 + file) % 26) as u8)
                .collect();
            fs::write(path.join(format!("file {file}")), text)?;
        }
        symlink("inside/file 3", path.with_file_name("link"))?;
        fs::hard_link(path.join("file 1"), path.join("second name of file 1"))?;
    }
    let mut sparse = File::create(root.join("sparse"))?;
    sparse.seek(SeekFrom::Start(3 << 20))?;
    sparse.write_all(b"end")?;
    shell(
        "mkfifo $1/pipe; chmod 640 \"$1/directory 1/inside/file 2\"; touch -d '2001-02-03 04:05:06.789' $1/sparse",
        &[root],
    )?;
    Ok(())
}

#[test]
fn git_works_on_a_mount() -> Result<()> {
    if !needs("git_works_on_a_mount", "git") {
        return Ok(());
    }
    let mounted = Mounted::new("512M")?;
    let (origin, clone) = (mounted.path("origin"), mounted.path("clone"));
    fs::create_dir(&origin)?;
    make_tree(&origin)?;
    // A configuration of its own: what this user has set up must not matter.
    let script = "export HOME=$3 GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org
        export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
        rm $1/pipe
        git init -q $1 && cd $1 && git add -A && git commit -qm first
        echo more > more && git add more && git commit -qm second
        git gc -q && git fsck --strict
        git clone -q --no-local $1 $2 && cd $2 && git fsck --strict && git status --porcelain && git log --oneline | wc -l";
    let said = shell(script, &[&origin, &clone, &mounted.home])?;
    ensure!(
        said.trim() == "2",
        "a clean clone has two commits and no change, git said: {said}"
    );
    mounted.remount()?;
    shell(
        "export HOME=$2; cd $1; git -c safe.directory='*' fsck --strict",
        &[&clone, &mounted.home],
    )?;
    mounted.finish()
}

#[test]
fn tar_and_rsync_bring_back_the_same_tree() -> Result<()> {
    let name = "tar_and_rsync_bring_back_the_same_tree";
    if !needs(name, "tar") || !needs(name, "rsync") {
        return Ok(());
    }
    let mounted = Mounted::new("512M")?;
    let original = mounted.home.join("original");
    fs::create_dir(&original)?;
    make_tree(&original)?;
    let (by_tar, by_rsync) = (mounted.path("by tar"), mounted.path("by rsync"));
    shell(
        "mkdir \"$2\"; tar -C \"$1\" -cSf - . | tar -C \"$2\" -xpSf -",
        &[&original, &by_tar],
    )?;
    shell("rsync -aHSX \"$1/\" \"$2/\"", &[&original, &by_rsync])?;
    mounted.remount()?;
    for copy in [&by_tar, &by_rsync] {
        let differences = shell("rsync -aHcni --delete \"$1/\" \"$2/\"", &[&original, copy])?;
        ensure!(
            differences.is_empty(),
            "{} differs:\n{differences}",
            copy.display()
        );
        let sparse = fs::metadata(copy.join("sparse"))?;
        ensure!(
            sparse.len() == (3 << 20) + 3 && sparse.blocks() * 512 < 1 << 20,
            "the hole is not a hole"
        );
    }
    mounted.finish()
}

#[test]
fn directory_of_many_files_lists_each_once() -> Result<()> {
    if !fixture::can_mount("directory_of_many_files_lists_each_once") {
        return Ok(());
    }
    const FILES: usize = 20_000;
    let mounted = Mounted::new("512M")?;
    let many = mounted.path("many");
    fs::create_dir(&many)?;
    for number in 0..FILES {
        fs::write(many.join(format!("file-{number:06}")), number.to_string())?;
    }
    let names = |path: &Path| -> Result<HashSet<String>> {
        let mut names = HashSet::new();
        for entry in fs::read_dir(path)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            ensure!(names.insert(name.clone()), "{name} is listed twice");
        }
        Ok(names)
    };
    ensure!(
        names(&many)?.len() == FILES,
        "{} of {FILES} files are listed",
        names(&many)?.len()
    );
    // Deleting while listing must not skip any of the others.
    let mut kept = 0;
    for (index, entry) in fs::read_dir(&many)?.enumerate() {
        if index % 2 == 0 {
            fs::remove_file(entry?.path())?;
        } else {
            kept += 1;
        }
    }
    ensure!(
        kept == FILES / 2,
        "{kept} files were listed and kept while deleting"
    );
    mounted.remount()?;
    let names = names(&many)?;
    ensure!(names.len() == FILES / 2, "{} files are left", names.len());
    for name in names.iter().take(500) {
        let number: usize = fs::read_to_string(many.join(name))?.parse()?;
        ensure!(*name == format!("file-{number:06}"), "{name} holds {number}");
    }
    fs::remove_dir_all(&many)?;
    mounted.finish()
}

/// Replacing a file by a rename is seen whole or not at all, also after the daemon was killed.
#[test]
fn replacing_by_rename_survives_a_kill() -> Result<()> {
    if !fixture::can_mount("replacing_by_rename_survives_a_kill") {
        return Ok(());
    }
    let mounted = Mounted::new("512M")?;
    let (current, new) = (mounted.path("current"), mounted.path("new"));
    let content = |round: u32| format!("round {round}\n").repeat(2_000);
    let mut synced = 0;
    for kill in 0..3 {
        for round in synced + 1..synced + 60 {
            let mut file = File::create(&new)?;
            file.write_all(content(round).as_bytes())?;
            file.sync_all()?;
            drop(file);
            fs::rename(&new, &current)?;
        }
        File::open(&mounted.mountpoint)?.sync_all()?;
        synced += 59;
        // One more that nobody waited for: before or after it, but never a mixture.
        fs::write(&new, content(synced + 1))?;
        fs::rename(&new, &current)?;
        mounted.pool.kill_daemon()?;
        mounted.recover()?;
        let found = fs::read_to_string(&current).with_context(|| format!("after kill {kill}"))?;
        let whole = found == content(synced) || found == content(synced + 1);
        ensure!(
            whole,
            "after kill {kill}: {} bytes beginning {:?}",
            found.len(),
            found.lines().next()
        );
    }
    mounted.finish()
}

#[test]
fn synced_writes_survive_a_kill() -> Result<()> {
    if !fixture::can_mount("synced_writes_survive_a_kill") {
        return Ok(());
    }
    let mounted = Mounted::new("512M")?;
    let mut draw = Draw::new(fixture::seed());
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(mounted.path("file"))?;
    let mut expected = vec![0_u8; 4 << 20];
    file.set_len(expected.len() as u64)?;
    for _ in 0..300 {
        let start = draw.below(expected.len() as u64 - 70_000) as usize;
        let length = 1 + draw.below(70_000) as usize;
        let value = draw.bits() as u8;
        expected[start..start + length].fill(value);
        file.write_all_at(&expected[start..start + length], start as u64)?;
    }
    file.sync_data()?;
    mounted.pool.kill_daemon()?;
    drop(file);
    mounted.recover()?;
    let found = fs::read(mounted.path("file"))?;
    let difference = found
        .iter()
        .zip(&expected)
        .position(|(found, expected)| found != expected);
    ensure!(
        found.len() == expected.len() && difference.is_none(),
        "the file differs from byte {difference:?} on"
    );
    mounted.finish()
}
