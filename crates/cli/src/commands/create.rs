//! `packstone create`: a new pool in a file or on a block device.
//!
//! Order matters: everything given is checked, then what the member holds, and only then is anything written. A file
//! that this command made is removed again when a later step fails.

use crate::facts::MemberStatus;
use crate::failure::{Failure, FailureKind};
use crate::foreign;
use crate::lock::{LockMode, PoolLock};
use crate::member::{self, MemberPath};
use crate::names::{PoolName, parse_assignments, parse_size};
use crate::output::{emit_facts, format_bytes};
use crate::pool_properties;
use crate::state::{LossyMember, MemberEntry, PoolEntry, StateDirectory, hexadecimal};
use anyhow::Context;
use packstone_media::{Access, AlignedBuffer, CreateMode, FileMedia, Media};
use packstone_pool::{CreateOptions, MEMBER_BYTES_MIN, MemberContent, Pool};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Most of a new file that is written with zeros at creation; about a second on an ordinary disk.
const LOG_AREA_BYTES_MAX: u64 = 1 << 30;

/// What `create` takes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  packstone create tank /srv/tank.pack --size 20G      a file, created at that size
  packstone create tank /dev/vdb                       a whole block device
  packstone create tank /srv/tank.pack --size 20G -o memory=1G

A member that holds a file system, a partition table, another pool or unknown data is refused unless --force is given.")]
pub struct Arguments {
    /// Name of the pool
    pool: PoolName,
    /// File or block device
    member: PathBuf,
    /// Size of the file to create: bytes, or with K, M, G, T
    #[arg(long)]
    size: Option<String>,
    /// Set a pool property (memory=1G); may be repeated
    #[arg(short = 'o', long = "option", value_name = "NAME=VALUE")]
    options: Vec<String>,
    /// Overwrite whatever the member holds
    #[arg(long)]
    force: bool,
    /// For tests only: unflushed writes live in the memory of whoever has the pool open, so that killing it is a power cut.
    /// With a seed some of them reach the member early, out of order and torn
    #[arg(long, value_name = "SEED", hide = true, num_args = 0..=1, require_equals = true)]
    lossy_member: Option<Option<u64>>,
    /// Print facts as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Created {
    pool: String,
    pool_id: String,
    capacity_bytes: u64,
    members: Vec<MemberStatus>,
}

/// Creates the pool.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let size_bytes = arguments.size.as_deref().map(parse_size).transpose()?;
    let properties = pool_properties::validate(&parse_assignments(&arguments.options)?)?;
    let path = member::absolute_path(&arguments.member)?;
    let place = member::classify(&path)?;
    let size_bytes = check_size(&path, place, size_bytes)?;
    let state = StateDirectory::locate()?;
    refuse_registered(&state, &arguments.pool, &path)?;
    if place != MemberPath::Missing {
        refuse_content(&path, arguments.force)?;
    }
    let lock = PoolLock::acquire(&state, &arguments.pool, LockMode::Exclusive, Duration::ZERO)?;
    // Another `create` may have been quicker.
    refuse_registered(&state, &arguments.pool, &path)?;
    let result = write_pool(&state, arguments, &path, place, size_bytes, properties);
    drop(lock);
    let created = match result {
        Ok(created) => created,
        Err(error) => {
            // Leave no lock file behind for a pool that does not exist.
            let _ = fs::remove_file(state.lock_path(&arguments.pool));
            return Err(error);
        }
    };
    emit_facts(arguments.json, &created, |created| {
        format!(
            "created pool '{}' of {} on {}\nnext: packstone dataset create {}/NAME\n",
            created.pool,
            format_bytes(created.capacity_bytes),
            path.display(),
            created.pool
        )
    })
}

fn check_size(path: &Path, place: MemberPath, size_bytes: Option<u64>) -> anyhow::Result<u64> {
    let shown = path.display();
    let size_bytes = match (place, size_bytes) {
        (MemberPath::Missing, Some(size_bytes)) => size_bytes,
        (MemberPath::Missing, None) => {
            return Err(Failure::usage(format!(
                "{shown} does not exist: add --size to create a file of that size, for example --size 20G"
            )));
        }
        (MemberPath::File { size_bytes }, None) => size_bytes,
        (MemberPath::File { size_bytes }, Some(_)) => {
            return Err(Failure::refused(format!(
                "{shown} exists already, with {}: leave out --size to use it as it is, or name a file that does not exist",
                format_bytes(size_bytes)
            )));
        }
        (MemberPath::BlockDevice, None) => return Ok(u64::MAX),
        (MemberPath::BlockDevice, Some(_)) => {
            return Err(Failure::usage(format!(
                "{shown} is a block device, used whole: leave out --size"
            )));
        }
    };
    if size_bytes < MEMBER_BYTES_MIN {
        return Err(Failure::usage(format!(
            "{shown}: {} is too small for a pool, which needs at least {}",
            format_bytes(size_bytes),
            format_bytes(MEMBER_BYTES_MIN)
        )));
    }
    if place == MemberPath::Missing && size_bytes % 4096 != 0 {
        return Err(Failure::usage(format!(
            "{size_bytes} bytes is no multiple of 4096; choose a size that is"
        )));
    }
    Ok(size_bytes)
}

fn refuse_registered(state: &StateDirectory, pool: &PoolName, path: &Path) -> anyhow::Result<()> {
    for name in state.pools()? {
        if name == *pool {
            return Err(Failure::refused(format!(
                "a pool named '{pool}' is registered already; choose another name, or run 'packstone destroy {pool}' first"
            )));
        }
        // An entry that cannot be read is the trouble of its own pool.
        let Ok(entry) = state.entry(&name) else { continue };
        if entry.members.iter().any(|member| member.path == path) {
            return Err(Failure::refused(format!(
                "{} belongs to pool '{name}'; run 'packstone destroy {name}' first",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Says what would be overwritten. The locks of the member are taken, so a pool that is open elsewhere is busy even with
/// `--force`.
fn refuse_content(path: &Path, force: bool) -> anyhow::Result<()> {
    let media = member::open(path, Access::ReadWrite)?;
    if force {
        return Ok(());
    }
    let shown = path.display();
    let content = match packstone_pool::probe(&media) {
        Ok(MemberContent::Empty) => foreign::recognise(path)?,
        Ok(MemberContent::Pool(label)) => Some(format!("the packstone pool '{}'", label.pool_name)),
        // The table and blkid know more names than the pool does; the pool knows damaged and newer pools.
        Ok(MemberContent::Foreign(what)) => Some(foreign::recognise_format(path)?.unwrap_or(what)),
        Err(error) => Some(format!("what looks like a packstone pool ({error})")),
    };
    match content {
        None => Ok(()),
        Some(what) => Err(Failure::refused(format!(
            "{shown} holds {what}, which would be lost; add --force to overwrite it"
        ))),
    }
}

fn write_pool(
    state: &StateDirectory,
    arguments: &Arguments,
    path: &Path,
    place: MemberPath,
    size_bytes: u64,
    properties: std::collections::BTreeMap<String, String>,
) -> anyhow::Result<Created> {
    let created_file = place == MemberPath::Missing;
    let media: Arc<dyn Media> = match created_file {
        true => Arc::new(
            FileMedia::create(path, size_bytes, CreateMode::New)
                .with_context(|| format!("create {}", path.display()))?,
        ),
        false => member::open(path, Access::ReadWrite)?,
    };
    let written = match created_file {
        true => write_log_area(&media).with_context(|| format!("write {}", path.display())),
        false => Ok(()),
    };
    let result = written
        .and_then(|()| write_label_and_entry(state, arguments, path, &media, created_file, properties));
    drop(media);
    if result.is_err()
        && created_file
        && let Err(error) = fs::remove_file(path)
    {
        tracing::warn!(path = %path.display(), %error, "could not remove the file again");
    }
    result
}

/// Writes zeros over the front of a new file, where the log begins. Blocks that were only preallocated cost the host file
/// system a change of its own metadata at their first flush; the pool takes its lowest free segments first, so much of what
/// it appends later lies in blocks that were written before.
fn write_log_area(media: &Arc<dyn Media>) -> anyhow::Result<()> {
    const CHUNK_BYTES: u64 = 4 << 20;
    let area_bytes = LOG_AREA_BYTES_MAX.min(media.size_bytes() / 8) / CHUNK_BYTES * CHUNK_BYTES;
    let zeros = AlignedBuffer::zeroed(CHUNK_BYTES as usize);
    for offset_bytes in (0..area_bytes).step_by(CHUNK_BYTES as usize) {
        media.write(offset_bytes, &zeros)?;
    }
    Ok(media.flush()?)
}

fn write_label_and_entry(
    state: &StateDirectory,
    arguments: &Arguments,
    path: &Path,
    media: &Arc<dyn Media>,
    created_file: bool,
    properties: std::collections::BTreeMap<String, String>,
) -> anyhow::Result<Created> {
    let capacity_bytes = media.size_bytes();
    if capacity_bytes < MEMBER_BYTES_MIN {
        return Err(Failure::usage(format!(
            "{} has {}, too small for a pool, which needs at least {}",
            path.display(),
            format_bytes(capacity_bytes),
            format_bytes(MEMBER_BYTES_MIN)
        )));
    }
    let pool_id = random_id()?;
    let options = CreateOptions {
        name: arguments.pool.to_string(),
        pool_id,
        segment_bytes: None,
        properties,
    };
    let lossy = arguments
        .lossy_member
        .map(|write_back_seed| LossyMember { write_back_seed });
    let media = match lossy {
        Some(lossy) => member::make_lossy(media.clone(), lossy),
        None => media.clone(),
    };
    Pool::create(std::slice::from_ref(&media), &options)
        .with_context(|| format!("create pool '{}' on {}", arguments.pool, path.display()))?;
    let entry = PoolEntry {
        name: arguments.pool.to_string(),
        pool_id: hexadecimal(&pool_id),
        members: vec![MemberEntry {
            path: path.to_path_buf(),
            created_file,
            lossy,
        }],
    };
    state.write_entry(&entry)?;
    let shown = path.to_string_lossy().into_owned();
    let member = MemberStatus {
        path: shown,
        state: "online".to_string(),
        read_errors: 0,
        write_errors: 0,
        checksum_errors: 0,
    };
    Ok(Created {
        pool: entry.name,
        pool_id: entry.pool_id,
        capacity_bytes,
        members: vec![member],
    })
}

fn random_id() -> anyhow::Result<[u8; 16]> {
    let mut id = [0; 16];
    let filled = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        .context("get random bytes")?;
    match filled == id.len() {
        true => Ok(id),
        false => Err(Failure::error(
            FailureKind::Failed,
            "the kernel gave too few random bytes",
        )),
    }
}
