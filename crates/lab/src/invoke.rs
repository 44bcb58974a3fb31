//! Running the programs that make storage (mkfs, losetup, packstone), with errors that show what they said.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::interrupt;

/// Runs `command` to its end and returns its standard output; a failure shows the command and what it said.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    // In a process group of its own, and named as one to be spared: an interrupt must not leave storage half made.
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    let spared = interrupt::Spared::new(child.id() as i32);
    let output = child
        .wait_with_output()
        .with_context(|| format!("cannot wait for {}", shown(command)))?;
    drop(spared);
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let (errors, said) = (
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout),
    );
    bail!(
        "{}: {}\n{}{}",
        shown(command),
        output.status,
        errors.trim(),
        said.trim()
    )
}

/// The command as it would be typed, without quotes.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    words.join(" ")
}

/// Finds `name` on the search path, or where only root's search path leads.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

/// A command that runs `name`, which has to be installed.
pub(crate) fn program(name: &str) -> Result<Command> {
    let path = find_program(name)
        .with_context(|| format!("the program {name} is missing: install {}", package_of(name)))?;
    Ok(Command::new(path))
}

/// Which package of Debian holds a program.
pub(crate) fn package_of(program: &str) -> &str {
    match program {
        "mkfs.ext4" => "e2fsprogs",
        "mkfs.xfs" => "xfsprogs",
        "mkfs.btrfs" => "btrfs-progs",
        "zfs" | "zpool" => "zfsutils-linux, and the kernel's module zfs",
        "losetup" | "blkid" | "mount" | "umount" | "wipefs" => "util-linux",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_shows_command_and_what_it_said() {
        let error = run(Command::new("sh").args(["-c", "echo trouble >&2; exit 3"])).expect_err("a failure");
        let message = error.to_string();
        assert!(
            message.contains("trouble") && message.contains("sh -c"),
            "{message}"
        );
        assert!(program("no-such-program-anywhere").is_err());
    }
}
