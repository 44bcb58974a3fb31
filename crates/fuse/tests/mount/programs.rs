//! Programs that have found faults in file systems before.

use crate::fixture::{Fixture, say_skipped};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a shell script in `directory`; its output is shown when it fails. False when a program it needs is missing.
fn run(directory: &Path, needs: &str, script: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {needs}")])
        .stdout(Stdio::null())
        .status();
    if !found.is_ok_and(|status| status.success()) {
        say_skipped(format_args!("{needs} is not installed"));
        return false;
    }
    let output = Command::new("sh")
        .args(["-e", "-c", script])
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("a shell");
    assert!(
        output.status.success(),
        "{script}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    true
}

#[test]
fn git_keeps_a_repository() {
    let Some(fixture) = Fixture::new() else { return };
    run(
        fixture.mounted.mountpoint(),
        "git",
        "git init -q repository; cd repository
         git config user.name tester; git config user.email tester@example.org
         for i in $(seq 300); do mkdir -p dir$((i % 7)); seq $i > dir$((i % 7))/file$i; done
         git add . ; git commit -qm first
         for i in $(seq 50); do seq $i 200 > dir$((i % 7))/file$i; done
         git commit -qam second; git gc -q; git fsck --strict; git diff --exit-code
         git clone -q . ../clone; diff -r --exclude=.git . ../clone",
    );
}

#[test]
fn tar_brings_a_tree_in_and_out() {
    let Some(fixture) = Fixture::new() else { return };
    run(
        fixture.mounted.mountpoint(),
        "tar",
        "tar -C /usr -cf - include | tar -xf -
         diff -r --no-dereference /usr/include include
         tar -C /usr -df - include < /dev/null 2>/dev/null || true
         rm -r include; test -z \"$(ls -A)\"",
    );
}

#[test]
fn acls_are_kept_inherited_and_obeyed() {
    let Some(fixture) = Fixture::new() else { return };
    run(
        fixture.mounted.mountpoint(),
        "setfacl",
        "umask 022; touch file; chmod 640 file
         setfacl -m u:65534:rw file
         getfacl -cn file | grep -qx 'user:65534:rw-'
         test \"$(stat -c %a file)\" = 660
         chmod 600 file; getfacl -cn file | grep -q 'user:65534:rw-.*effective:---'
         mkdir shared; setfacl -d -m u:65534:rwx,g::r-x,o::--- shared
         touch shared/inherits; getfacl -cn shared/inherits | grep -q 'user:65534:rwx'
         test \"$(stat -c %a shared/inherits)\" = 660
         mkdir shared/below; getfacl -cn shared/below | grep -q 'default:user:65534:rwx'
         touch plain; test \"$(stat -c %a plain)\" = 644
         setfacl -b file; test \"$(getfacl -cn file | grep -c user)\" = 1",
    );
}

#[test]
fn databases_of_other_kinds_keep_their_files() {
    let Some(fixture) = Fixture::new() else { return };
    run(
        fixture.mounted.mountpoint(),
        "python3",
        "python3 - <<'END'
import sqlite3, mmap, os
for mode in ('wal', 'delete'):
    base = sqlite3.connect(mode + '.db')
    base.execute('pragma journal_mode=' + mode)
    base.execute('create table t (a integer primary key, b text)')
    for i in range(200):
        base.execute('insert into t (b) values (?)', ('x' * i,))
        base.commit()
    assert base.execute('pragma integrity_check').fetchone() == ('ok',)
    base.close()
END",
    );
}
