//! The character device `/dev/fuse`: one system call to receive, another to answer.

use super::{Outlet, Received, Sent, Transport};
use crate::abi::{REQUEST_BYTES_MAX, WRITE_DATA_OFFSET};
use crate::reply::{self, ReplyBody};
use crate::request::{Body, Header};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A descriptor of the mount. Each clone has a queue of its own for the requests being processed.
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

impl AsFd for DevFuse {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
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

impl Outlet for DevFuse {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Sent> {
        match rustix::io::retry_on_intr(|| rustix::io::writev(self.device.as_fd(), parts)) {
            Ok(_) => Ok(Sent::Delivered),
            Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => Ok(Sent::Unwanted),
            Err(error) => Err(error.into()),
        }
    }
}

/// A descriptor with the buffers of one worker.
#[derive(Debug)]
pub(crate) struct DeviceLine {
    device: DevFuse,
    buffer: RequestBuffer,
    received_bytes: usize,
    body: ReplyBody,
}

impl DeviceLine {
    pub(crate) fn new(device: DevFuse) -> DeviceLine {
        DeviceLine {
            device,
            buffer: RequestBuffer::new(),
            received_bytes: 0,
            body: ReplyBody::default(),
        }
    }
}

impl Transport for DeviceLine {
    fn receive(&mut self) -> io::Result<Received> {
        let length = match rustix::io::read(self.device.as_fd(), self.buffer.space()) {
            Ok(length) => length,
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => return Ok(Received::Nothing),
            Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::Ended),
            Err(error) => return Err(error.into()),
        };
        self.received_bytes = length;
        match Header::decode(self.buffer.filled(length)) {
            Ok((header, _)) => Ok(Received::Request(header)),
            Err(error) => {
                // Without a header there is nothing to answer.
                tracing::error!(%error, length, "a request without a header");
                Ok(Received::Nothing)
            }
        }
    }

    fn exchange(&mut self) -> (Body<'_>, &mut ReplyBody) {
        self.body.bytes.clear();
        let received = self.buffer.filled(self.received_bytes);
        let body = received.get(crate::abi::REQUEST_HEADER_BYTES..);
        (body.unwrap_or_default().into(), &mut self.body)
    }

    fn reply(&mut self, header: &Header, error: i32) -> io::Result<Sent> {
        if error != 0 {
            self.body.bytes.clear();
        }
        let head = reply::header(header.unique, error, self.body.bytes.len());
        self.device
            .send(&[IoSlice::new(&head), IoSlice::new(&self.body.bytes)])
    }

    fn dismiss(&mut self, _: &Header) -> io::Result<()> {
        Ok(())
    }
}

/// Memory for one request, placed so that the data of a WRITE begins on a page.
#[derive(Debug)]
struct RequestBuffer {
    memory: Vec<u8>,
    start: usize,
}

impl RequestBuffer {
    const PAGE_BYTES: usize = 4096;

    fn new() -> RequestBuffer {
        let memory = vec![0; REQUEST_BYTES_MAX + Self::PAGE_BYTES];
        let data_address = memory.as_ptr() as usize + WRITE_DATA_OFFSET;
        let start = data_address.next_multiple_of(Self::PAGE_BYTES) - data_address;
        RequestBuffer { memory, start }
    }

    fn space(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + REQUEST_BYTES_MAX]
    }

    fn filled(&self, length_bytes: usize) -> &[u8] {
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
