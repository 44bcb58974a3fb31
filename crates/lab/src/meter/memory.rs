//! The highest memory that server and daemon had, as seen by a thread that looks at intervals. Peaks in between are missed.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

use super::processes;

/// Highest values seen, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peak {
    /// Of the servers and their descendants together; what they share counts once.
    pub server_bytes: u64,
    /// Of the storage's daemon.
    pub daemon_bytes: u64,
}

/// The thread, until it is finished.
pub(crate) struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Peak>,
}

impl Sampler {
    /// Looks now, and then once every `interval`.
    pub(crate) fn start(server_pids: Vec<i32>, daemon_pids: Vec<i32>, interval: Duration) -> Result<Sampler> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("memory".to_owned())
            .spawn(move || {
                let mut peak = Peak::default();
                loop {
                    peak.server_bytes = peak.server_bytes.max(together(processes::tree(&server_pids)));
                    peak.daemon_bytes = peak.daemon_bytes.max(together(daemon_pids.iter().copied()));
                    if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                        return peak;
                    }
                }
            })
            .context("cannot start the thread that looks at memory")?;
        Ok(Sampler { stop, thread })
    }

    /// Stops the thread.
    pub(crate) fn finish(self) -> Peak {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

/// Private memory of all, and the largest share: all processes of a server map the same shared memory.
fn together(pids: impl IntoIterator<Item = i32>) -> u64 {
    let (mut private, mut shared) = (0, 0);
    for pid in pids {
        let memory = processes::memory(pid);
        private += memory.private_bytes;
        shared = memory.shared_bytes.max(shared);
    }
    private + shared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_seen_and_kept() {
        let own = vec![std::process::id() as i32];
        let sampler = Sampler::start(own, Vec::new(), Duration::from_millis(5)).expect("a thread");
        let held = vec![1_u8; 64 << 20];
        std::thread::sleep(Duration::from_millis(60));
        drop(std::hint::black_box(held));
        let peak = sampler.finish();
        assert!(peak.server_bytes > 64 << 20, "{peak:?}");
        assert_eq!(peak.daemon_bytes, 0);
    }
}
