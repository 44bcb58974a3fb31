//! What the kernel writes into an entry, sound and hostile, and what it finds there afterwards.

use super::*;
use crate::request::{Operation, Request};

const PAYLOAD_BYTES: usize = 16 << 10;
const WRITE: u32 = 16;
const READ: u32 = 15;

impl Entry {
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.headers[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// As the kernel does it: through the addresses it was given, whatever the payload's length is here.
    fn put_payload(&mut self, bytes: &[u8]) {
        self.payload.bytes.clear();
        self.payload.bytes.extend_from_slice(bytes);
        self.payload.bytes.clear();
    }

    /// A request by its parts, with the lengths that follow from them.
    fn fill(&mut self, opcode: u32, fixed: &[u8], payload: &[u8]) {
        let length = REQUEST_HEADER_BYTES + fixed.len() + payload.len();
        self.put(0, &(length as u32).to_ne_bytes());
        self.put(4, &opcode.to_ne_bytes());
        self.put(8, &77u64.to_ne_bytes());
        self.put(16, &5u64.to_ne_bytes());
        self.put(FIXED_OFFSET, fixed);
        self.put(COMMIT_ID_OFFSET, &77u64.to_ne_bytes());
        self.put(PAYLOAD_BYTES_OFFSET, &(payload.len() as u32).to_ne_bytes());
        self.put_payload(payload);
    }

    fn reply_bytes(&self) -> usize {
        self.u32_at(PAYLOAD_BYTES_OFFSET) as usize
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn the_data_of_a_write_is_the_payload_and_its_reply_takes_its_place() {
    let mut entry = Entry::new(PAYLOAD_BYTES);
    let data: Vec<u8> = (0..8192).map(|index| index as u8).collect();
    entry.fill(WRITE, &words(&[0, 4096, 8192, 0, 0]), &data);
    let header = entry.take_request().expect("a request");
    assert_eq!((header.unique, header.node.0), (77, 5));
    let (body, reply) = entry.exchange();
    let request = Request::decode(header, body).expect("a write");
    let expected = Operation::Write {
        offset: 4096,
        data: &data,
        write_flags: 0,
    };
    assert_eq!(request.operation, expected);
    reply.u32(8192);
    reply.u32(0);
    entry.finish(header.unique, 0);
    assert_eq!(entry.reply_bytes(), 8);
    assert_eq!(entry.payload.bytes, words(&[8192]));
    assert_eq!(entry.headers[..16], reply::header(77, 0, 8));
}

#[test]
fn the_reply_to_a_read_is_written_where_the_kernel_looks_for_it() {
    let mut entry = Entry::new(PAYLOAD_BYTES);
    let address = entry.buffers()[1].iov_base as usize;
    for round in 0..3u8 {
        entry.fill(READ, &words(&[0, 0, 8192, 0, 0]), &[]);
        let header = entry.take_request().expect("a request");
        let (_, reply) = entry.exchange();
        assert_eq!(reply.bytes.as_ptr() as usize, address);
        reply.bytes.resize(PAYLOAD_BYTES, round);
        entry.finish(header.unique, 0);
        assert_eq!(entry.reply_bytes(), PAYLOAD_BYTES);
        assert_eq!(entry.buffers()[1].iov_base as usize, address);
    }
}

#[test]
fn an_error_has_no_body() {
    let mut entry = Entry::new(PAYLOAD_BYTES);
    for payload in [[].as_slice(), b"name\0"] {
        entry.fill(READ, &words(&[0, 0, 8192]), payload);
        let header = entry.take_request().expect("a request");
        let (_, reply) = entry.exchange();
        reply.u64(1);
        entry.finish(header.unique, libc::ENOENT);
        assert_eq!(entry.reply_bytes(), 0);
        assert_eq!(entry.headers[..16], reply::header(77, libc::ENOENT, 0));
    }
}

#[test]
fn names_lie_behind_the_seam() {
    let mut entry = Entry::new(PAYLOAD_BYTES);
    // LOOKUP has no fixed part at all, RENAME2 has two names behind its own.
    entry.fill(1, &[], b"name\0");
    let header = entry.take_request().expect("a request");
    let request = Request::decode(header, entry.exchange().0).expect("a lookup");
    assert_eq!(request.operation, Operation::Lookup { name: b"name" });
    entry.fill(45, &words(&[9, 0]), b"old\0new\0");
    let header = entry.take_request().expect("a request");
    let request = Request::decode(header, entry.exchange().0).expect("a rename");
    let Operation::Rename { name, new_name, .. } = request.operation else {
        panic!("{request:?}");
    };
    assert_eq!((name, new_name), (b"old".as_slice(), b"new".as_slice()));
}

#[test]
fn lengths_that_do_not_fit_are_malformed() {
    let mut entry = Entry::new(PAYLOAD_BYTES);
    let fixed = words(&[0, 0, 8, 0, 0]);
    for payload_bytes in [PAYLOAD_BYTES as u32 + 1, 1 << 20, u32::MAX, 9, 57] {
        entry.fill(WRITE, &fixed, b"eight by");
        entry.put(PAYLOAD_BYTES_OFFSET, &payload_bytes.to_ne_bytes());
        let outcome = entry.take_request();
        // 9 and 57 take bytes away from the fixed part, which the decoder then misses.
        if let Ok(header) = outcome {
            assert!(payload_bytes == 9, "{payload_bytes}");
            assert!(Request::decode(header, entry.exchange().0).is_err());
        }
    }
    for length in [0, 39, 40 + 7, 40 + 8 + 129, u32::MAX] {
        entry.fill(WRITE, &fixed, b"eight by");
        entry.put(0, &length.to_ne_bytes());
        assert!(entry.take_request().is_err(), "{length}");
        // The kernel still waits for an answer.
        entry.finish(entry.commit_id(), libc::EIO);
        assert_eq!((entry.reply_bytes(), entry.commit_id()), (0, 77));
    }
}

#[test]
fn random_headers_never_panic() {
    let mut entry = Entry::new(PAYLOAD_BYTES);
    let mut noise = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise
    };
    for _ in 0..20_000 {
        for offset in (0..HEADERS_BYTES).step_by(8) {
            entry.put(offset, &next().to_ne_bytes());
        }
        // Most lengths would be refused at once; let half of them through.
        entry.put(4, &(next() as u32 % 56).to_ne_bytes());
        if next() % 2 == 0 {
            let (fixed, payload) = (next() as u32 % 129, next() as u32 % 300);
            entry.put(0, &(40 + fixed + payload).to_ne_bytes());
            entry.put(PAYLOAD_BYTES_OFFSET, &payload.to_ne_bytes());
        }
        let Ok(header) = entry.take_request() else {
            continue;
        };
        let (body, reply) = entry.exchange();
        let _ = Request::decode(header, body);
        reply.u64(1);
        entry.finish(header.unique, 0);
        assert_eq!(entry.reply_bytes(), 8);
    }
}

#[test]
#[should_panic(expected = "outgrew the payload")]
fn a_body_that_moved_is_not_handed_to_the_kernel() {
    let mut entry = Entry::new(PAYLOAD_BYTES);
    entry.fill(READ, &words(&[0, 0, 8192, 0, 0]), &[]);
    let header = entry.take_request().expect("a request");
    entry.exchange().1.zeros(PAYLOAD_BYTES * 2);
    entry.finish(header.unique, 0);
}
