//! Runs the built `packstone` in a directory of its own, with a state directory of its own.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Large enough for a pool, small enough to make many.
pub const SIZE: &str = "64M";

/// A place where a test can do as it likes. Dropping it ends what it started and removes everything.
pub struct Place {
    directory: TempDir,
    root: PathBuf,
}

/// What a command did.
#[derive(Debug)]
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// The command must have ended with this code and said each of these on standard error.
    #[track_caller]
    pub fn fails(&self, code: i32, says: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        for text in says {
            assert!(self.stderr.contains(text), "expected {text:?} in {self:?}");
        }
    }

    #[track_caller]
    pub fn succeeds(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        let text = self.succeeds();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }
}

impl Place {
    pub fn new() -> Place {
        // Short, for a socket's path may not be long.
        let directory = tempfile::Builder::new().prefix("pk").tempdir_in("/tmp").unwrap();
        // Other users must be able to reach a mountpoint in here.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        Place { directory, root }
    }

    /// With a pool `tank` and a dataset `tank/pg`.
    pub fn with_dataset() -> Place {
        let place = Place::new();
        let member = place.path("tank.pack");
        place.run(&["create", "tank", &member, "--size", SIZE]).succeeds();
        place.run(&["dataset", "create", "tank/pg"]).succeeds();
        place
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, name: &str) -> String {
        self.root.join(name).to_str().unwrap().to_string()
    }

    pub fn state_directory(&self) -> PathBuf {
        self.root.join("state")
    }

    pub fn make_directory(&self, name: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_packstone"));
        command
            .args(arguments)
            .env("PACKSTONE_STATE_DIR", self.state_directory())
            .env_remove("RUST_LOG")
            .current_dir(&self.root)
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Outcome {
        outcome(self.command(arguments).output().unwrap())
    }

    /// Every file here with its length and content's sum, except locks: to show that nothing changed.
    pub fn fingerprint(&self) -> Vec<(PathBuf, u64, u64)> {
        let mut found = Vec::new();
        let mut waiting = vec![self.root.clone()];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::symlink_metadata(&path).unwrap();
                if metadata.is_dir() {
                    waiting.push(path);
                } else if metadata.is_file() && path.extension().is_none_or(|extension| extension != "lock") {
                    let content = fs::read(&path).unwrap();
                    let sum = content.iter().fold(0_u64, |sum, byte| {
                        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
                    });
                    found.push((path, metadata.len(), sum));
                }
            }
        }
        found.sort();
        found
    }

    /// Starts a daemon without a mount, and waits until it is ready.
    pub fn start_daemon(&self, pool: &str) -> Daemon {
        let mut child = self
            .command(&["daemon", pool])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        Daemon { child }
    }

    /// One request on a daemon's socket, as it is: status and body.
    pub fn raw_request(&self, pool: &str, request: &[u8]) -> (u16, String) {
        let mut stream = UnixStream::connect(self.state_directory().join(format!("{pool}.sock"))).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The server may answer and hang up before it has read everything.
        let _ = stream.write_all(request);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        let reply = String::from_utf8_lossy(&reply).into_owned();
        let status = reply
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0);
        let body = reply
            .split_once("\r\n\r\n")
            .map_or("", |(_, body)| body)
            .to_string();
        (status, body)
    }

    pub fn request(&self, pool: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: packstone\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.raw_request(pool, request.as_bytes())
    }

    /// Process id of the pool's daemon.
    pub fn daemon_pid(&self, pool: &str) -> i32 {
        let status = self.run(&["status", pool, "--json"]).json();
        i32::try_from(status["daemon_pid"].as_i64().expect("a daemon runs")).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test that failed may have left mounts; a lazy unmount ends their daemons.
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for mountpoint in table.lines().filter_map(|line| line.split(' ').nth(4)) {
            if Path::new(mountpoint).starts_with(&self.root) {
                let _ = Command::new("umount").args(["-l", mountpoint]).status();
            }
        }
    }
}

/// A daemon that is killed when the test ends, if it still runs.
pub struct Daemon {
    pub child: Child,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn outcome(output: Output) -> Outcome {
    Outcome {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Polls until `done`; false when that takes too long.
pub fn wait_for(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Whether this machine lets us mount; says so when not.
pub fn can_mount() -> bool {
    let has_device = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok();
    let is_root = is_root();
    let has_helper = ["/usr/bin/fusermount3", "/bin/fusermount3"]
        .iter()
        .any(|path| Path::new(path).exists());
    if has_device && (is_root || has_helper) {
        return true;
    }
    say_skipped(format_args!(
        "needs /dev/fuse, and root or fusermount3 (device: {has_device}, root: {is_root}, fusermount3: {has_helper})"
    ));
    false
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether the process is there and no zombie.
pub fn is_running(process_id: i32) -> bool {
    match fs::read_to_string(format!("/proc/{process_id}/stat")) {
        Ok(stat) => !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .trim_start()
            .starts_with('Z'),
        Err(_) => false,
    }
}

pub fn send_signal(process_id: i32, signal: rustix::process::Signal) {
    let process = rustix::process::Pid::from_raw(process_id).unwrap();
    rustix::process::kill_process(process, signal).unwrap();
}

/// Says past the capture of the test framework that the running test does nothing here; `make test` counts these lines.
pub fn say_skipped(reason: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let thread = std::thread::current();
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED {}: {reason}",
        thread.name().unwrap_or("a test")
    );
}
