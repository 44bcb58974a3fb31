//! The process that has a pool open: it serves its mounts, drives its background work and answers its socket.
//!
//! ```text
//!  main thread     start-up, then watches: mounts that ended, signals, requests to stop; then the way out
//!  control thread  sockets and signals (tokio, one thread, blocking work on its pool of threads)
//!  flush, checkpoint, clean, files   background threads, each in a loop of small steps
//!  fuse threads    those of each mount
//! ```
//!
//! Life: lock, members, recovery, socket, *ready*; then mounts come and go. Once the last has gone, by `packstone unmount`
//! or by a plain `umount`, the pool is closed and the process ends; also when no mount comes within half a minute of the
//! start. A signal takes all mounts away first, lazily where files are in use. Nothing new begins once closing has begun:
//! requests get `closing`, and the asker starts the next daemon when the lock is free.
//!
//! A panic in any thread means that an invariant is broken: the process logs it and aborts rather than go on writing.
//! What was acknowledged is on the media; the next start recovers it.

mod background;
pub mod launch;
mod mounts;
mod service;

use crate::control::server;
use crate::failure::{Failure, FailureKind};
use crate::lock::{LockMode, PoolLock};
use crate::names::PoolName;
use crate::open_pool::OpenPool;
use crate::state::StateDirectory;
use anyhow::Context;
use background::Background;
use mounts::Mounts;
use packstone_pool::{Pool, PoolState};
use rustix::process::{Resource, getrlimit, setrlimit};
pub use server::MountRequest;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often the main thread looks whether a mount has ended.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// How long the way out waits for replies under way to arrive.
const REPLY_PATIENCE: Duration = Duration::from_secs(2);
/// How long a daemon without any mount waits for one.
const FIRST_MOUNT_PATIENCE: Duration = Duration::from_secs(30);

/// Everything the control socket can reach.
pub struct Daemon {
    pool: Arc<Pool>,
    name: PoolName,
    started: Instant,
    /// What is mounted.
    pub mounts: Mounts,
    stop_requests: mpsc::Sender<String>,
}

/// Opens the pool and serves it until its last mount is gone. `mount` is made before `ready` is called; `ready` tells
/// whoever waits that the daemon can be asked.
pub fn run(
    state: &StateDirectory,
    name: &PoolName,
    mount: Option<&MountRequest>,
    ready: impl FnOnce(),
) -> anyhow::Result<()> {
    abort_on_panic();
    raise_descriptor_limit();
    // The socket must never exist with a wider mode, not even between bind and chmod.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let entry = state.entry(name)?;
    let lock = PoolLock::acquire(state, name, LockMode::Exclusive, Duration::from_secs(2))?;
    tracing::info!(pool = %name, "opening");
    let open = OpenPool::open_with_its_memory(lock, name, &entry)?;
    let (stop_requests, stops) = mpsc::channel();
    let daemon = Arc::new(Daemon {
        pool: open.pool.clone(),
        name: name.clone(),
        started: Instant::now(),
        mounts: Mounts::new(open.pool.clone(), name.clone()),
        stop_requests,
    });
    let background = Background::start(daemon.clone())?;
    let control = Control::start(state, daemon.clone());
    let served = control.and_then(|control| {
        if let Some(request) = mount {
            daemon.mount(request)?;
        }
        tracing::info!(pool = %name, process = std::process::id(), "open");
        ready();
        watch(&daemon, &stops);
        Ok(control)
    });
    daemon.mounts.close_all();
    background.stop();
    let closed = open.pool.close().with_context(|| format!("close pool '{name}'"));
    match &closed {
        Ok(()) => tracing::info!(pool = %name, "closed"),
        Err(error) => {
            tracing::error!(pool = %name, error = crate::failure::describe(error), "could not close cleanly")
        }
    }
    // The socket goes last: until then `status` shows that the pool is closing.
    let served = served.map(Control::stop);
    open.give_back(daemon);
    served.and(closed)
}

impl Daemon {
    /// Makes the main thread take everything down.
    pub fn request_shutdown(&self, why: &str) {
        // The receiver is gone only when the way out has begun.
        let _ = self.stop_requests.send(why.to_string());
    }
}

/// Returns when it is time to close.
fn watch(daemon: &Daemon, stops: &mpsc::Receiver<String>) {
    let mut was_writable = true;
    loop {
        match stops.recv_timeout(WATCH_INTERVAL) {
            Ok(why) => {
                tracing::info!("closing: {why}");
                daemon.mounts.begin_closing();
                return;
            }
            Err(RecvTimeoutError::Timeout) => {}
            // `daemon` holds a sender, so this cannot be; treat it as a request all the same.
            Err(RecvTimeoutError::Disconnected) => return,
        }
        daemon.mounts.reap();
        let had_its_time = daemon.mounts.is_used() || daemon.started.elapsed() > FIRST_MOUNT_PATIENCE;
        if had_its_time && daemon.mounts.begin_closing_if_empty() {
            tracing::info!("closing: nothing is mounted");
            return;
        }
        let statistics = daemon.pool.statistics();
        let is_writable = statistics.state == PoolState::Open;
        if was_writable && !is_writable {
            let reason = statistics.stopped.unwrap_or_default();
            tracing::error!(
                reason,
                "the pool takes no more writes; unmount, mend the medium, run 'packstone check', mount again"
            );
        }
        was_writable = is_writable;
    }
}

/// The socket and the thread behind it.
struct Control {
    socket_path: std::path::PathBuf,
    end: tokio::sync::oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Control {
    fn start(state: &StateDirectory, daemon: Arc<Daemon>) -> anyhow::Result<Control> {
        let socket_path = state.socket_path(&daemon.name);
        let listener = bind(&socket_path)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start the control thread")?;
        let (end, ended) = tokio::sync::oneshot::channel();
        let entered = runtime.enter();
        let listener = tokio::net::UnixListener::from_std(listener).context("start the control thread")?;
        let signals = Signals::catch()?;
        drop(entered);
        let thread = std::thread::Builder::new()
            .name("control".to_string())
            .spawn(move || {
                runtime.block_on(serve(listener, daemon, signals, ended));
                runtime.shutdown_timeout(REPLY_PATIENCE);
            })
            .context("start the control thread")?;
        Ok(Control {
            socket_path,
            end,
            thread,
        })
    }

    /// Takes no more connections, and lets replies under way arrive.
    fn stop(self) {
        if let Err(error) = std::fs::remove_file(&self.socket_path) {
            tracing::warn!(path = %self.socket_path.display(), %error, "could not remove the socket");
        }
        // Either end may be gone only because the thread has ended already.
        drop(self.end);
        let _ = self.thread.join();
    }
}

/// Signals that ask the daemon to close.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn catch() -> anyhow::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).context("catch SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("catch SIGINT")?,
            hangup: signal(SignalKind::hangup()).context("catch SIGHUP")?,
        })
    }
}

/// Answers the socket and turns signals into requests, until `ended`.
async fn serve(
    listener: tokio::net::UnixListener,
    daemon: Arc<Daemon>,
    mut signals: Signals,
    mut ended: tokio::sync::oneshot::Receiver<()>,
) {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(server::serve(listener, daemon.clone(), async {
        // Dropping the sender is the message.
        let _ = stopped.await;
    }));
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => daemon.request_shutdown("SIGTERM"),
            _ = signals.interrupt.recv() => daemon.request_shutdown("SIGINT"),
            _ = signals.hangup.recv() => daemon.request_shutdown("SIGHUP"),
            _ = &mut ended => break,
        }
    }
    drop(stop);
    if tokio::time::timeout(REPLY_PATIENCE, server).await.is_err() {
        tracing::debug!("a control connection stayed open to the end");
    }
}

/// A socket left by a daemon that died is in the way; the lock is ours, so nobody listens on it.
fn bind(path: &std::path::Path) -> anyhow::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("remove {}", path.display()));
        }
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => Failure::error(
            FailureKind::Usage,
            format!(
                "the path of the socket, {}, is too long; choose a shorter state directory",
                path.display()
            ),
        ),
        _ => anyhow::Error::new(error).context(format!("listen on {}", path.display())),
    })?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .with_context(|| format!("protect {}", path.display()))?;
    listener
        .set_nonblocking(true)
        .with_context(|| format!("listen on {}", path.display()))?;
    Ok(listener)
}

/// Each worker of a mount has a descriptor of its own, so that a few mounts on a large machine exceed the usual soft limit
/// of 1024, which is for programs that call select(2).
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
}

fn abort_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!("a broken invariant, please report it: {panic}\n{backtrace}");
        eprintln!("packstone: a broken invariant, please report it: {panic}");
        std::process::abort();
    }));
}
