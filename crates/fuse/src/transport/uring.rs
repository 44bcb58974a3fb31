//! FUSE over io_uring (Linux 6.14 and later): a thread with a ring of its own, and one entry on one of the queues.
//!
//! The kernel fills the entry's buffers with a request and completes the ring's one command. Answering and waiting for
//! the next request is one system call: it submits COMMIT_AND_FETCH and waits for that to complete.
//!
//! | SQE, 128 bytes | REGISTER | COMMIT_AND_FETCH |
//! |---|---|---|
//! | opcode, command | URING_CMD, 1 | URING_CMD, 2 |
//! | 16 u64 address, 24 u32 length | the two buffers as `iovec`s | |
//! | 48 u64 flags | 0 | 0 |
//! | 56 u64 commit id | 0 | that of the request |
//! | 64 u16 queue | of the entry | of the entry |
//!
//! Invariants:
//! - The ring defers its work to its one issuer (`DEFER_TASKRUN`, `SINGLE_ISSUER`), so that the kernel touches the
//!   buffers only while this thread is inside io_uring_enter(2). Nothing here borrows them then.
//! - A received request is always committed: what is not, keeps its entry and the program that asked waiting for ever.
//!
//! Leaves out: FORGET, INTERRUPT and notifications, which the kernel sends and takes by the device alone.

use super::entry::Entry;
use super::{Received, Sent, Transport};
use crate::reply::ReplyBody;
use crate::request::{Body, Header};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

const COMMAND_REGISTER: u32 = 1;
const COMMAND_COMMIT_AND_FETCH: u32 = 2;
/// The device is the ring's only registered file.
const DEVICE: types::Fixed = types::Fixed(0);

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// A ring with the buffers of one worker. Made by any thread, and used by the one that calls `register`.
pub(crate) struct UringLine {
    ring: Ring,
    entry: Entry,
    queue: u16,
    /// A command was put into the ring and its completion not yet taken.
    is_pending: bool,
}

impl UringLine {
    /// A line for one of the kernel's queues, not yet known to the kernel. Fails where io_uring is not allowed or there
    /// is not enough of something; the mount can then use the device.
    pub(crate) fn new(queue: u16, payload_bytes: usize) -> io::Result<UringLine> {
        let ring = Ring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_r_disabled()
            .build(1)?;
        Ok(UringLine {
            ring,
            entry: Entry::new(payload_bytes),
            queue,
            is_pending: false,
        })
    }

    /// Number of the queue its entry is for.
    pub(crate) fn queue(&self) -> usize {
        usize::from(self.queue)
    }

    /// Gives the entry to the kernel, from the thread that will serve it. An entry that the kernel refuses makes it use
    /// the device instead, unless every queue has another; a failure before that is for `refuse`.
    pub(crate) fn register(&mut self, device: &impl AsFd) -> io::Result<()> {
        self.enable(device)?;
        self.register_entry()
    }

    fn enable(&self, device: &impl AsFd) -> io::Result<()> {
        let submitter = self.ring.submitter();
        submitter.register_enable_rings()?;
        submitter.register_files(&[device.as_fd().as_raw_fd()])
    }

    fn register_entry(&mut self) -> io::Result<()> {
        let buffers = self.entry.buffers();
        let mut command = command(COMMAND_REGISTER, self.queue, 0, buffers.as_ptr() as u64);
        set_length(&mut command, buffers.len() as u32);
        self.push(&command)?;
        // The kernel has read the two `iovec`s when this returns.
        self.ring.submit()?;
        match self.take_completion() {
            // The kernel keeps it until a request comes, and completes it no sooner than this thread waits.
            None => Ok(()),
            Some(result) => {
                self.is_pending = false;
                Err(io::Error::from_raw_os_error(-result))
            }
        }
    }

    fn take_completion(&mut self) -> Option<i32> {
        let completion = self.ring.completion().next()?;
        Some(completion.result())
    }

    fn push(&mut self, command: &squeue::Entry128) -> io::Result<()> {
        // SAFETY: what the command points to, the entry's buffers, lives as long as this line, and the kernel uses it
        // within this thread's own calls only; the list of the two lives until REGISTER was submitted.
        unsafe { self.ring.submission().push(command) }.map_err(io::Error::other)?;
        self.is_pending = true;
        Ok(())
    }

    fn commit(&mut self, unique: u64, error: i32) -> io::Result<()> {
        self.entry.finish(unique, error);
        let command = command(COMMAND_COMMIT_AND_FETCH, self.queue, self.entry.commit_id(), 0);
        self.push(&command)
    }
}

fn command(number: u32, queue: u16, commit_id: u64, address: u64) -> squeue::Entry128 {
    let mut argument = [0; 80];
    argument[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    argument[16..18].copy_from_slice(&queue.to_ne_bytes());
    opcode::UringCmd80::new(DEVICE, number)
        .cmd(argument)
        .addr(Some(address))
        .build()
}

/// The library has no way to say how many `iovec`s there are.
fn set_length(command: &mut squeue::Entry128, length: u32) {
    const LENGTH_OFFSET: usize = 24;
    const { assert!(size_of::<squeue::Entry128>() == 128) };
    let bytes: *mut u8 = std::ptr::from_mut(command).cast();
    // SAFETY: an `Entry128` is the kernel's SQE of 128 bytes (`repr(C)`), whose length is a u32 at this offset.
    unsafe { bytes.add(LENGTH_OFFSET).cast::<u32>().write_unaligned(length) };
}

/// Has the kernel use the device though io_uring was agreed on, for a failure it has not seen itself: it holds all
/// requests back until the last queue has its entry, or until an entry is wrong. This one is wrong.
pub(crate) fn refuse(device: &impl AsFd) -> io::Result<()> {
    let mut line = UringLine::new(u16::MAX, 0)?;
    line.enable(device)?;
    match line.register_entry().map_err(|error| error.raw_os_error()) {
        // The second where an entry was refused before and the administrator has forbidden io_uring since.
        Err(Some(libc::EINVAL | libc::EOPNOTSUPP)) => Ok(()),
        Err(number) => {
            Err(number.map_or_else(|| io::Error::other("no answer"), io::Error::from_raw_os_error))
        }
        Ok(()) => Err(io::Error::other("the kernel took an entry that is wrong")),
    }
}

impl Transport for UringLine {
    fn receive(&mut self) -> io::Result<Received> {
        if !self.is_pending {
            // The kernel refused the last command, and has given up the entry.
            self.register_entry()?;
        }
        let mut completed = self.take_completion();
        if completed.is_none() {
            match self.ring.submit_and_wait(1) {
                Ok(_) => completed = self.take_completion(),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        let Some(result) = completed else {
            return Ok(Received::Nothing);
        };
        self.is_pending = false;
        if result < 0 {
            return match Errno::from_raw_os_error(-result) {
                Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV | Errno::CANCELED => Ok(Received::Ended),
                error => Err(error.into()),
            };
        }
        match self.entry.take_request() {
            Ok(header) => Ok(Received::Request(header)),
            Err(error) => {
                tracing::error!(%error, "a request that is not whole; answered EIO");
                self.commit(self.entry.commit_id(), libc::EIO)?;
                Ok(Received::Nothing)
            }
        }
    }

    fn exchange(&mut self) -> (Body<'_>, &mut ReplyBody) {
        self.entry.exchange()
    }

    fn reply(&mut self, header: &Header, error: i32) -> io::Result<Sent> {
        self.commit(header.unique, error)?;
        // It goes out with the next wait. The kernel lets no program go away before its request is answered.
        Ok(Sent::Delivered)
    }

    fn dismiss(&mut self, header: &Header) -> io::Result<()> {
        self.commit(header.unique, 0)
    }
}
