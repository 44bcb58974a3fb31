//! The hidden option of `create` with which killing a daemon is a power cut. Skipped where nothing can be mounted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod support;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};
use support::{Place, SIZE, can_mount, is_running, send_signal, wait_for};

/// Well below the age at which the daemon flushes by itself.
const SOON: Duration = Duration::from_secs(4);
/// Enough for the daemon to write most of it early, and too little for a checkpoint.
const UNSYNCED_BYTES: usize = 4 << 20;

#[test]
fn killing_the_daemon_loses_what_it_had_written_and_not_flushed() {
    if !can_mount() {
        return;
    }
    assert_eq!(bytes_left_after_a_kill(Some("--lossy-member")), 0);
    // The same on an ordinary member, to show that it is the member that forgets.
    assert!(bytes_left_after_a_kill(None) >= 1 << 20);
}

/// Syncs one file, writes another without a sync, kills the daemon as soon as it has written most of that to the member,
/// and tells how much of the second file is there afterwards.
fn bytes_left_after_a_kill(option: Option<&str>) -> u64 {
    // A machine that is too busy makes the daemon flush before the kill: then it is tried again.
    for _ in 0..10 {
        if let Some(left_bytes) = try_to_kill_in_time(option) {
            return left_bytes;
        }
    }
    panic!("the daemon was never killed in time");
}

fn try_to_kill_in_time(option: Option<&str>) -> Option<u64> {
    let place = Place::new();
    let member = place.path("tank.pack");
    let mut create = vec!["create", "tank", &member, "--size", SIZE];
    create.extend(option);
    place.run(&create).succeeds();
    place.run(&["dataset", "create", "tank/pg"]).succeeds();
    let directory = place.make_directory("mnt");
    place.run(&["mount", "tank/pg", &directory]).succeeds();
    let status = || place.run(&["status", "tank", "--json"]).json();
    let path = status()["members"][0]["path"].as_str().unwrap().to_string();
    assert_eq!(
        path.ends_with(" (lossy: for tests only)"),
        option.is_some(),
        "{path}"
    );

    let mut kept = File::create(format!("{directory}/kept")).unwrap();
    kept.write_all(b"synced").unwrap();
    kept.sync_all().unwrap();
    File::open(&directory).unwrap().sync_all().unwrap();
    let daemon = place.daemon_pid("tank");
    let (flushes, begin) = (status()["flushes"].as_u64().unwrap(), Instant::now());
    fs::write(format!("{directory}/unsynced"), noise()).unwrap();
    let written = || status()["media_written_bytes"]["data"].as_u64().unwrap();
    assert!(wait_for(|| written() > 2 << 20 || begin.elapsed() > SOON));
    let unflushed = status()["flushes"].as_u64().unwrap() == flushes;
    send_signal(daemon, Signal::KILL);
    let in_time = unflushed && begin.elapsed() < SOON;
    assert!(wait_for(|| !is_running(daemon)));
    if !in_time {
        return None;
    }

    place.run(&["check", "tank"]).succeeds();
    place.run(&["mount", "tank/pg", &directory]).succeeds();
    assert_eq!(fs::read(format!("{directory}/kept")).unwrap(), b"synced");
    let left_bytes = fs::metadata(format!("{directory}/unsynced")).map_or(0, |metadata| metadata.len());
    place.run(&["unmount", &directory]).succeeds();
    place.run(&["check", "tank"]).succeeds();
    Some(left_bytes)
}

/// Bytes that no codec can shrink.
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(UNSYNCED_BYTES);
    while bytes.len() < UNSYNCED_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

#[test]
fn an_ordinary_pool_does_not_mention_it() {
    let place = Place::new();
    let help = place.run(&["create", "--help"]).succeeds();
    assert!(!help.contains("lossy"), "{help}");
    let member = place.path("tank.pack");
    place.run(&["create", "tank", &member, "--size", SIZE]).succeeds();
    let entry = fs::read_to_string(place.state_directory().join("tank.json")).unwrap();
    assert!(!entry.contains("lossy"), "{entry}");
    assert!(!place.run(&["status", "tank"]).succeeds().contains("lossy"));
}
