//! Bad input gets a precise message and its documented exit code, and changes nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod support;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use support::{Place, SIZE, is_root};

/// Runs a command that must fail, and compares every file before and after.
#[track_caller]
fn changes_nothing(place: &Place, arguments: &[&str], code: i32, says: &[&str]) {
    let before = place.fingerprint();
    place.run(arguments).fails(code, says);
    assert_eq!(place.fingerprint(), before, "{arguments:?} changed something");
}

/// The same for what can only be known once the pool is open: opening it for writing leaves its marks on the member, but no
/// fact may change.
#[track_caller]
fn changes_no_fact(place: &Place, arguments: &[&str], code: i32, says: &[&str]) {
    let facts = || {
        (
            place.run(&["dataset", "list", "tank", "--json"]).json(),
            place.run(&["get", "tank", "--json"]).json(),
        )
    };
    let before = facts();
    place.run(arguments).fails(code, says);
    assert_eq!(facts(), before, "{arguments:?} changed something");
}

#[test]
fn create_refuses_bad_arguments() {
    let place = Place::new();
    let new = place.path("new.pack");
    changes_nothing(
        &place,
        &["create", "tank", &new],
        2,
        &["does not exist", "--size"],
    );
    changes_nothing(
        &place,
        &["create", "tank", &new, "--size", "lots"],
        2,
        &["not a size"],
    );
    changes_nothing(
        &place,
        &["create", "tank", &new, "--size", "1M"],
        2,
        &["too small", "at least"],
    );
    changes_nothing(
        &place,
        &["create", "tank", &new, "--size", "67108865"],
        2,
        &["4096"],
    );
    changes_nothing(
        &place,
        &["create", "tank", &new, "--size", "99999999999T"],
        2,
        &["not a size"],
    );
    for name in ["", "a b", "a/b", "../x", "1st", ".hidden", "ä", &"x".repeat(80)] {
        changes_nothing(
            &place,
            &["create", name, &new, "--size", SIZE],
            2,
            &["not a pool name"],
        );
    }
    changes_nothing(
        &place,
        &["create", "tank", &new, "--size", SIZE, "-o", "colour=red"],
        2,
        &["unknown pool property 'colour'", "memory"],
    );
    changes_nothing(
        &place,
        &["create", "tank", &new, "--size", SIZE, "-o", "memory"],
        2,
        &["NAME=VALUE"],
    );
    changes_nothing(
        &place,
        &["create", "tank", &new, "--size", SIZE, "-o", "memory=1K"],
        2,
        &["at least"],
    );
    changes_nothing(
        &place,
        &[
            "create",
            "tank",
            &new,
            "--size",
            SIZE,
            "-o",
            "memory=1G",
            "-o",
            "memory=2G",
        ],
        2,
        &["twice"],
    );
    changes_nothing(
        &place,
        &["create", "tank", &place.path("no/such/new.pack"), "--size", SIZE],
        3,
        &["does not exist", "create it first"],
    );
    changes_nothing(
        &place,
        &["create", "tank", &place.path(""), "--size", SIZE],
        2,
        &["is a directory"],
    );
    changes_nothing(
        &place,
        &["create", "tank", "/dev/null"],
        2,
        &["neither a regular file nor a block device"],
    );
    assert!(!fs::exists(&new).unwrap());
}

#[test]
fn create_refuses_what_holds_something() {
    let place = Place::new();
    let path = place.path("device");
    let marks: [(&str, u64, &[u8]); 6] = [
        ("ext2, ext3 or ext4", 0x438, &[0x53, 0xEF]),
        ("xfs", 0, b"XFSB"),
        ("btrfs", 0x10040, b"_BHRfS_M"),
        ("swap", 4086, b"SWAPSPACE2"),
        ("GPT", 512, b"EFI PART"),
        ("unknown kind", 12345, b"letters to my aunt"),
    ];
    for (name, offset_bytes, mark) in marks {
        let file = fs::File::create(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(mark, offset_bytes).unwrap();
        changes_nothing(&place, &["create", "tank", &path], 7, &[name, "--force"]);
    }
    changes_nothing(
        &place,
        &["create", "tank", &path, "--size", SIZE],
        7,
        &["exists already", "--size"],
    );
    place.run(&["create", "tank", &path, "--force"]).succeeds();
}

#[test]
fn create_takes_an_empty_file_and_refuses_a_small_one() {
    let place = Place::new();
    let path = place.path("empty");
    fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    changes_nothing(&place, &["create", "tank", &path], 2, &["too small"]);
    fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    place.run(&["create", "tank", &path]).succeeds();
    // A file that was there before is the user's: it stays.
    let destroyed = place.run(&["destroy", "tank", "--json"]).json();
    assert_eq!(destroyed["removed_files"].as_array().unwrap().len(), 0);
    assert_eq!(fs::metadata(&path).unwrap().len(), 64 << 20);
}

#[test]
fn create_refuses_pools() {
    let place = Place::with_dataset();
    let member = place.path("tank.pack");
    changes_nothing(
        &place,
        &["create", "tank", &place.path("other.pack"), "--size", SIZE],
        7,
        &["'tank' is registered already"],
    );
    changes_nothing(
        &place,
        &["create", "other", &member],
        7,
        &["belongs to pool 'tank'"],
    );
    changes_nothing(
        &place,
        &["create", "other", &member, "--force"],
        7,
        &["belongs to pool 'tank'"],
    );
    // Another state directory knows nothing of the pool, but the label does.
    fs::remove_file(place.state_directory().join("tank.json")).unwrap();
    changes_nothing(
        &place,
        &["create", "other", &member],
        7,
        &["the packstone pool 'tank'"],
    );
}

#[test]
fn datasets_and_properties() {
    let place = Place::with_dataset();
    for name in ["tank", "tank/", "tank/a/b", "tank/a b", "tank/..", "/pg"] {
        changes_nothing(&place, &["dataset", "create", name], 2, &["invalid value"]);
    }
    changes_nothing(
        &place,
        &["dataset", "create", "nowhere/pg"],
        3,
        &["no pool named 'nowhere'"],
    );
    changes_no_fact(&place, &["dataset", "create", "tank/pg"], 7, &["exists already"]);
    changes_nothing(
        &place,
        &["dataset", "create", "tank/new", "-o", "colour=red"],
        2,
        &["colour", "recordsize"],
    );
    for value in [
        "recordsize=7K",
        "recordsize=2K",
        "recordsize=2M",
        "recordsize=8",
        "compression=zip",
        "compression=zstd-20",
        "atime=perhaps",
    ] {
        changes_nothing(&place, &["dataset", "create", "tank/new", "-o", value], 2, &[]);
        changes_nothing(&place, &["dataset", "set", "tank/pg", value], 2, &[]);
    }
    changes_no_fact(
        &place,
        &["dataset", "get", "tank/new"],
        3,
        &["no dataset tank/new"],
    );
    changes_nothing(
        &place,
        &["dataset", "get", "tank/pg", "colour"],
        2,
        &["unknown dataset property 'colour'"],
    );
    changes_no_fact(
        &place,
        &["dataset", "set", "tank/new", "atime=off"],
        3,
        &["no dataset tank/new"],
    );
    changes_no_fact(
        &place,
        &["dataset", "destroy", "tank/new"],
        3,
        &["no dataset tank/new"],
    );
    changes_nothing(&place, &["set", "tank", "memory=1M"], 2, &["at least"]);
    changes_nothing(&place, &["set", "tank"], 2, &["NAME=VALUE"]);
    changes_nothing(&place, &["get", "tank", "colour"], 2, &["unknown pool property"]);
}

#[test]
fn pools_and_mounts_that_are_not_there() {
    let place = Place::with_dataset();
    let directory = place.make_directory("empty");
    for arguments in [
        &["status", "nowhere"][..],
        &["check", "nowhere"],
        &["destroy", "nowhere"],
        &["get", "nowhere"],
        &["inspect", "nowhere", "label"],
    ] {
        changes_nothing(&place, arguments, 3, &["no pool named 'nowhere'"]);
    }
    changes_nothing(
        &place,
        &["mount", "nowhere/pg", &directory],
        3,
        &["no pool named 'nowhere'"],
    );
    changes_nothing(
        &place,
        &["mount", "tank/pg", &place.path("missing")],
        3,
        &["create it first"],
    );
    changes_nothing(
        &place,
        &["unmount", &directory],
        3,
        &["no packstone dataset is mounted"],
    );
    changes_nothing(&place, &["unmount", "tank/pg"], 3, &["not mounted"]);
    changes_nothing(
        &place,
        &["import", &place.path("missing")],
        3,
        &["does not exist"],
    );
    changes_nothing(&place, &["import", &directory], 2, &["is a directory"]);
    let file = place.path("letter.txt");
    fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
    changes_nothing(&place, &["import", &file], 3, &["does not hold a packstone pool"]);
}

#[test]
fn destroy_wants_force_when_there_are_datasets() {
    let place = Place::with_dataset();
    changes_nothing(&place, &["destroy", "tank"], 7, &["tank/pg", "--force"]);
    let destroyed = place.run(&["destroy", "tank", "--force", "--json"]).json();
    assert_eq!(destroyed["removed_files"][0], place.path("tank.pack"));
    assert!(!fs::exists(place.path("tank.pack")).unwrap());
    place.run(&["status", "tank"]).fails(3, &["no pool named"]);
    assert_eq!(
        fs::read_dir(place.state_directory()).unwrap().count(),
        0,
        "nothing is left of the pool"
    );
}

#[test]
fn destroy_keep_leaves_a_file_that_is_no_pool() {
    let place = Place::with_dataset();
    place.run(&["destroy", "tank", "--force", "--keep"]).succeeds();
    place
        .run(&["import", &place.path("tank.pack")])
        .fails(3, &["does not hold a packstone pool"]);
}

#[test]
fn import_registers_what_was_forgotten() {
    let place = Place::with_dataset();
    fs::remove_file(place.state_directory().join("tank.json")).unwrap();
    place.run(&["status", "tank"]).fails(3, &["import"]);
    let moved = place.path("moved.pack");
    fs::rename(place.path("tank.pack"), &moved).unwrap();
    let imported = place.run(&["import", &moved, "--json"]).json();
    assert_eq!(
        (imported["pool"].as_str(), imported["path"].as_str()),
        (Some("tank"), Some(moved.as_str()))
    );
    assert_eq!(
        place.run(&["dataset", "list", "tank", "--json"]).json()[0]["name"],
        "tank/pg"
    );
    // A pool of the same name but another identity does not take its place.
    let other = Place::new();
    other
        .run(&["create", "tank", &other.path("x.pack"), "--size", SIZE])
        .succeeds();
    changes_nothing(
        &place,
        &["import", &other.path("x.pack")],
        7,
        &["another pool named 'tank'"],
    );
}

/// Writes both copies of the label anew, with a checksum that holds.
fn change_label(member: &str, change: impl FnOnce(&mut [u8])) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(member)
        .unwrap();
    let mut sector = [0; 4096];
    file.read_exact_at(&mut sector, 0).unwrap();
    change(&mut sector);
    let checksum = packstone_codec::checksum(&sector[..4088]);
    sector[4088..].copy_from_slice(&checksum.to_le_bytes());
    file.write_all_at(&sector, 0).unwrap();
    file.write_all_at(
        &sector,
        file.metadata().unwrap().len() - packstone_pool::LABEL_AREA_BYTES,
    )
    .unwrap();
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let place = Place::with_dataset();
    let member = place.path("tank.pack");
    change_label(&member, |sector| {
        sector[8..12].copy_from_slice(&99_u32.to_le_bytes())
    });
    let directory = place.make_directory("mnt");
    changes_nothing(&place, &["status", "tank"], 8, &["format 99", "newer"]);
    changes_nothing(&place, &["import", &member], 8, &["format 99", "newer"]);
    changes_nothing(&place, &["check", "tank"], 8, &["format 99"]);
    changes_nothing(&place, &["inspect", "tank", "label"], 8, &["format 99"]);
    place
        .run(&["mount", "tank/pg", &directory])
        .fails(8, &["format 99"]);
    fs::remove_file(place.state_directory().join("tank.json")).unwrap();
    changes_nothing(
        &place,
        &["create", "other", &member],
        7,
        &["format 99", "--force"],
    );
}

#[test]
fn a_damaged_label_is_an_error_and_still_protects_the_member() {
    let place = Place::with_dataset();
    let member = place.path("tank.pack");
    let file = fs::OpenOptions::new().write(true).open(&member).unwrap();
    // One copy is enough.
    file.write_all_at(&[0xff; 64], 100).unwrap();
    place.run(&["status", "tank"]).succeeds();
    file.write_all_at(&[0xff; 64], (64 << 20) - packstone_pool::LABEL_AREA_BYTES + 100)
        .unwrap();
    changes_nothing(&place, &["status", "tank"], 5, &["tank.pack"]);
    changes_nothing(&place, &["import", &member], 5, &["tank.pack"]);
    changes_nothing(&place, &["destroy", "tank"], 5, &["--force"]);
    fs::remove_file(place.state_directory().join("tank.json")).unwrap();
    changes_nothing(
        &place,
        &["create", "other", &member],
        7,
        &["damaged pool", "--force"],
    );
}

#[test]
fn a_state_directory_open_to_others_is_refused() {
    let place = Place::with_dataset();
    fs::set_permissions(place.state_directory(), fs::Permissions::from_mode(0o750)).unwrap();
    changes_nothing(&place, &["status", "tank"], 9, &["mode 0750", "chmod 700"]);
    fs::set_permissions(place.state_directory(), fs::Permissions::from_mode(0o700)).unwrap();
    place.run(&["status", "tank"]).succeeds();
    if is_root() {
        std::os::unix::fs::chown(place.state_directory(), Some(12345), None).unwrap();
        changes_nothing(&place, &["status", "tank"], 9, &["belongs to user 12345"]);
    }
    let relative = support::outcome(
        place
            .command(&["status"])
            .env("PACKSTONE_STATE_DIR", "relative")
            .output()
            .unwrap(),
    );
    relative.fails(2, &["absolute"]);
}

#[test]
fn a_damaged_registration_is_an_error() {
    let place = Place::with_dataset();
    for text in [
        "",
        "{",
        "[]",
        "{\"name\":\"other\",\"pool_id\":\"00\",\"members\":[]}",
    ] {
        fs::write(place.state_directory().join("tank.json"), text).unwrap();
        changes_nothing(&place, &["status", "tank"], 5, &["tank.json"]);
    }
}
