//! The machine that a run is made on, and the versions of the programs it uses.

use std::path::Path;
use std::process::Command;

use crate::experiment::{Arm, Kind};
use crate::invoke;
use crate::run_information::MachineInformation;

/// What is known of this machine; what is not is left empty.
pub(crate) fn information(arms: &[Arm], packstone: &Path) -> MachineInformation {
    let names = rustix::system::uname();
    MachineInformation {
        kernel: format!(
            "{} {} {}",
            names.sysname().to_string_lossy(),
            names.release().to_string_lossy(),
            names.machine().to_string_lossy()
        ),
        processors: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
        memory_bytes: memory_bytes(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        program_versions: program_versions(arms, packstone),
    }
}

fn memory_bytes(meminfo: &str) -> u64 {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

fn program_versions(arms: &[Arm], packstone: &Path) -> Vec<(String, String)> {
    let mut versions = Vec::new();
    let mut add = |name: &str, command: Option<Command>, argument: &str| {
        let Some(mut command) = command else { return };
        if let Ok(output) = command.arg(argument).output() {
            // mke2fs says its version where others say errors.
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            if let Some(line) = said.lines().find(|line| !line.trim().is_empty()) {
                let version = line.trim().trim_start_matches(name).trim();
                versions.push((name.to_owned(), version.to_owned()));
            }
        }
    };
    let has = |kind: Kind| arms.iter().any(|arm| arm.kind == kind);
    if has(Kind::Packstone) {
        add("packstone", Some(Command::new(packstone)), "--version");
    }
    for (kind, program) in [
        (Kind::Ext4, "mkfs.ext4"),
        (Kind::Xfs, "mkfs.xfs"),
        (Kind::Btrfs, "mkfs.btrfs"),
        (Kind::Zfs, "zfs"),
    ] {
        if has(kind) {
            add(
                program,
                invoke::program(program).ok(),
                if kind == Kind::Zfs { "version" } else { "-V" },
            );
        }
    }
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known() {
        let information = information(&[], Path::new("/nowhere"));
        assert!(information.kernel.starts_with("Linux "), "{information:?}");
        assert!(information.processors > 0 && information.memory_bytes > 1 << 20);
        assert_eq!(memory_bytes("MemFree: 1 kB\nMemTotal:   2048 kB\n"), 2 << 20);
    }
}
