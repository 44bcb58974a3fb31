//! One process has a pool open at a time: `flock` on `tank.lock`.
//!
//! The daemon and every command that may change the pool hold it exclusively; commands that only read share it. The file
//! holds one line, `PID COMMAND LINE`, of the newest holder, so that a second process can name the first. The kernel drops the
//! lock with the process, however it dies; the file itself means nothing when it is not locked.

use crate::failure::Failure;
use crate::names::PoolName;
use crate::state::StateDirectory;
use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest holder line kept.
const HOLDER_BYTES_MAX: usize = 400;
/// How often a waiting process tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Who else may hold the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Other readers.
    Shared,
    /// Nobody.
    Exclusive,
}

/// The lock, held until dropped.
#[derive(Debug)]
pub struct PoolLock {
    _file: File,
}

impl PoolLock {
    /// Takes the lock, or says who holds it: `Ok(Err("1234 packstone daemon tank"))`.
    pub fn try_acquire(
        state: &StateDirectory,
        pool: &PoolName,
        mode: LockMode,
    ) -> anyhow::Result<Result<PoolLock, String>> {
        state.ensure()?;
        let path = state.lock_path(pool);
        loop {
            let file = open_lock_file(&path).with_context(|| format!("open {}", path.display()))?;
            let operation = match mode {
                LockMode::Shared => FlockOperation::NonBlockingLockShared,
                LockMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
            };
            match flock(&file, operation) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Err(read_holder(&file))),
                Err(error) => {
                    return Err(io::Error::from(error)).with_context(|| format!("lock {}", path.display()));
                }
            }
            // `destroy` removes the file while it holds the lock: a lock on a removed file keeps nobody out.
            if !is_still_at(&file, &path) {
                continue;
            }
            write_holder(&file).with_context(|| format!("write {}", path.display()))?;
            return Ok(Ok(PoolLock { _file: file }));
        }
    }

    /// Takes the lock, waiting at most `patience` for short commands to finish; the error names the holder.
    pub fn acquire(
        state: &StateDirectory,
        pool: &PoolName,
        mode: LockMode,
        patience: Duration,
    ) -> anyhow::Result<PoolLock> {
        let deadline = Instant::now() + patience;
        loop {
            match PoolLock::try_acquire(state, pool, mode)? {
                Ok(lock) => return Ok(lock),
                Err(holder) if Instant::now() >= deadline => return Err(busy(pool, &holder)),
                Err(_) => std::thread::sleep(RETRY_INTERVAL),
            }
        }
    }

    /// Waits until nobody holds the lock exclusively; false when that takes longer than `patience`.
    pub fn wait_until_free(
        state: &StateDirectory,
        pool: &PoolName,
        patience: Duration,
    ) -> anyhow::Result<bool> {
        let deadline = Instant::now() + patience;
        loop {
            let path = state.lock_path(pool);
            let Ok(file) = File::open(&path) else {
                return Ok(true);
            };
            if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }
}

/// The error a second process gets.
pub fn busy(pool: &PoolName, holder: &str) -> anyhow::Error {
    let (process_id, command) = holder.split_once(' ').unwrap_or((holder, ""));
    match process_id.is_empty() {
        true => Failure::busy(format!("pool '{pool}' is open in another process")),
        false => Failure::busy(format!(
            "pool '{pool}' is open in process {process_id} ({command}); only one process can have it open. \
             Unmount its datasets, or wait until that command is done"
        )),
    }
}

fn open_lock_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(held), Ok(named)) => held.ino() == named.ino() && held.dev() == named.dev(),
        _ => false,
    }
}

fn write_holder(file: &File) -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let mut line = format!("{} {}", std::process::id(), arguments.join(" ")).replace(['\n', '\0'], " ");
    let mut cut = line.len().min(HOLDER_BYTES_MAX);
    while !line.is_char_boundary(cut) {
        cut -= 1;
    }
    line.truncate(cut);
    line.push('\n');
    file.set_len(0)?;
    file.write_all_at(line.as_bytes(), 0)
}

fn read_holder(file: &File) -> String {
    let mut buffer = [0; HOLDER_BYTES_MAX + 1];
    let length = file.read_at(&mut buffer, 0).unwrap_or(0);
    String::from_utf8_lossy(&buffer[..length])
        .lines()
        .next()
        .unwrap_or_default()
        .trim()
        .to_string()
}
