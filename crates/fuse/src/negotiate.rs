//! The INIT exchange: what the kernel offers, what of it is wanted, what that leaves to the daemon.
//!
//! Choices, and what they are for:
//! - no `WRITEBACK_CACHE`: a write reaches the daemon when and as the program makes it;
//! - `EXPLICIT_INVAL_DATA` and never `AUTO_INVAL_DATA`: new attributes do not throw away cached pages;
//! - `HANDLE_KILLPRIV_V2`: no GETXATTR in front of a write, the file system clears suid, sgid and capabilities;
//! - `NO_OPEN_SUPPORT` and `NO_OPENDIR_SUPPORT`: OPEN is answered ENOSYS, after which opening and closing cost no
//!   request. An open file keeps its inode in the kernel, and so its lookup reference here: that reference is what
//!   holds the data of an unlinked open file. The two must not be combined with `ATOMIC_O_TRUNC`, because then nobody
//!   would truncate; without it the kernel sends SETATTR for O_TRUNC;
//! - `POSIX_ACL` with `DONT_MASK`: the file system applies default ACLs, or the umask where there is none;
//! - `OVER_IO_URING`, where the mount has prepared rings for it: after that the kernel holds all requests back until
//!   every queue has an entry, or one was refused;
//! - without extended attributes, where the mount is configured so, no `POSIX_ACL` either;
//! - no `POSIX_LOCKS`, no `FLOCK_LOCKS`: one kernel sees all users of the mount, its own locks are enough;
//! - no `EXPORT_SUPPORT`: NFS cannot re-export a mount.

use crate::abi::{
    OPCODES, PAGES_PER_REQUEST_MAX, VERSION_MAJOR, VERSION_MINOR, VERSION_MINOR_MIN, WRITE_BYTES_MAX, init,
};
use crate::reply::ReplyBody;
use crate::request::{Operation, Request};
use crate::transport::{Received, Transport};
use crate::{Error, ErrorKind, Result};

const _: () = assert!(OPCODES < 64);

const WANTED: u64 = init::ASYNC_READ
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::NO_OPEN_SUPPORT
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::NO_OPENDIR_SUPPORT
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT;

/// Without these the promises of the file system cannot be kept; all are in Linux 5.11 and later.
const REQUIRED: u64 =
    init::BIG_WRITES | init::MAX_PAGES | init::DONT_MASK | init::HANDLE_KILLPRIV_V2 | init::SETXATTR_EXT;

/// Asynchronous requests (read-ahead, direct and mmap I/O) in flight before the kernel holds back; its default is 12.
const BACKGROUND_REQUESTS_MAX: u16 = 128;
const CONGESTION_REQUESTS: u16 = 96;
/// Upper bound for read-ahead; the mount's own setting decides below it.
const READAHEAD_BYTES_MAX: u32 = 4 << 20;

/// What the daemon may take of the kernel's offer.
pub(crate) fn wanted(extended_attributes: bool, io_uring: bool) -> u64 {
    let mut wanted = WANTED;
    if !extended_attributes {
        wanted &= !init::POSIX_ACL;
    }
    if io_uring {
        wanted |= init::OVER_IO_URING;
    }
    wanted
}

/// What kernel and daemon agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub minor: u32,
    pub flags: u64,
}

impl Agreement {
    pub(crate) fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
}

enum Answer {
    Agreed(Agreement),
    /// The kernel speaks a newer major version; told ours, it asks again.
    AskAgain,
    Refused(String),
}

fn answer(major: u32, minor: u32, offered: u64, wanted: u64) -> Answer {
    if major > VERSION_MAJOR {
        return Answer::AskAgain;
    }
    if major < VERSION_MAJOR || minor < VERSION_MINOR_MIN {
        return Answer::Refused(format!(
            "the kernel's FUSE version {major}.{minor} is too old, 7.{VERSION_MINOR_MIN} is needed"
        ));
    }
    let missing = REQUIRED & !offered;
    if missing != 0 {
        return Answer::Refused(format!(
            "the kernel's FUSE lacks features {missing:#x}; Linux 5.11 or later has them"
        ));
    }
    Answer::Agreed(Agreement {
        minor: minor.min(VERSION_MINOR),
        flags: wanted & offered,
    })
}

fn encode(body: &mut ReplyBody, agreement: &Agreement, readahead_bytes: u32) {
    body.u32(VERSION_MAJOR);
    body.u32(agreement.minor);
    body.u32(readahead_bytes.max(READAHEAD_BYTES_MAX));
    body.u32(agreement.flags as u32);
    body.bytes
        .extend_from_slice(&BACKGROUND_REQUESTS_MAX.to_ne_bytes());
    body.bytes.extend_from_slice(&CONGESTION_REQUESTS.to_ne_bytes());
    body.u32(WRITE_BYTES_MAX as u32);
    body.u32(1); // granularity of times in ns
    body.bytes.extend_from_slice(&PAGES_PER_REQUEST_MAX.to_ne_bytes());
    body.bytes.extend_from_slice(&0u16.to_ne_bytes()); // map alignment
    body.u32((agreement.flags >> 32) as u32);
    body.zeros(28);
}

/// Waits for INIT, which the kernel sends as the first request of a new mount, and answers it.
pub(crate) fn negotiate(transport: &mut impl Transport, wanted: u64) -> Result<Agreement> {
    const OPERATION: &str = "negotiate with the kernel";
    let system = |doing, error| Error::system(OPERATION, doing, error);
    loop {
        let header = match transport.receive().map_err(|error| system("read", error))? {
            Received::Request(header) => header,
            Received::Nothing => continue,
            Received::Ended => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    OPERATION,
                    "unmounted before it was ready",
                ));
            }
        };
        let (request_body, body) = transport.exchange();
        let decoded = Request::decode(header, request_body);
        let Ok(Request {
            operation:
                Operation::Init {
                    major,
                    minor,
                    readahead_bytes,
                    flags,
                },
            ..
        }) = decoded
        else {
            return Err(Error::new(
                ErrorKind::Unavailable,
                OPERATION,
                "the first request is not INIT",
            ));
        };
        tracing::debug!(major, minor, flags = format!("{flags:#x}"), "the kernel's FUSE");
        let (outcome, error) = match answer(major, minor, flags, wanted) {
            Answer::Agreed(agreement) => {
                encode(body, &agreement, readahead_bytes);
                (Some(Ok(agreement)), 0)
            }
            Answer::AskAgain => {
                encode(
                    body,
                    &Agreement {
                        minor: VERSION_MINOR,
                        flags: 0,
                    },
                    readahead_bytes,
                );
                (None, 0)
            }
            Answer::Refused(reason) => (
                Some(Err(Error::new(ErrorKind::Unsupported, OPERATION, reason))),
                libc::EPROTO,
            ),
        };
        transport
            .reply(&header, error)
            .map_err(|error| system("answer", error))?;
        if let Some(outcome) = outcome {
            return outcome;
        }
    }
}

#[cfg(test)]
mod tests;
