//! How requests come from the kernel and replies go back.
//!
//! A worker owns one transport and uses it alone. Another way than `/dev/fuse` implements the same trait: receiving
//! hands over one request, sending answers the one received last.

use crate::abi::{REQUEST_BYTES_MAX, WRITE_DATA_OFFSET};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// Outcome of waiting for a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes of the buffer hold a request.
    Request(usize),
    /// Nothing this time: a signal came, or the program that asked went away. Wait again.
    Nothing,
    /// The mount is gone; nothing will come any more.
    Ended,
}

/// Outcome of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Delivered,
    /// Nobody waits for it any more: what it handed over was not taken.
    Unwanted,
}

/// One worker's line to the kernel.
pub(crate) trait Transport: Send + 'static {
    /// Waits for a request.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received>;
    /// Sends a reply, given in parts.
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Sent>;
}

/// The character device. Each clone has a queue of its own for the requests being processed.
#[derive(Debug)]
pub(crate) struct DevFuse {
    device: Arc<OwnedFd>,
}

impl DevFuse {
    /// Wraps the descriptor a mount was made with.
    pub(crate) fn new(device: Arc<OwnedFd>) -> DevFuse {
        DevFuse { device }
    }

    /// The same line again, for notifications, which any descriptor of the mount takes.
    pub(crate) fn same_line(&self) -> DevFuse {
        DevFuse {
            device: self.device.clone(),
        }
    }

    /// A second line to the same mount; the same descriptor again where the kernel or the rights do not allow a clone.
    pub(crate) fn clone_line(&self) -> DevFuse {
        match clone_device(&self.device) {
            Ok(device) => DevFuse {
                device: Arc::new(device),
            },
            Err(error) => {
                tracing::debug!(%error, "sharing one FUSE descriptor between threads");
                self.same_line()
            }
        }
    }
}

fn clone_device(session: &OwnedFd) -> io::Result<OwnedFd> {
    // _IOR(229, 0, u32)
    const FUSE_DEV_IOC_CLONE: libc::Ioctl = 0x8004_e500u32 as libc::Ioctl;
    let device: OwnedFd = File::options().read(true).write(true).open("/dev/fuse")?.into();
    let source = session.as_raw_fd() as u32;
    // SAFETY: the request reads one u32 behind the pointer, which lives until the call returns; both descriptors are
    // open.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), FUSE_DEV_IOC_CLONE, &source) };
    if result == 0 {
        Ok(device)
    } else {
        Err(io::Error::last_os_error())
    }
}

impl Transport for DevFuse {
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        match rustix::io::read(self.device.as_fd(), buffer) {
            Ok(length) => Ok(Received::Request(length)),
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => Ok(Received::Nothing),
            Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Received::Ended),
            Err(error) => Err(error.into()),
        }
    }

    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Sent> {
        match rustix::io::retry_on_intr(|| rustix::io::writev(self.device.as_fd(), parts)) {
            Ok(_) => Ok(Sent::Delivered),
            Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => Ok(Sent::Unwanted),
            Err(error) => Err(error.into()),
        }
    }
}

/// Memory for one request, placed so that the data of a WRITE begins on a page.
#[derive(Debug)]
pub(crate) struct RequestBuffer {
    memory: Vec<u8>,
    start: usize,
}

impl RequestBuffer {
    const PAGE_BYTES: usize = 4096;

    pub(crate) fn new() -> RequestBuffer {
        let memory = vec![0; REQUEST_BYTES_MAX + Self::PAGE_BYTES];
        let data_address = memory.as_ptr() as usize + WRITE_DATA_OFFSET;
        let start = data_address.next_multiple_of(Self::PAGE_BYTES) - data_address;
        RequestBuffer { memory, start }
    }

    pub(crate) fn space(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + REQUEST_BYTES_MAX]
    }

    pub(crate) fn filled(&self, length_bytes: usize) -> &[u8] {
        &self.memory[self.start..self.start + length_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_data_is_page_aligned() {
        let mut buffer = RequestBuffer::new();
        assert_eq!(buffer.space().len(), REQUEST_BYTES_MAX);
        assert_eq!((buffer.space().as_ptr() as usize + WRITE_DATA_OFFSET) % 4096, 0);
        buffer.space()[3] = 7;
        assert_eq!(buffer.filled(4), [0, 0, 0, 7]);
    }
}
