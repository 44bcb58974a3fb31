//! INIT against a scripted kernel.

use super::*;
use crate::reply;
use crate::request::{Body, Header};
use crate::transport::Sent;
use std::collections::VecDeque;
use std::io;

/// Hands out INIT requests and keeps the replies.
struct Script {
    requests: VecDeque<Vec<u8>>,
    current: Vec<u8>,
    body: ReplyBody,
    replies: Vec<Vec<u8>>,
}

impl Script {
    fn new(inits: &[(u32, u32, u64)]) -> Script {
        Script {
            requests: inits.iter().map(|init| request(*init)).collect(),
            current: Vec::new(),
            body: ReplyBody::default(),
            replies: Vec::new(),
        }
    }
}

impl Transport for Script {
    fn receive(&mut self) -> io::Result<Received> {
        let Some(request) = self.requests.pop_front() else {
            return Ok(Received::Ended);
        };
        self.current = request;
        let (header, _) = Header::decode(&self.current).expect("a header");
        Ok(Received::Request(header))
    }

    fn exchange(&mut self) -> (Body<'_>, &mut ReplyBody) {
        self.body.bytes.clear();
        (self.current[40..].into(), &mut self.body)
    }

    fn reply(&mut self, header: &Header, error: i32) -> io::Result<Sent> {
        let head = reply::header(header.unique, error, self.body.bytes.len());
        self.replies.push([head.as_slice(), &self.body.bytes].concat());
        Ok(Sent::Delivered)
    }

    fn dismiss(&mut self, _: &Header) -> io::Result<()> {
        Ok(())
    }
}

fn request((major, minor, flags): (u32, u32, u64)) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    bytes[0..4].copy_from_slice(&(40u32 + 64).to_ne_bytes());
    bytes[4..8].copy_from_slice(&26u32.to_ne_bytes());
    bytes[8..16].copy_from_slice(&2u64.to_ne_bytes());
    for number in [major, minor, 131_072, flags as u32, (flags >> 32) as u32] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes.resize(104, 0);
    bytes
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

const EVERYTHING: u64 = u64::MAX;

#[test]
fn the_reply_is_what_the_kernel_expects() {
    let mut script = Script::new(&[(7, 38, EVERYTHING)]);
    let agreement = negotiate(&mut script, WANTED).expect("an agreement");
    assert_eq!(agreement.minor, 38, "the smaller minor version counts");
    let reply = &script.replies[0];
    assert_eq!(reply.len(), 16 + 64);
    assert_eq!(u32_at(reply, 16 + 4), 38);
    assert_eq!(u32_at(reply, 16 + 20), WRITE_BYTES_MAX as u32);
    let max_pages = u16::from_ne_bytes(reply[16 + 28..16 + 30].try_into().expect("two bytes"));
    assert_eq!(usize::from(max_pages) * 4096, WRITE_BYTES_MAX);
}

#[test]
fn caching_that_would_split_or_drop_pages_is_never_accepted() {
    const AUTO_INVAL_DATA: u64 = 1 << 12;
    const WRITEBACK_CACHE: u64 = 1 << 16;
    const ATOMIC_O_TRUNC: u64 = 1 << 3;
    let agreement = negotiate(&mut Script::new(&[(7, 45, EVERYTHING)]), WANTED).expect("an agreement");
    assert!(!agreement.has(AUTO_INVAL_DATA | WRITEBACK_CACHE));
    assert!(agreement.has(init::EXPLICIT_INVAL_DATA) && agreement.has(init::HANDLE_KILLPRIV_V2));
    assert!(agreement.has(init::NO_OPEN_SUPPORT));
    assert!(
        !agreement.has(ATOMIC_O_TRUNC),
        "with zero-message opens nobody would truncate"
    );
    assert_eq!(agreement.minor, VERSION_MINOR);
}

#[test]
fn nothing_is_taken_that_was_not_offered() {
    let agreement = negotiate(&mut Script::new(&[(7, 45, REQUIRED)]), WANTED).expect("an agreement");
    assert_eq!(agreement.flags, REQUIRED);
}

#[test]
fn kernels_that_are_too_old_are_refused_with_an_error_reply() {
    for init in [
        (7, 30, EVERYTHING),
        (6, 99, EVERYTHING),
        (7, 45, REQUIRED & !init::HANDLE_KILLPRIV_V2),
    ] {
        let mut script = Script::new(&[init]);
        let error = negotiate(&mut script, WANTED).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(u32_at(&script.replies[0], 4) as i32, -libc::EPROTO);
    }
}

#[test]
fn a_newer_major_version_is_asked_to_step_down() {
    let mut script = Script::new(&[(8, 2, 0), (7, 45, EVERYTHING)]);
    assert_eq!(
        negotiate(&mut script, WANTED).expect("an agreement").minor,
        VERSION_MINOR
    );
    assert_eq!(u32_at(&script.replies[0], 16), 7);
    assert_eq!(script.replies.len(), 2);
}

#[test]
fn an_early_end_is_an_error() {
    assert_eq!(
        negotiate(&mut Script::new(&[]), WANTED)
            .expect_err("no INIT")
            .kind(),
        ErrorKind::Unavailable
    );
}
