//! Targets that take the kernel's part: one request decoded, and a run of requests carried out on a file system.
//!
//! A run is a list of: opcode u8, node u8, length u16 of the body, body. Nodes are small inode numbers, of which the
//! first few exist.

use crate::image::{small_pool, start};
use crate::input::Input;
use packstone_fs::{FileSystem, MountOptions, Timestamp};
use packstone_fuse::fuzzing::{decode as decode_request, encode, serve};
use packstone_pool::BackgroundWork;
use std::sync::Arc;

/// Requests in one input.
const REQUESTS_MAX: usize = 64;
/// No reply is longer: the most that is read at once, and the headers of one directory entry.
const REPLY_BYTES_MAX: usize = packstone_fuse::WRITE_BYTES_MAX + 4096;
/// Far more steps than the background work of one input takes.
const STEPS_MAX: usize = 20_000;

pub(crate) fn decode(bytes: &[u8]) {
    decode_request(bytes);
    if let Some((opcode, body)) = bytes.split_first() {
        decode_request(&encode(u32::from(*opcode), 1, body));
    }
}

pub(crate) fn session(bytes: &[u8]) {
    let Ok(pool) = small_pool() else { return };
    let pool = Arc::new(pool);
    let Ok(filesystem) =
        FileSystem::open_with_seed(pool.clone(), "files", MountOptions::default(), &start(), 42)
    else {
        return;
    };
    let mut input = Input::new(bytes);
    for _ in 0..REQUESTS_MAX {
        if input.is_empty() {
            break;
        }
        let (opcode, node) = (u32::from(input.byte()), u64::from(input.byte()));
        let length = input.number16();
        let request = encode(opcode, node, input.bytes(length));
        if let Some((_, reply_bytes)) = serve(&filesystem, &request) {
            assert!(reply_bytes <= REPLY_BYTES_MAX, "a reply of {reply_bytes} bytes");
        }
    }
    settle(&filesystem);
    let _ = filesystem.close();
    let report = packstone_fs::check(&pool, "files", &mut |_, _| {});
    let report = report.unwrap_or_else(|error| panic!("a sound pool cannot be checked: {error}"));
    assert!(
        report.problems.is_empty(),
        "requests broke the file system: {:#?}",
        report.problems
    );
    drop(filesystem);
    let _ = pool.step(BackgroundWork::Clean, 1);
    pool.close()
        .unwrap_or_else(|error| panic!("a sound pool does not close: {error}"));
}

/// Lets background work end.
pub(crate) fn settle(filesystem: &FileSystem) {
    let now = Timestamp {
        seconds: 1 << 40,
        nanoseconds: 0,
    };
    for _ in 0..STEPS_MAX {
        match filesystem.step(now) {
            Ok(true) => {}
            Ok(false) | Err(_) => return,
        }
    }
    panic!("background work of the file system does not end");
}

pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let words = |words: &[u64], tail: &[u8]| {
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        body.extend(tail);
        body
    };
    // Opcode, node, body; see `linux/fuse.h`.
    let requests: Vec<(u8, u8, Vec<u8>)> = vec![
        (1, 1, words(&[], b"hello\0")),
        (3, 2, words(&[0, 0], b"")),
        (4, 2, words(&[8, 0, 5000, 0, 0, 0, 0, 0, 0, 0, 0], b"")),
        (6, 1, words(&[], b"link\0target\0")),
        (8, 1, words(&[0o100_644, 0], b"node\0")),
        (9, 1, words(&[0o755], b"dir\0")),
        (10, 1, words(&[], b"hello\0")),
        (11, 1, words(&[], b"dir\0")),
        (12, 1, words(&[1], b"hello\0moved\0")),
        (13, 1, words(&[2], b"second\0")),
        (15, 2, words(&[0, 0, 8192, 0, 0], b"")),
        (16, 2, words(&[0, 100, 5, 0, 0], b"bytes")),
        (17, 1, vec![]),
        (20, 2, words(&[0, 0], b"")),
        (21, 2, words(&[5, 0], b"user.a\0value")),
        (22, 2, words(&[64], b"user.a\0")),
        (23, 2, words(&[64], b"")),
        (24, 2, words(&[], b"user.a\0")),
        (28, 1, words(&[0, 0, 4096, 0, 0], b"")),
        (44, 1, words(&[0, 0, 4096, 0, 0], b"")),
        (35, 1, words(&[0, 0o644, 0], b"new\0")),
        (42, 1, words(&[1, 2, 1], b"")),
        (43, 2, words(&[0, 0, 9000, 3], b"")),
        (45, 1, words(&[1, 2], b"hello\0moved\0")),
        (46, 2, words(&[0, 0, 3], b"")),
        (47, 2, words(&[0, 0, 3, 0, 9000, 100, 0], b"")),
        (51, 1, words(&[0, 0], b"x\0")),
        (2, 2, words(&[1], b"")),
    ];
    let mut seeds = Vec::new();
    let mut run = Vec::new();
    for (opcode, node, body) in &requests {
        seeds.push(("request", [&[*opcode], body.as_slice()].concat()));
        let one = [
            &[*opcode, *node],
            (body.len() as u16).to_le_bytes().as_slice(),
            body,
        ]
        .concat();
        seeds.push(("session", one.clone()));
        run.extend(one);
    }
    seeds.push(("request", encode(26, 0, &words(&[7 | 40 << 32, 1 << 17, 0], b""))));
    seeds.push(("session", run));
    seeds
}
