//! What POSIX and Linux promise of single operations: modes, ACLs, privileges, times, unnamed files, figures.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use packstone_fs::{
    AllocateMode, Caller, ErrorKind, FileKind, FileSystem, Ino, MountOptions, RenameMode, Seek,
    SetAttributes, Timestamp, XattrMode,
};
use support::{DATASET, caller};

fn create(fs: &FileSystem, name: &[u8], mode: u32) -> Ino {
    fs.create(&caller(5), Ino::ROOT, name, FileKind::Regular, mode, 0)
        .unwrap()
        .ino
}

fn read(fs: &FileSystem, ino: Ino) -> Vec<u8> {
    let mut data = vec![];
    fs.read(&caller(9), ino, 0, 1 << 20, &mut data).unwrap();
    data
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(permissions.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

#[test]
fn new_inodes_take_owner_umask_and_setgid() {
    let pool = support::pool(&[]);
    let fs = support::open(&pool);
    let user = Caller {
        uid: 1000,
        gid: 100,
        umask: 0o027,
        ..caller(5)
    };
    let file = fs
        .create(&user, Ino::ROOT, b"file", FileKind::Regular, 0o666, 0)
        .unwrap();
    assert_eq!((file.mode, file.uid, file.gid, file.nlink), (0o640, 1000, 100, 1));
    let group = fs.create_directory(&user, Ino::ROOT, b"group", 0o777).unwrap();
    let change = SetAttributes {
        mode: Some(0o2775),
        gid: Some(26),
        ..SetAttributes::default()
    };
    fs.set_attributes(&caller(5), group.ino, &change).unwrap();
    let inside = fs.create_directory(&user, group.ino, b"inside", 0o777).unwrap();
    assert_eq!((inside.mode, inside.gid), (0o2750, 26));
    let file = fs
        .create(&user, group.ino, b"file", FileKind::Regular, 0o644, 0)
        .unwrap();
    assert_eq!((file.mode, file.gid), (0o640, 26));
    let device = fs
        .create(&user, Ino::ROOT, b"null", FileKind::CharDevice, 0o666, 0x103)
        .unwrap();
    assert_eq!(device.rdev, 0x103);
    assert_eq!(fs.attributes(Ino::ROOT).unwrap().nlink, 3);
}

#[test]
fn bad_names_are_refused() {
    let pool = support::pool(&[]);
    let fs = support::open(&pool);
    let kind_of = |name: &[u8]| {
        fs.create(&caller(5), Ino::ROOT, name, FileKind::Regular, 0o600, 0)
            .unwrap_err()
            .kind()
    };
    assert_eq!(kind_of(&[b'x'; 256]), ErrorKind::NameTooLong);
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        assert_eq!(kind_of(name), ErrorKind::InvalidInput);
    }
    create(&fs, &[b'x'; 255], 0o600);
    assert_eq!(
        fs.lookup(&caller(5), Ino(2), b"x").unwrap_err().kind(),
        ErrorKind::NotDirectory
    );
    assert_eq!(
        fs.lookup(&caller(5), Ino(99), b"x").unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn default_acls_are_inherited_and_chmod_moves_the_mask() {
    let pool = support::pool(&[]);
    let fs = support::open(&pool);
    let any = u32::MAX;
    let default = acl(&[
        (1, 7, any),
        (2, 6, 1000),
        (4, 5, any),
        (0x10, 7, any),
        (0x20, 0, any),
    ]);
    let directory = fs
        .create_directory(&caller(5), Ino::ROOT, b"d", 0o755)
        .unwrap()
        .ino;
    fs.set_xattr(
        &caller(5),
        directory,
        b"system.posix_acl_default",
        &default,
        XattrMode::Set,
    )
    .unwrap();
    let file = fs
        .create(&caller(5), directory, b"f", FileKind::Regular, 0o666, 0)
        .unwrap();
    assert_eq!(file.mode, 0o660, "the default ACL counts, not the umask");
    let access = fs.get_xattr(file.ino, b"system.posix_acl_access").unwrap();
    assert_eq!(
        access,
        acl(&[
            (1, 6, any),
            (2, 6, 1000),
            (4, 5, any),
            (0x10, 6, any),
            (0x20, 0, any)
        ])
    );
    let inner = fs
        .create_directory(&caller(5), directory, b"inner", 0o777)
        .unwrap();
    assert_eq!(
        fs.get_xattr(inner.ino, b"system.posix_acl_default").unwrap(),
        default
    );
    let change = SetAttributes {
        mode: Some(0o604),
        ..SetAttributes::default()
    };
    fs.set_attributes(&caller(6), file.ino, &change).unwrap();
    let access = fs.get_xattr(file.ino, b"system.posix_acl_access").unwrap();
    assert_eq!(
        access,
        acl(&[
            (1, 6, any),
            (2, 6, 1000),
            (4, 5, any),
            (0x10, 0, any),
            (0x20, 4, any)
        ])
    );
    let minimal = acl(&[(1, 7, any), (4, 4, any), (0x20, 4, any)]);
    fs.set_xattr(
        &caller(6),
        file.ino,
        b"system.posix_acl_access",
        &minimal,
        XattrMode::Set,
    )
    .unwrap();
    assert_eq!(fs.attributes(file.ino).unwrap().mode, 0o744);
    let gone = fs.get_xattr(file.ino, b"system.posix_acl_access").unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NoSuchAttribute);
    let refused = fs.set_xattr(
        &caller(6),
        file.ino,
        b"system.posix_acl_default",
        &default,
        XattrMode::Set,
    );
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotPermitted);
    fs.close().unwrap();
    support::check_clean(&pool);
}

#[test]
fn changes_of_data_and_owner_take_privileges_away() {
    let pool = support::pool(&[]);
    let fs = support::open(&pool);
    let ino = create(&fs, b"f", 0o600);
    let privileged = |mode| {
        let change = SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        };
        fs.set_attributes(&caller(5), ino, &change).unwrap();
        fs.set_xattr(&caller(5), ino, b"security.capability", b"all", XattrMode::Set)
            .unwrap();
    };
    let now = || {
        (
            fs.attributes(ino).unwrap().mode,
            fs.get_xattr(ino, b"security.capability").is_ok(),
        )
    };
    privileged(0o6755);
    fs.write(&caller(6), ino, 0, b"x", false).unwrap();
    assert_eq!(now(), (0o6755, false), "a write by root leaves the mode");
    privileged(0o6755);
    fs.write(&caller(6), ino, 0, b"x", true).unwrap();
    assert_eq!(now(), (0o755, false));
    privileged(0o6744);
    let cut = SetAttributes {
        size_bytes: Some(0),
        kill_privileges: true,
        ..SetAttributes::default()
    };
    fs.set_attributes(&caller(6), ino, &cut).unwrap();
    assert_eq!(
        now(),
        (0o2744, false),
        "sgid without group execute means something else"
    );
    privileged(0o6755);
    let own = SetAttributes {
        uid: Some(7),
        ..SetAttributes::default()
    };
    fs.set_attributes(&caller(6), ino, &own).unwrap();
    assert_eq!(now(), (0o755, false));
}

#[test]
fn times_follow_relatime() {
    let pool = support::pool(&[]);
    let fs = support::open(&pool);
    let ino = create(&fs, b"f", 0o600);
    fs.write(&caller(10), ino, 0, b"data", false).unwrap();
    let times = || {
        let found = fs.attributes(ino).unwrap();
        (
            found.accessed.seconds,
            found.modified.seconds,
            found.changed.seconds,
            found.born.seconds,
        )
    };
    assert_eq!(times(), (5, 10, 10, 5));
    let mut data = vec![];
    fs.read(&caller(11), ino, 0, 4, &mut data).unwrap();
    assert_eq!(times().0, 11);
    fs.read(&caller(12), ino, 0, 4, &mut data).unwrap();
    assert_eq!(times().0, 11, "not behind the last change, not a day old");
    fs.read(&caller(11 + 86_400), ino, 0, 4, &mut data).unwrap();
    assert_eq!(times().0, 11 + 86_400);
    let touch = SetAttributes {
        modified: Some(Timestamp {
            seconds: -1,
            nanoseconds: 7,
        }),
        ..SetAttributes::default()
    };
    let touched = fs.set_attributes(&caller(90_000), ino, &touch).unwrap();
    assert_eq!(
        (
            touched.modified.seconds,
            touched.modified.nanoseconds,
            touched.changed.seconds
        ),
        (-1, 7, 90_000)
    );
    drop(fs);
    let fs = support::open(&pool);
    assert_eq!(fs.attributes(ino).unwrap().modified, touched.modified);
}

#[test]
fn unnamed_files_get_names_or_go() {
    let pool = support::pool(&[]);
    let fs = support::open(&pool);
    let named = fs.create_unnamed(&caller(5), Ino::ROOT, 0o600).unwrap();
    assert_eq!(named.nlink, 0);
    fs.open_file(named.ino).unwrap();
    fs.write(&caller(6), named.ino, 0, b"kept", false).unwrap();
    assert_eq!(
        fs.link(&caller(7), named.ino, Ino::ROOT, b"name").unwrap().nlink,
        1
    );
    let lost = fs.create_unnamed(&caller(5), Ino::ROOT, 0o600).unwrap().ino;
    fs.write(&caller(6), lost, 0, &[1; 50_000], false).unwrap();
    // No release, no close: as after a crash.
    drop(fs);
    let fs = support::open(&pool);
    support::settle(&fs, 100);
    assert_eq!(
        read(&fs, named.ino),
        b"kept",
        "what is linked is stored with the link"
    );
    assert_eq!(fs.attributes(lost).unwrap_err().kind(), ErrorKind::NotFound);
    support::check_clean(&pool);
}

#[test]
fn replacing_by_rename_stores_the_data_first() {
    let pool = support::pool(&[("recordsize", "128K")]);
    let fs = support::open(&pool);
    let old = create(&fs, b"config", 0o600);
    fs.write(&caller(6), old, 0, b"old content", false).unwrap();
    fs.sync_file(old, false).unwrap();
    let new = create(&fs, b"config.new", 0o600);
    fs.write(&caller(6), new, 0, b"new", false).unwrap();
    fs.rename(
        &caller(7),
        Ino::ROOT,
        b"config.new",
        Ino::ROOT,
        b"config",
        RenameMode::Replace,
    )
    .unwrap();
    drop(fs);
    let fs = support::open(&pool);
    let found = fs.lookup(&caller(8), Ino::ROOT, b"config").unwrap();
    assert_eq!((found.ino, read(&fs, new)), (new, b"new".to_vec()));
    assert_eq!(
        fs.lookup(&caller(8), Ino::ROOT, b"config.new")
            .unwrap_err()
            .kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn directories_do_not_move_below_themselves() {
    let pool = support::pool(&[]);
    let fs = support::open(&pool);
    let mut chain = vec![Ino::ROOT];
    for _ in 0..5 {
        let above = chain[chain.len() - 1];
        chain.push(fs.create_directory(&caller(5), above, b"d", 0o755).unwrap().ino);
    }
    for destination in &chain[1..] {
        let moved = fs.rename(
            &caller(6),
            Ino::ROOT,
            b"d",
            *destination,
            b"x",
            RenameMode::Replace,
        );
        assert_eq!(moved.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let swapped = fs.rename(&caller(6), Ino::ROOT, b"d", chain[3], b"d", RenameMode::Exchange);
    assert_eq!(swapped.unwrap_err().kind(), ErrorKind::InvalidInput);
    fs.rename(&caller(6), chain[2], b"d", Ino::ROOT, b"up", RenameMode::Replace)
        .unwrap();
    assert_eq!(
        fs.read_directory(chain[3], 1, 1).unwrap()[0].ino,
        Ino::ROOT,
        "'..' follows"
    );
    fs.close().unwrap();
    support::check_clean(&pool);
}

#[test]
fn buffered_data_is_data_to_everyone() {
    let pool = support::pool(&[("recordsize", "128K")]);
    let fs = support::open(&pool);
    let ino = create(&fs, b"f", 0o600);
    fs.write(&caller(6), ino, 300_000, b"tail", false).unwrap();
    assert_eq!(fs.attributes(ino).unwrap().size_bytes, 300_004);
    assert_eq!(fs.seek(ino, 0, Seek::Data).unwrap(), 262_144);
    assert_eq!(fs.seek(ino, 0, Seek::Hole).unwrap(), 0);
    assert_eq!(fs.seek(ino, 299_999, Seek::Hole).unwrap(), 300_004);
    fs.allocate(&caller(6), ino, 300_001, 2, AllocateMode::PunchHole)
        .unwrap();
    let mut data = vec![];
    fs.read(&caller(6), ino, 299_999, 100, &mut data).unwrap();
    assert_eq!(data, b"\0t\0\0l");
    let cut = SetAttributes {
        size_bytes: Some(300_001),
        ..SetAttributes::default()
    };
    fs.set_attributes(&caller(6), ino, &cut).unwrap();
    let grow = SetAttributes {
        size_bytes: Some(300_004),
        ..SetAttributes::default()
    };
    fs.set_attributes(&caller(6), ino, &grow).unwrap();
    data.clear();
    fs.read(&caller(6), ino, 300_000, 100, &mut data).unwrap();
    assert_eq!(data, b"t\0\0\0", "what was cut off does not come back");
}

#[test]
fn figures_and_limits_of_attributes() {
    let pool = support::pool(&[("recordsize", "4K"), ("compression", "none")]);
    let fs = support::open(&pool);
    let ino = create(&fs, b"f", 0o600);
    fs.write(&caller(6), ino, 0, &[9; 8192], false).unwrap();
    let figure = |name: &str| String::from_utf8(fs.get_xattr(ino, name.as_bytes()).unwrap()).unwrap();
    assert_eq!(figure("user.packstone.logical"), "8192");
    assert_eq!(figure("user.packstone.record_size"), "4096");
    assert_eq!(
        figure("user.packstone.stored"),
        fs.attributes(ino).unwrap().stored_bytes.to_string()
    );
    assert!(fs.attributes(ino).unwrap().stored_bytes > 0);
    assert!(fs.list_xattrs(ino).unwrap().is_empty());
    let set = |name: &[u8], length| fs.set_xattr(&caller(6), ino, name, &vec![1; length], XattrMode::Set);
    assert_eq!(
        set(b"user.packstone.stored", 1).unwrap_err().kind(),
        ErrorKind::NotPermitted
    );
    assert_eq!(
        set(b"system.other", 1).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    assert_eq!(
        set(b"user.big", 65_537).unwrap_err().kind(),
        ErrorKind::FileTooLarge
    );
    set(b"user.big", 65_536).unwrap();
    assert_eq!(fs.get_xattr(ino, b"user.big").unwrap().len(), 65_536);
    let far = fs.write(&caller(6), ino, i64::MAX as u64, b"x", false);
    assert_eq!(far.unwrap_err().kind(), ErrorKind::FileTooLarge);
    fs.write(&caller(6), ino, i64::MAX as u64 - 1, b"x", false)
        .unwrap();
    assert_eq!(fs.attributes(ino).unwrap().size_bytes, i64::MAX as u64);
    assert_eq!(
        fs.seek(ino, 8192, Seek::Data).unwrap(),
        (i64::MAX as u64 - 1) & !4095
    );
    fs.allocate(
        &caller(6),
        ino,
        4096,
        i64::MAX as u64 - 4096,
        AllocateMode::PunchHole,
    )
    .unwrap();
    assert_eq!(fs.seek(ino, 0, Seek::Hole).unwrap(), 4096);
    fs.close().unwrap();
    support::check_clean(&pool);
}

#[test]
fn large_directories_list_every_name_once_while_they_change() {
    let pool = support::pool(&[]);
    let fs = support::open(&pool);
    let name = |number: u32| format!("name {number}").into_bytes();
    for number in 0..20_000 {
        let ino = create(&fs, &name(number), 0o600);
        fs.forget(ino, 1);
    }
    let (mut after, mut seen) = (0, std::collections::HashSet::new());
    for round in 0.. {
        let entries = fs.read_directory(Ino::ROOT, after, 500).unwrap();
        let Some(last) = entries.last() else { break };
        after = last.cookie;
        assert!(entries.into_iter().all(|entry| seen.insert(entry.name)));
        // Names that come and go do not disturb the others.
        create(&fs, format!("new {round}").as_bytes(), 0o600);
        fs.unlink(&caller(6), Ino::ROOT, &name(round)).unwrap();
    }
    assert!((100..20_000).all(|number| seen.contains(&name(number))));
}

#[test]
fn huge_deletes_and_truncates_go_in_pieces() {
    let pool = support::pool(&[("recordsize", "4K"), ("compression", "none")]);
    let fs = support::open(&pool);
    let content: Vec<u8> = (0..20u64 << 20).map(|at| (at >> 12) as u8 | 1).collect();
    let ino = create(&fs, b"f", 0o600);
    fs.write(&caller(6), ino, 0, &content, false).unwrap();
    let cut = SetAttributes {
        size_bytes: Some(10 << 20 | 5),
        ..SetAttributes::default()
    };
    fs.set_attributes(&caller(6), ino, &cut).unwrap();
    assert!(read(&fs, ino) == content[..1 << 20]);
    fs.sync_all().unwrap();
    assert_eq!(support::check_clean(&pool).references.len(), (10 << 20 >> 12) + 1);
    fs.unlink(&caller(6), Ino::ROOT, b"f").unwrap();
    fs.forget(ino, 1);
    let left = support::check_clean(&pool).references.len();
    assert!(
        left > 1000 && left < 2561,
        "one piece was reclaimed at once, {left} records wait"
    );
    support::settle(&fs, 10);
    assert_eq!(support::check_clean(&pool).references.len(), 0);
}

#[test]
fn read_only_changes_nothing() {
    let pool = support::pool(&[]);
    let options = MountOptions { read_only: true };
    let refused = FileSystem::open(pool.clone(), DATASET, options.clone(), &caller(1));
    assert_eq!(
        refused.err().map(|error| error.kind()),
        Some(ErrorKind::ReadOnly),
        "nothing to show yet"
    );
    let fs = support::open(&pool);
    let ino = create(&fs, b"f", 0o600);
    fs.write(&caller(6), ino, 0, b"data", false).unwrap();
    fs.close().unwrap();
    let before = pool.last_commit();
    let fs = FileSystem::open(pool.clone(), DATASET, options, &caller(1)).unwrap();
    assert_eq!(read(&fs, ino), b"data");
    let refused = [
        fs.write(&caller(6), ino, 0, b"x", false).unwrap_err(),
        fs.unlink(&caller(6), Ino::ROOT, b"f").unwrap_err(),
        fs.set_attributes(&caller(6), ino, &SetAttributes::default())
            .unwrap_err(),
    ];
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::ReadOnly));
    fs.close().unwrap();
    assert_eq!(pool.last_commit(), before);
}

/// The kernel checks what programs pass to utimensat; should it ever not, the inode must stay readable.
#[test]
fn times_that_cannot_be_stored_are_refused() {
    let pool = support::pool(&[]);
    let fs = support::open(&pool);
    let ino = create(&fs, b"f", 0o600);
    let before = fs.attributes(ino).unwrap();
    let time = |nanoseconds| SetAttributes {
        size_bytes: Some(10),
        modified: Some(Timestamp {
            seconds: 5,
            nanoseconds,
        }),
        ..SetAttributes::default()
    };
    let refused = fs
        .set_attributes(&caller(6), ino, &time(1_000_000_000))
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert_eq!(fs.attributes(ino).unwrap(), before, "nothing has changed");
    fs.set_attributes(&caller(6), ino, &time(999_999_999)).unwrap();
    fs.close().unwrap();
    support::check_clean(&pool);
}
