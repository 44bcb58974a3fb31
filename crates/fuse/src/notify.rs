//! Telling the kernel to drop what it caches, for whoever changes a dataset behind its mount (a rollback, say), and to
//! have dirty pages written back (`session/seeker.rs`).
//!
//! A notification is a reply that answers nothing: its unique is 0 and its error field holds a code.
//! Never send one from a worker, nor while handling a request on the same inode: the kernel may wait for that request's
//! lock, or for writes that workers have to serve. A seek is the exception, from a thread of its own: see there why.

use crate::abi::{NOTIFY_INVALIDATE_ENTRY, NOTIFY_INVALIDATE_INODE};
use crate::reply::{self, ReplyBody};
use crate::transport::{Outlet, Sent};
use crate::{Error, Result};
use packstone_fs::Ino;
use std::io::{self, IoSlice};

/// A length that means: to the end, wherever that is.
pub(crate) const TO_THE_END: u64 = 0;

/// Drops attributes and all cached pages of an inode.
pub(crate) fn invalidate_inode(outlet: &mut impl Outlet, ino: Ino) -> Result<()> {
    invalidate_range(outlet, ino, 0, TO_THE_END)
}

/// Drops attributes and cached pages of a part of an inode. Returns when dirty ones have been written back.
pub(crate) fn invalidate_range(
    outlet: &mut impl Outlet,
    ino: Ino,
    offset: u64,
    length_bytes: u64,
) -> Result<()> {
    let mut body = ReplyBody::default();
    body.u64(ino.0);
    body.u64(offset);
    body.u64(length_bytes);
    send(outlet, NOTIFY_INVALIDATE_INODE, &body)
}

/// Drops what is known of a name, or of its absence.
pub(crate) fn invalidate_entry(outlet: &mut impl Outlet, parent: Ino, name: &[u8]) -> Result<()> {
    let mut body = ReplyBody::default();
    body.u64(parent.0);
    body.u32(name.len() as u32);
    body.u32(0);
    body.bytes.extend_from_slice(name);
    body.bytes.push(0);
    send(outlet, NOTIFY_INVALIDATE_ENTRY, &body)
}

fn send(outlet: &mut impl Outlet, code: i32, body: &ReplyBody) -> Result<()> {
    // `header` negates, the way errors are sent; codes are sent as they are.
    let head = reply::header(0, -code, body.bytes.len());
    match outlet.send(&[IoSlice::new(&head), IoSlice::new(&body.bytes)]) {
        // Unwanted: the kernel does not have it cached, or is gone. Some kernels say ENOTDIR for a parent that is a
        // file by now.
        Ok(Sent::Delivered | Sent::Unwanted) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(()),
        Err(error) => Err(Error::system("notify the kernel", "send a notification", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    struct Recorder(Vec<u8>);

    impl Outlet for Recorder {
        fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Sent> {
            self.0 = parts.iter().flat_map(|part| part.iter().copied()).collect();
            Ok(Sent::Unwanted)
        }
    }

    #[test]
    fn notifications_carry_a_positive_code_and_no_unique() {
        let mut recorder = Recorder(Vec::new());
        invalidate_entry(&mut recorder, Ino(9), b"name").expect("sent");
        assert_eq!(recorder.0.len(), 16 + 16 + 5);
        assert_eq!(recorder.0[4..8], 3i32.to_ne_bytes());
        assert_eq!(recorder.0[8..16], [0; 8]);
        invalidate_inode(&mut recorder, Ino(9)).expect("sent");
        assert_eq!(recorder.0.len(), 16 + 24);
        assert_eq!(recorder.0[4..8], 2i32.to_ne_bytes());
    }
}
