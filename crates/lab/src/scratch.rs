//! Undoing what was set up: a stack of steps that runs once, whether the work ends well, fails or is interrupted.
//!
//! Invariants:
//! - Steps run in the opposite order of their registration, each once, also when an earlier one failed.
//! - A step registered after the stack has run is run at once, so that nothing set up during an interrupt stays.
//!
//! Leaves out: SIGKILL, which gives no program a chance.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

type Step = Box<dyn FnOnce() -> Result<()> + Send>;

#[derive(Default)]
struct Stack {
    steps: Vec<(String, Step)>,
    finished: bool,
}

/// A shared stack of clean-up steps. The last handle that is dropped runs it.
#[derive(Clone, Default)]
pub struct Cleanup {
    inner: Arc<CleanupInner>,
}

#[derive(Default)]
struct CleanupInner {
    stack: Mutex<Stack>,
    interrupted: AtomicBool,
}

impl CleanupInner {
    fn lock(&self) -> MutexGuard<'_, Stack> {
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        // The lock is held throughout: whoever comes second waits until everything is undone.
        let mut stack = self.lock();
        stack.finished = true;
        while let Some((name, step)) = stack.steps.pop() {
            if let Err(error) = step() {
                eprintln!("clean-up: {name}: {error:#}");
            }
        }
    }
}

impl Drop for CleanupInner {
    fn drop(&mut self) {
        self.run();
    }
}

impl Cleanup {
    /// An empty stack.
    pub fn new() -> Cleanup {
        Cleanup::default()
    }

    /// Registers `step`, which undoes what was just done.
    pub fn push(&self, name: impl Into<String>, step: impl FnOnce() -> Result<()> + Send + 'static) {
        let mut stack = self.inner.lock();
        stack.steps.push((name.into(), Box::new(step)));
        let late = stack.finished;
        drop(stack);
        if late {
            self.inner.run();
        }
    }

    /// Undoes everything now. After an interrupt it does not return: the process is about to end.
    ///
    /// A program that watches for signals must call this before it ends, also after an error, because an interrupt makes
    /// the work in hand fail: the clean-up is then under way in another thread and has to be waited for.
    pub fn run(&self) {
        self.inner.run();
        while self.inner.interrupted.load(Ordering::SeqCst) {
            std::thread::park();
        }
    }

    /// Forgets all steps: what was set up stays.
    pub fn keep_everything(&self) {
        self.inner.lock().steps.clear();
    }

    /// From now on SIGINT, SIGTERM and SIGHUP undo everything and end this process with the usual status.
    pub fn on_signals(&self) -> Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
        let cleanup = self.clone();
        std::thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                eprintln!("\ninterrupted: cleaning up");
                cleanup.inner.interrupted.store(true, Ordering::SeqCst);
                cleanup.inner.run();
                std::process::exit(128 + signal);
            }
        });
        Ok(())
    }
}

/// A new directory under `parent` that other users can pass through, removed by `cleanup`.
///
/// PostgreSQL runs as another user than root, so the directory has mode 0755; what is private lies in subdirectories.
pub fn directory(parent: &Path, prefix: &str, cleanup: &Cleanup) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let path = tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(parent)
        .with_context(|| format!("cannot create a directory in {}", parent.display()))?
        .keep();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    let removed = path.clone();
    cleanup.push(format!("remove {}", path.display()), move || {
        remove_tree(&removed)
    });
    Ok(path)
}

/// Removes `path` and what is below it, but never what lies on another file system mounted there.
fn remove_tree(path: &Path) -> Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let prefix = path.to_string_lossy().into_owned();
    if let Some(mount) = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .find(|at| at.starts_with(&prefix))
    {
        anyhow::bail!("{mount} is still mounted, so {prefix} stays");
    }
    std::fs::remove_dir_all(path).with_context(|| format!("cannot remove {prefix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> (Arc<Mutex<Vec<u32>>>, impl Fn(u32) -> Step) {
        let log = Arc::new(Mutex::new(Vec::new()));
        let shared = log.clone();
        let step = move |number: u32| -> Step {
            let log = shared.clone();
            Box::new(move || {
                log.lock().unwrap_or_else(PoisonError::into_inner).push(number);
                if number == 2 {
                    anyhow::bail!("step 2 fails")
                } else {
                    Ok(())
                }
            })
        };
        (log, step)
    }

    fn seen(log: &Arc<Mutex<Vec<u32>>>) -> Vec<u32> {
        log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[test]
    fn steps_run_backwards_once_and_past_a_failure() {
        let (log, step) = recorder();
        let cleanup = Cleanup::new();
        for number in 1..=3 {
            cleanup.push("step", step(number));
        }
        cleanup.run();
        drop(cleanup);
        assert_eq!(seen(&log), [3, 2, 1]);
    }

    #[test]
    fn late_step_runs_at_once() {
        let (log, step) = recorder();
        let cleanup = Cleanup::new();
        cleanup.run();
        cleanup.push("late", step(7));
        assert_eq!(seen(&log), [7]);
    }

    #[test]
    fn directory_is_removed_with_its_content() {
        let parent = tempfile::tempdir().expect("a temporary directory");
        let cleanup = Cleanup::new();
        let path = directory(parent.path(), "made-", &cleanup).expect("a scratch directory");
        std::fs::write(path.join("file"), b"x").expect("a file");
        cleanup.run();
        assert!(!path.exists());
    }
}
