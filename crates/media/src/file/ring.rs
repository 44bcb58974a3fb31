//! Many reads at once: one io_uring for each thread that reads.
//!
//! Records that random updates have scattered are read by the dozen. One after the other each costs the device's whole
//! latency; handed over together they overlap. A ring belongs to one thread and is empty between calls, so nothing is
//! shared and no buffer is in use once a call has returned.
//!
//! Where the kernel offers no io_uring, or does not allow it, [`read_all`] says so once and the caller reads one by one.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};

use crate::media::ReadRequest;

/// Reads under way at once. More do not make devices faster; each costs the kernel a little memory.
const DEPTH: u32 = 64;

enum Ring {
    Untried,
    Ready(Box<IoUring>),
    Missing,
}

thread_local! {
    static RING: RefCell<Ring> = const { RefCell::new(Ring::Untried) };
}

/// Fills every buffer by direct reads of `file`; the buffers must be aligned as the file demands. Each outcome is bytes read
/// or an error, in the order of the requests. `None` when there is no ring here: nothing was read.
pub(super) fn read_all(file: &File, requests: &mut [ReadRequest<'_>]) -> Option<Vec<io::Result<usize>>> {
    RING.with_borrow_mut(|slot| {
        if matches!(slot, Ring::Untried) {
            *slot = IoUring::new(DEPTH).map_or(Ring::Missing, |ring| Ring::Ready(Box::new(ring)));
        }
        let Ring::Ready(ring) = slot else { return None };
        let outcomes = read_with(ring, file, requests);
        if outcomes.is_none() {
            *slot = Ring::Missing;
        }
        outcomes
    })
}

/// `None` when the kernel refused to go on; by then no read is under way any more.
fn read_with(
    ring: &mut IoUring,
    file: &File,
    requests: &mut [ReadRequest<'_>],
) -> Option<Vec<io::Result<usize>>> {
    let descriptor = types::Fd(file.as_raw_fd());
    let mut outcomes: Vec<io::Result<usize>> = requests.iter().map(|_| Ok(0)).collect();
    let mut waiting = requests.iter_mut().enumerate().peekable();
    let mut under_way = 0;
    while under_way > 0 || waiting.peek().is_some() {
        while under_way < DEPTH as usize
            && let Some((at, request)) = waiting.next()
        {
            let (pointer, length) = (request.buffer.as_mut_ptr(), request.buffer.len() as u32);
            let entry = opcode::Read::new(descriptor, pointer, length)
                .offset(request.offset_bytes)
                .build()
                .user_data(at as u64);
            // SAFETY: the buffer is borrowed for the whole call, and this function returns only when every read that the
            // kernel took has completed.
            let pushed = unsafe { ring.submission().push(&entry) };
            assert!(
                pushed.is_ok(),
                "a ring with room for {DEPTH} reads is full with fewer"
            );
            under_way += 1;
        }
        let submitted = ring.submit_and_wait(1);
        under_way -= complete(ring, &mut outcomes);
        if let Err(error) = submitted
            && !is_passing(&error)
        {
            // What the kernel did not take goes away with the ring; what it took must end before the buffers do.
            let taken = under_way.saturating_sub(ring.submission().len());
            drain(ring, taken, &mut outcomes);
            return None;
        }
    }
    Some(outcomes)
}

/// Takes note of what has completed; returns how many.
fn complete(ring: &mut IoUring, outcomes: &mut [io::Result<usize>]) -> usize {
    let mut count = 0;
    for completion in ring.completion() {
        count += 1;
        let result = completion.result();
        if let Some(outcome) = outcomes.get_mut(completion.user_data() as usize) {
            *outcome = if result < 0 {
                Err(io::Error::from_raw_os_error(-result))
            } else {
                Ok(result as usize)
            };
        }
    }
    count
}

fn drain(ring: &mut IoUring, mut under_way: usize, outcomes: &mut [io::Result<usize>]) {
    while under_way > 0 {
        std::thread::sleep(Duration::from_micros(100));
        under_way = under_way.saturating_sub(complete(ring, outcomes));
    }
}

/// Errors of io_uring_enter(2) that the next try does not have.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
    )
}

#[cfg(test)]
mod tests;
