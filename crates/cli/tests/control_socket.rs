//! The daemon without a mount: its lock, its socket, and how it answers nonsense.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod support;
use std::os::unix::fs::PermissionsExt;
use support::{Place, SIZE, is_running, send_signal, wait_for};

#[test]
fn a_second_process_is_told_who_has_the_pool() {
    let place = Place::with_dataset();
    let daemon = place.start_daemon("tank");
    let process = format!("process {}", daemon.child.id());
    place.run(&["check", "tank"]).fails(4, &[&process, "daemon tank"]);
    place.run(&["destroy", "tank", "--force"]).fails(4, &[&process]);
    place.run(&["inspect", "tank", "label"]).fails(4, &[&process]);
    place.run(&["daemon", "tank"]).fails(4, &[&process]);
    // Through another state directory it is the member itself that is locked.
    let other = Place::new();
    other
        .run(&["create", "other", &place.path("tank.pack"), "--force"])
        .fails(4, &[]);
}

#[test]
fn commands_go_through_the_daemon() {
    let place = Place::with_dataset();
    let daemon = place.start_daemon("tank");
    place
        .run(&["dataset", "create", "tank/mail", "-o", "recordsize=16K"])
        .succeeds();
    let status = place.run(&["status", "tank", "--json"]).json();
    assert_eq!(status["state"], "open");
    assert_eq!(status["daemon_pid"], daemon.child.id());
    assert_eq!(status["datasets"][0]["name"], "tank/mail");
    assert_eq!(status["datasets"][0]["recordsize_bytes"], 16384);
    place
        .run(&["dataset", "set", "tank/mail", "compression=lz4"])
        .succeeds();
    assert_eq!(
        place
            .run(&["dataset", "get", "tank/mail", "compression", "--json"])
            .json()["compression"],
        "lz4"
    );
    place
        .run(&["dataset", "create", "tank/mail"])
        .fails(7, &["exists already"]);
    place
        .run(&["dataset", "get", "tank/none"])
        .fails(3, &["no dataset tank/none"]);
    place.run(&["set", "tank", "memory=128M"]).succeeds();
}

#[test]
fn every_field_that_is_promised_is_there() {
    let place = Place::with_dataset();
    let check = |status: serde_json::Value, state: &str| {
        assert_eq!(status["state"], state);
        for field in [
            "capacity_bytes",
            "allocated_bytes",
            "live_bytes",
            "free_bytes",
            "logical_bytes",
            "stored_bytes",
            "compression_ratio",
            "uptime_seconds",
        ] {
            assert!(status[field].is_number(), "{field} in {status}");
        }
        for purpose in ["total", "data", "operations", "padding", "nodes", "cleaning"] {
            assert!(
                status["media_written_bytes"][purpose].is_number(),
                "{purpose} in {status}"
            );
        }
        let dataset = &status["datasets"][0];
        assert_eq!(
            (dataset["name"].as_str(), dataset["compression"].as_str()),
            (Some("tank/pg"), Some("zstd-1"))
        );
        assert!(dataset.as_object().unwrap().contains_key("mountpoint"));
        for field in [
            "recordsize_bytes",
            "logical_bytes",
            "stored_bytes",
            "compression_ratio",
        ] {
            assert!(dataset[field].is_number(), "{field} in {status}");
        }
        let member = &status["members"][0];
        assert_eq!(member["path"], place.path("tank.pack"));
        assert!(member["state"].is_string());
        for field in ["read_errors", "write_errors", "checksum_errors"] {
            assert!(member[field].is_number(), "{field} in {status}");
        }
    };
    check(place.run(&["status", "tank", "--json"]).json(), "closed");
    let _daemon = place.start_daemon("tank");
    check(place.run(&["status", "tank", "--json"]).json(), "open");
}

#[test]
fn only_the_owner_reaches_the_socket() {
    let place = Place::with_dataset();
    let _daemon = place.start_daemon("tank");
    let mode = |path: std::path::PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(place.state_directory()), 0o700);
    assert_eq!(mode(place.state_directory().join("tank.sock")), 0o600);
    assert_eq!(mode(place.state_directory().join("tank.json")), 0o600);
    assert_eq!(mode(place.state_directory().join("tank.lock")), 0o600);
}

#[test]
fn malformed_requests_get_a_4xx_with_a_message() {
    let place = Place::with_dataset();
    let _daemon = place.start_daemon("tank");
    let ask = |method: &str, path: &str, body: &str| place.request("tank", method, path, body);
    let refused = |(status, body): (u16, String), expected: u16| {
        assert_eq!(status, expected, "{body}");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert!(!body["error"]["message"].as_str().unwrap().is_empty());
        assert!(body["error"]["code"].is_string());
    };
    refused(ask("GET", "/nonsense", ""), 404);
    refused(ask("PUT", "/status", ""), 405);
    refused(ask("POST", "/datasets", ""), 400);
    refused(ask("POST", "/datasets", "{"), 400);
    refused(ask("POST", "/datasets", "[1,2]"), 400);
    refused(ask("POST", "/datasets", "{\"name\":1}"), 400);
    refused(
        ask("POST", "/datasets", "{\"name\":\"a\",\"colour\":\"red\"}"),
        400,
    );
    refused(ask("POST", "/datasets", "{\"name\":\"../a\"}"), 400);
    refused(
        ask(
            "POST",
            "/datasets",
            "{\"name\":\"a\",\"properties\":{\"colour\":\"red\"}}",
        ),
        400,
    );
    refused(ask("POST", "/datasets", "{\"name\":\"pg\"}"), 409);
    refused(
        ask(
            "POST",
            "/datasets",
            &format!("{{\"name\":\"{}\"}}", "x".repeat(100 << 10)),
        ),
        413,
    );
    refused(ask("DELETE", "/datasets/pg?force=perhaps", ""), 400);
    refused(ask("DELETE", "/datasets/none", ""), 404);
    refused(ask("GET", "/datasets/%2e%2e", ""), 400);
    refused(ask("DELETE", "/mounts/pg", ""), 404);
    refused(
        ask(
            "POST",
            "/mounts",
            "{\"dataset\":\"none\",\"mountpoint\":\"/tmp\"}",
        ),
        404,
    );
    refused(
        ask(
            "POST",
            "/mounts",
            "{\"dataset\":\"pg\",\"mountpoint\":\"relative\"}",
        ),
        400,
    );
    refused(
        ask(
            "POST",
            "/mounts",
            "{\"dataset\":\"pg\",\"mountpoint\":\"/no/such/place\"}",
        ),
        404,
    );
    refused(
        ask("PATCH", "/properties", "{\"properties\":{\"memory\":\"-1\"}}"),
        400,
    );
    for nonsense in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /status HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
    ] {
        let (status, _) = place.raw_request("tank", nonsense);
        assert!(status == 0 || (400..500).contains(&status), "{status}");
    }
    // It is as well as before.
    assert_eq!(ask("GET", "/status", "").0, 200);
}

#[test]
fn asked_to_stop_it_closes_and_leaves_nothing_behind() {
    for by_signal in [true, false] {
        let place = Place::with_dataset();
        let mut daemon = place.start_daemon("tank");
        match by_signal {
            true => send_signal(daemon.child.id() as i32, rustix::process::Signal::TERM),
            false => assert_eq!(place.request("tank", "POST", "/shutdown", "").0, 202),
        }
        assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
        assert!(!place.state_directory().join("tank.sock").exists());
        assert_eq!(place.run(&["status", "tank", "--json"]).json()["state"], "closed");
    }
}

#[test]
fn a_socket_and_lock_left_by_a_killed_daemon_are_no_obstacle() {
    let place = Place::with_dataset();
    let mut daemon = place.start_daemon("tank");
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    assert!(place.state_directory().join("tank.sock").exists());
    assert_eq!(place.run(&["status", "tank", "--json"]).json()["state"], "closed");
    let daemon = place.start_daemon("tank");
    assert!(wait_for(|| is_running(daemon.child.id() as i32)));
    assert_eq!(place.daemon_pid("tank"), daemon.child.id() as i32);
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let place = Place::new();
    let member = place.path("tank.pack");
    place.run(&["create", "tank", &member, "--size", SIZE]).succeeds();
    place.run(&["dataset", "create", "tank/pg"]).succeeds();
    std::fs::remove_file(&member).unwrap();
    let directory = place.make_directory("mnt");
    place
        .run(&["mount", "tank/pg", &directory])
        .fails(3, &["tank.pack does not exist"]);
}
