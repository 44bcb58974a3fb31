//! The threads of a mount, and what happens when the last of them is gone.

use crate::statistics::{RequestCounters, RequestStatistics};
use crate::transport::DevFuse;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

pub(super) type OnExit = Box<dyn FnOnce() + Send>;

/// What the handle and the workers share; not used while a request is served.
pub(super) struct Shared {
    pub mountpoint: PathBuf,
    state: Mutex<State>,
    ended: Condvar,
    counters: Mutex<Vec<Arc<RequestCounters>>>,
}

struct State {
    /// Holders of a [`LastOut`].
    alive: usize,
    /// For notifications; gone with the last thread, or the kernel would wait for replies that nobody writes.
    notifier: Option<DevFuse>,
    on_exit: Vec<OnExit>,
}

impl Shared {
    pub(super) fn new(mountpoint: PathBuf, notifier: DevFuse) -> Arc<Shared> {
        Arc::new(Shared {
            mountpoint,
            state: Mutex::new(State {
                alive: 0,
                notifier: Some(notifier),
                on_exit: Vec::new(),
            }),
            ended: Condvar::new(),
            counters: Mutex::default(),
        })
    }

    /// Keeps the mount from counting as ended for as long as the result lives.
    pub(super) fn hold(self: &Arc<Self>) -> LastOut {
        self.state.lock().alive += 1;
        LastOut { shared: self.clone() }
    }

    /// Starts a thread of the mount. The caller holds a [`LastOut`], or is such a thread.
    pub(super) fn start(
        self: &Arc<Self>,
        name: String,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let last = self.hold();
        thread::Builder::new().name(name).spawn(move || {
            body();
            drop(last);
        })?;
        Ok(())
    }

    /// Counters for one more worker.
    pub(super) fn new_counters(&self) -> Arc<RequestCounters> {
        let counters = Arc::<RequestCounters>::default();
        self.counters.lock().push(counters.clone());
        counters
    }

    pub(super) fn statistics(&self) -> RequestStatistics {
        RequestStatistics::sum(self.counters.lock().iter().map(Arc::as_ref))
    }

    pub(super) fn is_alive(&self) -> bool {
        self.state.lock().alive > 0
    }

    /// Returns when no thread is left.
    pub(super) fn wait(&self) {
        let mut state = self.state.lock();
        while state.alive > 0 {
            self.ended.wait(&mut state);
        }
    }

    /// Calls `callback` when no thread is left; at once if there is none any more.
    pub(super) fn on_exit(&self, callback: OnExit) {
        let mut state = self.state.lock();
        if state.alive > 0 {
            state.on_exit.push(callback);
        } else {
            drop(state);
            callback();
        }
    }

    pub(super) fn notifier(&self) -> Option<DevFuse> {
        self.state.lock().notifier.as_ref().map(DevFuse::same_line)
    }
}

/// Held by each thread of the mount for as long as it lives, and by who starts them.
pub(super) struct LastOut {
    shared: Arc<Shared>,
}

impl Drop for LastOut {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.alive -= 1;
        if state.alive > 0 {
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
