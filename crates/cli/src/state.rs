//! The state directory: where pools are found by name.
//!
//! | file | holds |
//! |---|---|
//! | `tank.json` | name, pool id and members of one registered pool |
//! | `tank.lock` | `flock`ed by whoever has the pool open; names that process |
//! | `tank.sock` | control socket of the pool's daemon, mode 0600 |
//! | `tank.log` | what the daemon logged; the one before it is `tank.log.1` |
//!
//! The directory is `PACKSTONE_STATE_DIR`, else `/var/lib/packstone` for root, else `$XDG_STATE_HOME/packstone`
//! (`~/.local/state/packstone`). Whoever can write here decides what a pool name means and can talk to the daemon, so a
//! directory that another user owns, or that group or others may enter, is refused rather than repaired.
//!
//! Nothing here is needed to read a pool: all of it can be made again with `packstone import`.

use crate::failure::{Failure, FailureKind};
use crate::names::PoolName;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A directory that has passed the ownership check (or does not exist yet).
#[derive(Clone, Debug)]
pub struct StateDirectory {
    path: PathBuf,
}

/// One registered pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolEntry {
    /// As in the label.
    pub name: String,
    /// As in the label, in hexadecimal.
    pub pool_id: String,
    /// Where the bytes are.
    pub members: Vec<MemberEntry>,
}

/// One member of a registered pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberEntry {
    /// Absolute path.
    pub path: PathBuf,
    /// `create` made this file, so `destroy` removes it.
    pub created_file: bool,
    /// Unflushed writes die with the process that has the pool open: for tests only. `import` does not know of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossy: Option<LossyMember>,
}

/// How a lossy member forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossyMember {
    /// With a seed some unflushed sectors reach the member early, out of order and torn.
    pub write_back_seed: Option<u64>,
}

impl StateDirectory {
    /// Finds the directory and checks it if it exists; creates nothing.
    pub fn locate() -> anyhow::Result<StateDirectory> {
        let path = default_path()?;
        match fs::symlink_metadata(&path) {
            Ok(metadata) => check_owner(&path, &metadata)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("look at state directory {}", path.display()));
            }
        }
        Ok(StateDirectory { path })
    }

    /// Creates the directory with mode 0700 if it is missing.
    pub fn ensure(&self) -> anyhow::Result<()> {
        let context = || format!("create state directory {}", self.path.display());
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .with_context(context)?;
        check_owner(
            &self.path,
            &fs::symlink_metadata(&self.path).with_context(context)?,
        )
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// `tank.lock`
    pub fn lock_path(&self, pool: &PoolName) -> PathBuf {
        self.path.join(format!("{pool}.lock"))
    }
    /// `tank.sock`
    pub fn socket_path(&self, pool: &PoolName) -> PathBuf {
        self.path.join(format!("{pool}.sock"))
    }
    /// `tank.log`
    pub fn log_path(&self, pool: &PoolName) -> PathBuf {
        self.path.join(format!("{pool}.log"))
    }
    fn entry_path(&self, pool: &PoolName) -> PathBuf {
        self.path.join(format!("{pool}.json"))
    }

    /// The entry of a registered pool.
    pub fn entry(&self, pool: &PoolName) -> anyhow::Result<PoolEntry> {
        self.find_entry(pool)?.ok_or_else(|| {
            Failure::not_found(format!(
                "no pool named '{pool}' is registered in {}; 'packstone create' makes one, 'packstone import MEMBER' registers one that exists",
                self.path.display()
            ))
        })
    }

    /// The entry, or `None` when no pool of that name is registered.
    pub fn find_entry(&self, pool: &PoolName) -> anyhow::Result<Option<PoolEntry>> {
        let path = self.entry_path(pool);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        let entry: PoolEntry = serde_json::from_slice(&text).map_err(|error| {
            Failure::error(
                FailureKind::Damaged,
                format!(
                    "{} cannot be understood ({error}); remove it and run 'packstone import MEMBER'",
                    path.display()
                ),
            )
        })?;
        if entry.name != pool.as_str() || entry.members.is_empty() {
            return Err(Failure::error(
                FailureKind::Damaged,
                format!(
                    "{} does not describe pool '{pool}'; remove it and run 'packstone import MEMBER'",
                    path.display()
                ),
            ));
        }
        Ok(Some(entry))
    }

    /// Names of all registered pools, sorted.
    pub fn pools(&self) -> anyhow::Result<Vec<PoolName>> {
        let directory = match fs::read_dir(&self.path) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("read {}", self.path.display())),
        };
        let mut names = Vec::new();
        for file in directory {
            let file = file.with_context(|| format!("read {}", self.path.display()))?;
            let name = file.file_name();
            if let Some(Ok(pool)) = name
                .to_str()
                .and_then(|name| name.strip_suffix(".json"))
                .map(str::parse::<PoolName>)
            {
                names.push(pool);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Writes or replaces an entry; either the old or the new one is there after a crash.
    pub fn write_entry(&self, entry: &PoolEntry) -> anyhow::Result<()> {
        let pool: PoolName = entry.name.parse()?;
        self.ensure()?;
        let path = self.entry_path(&pool);
        let temporary = self.path.join(format!(".{pool}.json.{}", std::process::id()));
        let mut text = serde_json::to_vec_pretty(entry)?;
        text.push(b'\n');
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&temporary)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().with_context(|| format!("write {}", path.display()))
    }

    /// Forgets a pool: its entry, socket and logs. The lock file stays while its holder lives; it is removed last.
    pub fn remove_entry(&self, pool: &PoolName) -> anyhow::Result<()> {
        let log = self.log_path(pool);
        let mut old_log = log.clone().into_os_string();
        old_log.push(".1");
        for path in [
            self.entry_path(pool),
            self.socket_path(pool),
            log,
            old_log.into(),
            self.lock_path(pool),
        ] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("remove {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn default_path() -> anyhow::Result<PathBuf> {
    let from_environment = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(path) = from_environment("PACKSTONE_STATE_DIR") {
        if !path.is_absolute() {
            return Err(Failure::usage(format!(
                "PACKSTONE_STATE_DIR must be an absolute path, not '{}'",
                path.display()
            )));
        }
        return Ok(path);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/packstone"));
    }
    // The XDG base directory specification says that a relative path is to be ignored.
    if let Some(path) = from_environment("XDG_STATE_HOME").filter(|path| path.is_absolute()) {
        return Ok(path.join("packstone"));
    }
    match from_environment("HOME").filter(|path| path.is_absolute()) {
        Some(home) => Ok(home.join(".local/state/packstone")),
        None => Err(Failure::usage(
            "neither PACKSTONE_STATE_DIR, XDG_STATE_HOME nor HOME says where to keep the list of pools; set one",
        )),
    }
}

fn check_owner(path: &Path, metadata: &fs::Metadata) -> anyhow::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let shown = path.display();
    if !metadata.is_dir() {
        return Err(Failure::error(
            FailureKind::NotPermitted,
            format!("state directory {shown} is not a directory"),
        ));
    }
    if metadata.uid() != user {
        return Err(Failure::error(
            FailureKind::NotPermitted,
            format!(
                "state directory {shown} belongs to user {}, not to you (user {user}); run as that user, or set PACKSTONE_STATE_DIR",
                metadata.uid()
            ),
        ));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(Failure::error(
            FailureKind::NotPermitted,
            format!(
                "state directory {shown} has mode {:04o}: others could reach your pools; run 'chmod 700 {shown}'",
                metadata.mode() & 0o7777
            ),
        ));
    }
    Ok(())
}

/// Lower-case hexadecimal, as ids are shown everywhere.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
