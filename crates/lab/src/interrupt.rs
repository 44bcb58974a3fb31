//! SIGINT, SIGTERM and SIGHUP: the turn in hand fails, and everything is taken down on the way out.
//!
//! No storage is taken down in the signal's own thread. It sets a flag that the runner and patient workloads ask for, and
//! ends what the work in hand is waiting for: it runs the turn's clean-up steps, and ends the children of this process and
//! the servers of the phase being measured. The work then fails, and the usual way out of a failed turn unmounts and
//! detaches. What workloads run inside this process must ask [`check`] now and then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::meter::processes;
use crate::scratch::Cleanup;

static REQUESTED: AtomicBool = AtomicBool::new(false);
static SERVERS: Mutex<Vec<i32>> = Mutex::new(Vec::new());
static STEPS: Mutex<Option<Cleanup>> = Mutex::new(None);
static SPARED: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// From now on signals are noted instead of ending the process. Once for a process.
pub fn watch() -> Result<()> {
    static STARTED: Once = Once::new();
    let mut outcome = Ok(());
    STARTED.call_once(|| outcome = start());
    outcome
}

fn start() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                eprintln!("\ninterrupted: taking everything down; the journal keeps the finished turns");
                REQUESTED.store(true, Ordering::SeqCst);
                end_what_is_waited_for();
            }
        })
        .context("cannot start the thread for signals")?;
    Ok(())
}

fn end_what_is_waited_for() {
    let steps = STEPS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(steps) = steps {
        steps.run();
    }
    let spared = SPARED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for pid in processes::children_of(std::process::id() as i32) {
        if !spared.contains(&pid) {
            send(pid, Signal::TERM);
        }
    }
    let servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for pid in servers {
        // PostgreSQL ends at once on SIGINT; on SIGTERM it waits for its clients.
        send(pid, Signal::INT);
    }
}

fn send(pid: i32, signal: Signal) {
    let own = std::process::id() as i32;
    if let Some(target) = Pid::from_raw(pid).filter(|_| pid > 1 && pid != own) {
        // It may have ended by itself.
        let _ = rustix::process::kill_process(target, signal);
    }
}

/// Whether the run is to end.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// Fails once the run is to end.
pub fn check() -> Result<()> {
    if requested() {
        bail!("interrupted");
    }
    Ok(())
}

/// Clean-up steps of a turn that run on a signal, and when this is dropped.
pub(crate) struct Steps(Cleanup);

impl Steps {
    pub(crate) fn new() -> Steps {
        let steps = Cleanup::new();
        *STEPS.lock().unwrap_or_else(PoisonError::into_inner) = Some(steps.clone());
        Steps(steps)
    }

    pub(crate) fn cleanup(&self) -> &Cleanup {
        &self.0
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        // Waits for a signal's thread that is at it.
        self.0.run();
        *STEPS.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Names the servers that are to end on a signal, until dropped.
pub(crate) struct Serving;

impl Serving {
    pub(crate) fn new(pids: &[i32]) -> Serving {
        *SERVERS.lock().unwrap_or_else(PoisonError::into_inner) = pids.to_vec();
        Serving
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        SERVERS.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Names a child that a signal leaves alone, such as mkfs, until dropped.
pub(crate) struct Spared(i32);

impl Spared {
    pub(crate) fn new(pid: i32) -> Spared {
        SPARED.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
        Spared(pid)
    }
}

impl Drop for Spared {
    fn drop(&mut self) {
        SPARED
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|pid| *pid != self.0);
    }
}
