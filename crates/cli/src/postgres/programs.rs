//! Finds PostgreSQL's programs: where Debian puts them, then along `PATH`.

use crate::failure::Failure;
use std::fs;
use std::path::{Path, PathBuf};

/// Debian's directory, with one directory a major version in it.
const DEBIAN_DIRECTORY: &str = "/usr/lib/postgresql";

/// The directory with `initdb`, `pg_ctl` and `postgres` of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// Holds `initdb`.
    pub directory: PathBuf,
}

impl Programs {
    /// One of the programs.
    pub fn path(&self, program: &str) -> PathBuf {
        self.directory.join(program)
    }
}

/// Programs of this major version, or of the newest there is.
pub fn find(version: Option<u32>) -> anyhow::Result<Programs> {
    find_in(Path::new(DEBIAN_DIRECTORY), std::env::var_os("PATH"), version)
}

fn find_in(
    debian: &Path,
    search_path: Option<std::ffi::OsString>,
    version: Option<u32>,
) -> anyhow::Result<Programs> {
    if let Some(version) = version {
        return in_directory(debian.join(version.to_string()).join("bin")).ok_or_else(|| {
            Failure::not_found(format!("PostgreSQL {version} is not installed: there is no {}/{version}/bin/initdb; run 'apt install postgresql-{version}'", debian.display()))
        });
    }
    let mut versions: Vec<u32> = fs::read_dir(debian)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable();
    let newest = versions
        .iter()
        .rev()
        .find_map(|version| in_directory(debian.join(version.to_string()).join("bin")));
    let along_path = || std::env::split_paths(search_path.as_ref()?).find_map(in_directory);
    newest.or_else(along_path).ok_or_else(|| {
        Failure::not_found("PostgreSQL is not installed: no initdb was found; run 'apt install postgresql' (Debian's package brings the newest version it has)")
    })
}

/// Links are followed, for the programs beside `initdb` are needed too.
fn in_directory(directory: PathBuf) -> Option<Programs> {
    let program = fs::canonicalize(directory.join("initdb")).ok()?;
    Some(Programs {
        directory: program.parent()?.to_path_buf(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_debian_version_first_then_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        let install = |bin: &Path| {
            fs::create_dir_all(bin).unwrap();
            fs::write(bin.join("initdb"), b"").unwrap();
        };
        let debian = root.join("debian");
        let elsewhere = root.join("bin");
        let search_path = Some(elsewhere.clone().into_os_string());
        assert!(find_in(&debian, search_path.clone(), None).is_err());
        install(&elsewhere);
        assert_eq!(
            find_in(&debian, search_path.clone(), None).unwrap().directory,
            elsewhere
        );
        install(&debian.join("9/bin"));
        install(&debian.join("15/bin"));
        // A version whose programs were removed leaves its directory behind.
        fs::create_dir_all(debian.join("17/bin")).unwrap();
        assert_eq!(
            find_in(&debian, search_path.clone(), None).unwrap().directory,
            debian.join("15/bin")
        );
        assert_eq!(
            find_in(&debian, search_path.clone(), Some(9)).unwrap().directory,
            debian.join("9/bin")
        );
        assert!(find_in(&debian, search_path, Some(17)).is_err());
    }
}
