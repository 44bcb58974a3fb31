//! How many threads, and the ways back from io_uring to the device. The kernel must go on serving on each of them.

use super::*;

#[path = "../../tests/mount/store.rs"]
mod store;

#[test]
fn the_default_number_of_threads_is_enough_for_overlapping_waits() {
    assert!(MountConfig::new("/mnt", "tank/pg").thread_count() >= THREADS_MIN);
    let config = MountConfig {
        threads: 3,
        ..MountConfig::new("/mnt", "tank/pg")
    };
    assert_eq!(config.thread_count(), 3);
}

#[test]
fn large_machines_get_few_threads_a_processor_but_never_one_alone() {
    let plan = Plan::new(0).expect("a plan");
    assert!((2..=4).contains(&plan.threads_per_queue), "{plan:?}");
    assert_eq!(Plan::new(1).expect("a plan").threads_per_queue, 1);
    let all = Plan::new(8).expect("a plan");
    assert!(all.queues * all.threads_per_queue >= 8, "{all:?}");
}

/// A store and a directory to mount it on; `None`, with the reason said, where io_uring cannot be had.
fn place() -> Option<(tempfile::TempDir, store::Store, MountConfig)> {
    let may_mount = mount::is_root() && std::path::Path::new("/dev/fuse").exists();
    if may_mount && !is_offered() {
        // As the tests of whole mounts do.
        let _ = std::fs::write("/sys/module/fuse/parameters/enable_uring", "Y");
    }
    if !may_mount || !is_offered() {
        use std::io::Write;
        let name = thread::current().name().unwrap_or("a test").to_string();
        let _ = writeln!(
            io::stderr(),
            "SKIPPED {name}: the kernel does not offer FUSE over io_uring, or this is not root"
        );
        return None;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = store::Store::create(directory.path());
    let mountpoint = directory.path().join("mnt");
    std::fs::create_dir(&mountpoint).expect("a mountpoint");
    Some((directory, store, MountConfig::new(mountpoint, "tank/files")))
}

/// What the kernel refuses: less room than its largest request.
fn too_small() -> Plan {
    Plan {
        payload_bytes: 4096,
        ..Plan::new(0).expect("a plan")
    }
}

fn serves(mounted: &Mounted) {
    let path = mounted.mountpoint().join("file");
    std::fs::write(&path, vec![7; 3 << 20]).expect("written");
    assert_eq!(std::fs::read(&path).expect("read"), vec![7; 3 << 20]);
    std::fs::remove_file(&path).expect("removed");
}

#[test]
fn a_refused_entry_leaves_the_mount_to_the_device() {
    let Some((_directory, store, config)) = place() else {
        return;
    };
    let mounted = mount_by_plan(store.filesystem.clone(), &config, Some(Ok(too_small()))).expect("mounts");
    assert_eq!(mounted.transport(), TransportInUse::Device);
    serves(&mounted);
    mounted.unmount().expect("unmounts");
}

#[test]
fn rings_that_cannot_be_made_leave_the_mount_to_the_device() {
    let Some((_directory, store, config)) = place() else {
        return;
    };
    let plan = Some(Err(io::Error::from(io::ErrorKind::PermissionDenied)));
    let mounted = mount_by_plan(store.filesystem.clone(), &config, plan).expect("mounts");
    assert_eq!(mounted.transport(), TransportInUse::Device);
    serves(&mounted);
    mounted.unmount().expect("unmounts");
}

#[test]
fn a_mount_that_insists_on_rings_is_refused_without_them() {
    let Some((directory, store, mut config)) = place() else {
        return;
    };
    config.transport = TransportChoice::IoUring;
    let refused = mount_by_plan(store.filesystem.clone(), &config, Some(Ok(too_small())));
    assert_eq!(refused.err().expect("refused").kind(), ErrorKind::Unsupported);
    assert!(mount::mounted_at(directory.path().join("mnt")).is_none());
}

/// Attaches and promises the kernel rings.
fn attach(config: &MountConfig) -> (PathBuf, DevFuse, Agreement) {
    let mountpoint = mount::prepare_mountpoint(&config.mountpoint).expect("a mountpoint");
    let attachment = mount::Attachment {
        mountpoint: &mountpoint,
        source: &config.source,
        allow_other: false,
        read_only: false,
    };
    let device = DevFuse::new(Arc::new(mount::attach(&attachment).expect("attached")));
    let agreement =
        negotiate(&mut DeviceLine::new(device.same_line()), wanted(true, true)).expect("an agreement");
    assert!(agreement.has(init::OVER_IO_URING));
    (mountpoint, device, agreement)
}

/// All queues but the last have their entries, and threads that wait for ever.
#[test]
fn an_entry_refused_late_does_not_cost_the_mount() {
    let Some((_directory, store, config)) = place() else {
        return;
    };
    let (mountpoint, device, agreement) = attach(&config);
    let mut prepared = Prepared::new(Plan::new(1).expect("a plan")).expect("rings");
    prepared.spoil_last();
    let filesystem = store.filesystem.clone();
    let mounted = serve(filesystem, mountpoint, device, agreement, &config, Some(prepared)).expect("serves");
    assert_eq!(mounted.transport(), TransportInUse::Device);
    serves(&mounted);
    mounted.unmount().expect("unmounts");
}

/// The kernel has been promised rings, and then no thread can be had.
#[test]
fn rings_that_were_promised_can_be_taken_back() {
    let Some((_directory, store, config)) = place() else {
        return;
    };
    let (mountpoint, device, agreement) = attach(&config);
    refuse(&device).expect("taken back");
    let filesystem = store.filesystem.clone();
    let mounted = serve(filesystem, mountpoint, device, agreement, &config, None).expect("serves");
    serves(&mounted);
    mounted.unmount().expect("unmounts");
}
