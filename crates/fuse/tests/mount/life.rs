//! Mounting, unmounting, daemons that die, handlers that fail.

use crate::fixture::{Fixture, can_mount, config, say_skipped};
use crate::store::Store;
use packstone_fuse::{ErrorKind, MountConfig, mount, mounted_at, mounts, unmount_path};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[test]
fn a_mount_is_found_and_a_second_one_on_it_refused() {
    let Some(fixture) = Fixture::new() else { return };
    let mountpoint = fixture.mounted.mountpoint();
    let link = fixture.outside("link");
    std::os::unix::fs::symlink(mountpoint, &link).unwrap();
    assert_eq!(mounted_at(&link).expect("through a link").mountpoint, mountpoint);
    let found = mounted_at(mountpoint).expect("it is mounted");
    assert_eq!(
        (found.source.as_str(), found.is_ours(), found.read_only),
        ("tank/files", true, false)
    );
    assert!(mounts().iter().any(|mount| mount.mountpoint == mountpoint));
    let again = mount(fixture.store.filesystem.clone(), config(mountpoint));
    assert_eq!(again.err().expect("refused").kind(), ErrorKind::Busy);
}

#[test]
fn an_open_file_keeps_it_mounted() {
    let Some(fixture) = Fixture::new() else { return };
    let file = File::create(fixture.path("open")).unwrap();
    assert_eq!(
        fixture.mounted.unmount().expect_err("busy").kind(),
        ErrorKind::Busy
    );
    assert!(fixture.mounted.is_alive());
    drop(file);
    fixture.unmount().unwrap();
    assert!(!fixture.mounted.is_alive());
    assert!(mounted_at(fixture.mounted.mountpoint()).is_none());
    fixture.mounted.unmount().expect("a second time does no harm");
}

#[test]
fn waiting_ends_when_anybody_unmounts() {
    let Some(fixture) = Fixture::new() else { return };
    fs::write(fixture.path("file"), b"x").unwrap();
    let (sender, receiver) = mpsc::channel();
    fixture.mounted.on_exit(move || sender.send(()).unwrap());
    assert!(
        receiver.recv_timeout(Duration::from_millis(50)).is_err(),
        "too early"
    );
    while unmount_path(fixture.mounted.mountpoint(), false)
        .is_err_and(|error| error.kind() == ErrorKind::Busy)
    {
        // A child of another test may hold copies of this one's files until it runs its program.
        std::thread::sleep(Duration::from_millis(20));
    }
    fixture.mounted.wait();
    receiver.recv_timeout(Duration::from_secs(10)).expect("called");
    let (sender, receiver) = mpsc::channel();
    fixture.mounted.on_exit(move || sender.send(()).unwrap());
    receiver.try_recv().expect("called at once");
}

#[test]
fn a_lazy_unmount_serves_open_files_to_their_end() {
    let Some(fixture) = Fixture::new() else { return };
    let file = File::create(fixture.path("open")).unwrap();
    fixture.mounted.unmount_lazily().unwrap();
    assert!(mounted_at(fixture.mounted.mountpoint()).is_none());
    std::os::unix::fs::FileExt::write_all_at(&file, b"late", 0).unwrap();
    file.sync_all().unwrap();
    assert!(fixture.mounted.is_alive());
    drop(file);
    fixture.mounted.wait();
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let Some(fixture) = Fixture::with(|config| config.read_only = true) else {
        return;
    };
    assert!(mounted_at(fixture.mounted.mountpoint()).unwrap().read_only);
    let error = fs::write(fixture.path("file"), b"").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
}

#[test]
fn mounting_comes_back_after_unmounting() {
    let Some(fixture) = Fixture::new() else { return };
    fs::write(fixture.path("file"), b"kept").unwrap();
    fixture.unmount().unwrap();
    for round in 0..5 {
        let config = MountConfig {
            threads: 1 + round,
            ..config(fixture.outside("mnt"))
        };
        let again = mount(fixture.store.filesystem.clone(), config).unwrap();
        assert_eq!(fs::read(fixture.path("file")).unwrap(), b"kept");
        drop(again);
    }
    assert!(mounted_at(fixture.outside("mnt")).is_none(), "dropping unmounts");
}

#[test]
fn many_threads_work_at_once() {
    let Some(fixture) = Fixture::new() else { return };
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let fixture = &fixture;
            scope.spawn(move || {
                for round in 0..100u8 {
                    let path = fixture.path(&format!("t{thread}-{round}"));
                    fs::write(&path, vec![thread ^ round; 10_000]).unwrap();
                    assert_eq!(fs::read(&path).unwrap(), vec![thread ^ round; 10_000]);
                    let renamed = fixture.path(&format!("t{thread}"));
                    fs::rename(&path, &renamed).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_dir(fixture.mounted.mountpoint()).unwrap().count(), 8);
}

/// Environment of a child that serves a mount until it is killed; see [`serve_until_killed`].
const SERVE_AT: &str = "PACKSTONE_FUSE_TEST_SERVE_AT";

/// Not a test: the daemon that the tests below start as a process of its own.
#[test]
#[ignore = "started by other tests"]
fn serve_until_killed() {
    let Some(directory) = std::env::var_os(SERVE_AT) else {
        return;
    };
    let directory = Path::new(&directory);
    let store = Store::create(directory);
    let mounted = mount(store.filesystem.clone(), config(directory.join("mnt"))).unwrap();
    println!("\nserving");
    mounted.wait();
}

/// Starts the daemon with the mountpoint `mnt` in `directory` and returns when it serves.
fn start_daemon(directory: &Path, uid: Option<u32>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "life::serve_until_killed", "--ignored", "--nocapture"]);
    command
        .env(SERVE_AT, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.is_ok_and(|line| line == "serving")),
        "the daemon did not start"
    );
    // It must be able to go on printing.
    std::thread::spawn(move || lines.count());
    child
}

/// Returns when the mount says that its daemon is gone. With io_uring the kernel takes the rings down a moment later than
/// the daemon; who asks meanwhile is told so in other words.
fn wait_for_disconnection(mountpoint: &Path) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let error = fs::metadata(mountpoint.join("file")).unwrap_err();
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOTCONN) => return,
            Some(Errno::CONNABORTED | Errno::CANCELED) if Instant::now() < deadline => {}
            _ => panic!("{error}"),
        }
    }
}

/// Programs that write and sync without pause until they are told of an error. Returns when all have begun.
fn keep_busy(directory: &Path) -> Vec<JoinHandle<std::io::Error>> {
    let (sender, begun) = mpsc::channel();
    let start = |number: usize| {
        let (path, sender) = (directory.join(format!("busy-{number}")), sender.clone());
        std::thread::spawn(move || {
            let write = |round: u64| {
                let file = File::options()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(&path)?;
                std::os::unix::fs::FileExt::write_all_at(&file, &[number as u8; 8192], round % 64 * 8192)?;
                file.sync_data()
            };
            for round in 0.. {
                if let Err(error) = write(round) {
                    return error;
                }
                if round == 3 {
                    sender.send(()).unwrap();
                }
            }
            unreachable!("rounds without end")
        })
    };
    let programs: Vec<_> = (0..12).map(start).collect();
    programs.iter().for_each(|_| begun.recv().unwrap());
    programs
}

#[test]
fn an_aborted_connection_ends_the_mount_with_requests_under_way() {
    let Some(fixture) = Fixture::new() else { return };
    if !rustix::process::geteuid().is_root() {
        say_skipped(format_args!("needs root to mount fusectl"));
        return;
    }
    let control = fixture.outside("control");
    fs::create_dir(&control).unwrap();
    rustix::mount::mount(
        "none",
        &control,
        "fusectl",
        rustix::mount::MountFlags::empty(),
        None,
    )
    .unwrap();
    let mountpoint = fixture.mounted.mountpoint();
    let connection = mounted_at(mountpoint).expect("it is mounted").device.1;
    let abort = control.join(format!("{connection}/abort"));
    let programs = keep_busy(mountpoint);
    let aborted = fs::write(&abort, "1");
    rustix::mount::unmount(&control, rustix::mount::UnmountFlags::DETACH).unwrap();
    aborted.unwrap();
    for program in programs {
        let error = program.join().unwrap();
        let told = error.raw_os_error().map(Errno::from_raw_os_error);
        assert!(
            matches!(told, Some(Errno::NOTCONN | Errno::CONNABORTED)),
            "{error}"
        );
    }
    fixture.mounted.wait();
    // Dropping the fixture closes the file system, and fails where a thread still uses it.
}

#[test]
fn a_forced_unmount_ends_what_waits_and_the_mount() {
    let Some(fixture) = Fixture::new() else { return };
    if !rustix::process::geteuid().is_root() {
        say_skipped(format_args!("needs root to unmount by force"));
        return;
    }
    let mountpoint = fixture.mounted.mountpoint().to_path_buf();
    let programs = keep_busy(&mountpoint);
    // Force aborts the connection; the files that are open then keep the mount in the tree until they are closed.
    let force = rustix::mount::UnmountFlags::FORCE;
    let _ = rustix::mount::unmount(&mountpoint, force);
    programs.into_iter().for_each(|program| {
        program.join().unwrap();
    });
    fixture.mounted.wait();
    let _ = rustix::mount::unmount(&mountpoint, force);
    assert!(mounted_at(&mountpoint).is_none());
}

#[test]
fn programs_of_a_killed_daemon_are_told_and_it_can_be_mounted_again() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mountpoint = directory.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let mut daemon = start_daemon(directory.path(), None);
    let programs = keep_busy(&mountpoint);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    for program in programs {
        let error = program.join().unwrap();
        let told = error.raw_os_error().map(Errno::from_raw_os_error);
        assert!(
            matches!(told, Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)),
            "{error}"
        );
    }
    wait_for_disconnection(&mountpoint);
    unmount_path(&mountpoint, true).unwrap();
    let other = tempfile::tempdir().unwrap();
    let store = Store::create(other.path());
    let again = mount(store.filesystem.clone(), config(&mountpoint)).unwrap();
    fs::write(mountpoint.join("file"), b"works").unwrap();
    again.unmount().unwrap();
}

#[test]
fn a_dead_daemons_mount_is_recognised_and_cleared() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mountpoint = directory.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let mut daemon = start_daemon(directory.path(), None);
    fs::write(mountpoint.join("file"), b"x").unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    wait_for_disconnection(&mountpoint);
    assert!(mounted_at(&mountpoint).expect("still in the table").is_ours());
    assert!(
        mounted_at(
            directory
                .path()
                .join("../")
                .join(directory.path().file_name().unwrap())
                .join("mnt")
        )
        .is_some()
    );
    let other = tempfile::tempdir().unwrap();
    let store = Store::create(other.path());
    let refused = mount(store.filesystem.clone(), config(&mountpoint));
    assert_eq!(refused.err().expect("refused").kind(), ErrorKind::Busy);
    unmount_path(&mountpoint, true).unwrap();
    assert!(mounted_at(&mountpoint).is_none());
    let again = mount(store.filesystem.clone(), config(&mountpoint)).unwrap();
    fs::write(mountpoint.join("file"), b"works").unwrap();
    again.unmount().unwrap();
}

#[test]
fn another_user_mounts_with_the_helper() {
    const NOBODY: u32 = 65534;
    if !can_mount() || !rustix::process::geteuid().is_root() {
        say_skipped(format_args!("needs root to become another user"));
        return;
    }
    if !Command::new("fusermount3")
        .arg("-V")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        say_skipped(format_args!("fusermount3 is not installed"));
        return;
    }
    if std::os::unix::fs::MetadataExt::mode(&fs::metadata("/dev/fuse").unwrap()) & 0o006 != 0o006 {
        say_skipped(format_args!("/dev/fuse is not open to all users here"));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mountpoint = directory.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    for path in [directory.path(), &mountpoint] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut daemon = start_daemon(directory.path(), Some(NOBODY));
    let as_nobody = |script: &str| {
        let mut command = Command::new("sh");
        command
            .args(["-ec", script])
            .current_dir("/")
            .env("MNT", &mountpoint)
            .uid(NOBODY)
            .gid(NOBODY);
        command.status().unwrap().success()
    };
    assert!(as_nobody(
        "echo content > $MNT/file; test $(cat $MNT/file) = content"
    ));
    assert!(
        fs::metadata(mountpoint.join("file")).is_err(),
        "it serves that user alone"
    );
    let found = mounted_at(&mountpoint).expect("in the table");
    assert!(found.is_ours() && found.source == "tank/files");
    assert!(as_nobody("fusermount3 -u $MNT"));
    assert!(daemon.wait().unwrap().success());
}
