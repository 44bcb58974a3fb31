//! A mount's life: attach, agree with the kernel, serve with many threads, end.
//!
//! Each worker has its own line to the kernel, its own buffers and its own counters; in its loop it shares nothing with
//! the others but the file system. A mount ends when somebody unmounts it: the kernel then ends every worker's wait.
//! With the device one more thread answers the seeks that workers must not wait for (`seeker`); it ends when they have.
//! With io_uring (`rings`) one worker stays at the device, for what the kernel still sends there.
//! The last thread to leave lets go of the file system and the descriptors first, and then wakes those who wait.

mod choice;
mod rings;
mod seeker;
mod threads;
mod worker;

pub use choice::{TransportChoice, TransportInUse, UnknownTransport};

use crate::abi::init;
use crate::mount::{self, Attachment, MountInfo};
use crate::negotiate::{Agreement, negotiate, wanted};
use crate::statistics::RequestStatistics;
use crate::transport::{DevFuse, DeviceLine, is_offered, refuse};
use crate::{Error, ErrorKind, Result, notify};
use packstone_fs::{FileSystem, Ino};
use rings::{Plan, Prepared, Rings};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use threads::Shared;
use worker::{LeaveSeek, Seeks, Worker};

/// Read-ahead of a mount made by root, in KiB; the kernel's own is 128. Two of the largest requests, so that one is served
/// while the program takes the other.
const READAHEAD_KIB: u32 = 2048;
const THREADS_MIN: usize = 4;

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// An existing directory.
    pub mountpoint: PathBuf,
    /// Shown as the device of the mount: the dataset's name.
    pub source: String,
    /// Threads that serve requests. 0 chooses: twice the number of processors, at least 4, with the device; 2 to 4 a
    /// processor with io_uring, which needs at least one for each processor.
    pub threads: usize,
    /// How requests are to come.
    pub transport: TransportChoice,
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
            transport: TransportChoice::Auto,
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

/// A mounted file system. Dropping it unmounts.
pub struct Mounted {
    shared: Arc<Shared>,
    transport: TransportInUse,
}

/// Mounts `filesystem`; returns once the kernel and the daemon have agreed and requests are served.
///
/// [`ErrorKind::Unsupported`] when [`TransportChoice::IoUring`] is asked for and cannot be had; with
/// [`TransportChoice::Auto`] the device is used then.
pub fn mount(filesystem: Arc<FileSystem>, config: MountConfig) -> Result<Mounted> {
    let plan = match config.transport {
        TransportChoice::Device => None,
        TransportChoice::Auto if !is_offered() => None,
        TransportChoice::Auto | TransportChoice::IoUring => Some(Plan::new(config.threads)),
    };
    mount_by_plan(filesystem, &config, plan)
}

fn mount_by_plan(
    filesystem: Arc<FileSystem>,
    config: &MountConfig,
    plan: Option<io::Result<Plan>>,
) -> Result<Mounted> {
    let mountpoint = mount::prepare_mountpoint(&config.mountpoint)?;
    let prepared = match plan.map(|plan| Prepared::new(plan?)) {
        Some(Err(error)) if config.transport == TransportChoice::IoUring => {
            return Err(Error::system("mount", "prepare io_uring", error));
        }
        Some(Err(error)) => {
            tracing::warn!(%error, "io_uring cannot be used; requests come by /dev/fuse");
            None
        }
        Some(Ok(prepared)) => Some(prepared),
        None => None,
    };
    let device = DevFuse::new(Arc::new(mount::attach(&Attachment {
        mountpoint: &mountpoint,
        source: &config.source,
        allow_other: config.allow_other.unwrap_or_else(mount::is_root),
        read_only: config.read_only,
    })?));
    let wanted = wanted(config.extended_attributes, prepared.is_some());
    let agreement = negotiate(&mut DeviceLine::new(device.same_line()), wanted)
        .inspect_err(|_| detach_quietly(&mountpoint))?;
    if mount::is_root()
        && let Some(MountInfo { device, .. }) = mount::mounted_at(&mountpoint)
    {
        mount::raise_readahead(device, READAHEAD_KIB);
    }
    let prepared = prepared.filter(|_| agreement.has(init::OVER_IO_URING));
    let mounted = serve(filesystem, mountpoint, device, agreement, config, prepared)?;
    if config.transport == TransportChoice::IoUring && mounted.transport != TransportInUse::IoUring {
        // Dropping it unmounts.
        return Err(Error::new(
            ErrorKind::Unsupported,
            "mount",
            "FUSE over io_uring cannot be had (the log says why, if it was tried): Linux 6.14 or later offers it, after \
             'echo Y > /sys/module/fuse/parameters/enable_uring'",
        ));
    }
    Ok(mounted)
}

fn serve(
    filesystem: Arc<FileSystem>,
    mountpoint: PathBuf,
    device: DevFuse,
    agreement: Agreement,
    config: &MountConfig,
    prepared: Option<Prepared>,
) -> Result<Mounted> {
    let shared = Shared::new(mountpoint, device.same_line());
    let _starting = shared.hold();
    let mut mounted = Mounted {
        shared: shared.clone(),
        transport: TransportInUse::Device,
    };
    let thread_error = |error| Error::system("mount", "start a thread", error);
    let (leave, jobs) = mpsc::channel();
    let files = filesystem.clone();
    shared
        .start("fuse-seek".into(), move || seeker::run(files, jobs))
        .map_err(thread_error)?;
    let start_worker = |index: usize| {
        let line = device.clone_line();
        let seeks = Seeks::Leave(leave_seek_on(&line, leave.clone()));
        let (files, counters) = (filesystem.clone(), shared.new_counters());
        let worker = Worker::new(files, DeviceLine::new(line), agreement, counters, seeks);
        let started = shared.start(format!("fuse-{index}"), move || worker.run());
        started.map_err(thread_error)
    };
    start_worker(0)?;
    if let Some(prepared) = prepared {
        match Rings::start(
            prepared,
            shared.clone(),
            filesystem.clone(),
            agreement,
            device.same_line(),
        ) {
            Ok(()) => mounted.transport = TransportInUse::IoUring,
            Err(error) => {
                tracing::warn!(%error, "io_uring cannot be used; requests come by /dev/fuse");
                refuse(&device).map_err(|error| Error::system("mount", "go back to /dev/fuse", error))?;
            }
        }
    }
    if mounted.transport == TransportInUse::Device {
        for index in 1..config.thread_count() {
            start_worker(index)?;
        }
    }
    Ok(mounted)
}

fn leave_seek_on(line: &DevFuse, jobs: mpsc::Sender<seeker::Job>) -> LeaveSeek {
    let line = line.same_line();
    Box::new(move |header, offset| {
        let line = line.same_line();
        jobs.send(seeker::Job { line, header, offset }).is_ok()
    })
}

impl Mounted {
    /// Where it is mounted, absolute.
    pub fn mountpoint(&self) -> &Path {
        &self.shared.mountpoint
    }

    /// How requests come.
    pub fn transport(&self) -> TransportInUse {
        self.transport
    }

    /// Whether requests are still served.
    pub fn is_alive(&self) -> bool {
        self.shared.is_alive()
    }

    /// Returns when the mount has ended, whoever unmounted it, and no thread uses the file system any more.
    pub fn wait(&self) {
        self.shared.wait();
    }

    /// Calls `callback` when the mount has ended; at once if it has already.
    pub fn on_exit(&self, callback: impl FnOnce() + Send + 'static) {
        self.shared.on_exit(Box::new(callback));
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
        self.shared.statistics()
    }

    /// Makes the kernel forget attributes and pages of an inode that was changed behind the mount.
    pub fn invalidate_inode(&self, ino: Ino) -> Result<()> {
        match self.shared.notifier() {
            Some(mut line) => notify::invalidate_inode(&mut line, ino),
            None => Ok(()),
        }
    }

    /// Makes the kernel forget a name, or its absence, that was changed behind the mount.
    pub fn invalidate_entry(&self, parent: Ino, name: &[u8]) -> Result<()> {
        match self.shared.notifier() {
            Some(mut line) => notify::invalidate_entry(&mut line, parent, name),
            None => Ok(()),
        }
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
mod tests;
