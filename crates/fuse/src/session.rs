//! A mount's life: attach, agree with the kernel, serve with many threads, end.
//!
//! Each worker has its own line to the kernel, its own buffers and its own counters; in its loop it shares nothing with
//! the others but the file system. A mount ends when somebody unmounts it: the kernel then ends every worker's wait.
//! One more thread answers the seeks that workers must not wait for (`seeker`); it ends when they have.
//! The last thread to leave lets go of the file system and the descriptors first, and then wakes those who wait.

mod seeker;
mod worker;

use crate::mount::{self, Attachment, MountInfo};
use crate::negotiate::{Agreement, negotiate, wanted};
use crate::statistics::{RequestCounters, RequestStatistics};
use crate::transport::DevFuse;
use crate::{Error, ErrorKind, Result, notify};
use packstone_fs::{FileSystem, Ino};
use parking_lot::{Condvar, Mutex};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use worker::{LeaveSeek, Worker};

/// Read-ahead of a mount made by root, in KiB; the kernel's own is 128.
const READAHEAD_KIB: u32 = 1024;
const THREADS_MIN: usize = 4;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// An existing directory.
    pub mountpoint: PathBuf,
    /// Shown as the device of the mount: the dataset's name.
    pub source: String,
    /// Threads that serve requests; 0 chooses twice the number of processors, at least 4.
    pub threads: usize,
    /// Let users other than the one who mounts in; `None` for root only. File permissions hold in any case.
    pub allow_other: Option<bool>,
    /// Let the kernel refuse all changes.
    pub read_only: bool,
    /// Offer extended attributes and ACLs. Without them the kernel does not look for capabilities in front of a write
    /// that follows a stat(2) or an lseek(2) to the end, which a database does whenever it extends a table. Only for
    /// datasets that hold no ACLs: these would not be obeyed.
    pub extended_attributes: bool,
}

impl MountConfig {
    /// The usual configuration.
    pub fn new(mountpoint: impl Into<PathBuf>, source: impl Into<String>) -> MountConfig {
        MountConfig {
            mountpoint: mountpoint.into(),
            source: source.into(),
            threads: 0,
            allow_other: None,
            read_only: false,
            extended_attributes: true,
        }
    }

    fn thread_count(&self) -> usize {
        match self.threads {
            0 => {
                thread::available_parallelism().map_or(THREADS_MIN, |cores| THREADS_MIN.max(2 * cores.get()))
            }
            count => count,
        }
    }
}

type OnExit = Box<dyn FnOnce() + Send>;

/// What the handle and the workers share; not used while a request is served.
struct Shared {
    mountpoint: PathBuf,
    state: Mutex<State>,
    ended: Condvar,
    counters: Vec<Arc<RequestCounters>>,
}

struct State {
    threads_alive: usize,
    /// For notifications; gone with the last thread, or the kernel would wait for replies that nobody writes.
    notifier: Option<DevFuse>,
    on_exit: Vec<OnExit>,
}

/// A mounted file system. Dropping it unmounts.
pub struct Mounted {
    shared: Arc<Shared>,
}

/// Mounts `filesystem`; returns once the kernel and the daemon have agreed and requests are served.
pub fn mount(filesystem: Arc<FileSystem>, config: MountConfig) -> Result<Mounted> {
    let mountpoint = mount::prepare_mountpoint(&config.mountpoint)?;
    let device = Arc::new(mount::attach(&Attachment {
        mountpoint: &mountpoint,
        source: &config.source,
        allow_other: config.allow_other.unwrap_or_else(mount::is_root),
        read_only: config.read_only,
    })?);
    let mut first_line = DevFuse::new(device);
    let agreement = negotiate(&mut first_line, wanted(config.extended_attributes))
        .inspect_err(|_| detach_quietly(&mountpoint))?;
    if mount::is_root()
        && let Some(MountInfo { device, .. }) = mount::mounted_at(&mountpoint)
    {
        mount::raise_readahead(device, READAHEAD_KIB);
    }
    serve(
        filesystem,
        mountpoint,
        first_line,
        agreement,
        config.thread_count(),
    )
}

fn serve(
    filesystem: Arc<FileSystem>,
    mountpoint: PathBuf,
    first_line: DevFuse,
    agreement: Agreement,
    thread_count: usize,
) -> Result<Mounted> {
    let lines: Vec<DevFuse> = (0..thread_count).map(|_| first_line.clone_line()).collect();
    let shared = Arc::new(Shared {
        mountpoint,
        state: Mutex::new(State {
            threads_alive: thread_count + 1,
            notifier: Some(first_line),
            on_exit: Vec::new(),
        }),
        ended: Condvar::new(),
        counters: (0..thread_count).map(|_| Arc::default()).collect(),
    });
    let mounted = Mounted {
        shared: shared.clone(),
    };
    let (leave, jobs) = mpsc::channel();
    let files = filesystem.clone();
    let mut bodies: Vec<(String, Body)> =
        vec![("fuse-seek".into(), Box::new(move || seeker::run(files, jobs)))];
    for (index, line) in lines.into_iter().enumerate() {
        let leave_seek = leave_seek_on(&line, leave.clone());
        let counters = shared.counters[index].clone();
        let worker = Worker::new(filesystem.clone(), line, agreement, counters, leave_seek);
        bodies.push((format!("fuse-{index}"), Box::new(move || worker.run())));
    }
    let mut lasts: Vec<LastOut> = bodies
        .iter()
        .map(|_| LastOut {
            shared: shared.clone(),
        })
        .collect();
    for (name, body) in bodies {
        let last = lasts.pop();
        let started = thread::Builder::new().name(name).spawn(move || {
            body();
            drop(last);
        });
        if let Err(error) = started {
            // This one's `LastOut` is gone with its closure, those of the threads that never came to be go here.
            drop(lasts);
            return Err(Error::system("mount", "start a thread", error));
        }
    }
    Ok(mounted)
}

type Body = Box<dyn FnOnce() + Send>;

fn leave_seek_on(line: &DevFuse, jobs: mpsc::Sender<seeker::Job>) -> LeaveSeek {
    let line = line.same_line();
    Box::new(move |header, offset| {
        let line = line.same_line();
        jobs.send(seeker::Job { line, header, offset }).is_ok()
    })
}

/// Held by each thread of the mount for as long as it lives.
struct LastOut {
    shared: Arc<Shared>,
}

impl Drop for LastOut {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.threads_alive -= 1;
        if state.threads_alive > 0 {
            return;
        }
        drop(state.notifier.take());
        let callbacks = std::mem::take(&mut state.on_exit);
        drop(state);
        self.shared.ended.notify_all();
        for callback in callbacks {
            callback();
        }
    }
}

impl Mounted {
    /// Where it is mounted, absolute.
    pub fn mountpoint(&self) -> &Path {
        &self.shared.mountpoint
    }

    /// Whether requests are still served.
    pub fn is_alive(&self) -> bool {
        self.shared.state.lock().threads_alive > 0
    }

    /// Returns when the mount has ended, whoever unmounted it, and no thread uses the file system any more.
    pub fn wait(&self) {
        let mut state = self.shared.state.lock();
        while state.threads_alive > 0 {
            self.shared.ended.wait(&mut state);
        }
    }

    /// Calls `callback` when the mount has ended; at once if it has already.
    pub fn on_exit(&self, callback: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state.lock();
        if state.threads_alive > 0 {
            state.on_exit.push(Box::new(callback));
        } else {
            drop(state);
            callback();
        }
    }

    /// Unmounts and waits for the end. [`ErrorKind::Busy`] while files are open; it stays mounted then.
    pub fn unmount(&self) -> Result<()> {
        self.detach(false)?;
        self.wait();
        Ok(())
    }

    /// Takes the mount out of the tree now; it is served until the last open file is closed, which
    /// [`wait`](Self::wait) waits for.
    pub fn unmount_lazily(&self) -> Result<()> {
        self.detach(true)
    }

    fn detach(&self, lazy: bool) -> Result<()> {
        match mount::unmount_path(&self.shared.mountpoint, lazy) {
            // Somebody else was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// How many requests of which kind the kernel has sent.
    pub fn statistics(&self) -> RequestStatistics {
        RequestStatistics::sum(self.shared.counters.iter().map(Arc::as_ref))
    }

    /// Makes the kernel forget attributes and pages of an inode that was changed behind the mount.
    pub fn invalidate_inode(&self, ino: Ino) -> Result<()> {
        match self.notifier() {
            Some(mut line) => notify::invalidate_inode(&mut line, ino),
            None => Ok(()),
        }
    }

    /// Makes the kernel forget a name, or its absence, that was changed behind the mount.
    pub fn invalidate_entry(&self, parent: Ino, name: &[u8]) -> Result<()> {
        match self.notifier() {
            Some(mut line) => notify::invalidate_entry(&mut line, parent, name),
            None => Ok(()),
        }
    }

    fn notifier(&self) -> Option<DevFuse> {
        self.shared.state.lock().notifier.as_ref().map(DevFuse::same_line)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_alive() {
            detach_quietly(&self.shared.mountpoint);
        }
    }
}

/// For paths on which an error has been, or need not be, reported.
fn detach_quietly(mountpoint: &Path) {
    if let Err(error) = mount::unmount_path(mountpoint, true) {
        tracing::warn!(%error, mountpoint = %mountpoint.display(), "could not unmount");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_number_of_threads_is_enough_for_overlapping_waits() {
        assert!(MountConfig::new("/mnt", "tank/pg").thread_count() >= THREADS_MIN);
        let config = MountConfig {
            threads: 3,
            ..MountConfig::new("/mnt", "tank/pg")
        };
        assert_eq!(config.thread_count(), 3);
    }
}
