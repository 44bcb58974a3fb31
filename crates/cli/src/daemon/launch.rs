//! Starts the daemon of a pool in the background and waits until it can be asked.
//!
//! The child's standard output is a pipe to us, used once: it writes `ready`, or one JSON object with the error that
//! kept it from starting, and then lets go of the pipe. So the user of `packstone mount` sees the daemon's own error. Its
//! standard error is the log file.

use crate::control::{ErrorBody, ErrorReply};
use crate::failure::{Failure, FailureKind, describe, kind_of};
use crate::names::PoolName;
use crate::output;
use crate::state::StateDirectory;
use crate::transport;
use anyhow::Context;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A log longer than this is put aside when a daemon starts.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// What the daemon says when it can be asked.
const READY: &str = "ready\n";
/// Longest message read from a daemon that starts.
const MESSAGE_BYTES_MAX: u64 = 64 << 10;

/// Starts the daemon; returns once it answers its socket, or with the error that kept it from starting.
pub fn launch(state: &StateDirectory, pool: &PoolName) -> anyhow::Result<()> {
    let log_path = state.log_path(pool);
    let log = open_log(&log_path).with_context(|| format!("open {}", log_path.display()))?;
    let program = std::env::current_exe().context("find the packstone program")?;
    let mut child = Command::new(program)
        .arg("daemon")
        .arg(pool.as_str())
        .env("PACKSTONE_STATE_DIR", state.path())
        // Each request to mount brings its own choice; the first one's must not stick to the daemon.
        .env_remove(transport::VARIABLE)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("start the daemon")?;
    let Some(pipe) = child.stdout.take() else {
        return Err(Failure::error(
            FailureKind::Failed,
            "the daemon has no standard output",
        ));
    };
    let progress = output::spinner(format!("opening pool '{pool}'"));
    let mut message = String::new();
    let read = pipe.take(MESSAGE_BYTES_MAX).read_to_string(&mut message);
    progress.finish_and_clear();
    read.context("wait for the daemon")?;
    if message == READY {
        return Ok(());
    }
    if let Ok(reply) = serde_json::from_str::<ErrorReply>(&message) {
        // It is about to exit; its lock must be free when we report.
        let _ = child.wait();
        return Err(Failure::error(reply.error.code, reply.error.message));
    }
    let status = child.wait().context("wait for the daemon")?;
    Err(Failure::error(
        FailureKind::Failed,
        format!(
            "the daemon of pool '{pool}' ended while it started ({status}); see {}",
            log_path.display()
        ),
    ))
}

/// In the daemon: becomes a session of its own, so that the terminal it was started from can close.
pub fn detach() {
    // Fails only for a process group leader, which the child of `launch` is not.
    if let Err(error) = rustix::process::setsid() {
        tracing::warn!(%error, "could not leave the session of the terminal");
    }
}

/// In the daemon: tells whoever started it how the start went, once.
pub fn report(outcome: Result<(), &anyhow::Error>) {
    let message = match outcome {
        Ok(()) => READY.to_string(),
        Err(error) => {
            let body = ErrorReply {
                error: ErrorBody {
                    code: kind_of(error),
                    message: describe(error),
                },
            };
            serde_json::to_string(&body).unwrap_or_default()
        }
    };
    // Nobody may be left to read it: not our trouble.
    let mut pipe = io::stdout().lock();
    let _ = pipe.write_all(message.as_bytes()).and_then(|()| pipe.flush());
    // The reader waits for the end of the pipe: put something harmless in its place.
    if let Ok(null) = File::options().write(true).open("/dev/null")
        && let Err(error) = rustix::stdio::dup2_stdout(&null)
    {
        tracing::warn!(%error, "could not let go of standard output");
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        let mut old = path.as_os_str().to_owned();
        old.push(".1");
        fs::rename(path, old)?;
    }
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}
