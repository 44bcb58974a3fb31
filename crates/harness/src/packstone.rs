//! A pool in a file, driven through the `packstone` command as a user would drive it.
//!
//! Each [`Pool`] has a state directory of its own. That keeps it apart from the pools of the machine, and it is how its
//! daemon is told from other daemons: by the state directory in the environment the daemon inherited.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::process::{self, User};
use crate::requirements;
use crate::scratch::Cleanup;

/// Environment variable that names the state directory.
pub const STATE_DIRECTORY_VARIABLE: &str = "PACKSTONE_STATE_DIR";

/// How long a daemon may take to end after the last unmount; it writes a checkpoint first.
const DAEMON_END_LIMIT: Duration = Duration::from_secs(60);

/// What `packstone status --json` says, as far as it is used here.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    /// Bytes of the pool's members that can hold segments.
    pub capacity_bytes: u64,
    /// Bytes of segments that are not free.
    pub allocated_bytes: u64,
    /// Bytes of records that something still refers to.
    pub live_bytes: u64,
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Bytes of the files, as their programs wrote them.
    pub logical_bytes: u64,
    /// Bytes of packed records and their index.
    pub stored_bytes: u64,
    /// Bytes written to the members since the pool was opened, by purpose.
    pub media_written_bytes: MediaWritten,
}

/// Bytes written to media by purpose, in the order in which `packstone status` gives them.
#[derive(Clone, Debug, Default)]
pub struct MediaWritten {
    /// Purpose and bytes.
    pub by_purpose: Vec<(String, u64)>,
    /// Bytes in total.
    pub total_bytes: u64,
}

impl<'de> Deserialize<'de> for MediaWritten {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if let Some(total_bytes) = value.as_u64() {
            return Ok(MediaWritten {
                by_purpose: Vec::new(),
                total_bytes,
            });
        }
        let named = value
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, count)| Some((name.clone(), count.as_u64()?)));
        let (totals, by_purpose): (Vec<_>, Vec<_>) = named.partition(|(name, _)| name == "total");
        let sum = by_purpose.iter().map(|(_, count)| count).sum();
        Ok(MediaWritten {
            by_purpose,
            total_bytes: totals.first().map_or(sum, |(_, count)| *count),
        })
    }
}

/// What a killed daemon leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// All that it wrote: the kernel and the device live on.
    Plain,
    /// What it flushed, as after a power cut; with a seed also some of the rest, out of order and torn.
    Lossy(Option<u64>),
}

/// A pool in a file, with the directory that holds its state.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Name of the pool.
    pub name: String,
    /// The file that is its only member.
    pub member: PathBuf,
    program: PathBuf,
    state_directory: PathBuf,
    user: Option<User>,
}

impl Pool {
    /// A pool called `name` whose member and state lie in `directory`. Nothing is created yet.
    pub fn new(name: &str, directory: &Path) -> Result<Pool> {
        Ok(Pool {
            name: name.to_owned(),
            member: directory.join(format!("{name}.pack")),
            program: requirements::packstone_program()?,
            state_directory: directory.join("state"),
            user: None,
        })
    }

    /// The same pool, driven by another user, with a program that this user can reach.
    pub fn driven_by(mut self, user: &User, program: &Path) -> Pool {
        self.user = Some(user.clone());
        self.program = program.to_owned();
        self
    }

    /// The directory with the pool's state file and its daemon's socket.
    pub fn state_directory(&self) -> &Path {
        &self.state_directory
    }

    /// Path of the program, for messages that tell a user what to type.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A `packstone` command on this pool's state directory, ready for arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env(STATE_DIRECTORY_VARIABLE, &self.state_directory);
        if let Some(user) = &self.user {
            user.apply(&mut command);
        }
        command
    }

    /// Runs `packstone` with `arguments`; an error shows what it said.
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String> {
        process::run(self.command().args(arguments))
    }

    /// Runs `packstone` with `arguments`, whatever its exit status is.
    pub fn output<S: AsRef<std::ffi::OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<Output> {
        process::output(self.command().args(arguments))
    }

    /// `packstone create`, with `cleanup` undoing it.
    pub fn create(&self, size: &str, cleanup: &Cleanup) -> Result<()> {
        self.create_on(size, Member::Plain, cleanup)
    }

    /// As [`Pool::create`], with a member of that kind.
    pub fn create_on(&self, size: &str, member: Member, cleanup: &Cleanup) -> Result<()> {
        let pool = self.clone();
        cleanup.push(format!("destroy pool {}", self.name), move || pool.remove());
        let mut arguments = vec![
            "create".to_owned(),
            self.name.clone(),
            self.member.to_string_lossy().into_owned(),
            "--size".to_owned(),
            size.to_owned(),
        ];
        match member {
            Member::Plain => {}
            Member::Lossy(None) => arguments.push("--lossy-member".to_owned()),
            Member::Lossy(Some(seed)) => arguments.push(format!("--lossy-member={seed}")),
        }
        self.run(arguments)?;
        Ok(())
    }

    /// Full name of the dataset `name`.
    pub fn dataset(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }

    /// `packstone dataset create` with `properties` such as `recordsize=8K`.
    pub fn create_dataset(&self, name: &str, properties: &[&str]) -> Result<()> {
        let mut arguments = vec!["dataset".to_owned(), "create".to_owned(), self.dataset(name)];
        for property in properties {
            arguments.extend(["-o".to_owned(), (*property).to_owned()]);
        }
        self.run(arguments)?;
        Ok(())
    }

    /// `packstone mount`, with `cleanup` undoing it.
    pub fn mount(&self, dataset: &str, mountpoint: &Path, cleanup: &Cleanup) -> Result<()> {
        std::fs::create_dir_all(mountpoint)
            .with_context(|| format!("cannot create {}", mountpoint.display()))?;
        self.unmount_on(mountpoint, cleanup);
        self.mount_again(dataset, mountpoint)
    }

    /// `packstone mount` on a mount point whose clean-up is registered already.
    pub fn mount_again(&self, dataset: &str, mountpoint: &Path) -> Result<()> {
        self.run(["mount", &self.dataset(dataset), &mountpoint.to_string_lossy()])?;
        if !is_mounted(mountpoint) {
            bail!(
                "packstone mount returned, but nothing is mounted on {}",
                mountpoint.display()
            );
        }
        Ok(())
    }

    /// `packstone postgres create`; returns the directory that holds the cluster.
    pub fn create_postgres(&self, dataset: &str, mountpoint: &Path, cleanup: &Cleanup) -> Result<PathBuf> {
        std::fs::create_dir_all(mountpoint)
            .with_context(|| format!("cannot create {}", mountpoint.display()))?;
        self.unmount_on(mountpoint, cleanup);
        self.run([
            "postgres",
            "create",
            &self.dataset(dataset),
            &mountpoint.to_string_lossy(),
        ])?;
        find_data_directory(mountpoint)
    }

    fn unmount_on(&self, mountpoint: &Path, cleanup: &Cleanup) {
        let (pool, path) = (self.clone(), mountpoint.to_owned());
        cleanup.push(format!("unmount {}", mountpoint.display()), move || {
            if !is_mounted(&path) {
                return Ok(());
            }
            pool.unmount(&path).or_else(|error| {
                detach(&path)?;
                Err(error)
            })
        });
    }

    /// `packstone unmount` of the pool's only mount, then waits until its daemon is gone.
    pub fn unmount(&self, mountpoint: &Path) -> Result<()> {
        // Noted before: a process that is ending cannot be recognised any more, but still holds the member.
        let daemons = self.daemon_pids();
        self.run(["unmount", &mountpoint.to_string_lossy()])?;
        process::wait_until(DAEMON_END_LIMIT, "the unmount", || !is_mounted(mountpoint))?;
        process::wait_ended(&daemons, DAEMON_END_LIMIT)
    }

    /// Waits until no process has the pool open.
    pub fn wait_closed(&self) -> Result<()> {
        process::wait_until(DAEMON_END_LIMIT, "the pool's daemon to end", || {
            self.daemon_pids().is_empty()
        })
    }

    /// `packstone status --json`.
    pub fn status(&self) -> Result<Status> {
        let text = self.run(["status", &self.name, "--json"])?;
        serde_json::from_str(&text).with_context(|| format!("cannot understand the status: {text}"))
    }

    /// `packstone check` on the closed pool; an error shows what it found.
    pub fn check(&self) -> Result<()> {
        self.wait_closed()?;
        self.run(["check", &self.name])?;
        Ok(())
    }

    /// Processes that run the `packstone` program for this pool's state directory: its daemon.
    pub fn daemon_pids(&self) -> Vec<i32> {
        let program = std::fs::canonicalize(&self.program).unwrap_or_else(|_| self.program.clone());
        let is_ours = |pid: &i32| {
            process::executable(*pid).is_some_and(|path| path == program)
                && process::has_environment(*pid, STATE_DIRECTORY_VARIABLE, &self.state_directory)
                && process::is_running(*pid)
        };
        process::all_pids().into_iter().filter(is_ours).collect()
    }

    /// The one daemon of this pool.
    pub fn daemon_pid(&self) -> Result<i32> {
        match self.daemon_pids().as_slice() {
            [pid] => Ok(*pid),
            [] => bail!("pool {} has no daemon", self.name),
            several => bail!("pool {} has several processes: {several:?}", self.name),
        }
    }

    /// Ends the daemon at once, as a crash would.
    pub fn kill_daemon(&self) -> Result<()> {
        let pid = self.daemon_pid()?;
        process::kill_hard(pid);
        process::wait_ended(&[pid], DAEMON_END_LIMIT)
    }

    /// Destroys the pool, and removes its files when the command could not.
    fn remove(&self) -> Result<()> {
        if self.wait_closed().is_err() {
            for pid in self.daemon_pids() {
                process::kill_hard(pid);
            }
        }
        if self.state_directory.exists() && self.member.exists() {
            // A pool that was never finished cannot be destroyed; its files go with the scratch directory.
            let _ = self.output(["destroy", &self.name, "--force"]);
        }
        Ok(())
    }
}

/// True when something is mounted exactly on `path`, be its daemon alive or dead.
pub fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    // Resolving the last component would ask the daemon, which may be dead.
    let parent = path
        .parent()
        .and_then(|parent| std::fs::canonicalize(parent).ok());
    let full = match (parent, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    };
    mounts.lines().any(|line| line.split(' ').nth(1) == full.to_str())
}

/// Takes a mount out of the tree at once, even when its daemon is dead or files are open.
pub fn detach(path: &Path) -> Result<()> {
    let mut command = if process::is_root() {
        let mut command = Command::new("umount");
        command.args(["-l", "--"]);
        command
    } else {
        let mut command = Command::new("fusermount3");
        command.args(["-u", "-z", "--"]);
        command
    };
    process::run(command.arg(path))?;
    Ok(())
}

/// The cluster is the mount itself or a directory in it.
fn find_data_directory(mountpoint: &Path) -> Result<PathBuf> {
    let entries =
        std::fs::read_dir(mountpoint).with_context(|| format!("cannot read {}", mountpoint.display()))?;
    let inside = entries.flatten().map(|entry| entry.path());
    let mut candidates = std::iter::once(mountpoint.to_owned()).chain(inside);
    candidates
        .find(|directory| directory.join("PG_VERSION").is_file() && directory.join("global").is_dir())
        .with_context(|| format!("there is no PostgreSQL cluster on {}", mountpoint.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_written_is_read_with_and_without_a_total() {
        let with: MediaWritten =
            serde_json::from_str(r#"{"data": 5, "nodes": 2, "total": 9}"#).expect("an object");
        assert_eq!(with.total_bytes, 9);
        assert_eq!(with.by_purpose.len(), 2);
        let without: MediaWritten = serde_json::from_str(r#"{"data": 5, "nodes": 2}"#).expect("an object");
        assert_eq!(without.total_bytes, 7);
        let plain: MediaWritten = serde_json::from_str("12").expect("a number");
        assert_eq!(plain.total_bytes, 12);
    }

    #[test]
    fn root_directory_is_mounted_and_a_new_one_is_not() {
        assert!(is_mounted(Path::new("/proc")));
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert!(!is_mounted(directory.path()));
    }

    #[test]
    fn data_directory_is_found_on_the_mount_or_one_below() {
        let mount = tempfile::tempdir().expect("a temporary directory");
        assert!(find_data_directory(mount.path()).is_err());
        let inside = mount.path().join("data");
        std::fs::create_dir_all(inside.join("global")).expect("a directory");
        std::fs::write(inside.join("PG_VERSION"), "15").expect("a file");
        assert_eq!(find_data_directory(mount.path()).ok(), Some(inside));
    }
}
