//! A mounted pool, by the transport that the test program is for.

use crate::TRANSPORT;
use crate::store::Store;
use packstone_fuse::{
    ErrorKind, MountConfig, Mounted, RequestStatistics, TransportChoice, TransportInUse, mount,
};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

const ENABLE_IO_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// A mounted store in a directory of its own. Dropping it unmounts and removes everything.
pub struct Fixture {
    pub mounted: Mounted,
    pub store: Store,
    directory: tempfile::TempDir,
}

/// Whether mounts can be made here; says why not. Root has the kernel offer io_uring where a test needs it, and leaves
/// it so: other programs may have come to use it.
pub fn can_mount() -> bool {
    if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/fuse") {
        say_skipped(format_args!("/dev/fuse cannot be opened: {error}"));
        return false;
    }
    if TRANSPORT == TransportChoice::IoUring {
        let is_offered =
            || std::fs::read_to_string(ENABLE_IO_URING).is_ok_and(|setting| setting.trim() == "Y");
        if !is_offered() && (std::fs::write(ENABLE_IO_URING, "Y").is_err() || !is_offered()) {
            say_skipped(format_args!("the kernel does not offer FUSE over io_uring"));
            return false;
        }
    }
    true
}

/// The usual configuration, with this program's transport.
pub fn config(mountpoint: impl Into<PathBuf>) -> MountConfig {
    MountConfig {
        transport: TRANSPORT,
        ..MountConfig::new(mountpoint, "tank/files")
    }
}

impl Fixture {
    /// `None`, with the reason printed, where mounts cannot be made.
    pub fn new() -> Option<Fixture> {
        Fixture::with(|_| ())
    }

    pub fn with(adjust: impl FnOnce(&mut MountConfig)) -> Option<Fixture> {
        can_mount().then(|| {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let store = Store::create(directory.path());
            let mountpoint = directory.path().join("mnt");
            std::fs::create_dir(&mountpoint).expect("a mountpoint");
            let mut config = config(mountpoint);
            adjust(&mut config);
            let mounted = mount(store.filesystem.clone(), config).expect("mounts");
            let expected = match TRANSPORT {
                TransportChoice::IoUring => TransportInUse::IoUring,
                _ => TransportInUse::Device,
            };
            assert_eq!(mounted.transport(), expected);
            Fixture {
                mounted,
                store,
                directory,
            }
        })
    }

    /// A path within the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mounted.mountpoint().join(name)
    }

    /// A path beside the mount, on the file system of the machine.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Requests that `action` caused.
    pub fn requests_of(&self, action: impl FnOnce()) -> RequestStatistics {
        let before = self.mounted.statistics();
        action();
        let mut after = self.mounted.statistics();
        for (name, count) in &mut after.requests {
            *count -= before.count(name);
        }
        after.requests.retain(|_, count| *count > 0);
        after
    }

    /// Returns when so many requests of this kind have come since the mount: some follow what a program does later.
    pub fn wait_for_requests(&self, name: &str, count: u64) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.mounted.statistics().count(name) < count {
            assert!(Instant::now() < deadline, "{:?}", self.mounted.statistics());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Unmounts. Tests start programs, and a child between fork and exec holds copies of all open files for a moment:
    /// so this is patient.
    pub fn unmount(&self) -> packstone_fuse::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match self.mounted.unmount() {
                Err(error) if error.kind() == ErrorKind::Busy && Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(20));
                }
                result => return result,
            }
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let unmounted = self.unmount();
        if !thread::panicking() {
            unmounted.expect("unmounts");
        }
    }
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
