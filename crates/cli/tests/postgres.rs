//! `packstone postgres create`, with PostgreSQL if it is installed. Skipped where it is not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod support;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use support::{Place, can_mount, say_skipped};

fn has_postgres() -> bool {
    let found = Path::new("/usr/lib/postgresql").exists()
        && fs::read_to_string("/etc/passwd").is_ok_and(|users| users.contains("\npostgres:"));
    if !found {
        say_skipped(format_args!("PostgreSQL is not installed"));
    }
    found
}

#[test]
fn makes_a_cluster_that_suits_the_dataset() {
    if !can_mount() || !has_postgres() || !support::is_root() {
        return;
    }
    let place = Place::new();
    place
        .run(&["create", "tank", &place.path("tank.pack"), "--size", "512M"])
        .succeeds();
    let mountpoint = place.path("pg");
    let created = place
        .run(&[
            "postgres",
            "create",
            "tank/pg",
            &mountpoint,
            "--port",
            "54329",
            "--json",
        ])
        .json();
    assert_eq!(created["data_directory"], format!("{mountpoint}/data"));
    assert!(created["start_command"].as_str().unwrap().contains("pg_ctl -D"));
    let data = format!("{mountpoint}/data");
    let metadata = fs::metadata(&data).unwrap();
    assert_ne!(metadata.uid(), 0);
    assert_eq!(metadata.mode() & 0o777, 0o700);
    let settings = fs::read_to_string(format!("{data}/packstone.conf")).unwrap();
    for setting in [
        "full_page_writes = off",
        "wal_init_zero = off",
        "wal_recycle = off",
        "wal_compression = off",
        "port = 54329",
    ] {
        assert!(settings.contains(&format!("\n{setting}\n")), "{setting}");
    }
    assert!(
        fs::read_to_string(format!("{data}/postgresql.conf"))
            .unwrap()
            .ends_with("\ninclude = 'packstone.conf'\n")
    );
    let dataset = place.run(&["dataset", "get", "tank/pg", "--json"]).json();
    assert_eq!(dataset["recordsize"], "8K");
    // The same again finds the cluster and leaves it alone.
    place
        .run(&["postgres", "create", "tank/pg", &mountpoint])
        .fails(7, &["exists already"]);
    place.run(&["unmount", &mountpoint]).succeeds();
}

#[test]
fn bad_input_makes_nothing() {
    let place = Place::new();
    place
        .run(&[
            "create",
            "tank",
            &place.path("tank.pack"),
            "--size",
            support::SIZE,
        ])
        .succeeds();
    let mountpoint = place.path("pg");
    let create = |arguments: &[&str]| {
        place.run(&[&["postgres", "create", "tank/pg", mountpoint.as_str()], arguments].concat())
    };
    create(&["--recordsize", "4K"]).fails(2, &["smaller than a page"]);
    create(&["--compression", "zip"]).fails(2, &["zip"]);
    create(&["--version", "3"]).fails(3, &["apt install postgresql-3"]);
    create(&["--port", "0"]).fails(2, &["port"]);
    if has_postgres() {
        create(&["--user", "nobody-of-that-name"]).fails(3, &["no user"]);
    }
    assert!(!Path::new(&mountpoint).exists());
    assert_eq!(
        place.run(&["dataset", "list", "tank", "--json"]).json(),
        serde_json::json!([])
    );
}
