//! Makes the cluster: directories, `initdb` as its owner, settings.
//!
//! What this made is taken away again when `initdb` fails, so that the next attempt starts afresh. An existing data
//! directory is never touched.

use super::programs::Programs;
use super::settings;
use crate::failure::{Failure, FailureKind};
use anyhow::Context;
use std::ffi::{CStr, CString};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where servers listen unless told otherwise (as Debian builds them).
const SOCKET_DIRECTORY: &str = "/var/run/postgresql";
/// Where they listen when that directory is not theirs.
const SOCKET_DIRECTORY_OTHERWISE: &str = "/tmp";

/// The user who will own and run the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
}

/// What to make.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The mounted dataset.
    pub mountpoint: PathBuf,
    /// Owner of all files.
    pub owner: Owner,
    /// TCP port and name of the socket; `None`: the server's default.
    pub port: Option<u16>,
    /// As for `initdb --locale`.
    pub locale: String,
}

/// What was made.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// PGDATA.
    pub data_directory: PathBuf,
    /// For `pg_ctl -l`.
    pub log_file: PathBuf,
    /// Where the server will have its socket.
    pub socket_directory: String,
}

impl Owner {
    /// Looks a user up by name.
    pub fn by_name(name: &str) -> anyhow::Result<Owner> {
        let query = CString::new(name).map_err(|_| Failure::usage("a user name cannot hold a NUL"))?;
        // SAFETY: `query` ends with a NUL. The result points to static memory that the next call may overwrite: it is copied
        // before any other call, and no other thread of this command asks for users.
        let found = unsafe {
            libc::getpwnam(query.as_ptr())
                .as_ref()
                .map(|entry| (entry.pw_uid, entry.pw_gid))
        };
        match found {
            Some((0, _)) => Err(Failure::usage(
                "PostgreSQL refuses to run as root; name another user with --user",
            )),
            Some((uid, gid)) => Ok(Owner {
                name: name.to_string(),
                uid,
                gid,
            }),
            None => Err(Failure::not_found(format!(
                "there is no user '{}'; the Debian package 'postgresql' creates the user 'postgres'",
                name.escape_debug()
            ))),
        }
    }

    /// The user who runs this command.
    pub fn myself() -> Owner {
        let uid = rustix::process::geteuid().as_raw();
        // SAFETY: as above; `pw_name` is a NUL-terminated string of the same static memory, and copied at once.
        let name = unsafe {
            libc::getpwuid(uid)
                .as_ref()
                .map(|entry| CStr::from_ptr(entry.pw_name).to_string_lossy().into_owned())
        };
        Owner {
            name: name.unwrap_or_else(|| uid.to_string()),
            uid,
            gid: rustix::process::getegid().as_raw(),
        }
    }
}

/// PGDATA of a mountpoint.
pub fn data_directory(mountpoint: &Path) -> PathBuf {
    mountpoint.join("data")
}

/// Makes the cluster on a mounted dataset.
pub fn make(programs: &Programs, options: &ClusterOptions) -> anyhow::Result<Cluster> {
    let data_directory = data_directory(&options.mountpoint);
    let log_directory = options.mountpoint.join("log");
    if data_directory.exists() {
        return Err(Failure::refused(format!(
            "{} exists already; a cluster is only made where there is none",
            data_directory.display()
        )));
    }
    make_directory(&log_directory, &options.owner)?;
    make_directory(&data_directory, &options.owner)?;
    let socket_directory = choose_socket_directory(&options.owner);
    let made = run_initdb(programs, options, &data_directory)
        .and_then(|()| write_settings(options, &data_directory, socket_directory));
    if let Err(error) = made {
        if let Err(error) = fs::remove_dir_all(&data_directory) {
            tracing::warn!(path = %data_directory.display(), %error, "could not remove the unfinished cluster");
        }
        return Err(error);
    }
    Ok(Cluster {
        data_directory,
        log_file: log_directory.join("postgresql.log"),
        socket_directory: socket_directory.to_string(),
    })
}

fn make_directory(path: &Path, owner: &Owner) -> anyhow::Result<()> {
    if !path.exists() {
        DirBuilder::new()
            .mode(0o700)
            .create(path)
            .with_context(|| format!("create {}", path.display()))?;
    }
    give_to(path, owner)
}

fn give_to(path: &Path, owner: &Owner) -> anyhow::Result<()> {
    let metadata = fs::metadata(path).with_context(|| format!("look at {}", path.display()))?;
    if (metadata.uid(), metadata.gid()) == (owner.uid, owner.gid) {
        return Ok(());
    }
    std::os::unix::fs::chown(path, Some(owner.uid), Some(owner.gid))
        .with_context(|| format!("give {} to {}", path.display(), owner.name))
}

fn run_initdb(programs: &Programs, options: &ClusterOptions, data_directory: &Path) -> anyhow::Result<()> {
    let program = programs.path("initdb");
    let mut command = Command::new(&program);
    command
        .arg("-D")
        .arg(data_directory)
        .args([
            "--data-checksums",
            "--encoding=UTF8",
            "--auth-local=peer",
            "--auth-host=scram-sha-256",
            "--no-instructions",
        ])
        .arg(format!("--locale={}", options.locale))
        .arg(format!("--username={}", options.owner.name))
        // A directory that any user may stand in: initdb goes back to where it started.
        .current_dir("/")
        .env_remove("PGDATA");
    if rustix::process::geteuid().is_root() {
        become_user(&mut command, &options.owner)?;
    }
    let output = command
        .output()
        .with_context(|| format!("run {}", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(Failure::error(
        FailureKind::Failed,
        format!("initdb failed ({}):\n{}", output.status, text.trim_end()),
    ))
}

/// The child gets the user's ids and groups, so that group permissions (of TLS keys, say) hold for it.
fn become_user(command: &mut Command, owner: &Owner) -> anyhow::Result<()> {
    let name =
        CString::new(owner.name.as_str()).map_err(|_| Failure::usage("a user name cannot hold a NUL"))?;
    let (uid, gid) = (owner.uid, owner.gid);
    let mut groups: Vec<libc::gid_t> = vec![0; 1024];
    let mut count = groups.len() as libc::c_int;
    // SAFETY: `name` ends with a NUL and `groups` has room for `count` entries.
    let found = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
    match found {
        0.. => groups.truncate(usize::try_from(count).unwrap_or(0)),
        _ => groups = vec![gid],
    }
    let change = move || {
        // SAFETY: system calls on plain integers and a vector made before the fork; nothing is allocated here.
        let failed = unsafe {
            libc::setgroups(groups.len(), groups.as_ptr()) != 0
                || libc::setgid(gid) != 0
                || libc::setuid(uid) != 0
        };
        if failed {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(())
        }
    };
    // SAFETY: the closure calls only async-signal-safe functions.
    unsafe { command.pre_exec(change) };
    Ok(())
}

fn write_settings(
    options: &ClusterOptions,
    data_directory: &Path,
    socket_directory: &str,
) -> anyhow::Result<()> {
    let other_socket = (socket_directory != SOCKET_DIRECTORY).then_some(socket_directory);
    let path = data_directory.join(settings::FILE_NAME);
    let context = || format!("write {}", path.display());
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .with_context(context)?;
    file.write_all(settings::render(options.port, other_socket).as_bytes())
        .with_context(context)?;
    file.sync_all().with_context(context)?;
    give_to(&path, &options.owner)?;
    let path = data_directory.join("postgresql.conf");
    let context = || format!("add to {}", path.display());
    let mut file = OpenOptions::new()
        .append(true)
        .open(&path)
        .with_context(context)?;
    file.write_all(settings::include_line().as_bytes())
        .with_context(context)?;
    file.sync_all().with_context(context)
}

fn choose_socket_directory(owner: &Owner) -> &'static str {
    let usable = fs::metadata(SOCKET_DIRECTORY).is_ok_and(|metadata| {
        metadata.uid() == owner.uid
            || (metadata.gid() == owner.gid && metadata.mode() & 0o020 != 0)
            || metadata.mode() & 0o002 != 0
    });
    if usable {
        SOCKET_DIRECTORY
    } else {
        SOCKET_DIRECTORY_OTHERWISE
    }
}
