//! The life of mounts and of the daemon behind them, on a real kernel. Skipped where it is not possible.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod support;
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use support::{Place, can_mount, is_running, send_signal, wait_for};

#[test]
fn files_survive_the_last_unmount() {
    if !can_mount() {
        return;
    }
    let place = Place::with_dataset();
    let directory = place.make_directory("mnt");
    let mounted = place.run(&["mount", "tank/pg", &directory, "--json"]).json();
    assert_eq!(
        (mounted["dataset"].as_str(), mounted["mountpoint"].as_str()),
        (Some("tank/pg"), Some(directory.as_str()))
    );
    let process_id = place.daemon_pid("tank");
    fs::write(format!("{directory}/letter"), b"dear aunt").unwrap();
    place.run(&["unmount", &directory]).succeeds();
    // The pool is closed when `unmount` returns.
    assert_eq!(place.run(&["status", "tank", "--json"]).json()["state"], "closed");
    assert!(wait_for(|| !is_running(process_id)));
    place.run(&["check", "tank"]).succeeds();
    place.run(&["mount", "tank/pg", &directory]).succeeds();
    assert_eq!(fs::read(format!("{directory}/letter")).unwrap(), b"dear aunt");
    place.run(&["unmount", "tank/pg"]).succeeds();
}

#[test]
fn whoever_waits_for_the_end_finds_the_pool_free() {
    if !can_mount() {
        return;
    }
    let place = Place::with_dataset();
    let directory = place.make_directory("mnt");
    for _ in 0..10 {
        place.run(&["mount", "tank/pg", &directory]).succeeds();
        place.run(&["unmount", &directory]).succeeds();
        place.run(&["check", "tank"]).succeeds();
    }
}

#[test]
fn one_daemon_serves_several_datasets() {
    if !can_mount() {
        return;
    }
    let place = Place::with_dataset();
    place.run(&["dataset", "create", "tank/mail"]).succeeds();
    let (one, two) = (place.make_directory("one"), place.make_directory("two"));
    place.run(&["mount", "tank/pg", &one]).succeeds();
    let process_id = place.daemon_pid("tank");
    place.run(&["mount", "tank/mail", &two]).succeeds();
    assert_eq!(place.daemon_pid("tank"), process_id);
    place
        .run(&["mount", "tank/pg", &two])
        .fails(4, &["already mounted"]);
    place
        .run(&["dataset", "destroy", "tank/pg", "--force"])
        .fails(4, &["is mounted"]);
    fs::write(format!("{one}/f"), b"1").unwrap();
    assert!(!fs::exists(format!("{two}/f")).unwrap());
    place.run(&["unmount", &one]).succeeds();
    assert_eq!(place.daemon_pid("tank"), process_id);
    place.run(&["unmount", &two]).succeeds();
    assert!(wait_for(|| !is_running(process_id)));
}

#[test]
fn a_plain_umount_closes_the_pool_too() {
    if !can_mount() || !support::is_root() {
        return;
    }
    let place = Place::with_dataset();
    let directory = place.make_directory("mnt");
    place.run(&["mount", "tank/pg", &directory]).succeeds();
    let process_id = place.daemon_pid("tank");
    assert!(Command::new("umount").arg(&directory).status().unwrap().success());
    assert!(wait_for(|| !is_running(process_id)));
    assert_eq!(place.run(&["status", "tank", "--json"]).json()["state"], "closed");
}

#[test]
fn mountpoints_are_checked() {
    if !can_mount() {
        return;
    }
    let place = Place::with_dataset();
    let full = place.make_directory("full");
    fs::write(format!("{full}/file"), b"x").unwrap();
    place.run(&["mount", "tank/pg", &full]).fails(7, &["not empty"]);
    place
        .run(&["mount", "tank/pg", &format!("{full}/file")])
        .fails(2, &["not a directory"]);
    place
        .run(&["mount", "tank/none", &place.make_directory("mnt")])
        .fails(3, &["no dataset tank/none"]);
}

#[test]
fn a_mount_in_use_is_busy_and_lazy_takes_it_away() {
    if !can_mount() {
        return;
    }
    let place = Place::with_dataset();
    let directory = place.make_directory("mnt");
    place.run(&["mount", "tank/pg", &directory]).succeeds();
    let process_id = place.daemon_pid("tank");
    let mut file = fs::File::create(format!("{directory}/open")).unwrap();
    place
        .run(&["unmount", &directory])
        .fails(4, &["in use", "--lazy"]);
    assert_eq!(place.daemon_pid("tank"), process_id);
    let unmounted = place.run(&["unmount", &directory, "--lazy", "--json"]).json();
    assert_eq!(unmounted["lazy"], true);
    // Who has the file open goes on until it is closed; then the daemon ends.
    file.write_all(b"still here").unwrap();
    file.sync_all().unwrap();
    assert!(is_running(process_id));
    drop(file);
    assert!(wait_for(|| !is_running(process_id)));
    place.run(&["mount", "tank/pg", &directory]).succeeds();
    assert_eq!(fs::read(format!("{directory}/open")).unwrap(), b"still here");
    place.run(&["unmount", &directory]).succeeds();
}

#[test]
fn a_signal_unmounts_and_closes() {
    if !can_mount() {
        return;
    }
    let place = Place::with_dataset();
    let directory = place.make_directory("mnt");
    place.run(&["mount", "tank/pg", &directory]).succeeds();
    let process_id = place.daemon_pid("tank");
    fs::write(format!("{directory}/file"), b"kept").unwrap();
    send_signal(process_id, Signal::TERM);
    assert!(wait_for(|| !is_running(process_id)));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "nothing is mounted");
    place.run(&["mount", "tank/pg", &directory]).succeeds();
    assert_eq!(fs::read(format!("{directory}/file")).unwrap(), b"kept");
    place.run(&["unmount", &directory]).succeeds();
}

#[test]
fn a_killed_daemon_leaves_a_mount_that_can_be_taken_away_or_mounted_over() {
    if !can_mount() {
        return;
    }
    let place = Place::with_dataset();
    let directory = place.make_directory("mnt");
    for remount in [false, true] {
        place.run(&["mount", "tank/pg", &directory]).succeeds();
        let process_id = place.daemon_pid("tank");
        let mut file = fs::File::create(format!("{directory}/synced")).unwrap();
        file.write_all(format!("{remount}").as_bytes()).unwrap();
        file.sync_all().unwrap();
        drop(file);
        send_signal(process_id, Signal::KILL);
        assert!(wait_for(|| !is_running(process_id)));
        assert!(fs::read_dir(&directory).is_err(), "the mount is dead");
        if !remount {
            place.run(&["unmount", &directory]).succeeds();
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        }
        place.run(&["mount", "tank/pg", &directory]).succeeds();
        assert_eq!(
            fs::read(format!("{directory}/synced")).unwrap(),
            format!("{remount}").as_bytes()
        );
        place.run(&["unmount", &directory]).succeeds();
    }
}

#[test]
fn foreground_serves_until_interrupted() {
    if !can_mount() {
        return;
    }
    let place = Place::with_dataset();
    let directory = place.make_directory("mnt");
    let mut child = place
        .command(&["mount", "tank/pg", &directory, "--foreground"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let process_id = child.id() as i32;
    assert!(wait_for(|| place.state_directory().join("tank.sock").exists()
        && fs::write(format!("{directory}/.probe"), b"").is_ok()));
    assert_eq!(place.daemon_pid("tank"), process_id);
    send_signal(process_id, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(place.run(&["status", "tank", "--json"]).json()["state"], "closed");
}

#[test]
fn a_dataset_with_files_wants_force() {
    if !can_mount() {
        return;
    }
    let place = Place::with_dataset();
    let directory = place.make_directory("mnt");
    place.run(&["mount", "tank/pg", &directory]).succeeds();
    fs::write(format!("{directory}/file"), vec![7; 100_000]).unwrap();
    place.run(&["unmount", &directory]).succeeds();
    place
        .run(&["dataset", "destroy", "tank/pg"])
        .fails(7, &["not empty", "--force"]);
    let destroyed = place
        .run(&["dataset", "destroy", "tank/pg", "--force", "--json"])
        .json();
    assert_eq!(destroyed["complete"], true);
    place
        .run(&["dataset", "get", "tank/pg"])
        .fails(3, &["no dataset"]);
    place.run(&["check", "tank"]).succeeds();
    // An empty one, though it was mounted once, does not.
    place.run(&["dataset", "create", "tank/pg"]).succeeds();
    place.run(&["mount", "tank/pg", &directory]).succeeds();
    place.run(&["dataset", "create", "tank/other"]).succeeds();
    place.run(&["dataset", "destroy", "tank/other"]).succeeds();
    place.run(&["unmount", &directory]).succeeds();
    place.run(&["dataset", "destroy", "tank/pg"]).succeeds();
}

#[test]
fn check_finds_a_flipped_byte() {
    if !can_mount() {
        return;
    }
    let place = Place::with_dataset();
    let directory = place.make_directory("mnt");
    place.run(&["mount", "tank/pg", &directory]).succeeds();
    // Text that no codec shortens away, so that it can be found on the member.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let noise: Vec<u8> = (0..200_000)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect();
    fs::write(format!("{directory}/file"), &noise).unwrap();
    place.run(&["unmount", &directory]).succeeds();
    let checked = place.run(&["check", "tank", "--json"]).json();
    assert_eq!(checked["problems"], serde_json::json!([]));
    assert_eq!(checked["datasets"][0]["files"], 1);
    let member = place.path("tank.pack");
    let mut content = fs::read(&member).unwrap();
    let needle = &noise[20_000..20_032];
    let at = content
        .windows(needle.len())
        .position(|window| window == needle)
        .expect("the records are raw");
    content[at] ^= 1;
    fs::write(&member, &content).unwrap();
    let outcome = place.run(&["check", "tank"]);
    outcome.fails(5, &["damaged"]);
    assert!(outcome.stdout.contains("\nproblem: "), "{outcome:?}");
    assert!(
        outcome.stdout.contains("damaged file: tank/pg:/file bytes "),
        "{outcome:?}"
    );
    // There is one copy: nothing mends that, and nothing is written.
    place.run(&["check", "tank", "--repair"]).fails(5, &["damaged"]);
    assert!(
        fs::read(&member).unwrap() == content,
        "a repair that can do nothing wrote"
    );
    content[at] ^= 1;
    // A damaged copy of the label, on the other hand, can be written from the other.
    content[80] ^= 1;
    fs::write(&member, &content).unwrap();
    let outcome = place.run(&["check", "tank", "--repair", "--dry-run"]);
    outcome.fails(5, &["damaged"]);
    assert!(
        outcome.stdout.contains("repair: write the label at the front"),
        "{outcome:?}"
    );
    assert!(fs::read(&member).unwrap() == content, "a dry run wrote");
    let said = place.run(&["check", "tank", "--repair"]).succeeds();
    assert!(said.contains("repaired: write the label at the front"), "{said}");
    place.run(&["check", "tank"]).succeeds();
    // A healthy pool is not touched.
    let healthy = fs::read(&member).unwrap();
    let outcome = place.run(&["check", "tank", "--repair", "--json"]).json();
    assert_eq!(
        (&outcome["repairs"], &outcome["repaired"]),
        (&serde_json::json!([]), &serde_json::json!(false))
    );
    assert!(
        fs::read(&member).unwrap() == healthy,
        "a healthy pool was written to"
    );
}

#[test]
fn the_transport_is_chosen_by_the_environment_and_shown() {
    if !can_mount() {
        return;
    }
    let place = Place::with_dataset();
    let directory = place.make_directory("mnt");
    let mount = |choice: &str| {
        let mut command = place.command(&["mount", "tank/pg", &directory, "--json"]);
        command.env("PACKSTONE_FUSE_TRANSPORT", choice);
        support::outcome(command.output().unwrap())
    };
    let offered = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    let offers_rings = offered.is_ok_and(|setting| setting.trim() == "Y");
    for (choice, expected) in [
        ("device", "device"),
        ("auto", if offers_rings { "io_uring" } else { "device" }),
        ("io_uring", "io_uring"),
    ] {
        let outcome = mount(choice);
        if choice == "io_uring" && !offers_rings {
            outcome.fails(8, &["enable_uring"]);
            continue;
        }
        assert_eq!(outcome.json()["transport"], expected);
        fs::write(format!("{directory}/{choice}"), b"x").unwrap();
        let status = place.run(&["status", "tank", "--json"]).json();
        assert_eq!(status["datasets"][0]["transport"], expected);
        assert_eq!(status["requests"]["WRITE"], 1, "{status}");
        place.run(&["unmount", &directory]).succeeds();
        let closed = place.run(&["status", "tank", "--json"]).json();
        assert!(closed["datasets"][0]["transport"].is_null(), "{closed}");
    }
    mount("pigeon").fails(2, &["PACKSTONE_FUSE_TRANSPORT", "io_uring"]);
    // A daemon whose first mount failed waits for another, which has a choice of its own.
    let mut first = place.command(&["mount", "tank/pg", "/dev/null", "--json"]);
    support::outcome(
        first
            .env("PACKSTONE_FUSE_TRANSPORT", "io_uring")
            .output()
            .unwrap(),
    )
    .fails(2, &[]);
    assert_eq!(mount("device").json()["transport"], "device");
    place.run(&["unmount", &directory]).succeeds();
}
