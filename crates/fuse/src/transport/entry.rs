//! The memory of one ring entry, and what stands where in it.
//!
//! Headers, 288 bytes (`struct fuse_uring_req_header`):
//!
//! | offset | request | reply |
//! |---|---|---|
//! | 0 | request header (layout in `abi`) | reply header |
//! | 128 | the operation's fixed part, its first argument | |
//! | 256 | u64 flags | 0 |
//! | 264 | u64 commit id: names the entry's request to the kernel | |
//! | 272 | u32 bytes in the payload | u32 bytes in the payload |
//! | 276 | padding, reserved | 0 |
//!
//! The payload holds what follows the fixed part: names, values, the data of a WRITE; and in a reply everything but the
//! header. How long the fixed part is follows from the length in the request header.
//!
//! A request without a payload (READ, READDIR, GETATTR) has its reply's body written straight into the payload. Where
//! the payload holds the request, the body has memory of its own and is copied; such replies are short.
//!
//! The kernel is believed nothing here: lengths that do not fit are [`Malformed`].

use crate::abi::{REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES};
use crate::reply::{self, ReplyBody};
use crate::request::{Body, Header, Malformed};

const HEADERS_BYTES: usize = 288;
const FIXED_OFFSET: usize = 128;
const FIXED_BYTES_MAX: usize = 128;
const COMMIT_ID_OFFSET: usize = 264;
const PAYLOAD_BYTES_OFFSET: usize = 272;

/// Buffers of one ring entry. Neither moves nor grows while the kernel knows them.
#[derive(Debug)]
pub(super) struct Entry {
    headers: Vec<u8>,
    /// All `payload_bytes` of it are initialised, whatever its length is.
    payload: ReplyBody,
    payload_bytes: usize,
    payload_address: usize,
    /// Body of a reply to a request that is in the payload.
    aside: ReplyBody,
    fixed_bytes: usize,
    /// Bytes of the request in the payload; without any the payload takes the reply's body.
    request_bytes: usize,
}

impl Entry {
    /// An entry for requests and replies of up to `payload_bytes`. What is not used of that is not touched and, from
    /// an allocator that maps large pieces, takes no memory.
    pub(super) fn new(payload_bytes: usize) -> Entry {
        let bytes = vec![0; payload_bytes];
        Entry {
            headers: vec![0; HEADERS_BYTES],
            payload_address: bytes.as_ptr() as usize,
            payload: ReplyBody { bytes },
            payload_bytes,
            aside: ReplyBody::default(),
            fixed_bytes: 0,
            request_bytes: 0,
        }
    }

    /// Where the kernel is to put requests and find replies: headers and payload.
    pub(super) fn buffers(&mut self) -> [libc::iovec; 2] {
        [
            libc::iovec {
                iov_base: self.headers.as_mut_ptr().cast(),
                iov_len: HEADERS_BYTES,
            },
            libc::iovec {
                iov_base: self.payload.bytes.as_mut_ptr().cast(),
                iov_len: self.payload_bytes,
            },
        ]
    }

    fn u32_at(&self, offset: usize) -> u32 {
        let bytes = self.headers[offset..].first_chunk();
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// What the kernel calls the request in this entry.
    pub(super) fn commit_id(&self) -> u64 {
        let bytes = self.headers[COMMIT_ID_OFFSET..].first_chunk();
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    /// Takes in what the kernel has written.
    pub(super) fn take_request(&mut self) -> Result<Header, Malformed> {
        self.aside.bytes.clear();
        self.payload.bytes.clear();
        (self.request_bytes, self.fixed_bytes) = (0, 0);
        let (header, length_bytes) = Header::decode_alone(&self.headers[..FIXED_OFFSET])?;
        let payload = self.u32_at(PAYLOAD_BYTES_OFFSET) as usize;
        if payload > self.payload_bytes {
            return Malformed::because("more payload than the entry has room for");
        }
        let fixed = length_bytes.checked_sub(REQUEST_HEADER_BYTES + payload);
        let Some(fixed) = fixed.filter(|fixed| *fixed <= FIXED_BYTES_MAX) else {
            return Malformed::because("the length in the header is not that of the parts");
        };
        (self.request_bytes, self.fixed_bytes) = (payload, fixed);
        // SAFETY: `payload` is at most `payload_bytes`, within the capacity, and that much was initialised by `new`;
        // `finish` makes sure that it is still the same memory.
        unsafe { self.payload.bytes.set_len(payload) };
        Ok(header)
    }

    /// The body of the request, and an empty one for the reply.
    pub(super) fn exchange(&mut self) -> (Body<'_>, &mut ReplyBody) {
        let fixed = &self.headers[FIXED_OFFSET..FIXED_OFFSET + self.fixed_bytes];
        if self.request_bytes == 0 {
            self.payload.bytes.clear();
            (Body { fixed, rest: &[] }, &mut self.payload)
        } else {
            self.aside.bytes.clear();
            let rest = self.payload.bytes.as_slice();
            (Body { fixed, rest }, &mut self.aside)
        }
    }

    /// Puts the reply where the kernel looks for it.
    ///
    /// Panics when the body is larger than the payload.
    pub(super) fn finish(&mut self, unique: u64, error: i32) {
        if self.request_bytes > 0 && error == 0 {
            self.payload.bytes.clear();
            self.payload.bytes.extend_from_slice(&self.aside.bytes);
        }
        // A body larger than any the kernel asks for may have moved, and the kernel would look at memory given back.
        let is_in_place = self.payload.bytes.as_ptr() as usize == self.payload_address;
        assert!(
            is_in_place && self.payload.bytes.len() <= self.payload_bytes,
            "a reply outgrew the payload"
        );
        if error != 0 {
            self.payload.bytes.clear();
        }
        let body_bytes = self.payload.bytes.len();
        self.headers[..REPLY_HEADER_BYTES].copy_from_slice(&reply::header(unique, error, body_bytes));
        self.headers[FIXED_OFFSET + FIXED_BYTES_MAX..COMMIT_ID_OFFSET].fill(0);
        self.headers[PAYLOAD_BYTES_OFFSET..].fill(0);
        self.headers[PAYLOAD_BYTES_OFFSET..PAYLOAD_BYTES_OFFSET + 4]
            .copy_from_slice(&(body_bytes as u32).to_ne_bytes());
    }
}

#[cfg(test)]
mod tests;
