//! A way in for fuzzers: requests as the kernel would send them. Only with the feature `fuzzing`.

use crate::abi::{REQUEST_HEADER_BYTES, init};
use crate::dispatch::dispatch;
use crate::errno;
use crate::negotiate::Agreement;
use crate::reply::ReplyBody;
use crate::request::{Header, Operation, Request};
use packstone_fs::FileSystem;

/// A request by its parts: opcode, node, and the body that follows the header.
pub fn encode(opcode_number: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(REQUEST_HEADER_BYTES + body.len());
    bytes.extend(((REQUEST_HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    bytes.extend(opcode_number.to_ne_bytes());
    bytes.extend(77u64.to_ne_bytes());
    bytes.extend(node.to_ne_bytes());
    for number in [1000u32, 100, 4242, 0] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes.extend(body);
    bytes
}

/// Decodes a request; whether it was understood.
pub fn decode(received: &[u8]) -> bool {
    let Ok((header, body)) = Header::decode(received) else {
        return false;
    };
    let _ = header.wants_reply();
    let Ok(request) = Request::decode(header, body) else {
        return false;
    };
    if let Operation::BatchForget(items) = &request.operation {
        assert!(items.iter().count() <= received.len());
    }
    true
}

/// Decodes a request and carries it out: the errno of the reply and the length of its body, if it was understood.
pub fn serve(filesystem: &FileSystem, received: &[u8]) -> Option<(i32, usize)> {
    let (header, body) = Header::decode(received).ok()?;
    let request = Request::decode(header, body).ok()?;
    let agreement = Agreement {
        minor: 40,
        flags: init::POSIX_ACL | init::DO_READDIRPLUS | init::SETXATTR_EXT,
    };
    let (mut reply, mut granted) = (ReplyBody::default(), Vec::new());
    let error = match dispatch(filesystem, &agreement, request, &mut reply, &mut granted) {
        Ok(()) => 0,
        Err(failure) => errno::choose(&failure),
    };
    assert!((0..4096).contains(&error), "errno {error}");
    Some((error, if error == 0 { reply.bytes.len() } else { 0 }))
}
