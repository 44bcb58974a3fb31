//! Life of daemons and mounts: closing on a signal, dying, being mounted again, and who may reach what.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use packstone_harness::fixture::{self, DATASET, Mounted};
use packstone_harness::packstone::{self, Pool};
use packstone_harness::process::{self, User};
use packstone_harness::requirements;
use packstone_harness::scratch::{self, Cleanup};

fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(())
}

#[test]
fn sigterm_closes_cleanly() -> Result<()> {
    if !fixture::can_mount("sigterm_closes_cleanly") {
        return Ok(());
    }
    let mounted = Mounted::new("512M")?;
    // Not synced: a clean end must write it all the same.
    fs::write(mounted.path("file"), vec![7; 300_000])?;
    let daemon = mounted.pool.daemon_pid()?;
    process::terminate(daemon);
    process::wait_ended(&[daemon], Duration::from_secs(60))?;
    ensure!(
        !packstone::is_mounted(&mounted.mountpoint),
        "the mount outlives the daemon"
    );
    mounted.pool.check()?;
    mounted.pool.mount_again(DATASET, &mounted.mountpoint)?;
    ensure!(
        fs::read(mounted.path("file"))? == vec![7; 300_000],
        "the file is not the one that was written"
    );
    mounted.finish()
}

#[test]
fn mount_of_a_dead_daemon_can_be_unmounted_and_mounted_again() -> Result<()> {
    if !fixture::can_mount("mount_of_a_dead_daemon_can_be_unmounted_and_mounted_again") {
        return Ok(());
    }
    let mounted = Mounted::new("512M")?;
    for round in 0..3_u8 {
        write_synced(&mounted.path(format!("file{round}")), &vec![round; 100_000])?;
        mounted.pool.kill_daemon()?;
        ensure!(
            fs::metadata(mounted.path("file0")).is_err(),
            "a mount without a daemon answers"
        );
        mounted.pool.unmount(&mounted.mountpoint)?;
        mounted.pool.mount_again(DATASET, &mounted.mountpoint)?;
        for earlier in 0..=round {
            let bytes = fs::read(mounted.path(format!("file{earlier}")))?;
            ensure!(
                bytes == vec![earlier; 100_000],
                "file{earlier} is not the one that was written"
            );
        }
    }
    mounted.finish()
}

/// Once more without the unmount in between: `mount` itself finds the dead mount in its way.
#[test]
fn dead_mount_is_no_obstacle_to_a_mount() -> Result<()> {
    if !fixture::can_mount("dead_mount_is_no_obstacle_to_a_mount") {
        return Ok(());
    }
    let mounted = Mounted::new("512M")?;
    write_synced(&mounted.path("file"), b"still here")?;
    mounted.pool.kill_daemon()?;
    let again = mounted.pool.output([
        "mount",
        &mounted.pool.dataset(DATASET),
        &mounted.mountpoint.to_string_lossy(),
    ])?;
    if !again.status.success() {
        // Refusing is fine too, if it says so and an unmount helps.
        ensure!(!again.stderr.is_empty(), "mount fails without a word");
        mounted.pool.unmount(&mounted.mountpoint)?;
        mounted.pool.mount_again(DATASET, &mounted.mountpoint)?;
    }
    ensure!(
        fs::read(mounted.path("file"))? == b"still here",
        "the file is not the one that was written"
    );
    mounted.finish()
}

#[test]
fn open_pool_is_refused_to_a_second_process() -> Result<()> {
    if !fixture::can_mount("open_pool_is_refused_to_a_second_process") {
        return Ok(());
    }
    let mounted = Mounted::new("512M")?;
    write_synced(&mounted.path("file"), b"first")?;
    let pid = mounted.pool.daemon_pid()?.to_string();
    let refused = mounted.pool.output(["check", &mounted.pool.name])?;
    ensure!(!refused.status.success(), "an offline check ran on an open pool");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(
        message.contains(&pid),
        "the refusal does not name process {pid}: {message}"
    );

    // From another state directory the lock on the member itself has to hold.
    let other = Pool::new(&mounted.pool.name, &mounted.home.join("other"))?;
    fs::create_dir_all(mounted.home.join("other"))?;
    let imported = other.output(["import", &mounted.pool.member.to_string_lossy()])?;
    if imported.status.success() {
        let second = mounted.home.join("second");
        fs::create_dir_all(&second)?;
        let refused = other.output(["mount", &other.dataset(DATASET), &second.to_string_lossy()])?;
        ensure!(!refused.status.success(), "two daemons have one pool open");
    }
    ensure!(
        fs::read(mounted.path("file"))? == b"first",
        "the first daemon was disturbed"
    );
    mounted.finish()
}

#[test]
fn only_the_owner_reaches_state_and_socket_and_nothing_listens() -> Result<()> {
    let name = "only_the_owner_reaches_state_and_socket_and_nothing_listens";
    if !fixture::can_mount(name) {
        return Ok(());
    }
    let mounted = Mounted::new("512M")?;
    let state = mounted.pool.state_directory();
    ensure!(
        mode(state)? == 0o700,
        "the state directory has mode {:o}",
        mode(state)?
    );
    let mut sockets = 0;
    for entry in fs::read_dir(state)?.flatten() {
        if entry.file_type()?.is_socket() {
            sockets += 1;
            ensure!(
                mode(&entry.path())? == 0o600,
                "{} has mode {:o}",
                entry.path().display(),
                mode(&entry.path())?
            );
        }
    }
    ensure!(sockets == 1, "{sockets} sockets in the state directory");
    let listening = network_sockets(mounted.pool.daemon_pid()?)?;
    ensure!(
        listening.is_empty(),
        "the daemon has sockets of the network: {listening:?}"
    );
    mounted.finish()
}

fn mode(path: &Path) -> Result<u32> {
    Ok(fs::symlink_metadata(path)?.permissions().mode() & 0o7777)
}

/// Descriptors of `pid` that are sockets of TCP or UDP.
fn network_sockets(pid: i32) -> Result<Vec<PathBuf>> {
    let mut inodes = HashSet::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        inodes.extend(
            text.lines()
                .skip(1)
                .filter_map(|line| Some(format!("socket:[{}]", line.split_whitespace().nth(9)?))),
        );
    }
    let open = fs::read_dir(format!("/proc/{pid}/fd"))?
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    Ok(open
        .filter(|target| inodes.contains(&target.to_string_lossy().into_owned()))
        .collect())
}

/// The kernel checks permissions on a mount made by root, for every user.
#[test]
fn mount_by_root_serves_other_users_within_their_rights() -> Result<()> {
    let name = "mount_by_root_serves_other_users_within_their_rights";
    let other = User::named("nobody").filter(|_| process::is_root());
    let missing = if other.is_none() {
        Some("only root can act as another user".to_owned())
    } else {
        None
    };
    if !fixture::can_mount(name) || !fixture::runs(name, missing) {
        return Ok(());
    }
    let Some(other) = other else { return Ok(()) };
    let mounted = Mounted::new("512M")?;
    fs::set_permissions(&mounted.mountpoint, fs::Permissions::from_mode(0o755))?;
    let (secret, shared) = (mounted.path("secret"), mounted.path("shared"));
    fs::write(&secret, "secret")?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    fs::create_dir(&shared)?;
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777))?;

    let as_other = |script: &str| -> Result<bool> {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&mounted.mountpoint);
        other.apply(&mut command);
        Ok(process::output(&mut command)?.status.success())
    };
    ensure!(
        !as_other("cat $1/secret")?,
        "another user can read a file of mode 0600"
    );
    ensure!(
        !as_other("touch $1/new")?,
        "another user can write into a directory of mode 0755"
    );
    ensure!(
        as_other("echo own > $1/shared/own && grep -q own $1/shared/own")?,
        "another user cannot use mode 1777"
    );
    fs::write(shared.join("of_root"), "x")?;
    ensure!(
        !as_other("rm -f $1/shared/of_root")?,
        "the sticky bit does not hold"
    );
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(shared.join("own"))?);
    ensure!(owner == other.uid, "the new file belongs to {owner}");
    // And not the control socket.
    let mut status = mounted.pool.command();
    other.apply(&mut status);
    ensure!(
        !process::output(status.args(["status", "tank"]))?.status.success(),
        "another user can ask the daemon"
    );
    mounted.finish()
}

/// A user without any privilege makes, mounts and uses a pool through `fusermount3`.
#[test]
fn pool_of_an_ordinary_user() -> Result<()> {
    let name = "pool_of_an_ordinary_user";
    let user = if process::is_root() {
        User::named("nobody")
    } else {
        User::current().ok()
    };
    // fusermount3 opens the device with the rights of its user.
    let for_all =
        fs::metadata("/dev/fuse").is_ok_and(|metadata| metadata.permissions().mode() & 0o006 == 0o006);
    let missing = match (&user, requirements::program("fusermount3")) {
        (None, _) => Some("there is no user 'nobody'".to_owned()),
        (_, None) => Some("fusermount3 is not installed".to_owned()),
        _ if !for_all => Some("/dev/fuse is closed to ordinary users".to_owned()),
        _ => None,
    };
    if !fixture::can_mount(name) || !fixture::runs(name, missing) {
        return Ok(());
    }
    let Some(user) = user else { return Ok(()) };
    let cleanup = Cleanup::new();
    let home = scratch::directory(&fixture::test_directory(), "packstone-test-", &cleanup)?;
    let own = home.join("own");
    fs::create_dir(&own)?;
    chown(&own, Some(user.uid), Some(user.gid))?;
    // The build directory may lie where this user cannot go.
    let program = home.join("packstone");
    fs::copy(requirements::packstone_program()?, &program)?;
    let pool = Pool::new("mine", &own)?.driven_by(&user, &program);
    pool.create("256M", &cleanup)?;
    pool.create_dataset(DATASET, &[])?;
    let mountpoint = own.join("mnt");
    fs::create_dir(&mountpoint)?;
    chown(&mountpoint, Some(user.uid), Some(user.gid))?;
    pool.mount(DATASET, &mountpoint, &cleanup)?;

    let mut shell = Command::new("sh");
    shell
        .args([
            "-ec",
            "cd $1; id -u > who; mkdir d; cp who d/; ln -s d/who l; sync who; cat l",
            "sh",
        ])
        .arg(&mountpoint);
    user.apply(&mut shell);
    ensure!(
        process::run(&mut shell)?.trim() == user.uid.to_string(),
        "the user's files are not its own"
    );
    pool.unmount(&mountpoint)?;
    pool.check()
}
