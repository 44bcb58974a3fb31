//! One thread's loop: receive, decode, carry out, reply.

use super::seeker::{self, looks_like_a_hole};
use crate::abi::{Opcode, SEEK_DATA};
use crate::dispatch::dispatch;
use crate::errno::{self, Failure};
use crate::negotiate::Agreement;
use crate::request::{Body, Header, Operation, Request};
use crate::statistics::RequestCounters;
use crate::transport::{DevFuse, Received, Sent, Transport};
use packstone_fs::{FileSystem, Ino};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

/// Device errors in a row after which a worker gives up; the mount ends with the last one.
const DEVICE_ERRORS_MAX: u32 = 10;
const DEVICE_ERROR_PAUSE: Duration = Duration::from_millis(10);

pub(super) struct Worker<T> {
    filesystem: Arc<FileSystem>,
    line: T,
    agreement: Agreement,
    counters: Arc<RequestCounters>,
    /// References the reply in the making hands to the kernel.
    granted: Vec<Ino>,
    seeks: Seeks,
}

/// What becomes of a seek for data whose answer depends on pages that the kernel has not written back. To have them
/// written back means to wait for other requests (`seeker`).
pub(super) enum Seeks {
    /// Another thread answers, later.
    Leave(LeaveSeek),
    /// This thread waits and answers, as long as another is there for the requests that it waits for.
    Wait { outlet: DevFuse, stand_in: StandIn },
}

/// Leaves a seek for data, from this offset, to the thread that may wait for it; false when there is none any more.
pub(super) type LeaveSeek = Box<dyn Fn(Header, u64) -> bool + Send>;

/// Makes sure that other threads serve until what it returns is dropped; `None` when no thread can be had.
pub(super) type StandIn = Box<dyn Fn() -> Option<Box<dyn Send>> + Send>;

impl<T: Transport> Worker<T> {
    pub(super) fn new(
        filesystem: Arc<FileSystem>,
        line: T,
        agreement: Agreement,
        counters: Arc<RequestCounters>,
        seeks: Seeks,
    ) -> Worker<T> {
        Worker {
            filesystem,
            line,
            agreement,
            counters,
            granted: Vec::new(),
            seeks,
        }
    }

    /// Serves until the mount ends.
    pub(super) fn run(mut self) {
        let mut device_errors = 0;
        while device_errors < DEVICE_ERRORS_MAX {
            match self.line.receive() {
                Ok(Received::Request(header)) => {
                    device_errors = 0;
                    self.serve(header);
                }
                Ok(Received::Nothing) => {}
                Ok(Received::Ended) => return,
                Err(error) => {
                    device_errors += 1;
                    tracing::error!(%error, "cannot receive requests");
                    thread::sleep(DEVICE_ERROR_PAUSE);
                }
            }
        }
    }

    fn serve(&mut self, header: Header) {
        self.counters.count(header.opcode_number);
        self.granted.clear();
        let (filesystem, agreement, granted) = (&self.filesystem, &self.agreement, &mut self.granted);
        let (request_body, body) = self.line.exchange();
        let mut unwritten_seek = None;
        if header.opcode() == Some(Opcode::Seek) {
            unwritten_seek = seek_over_unwritten(filesystem, header, request_body);
        }
        let seeks = &mut self.seeks;
        if let (Some(offset), Seeks::Leave(leave)) = (unwritten_seek, &*seeks)
            && leave(header, offset)
        {
            return;
        }
        let error = guard(&header, filesystem, || match (unwritten_seek, seeks) {
            (Some(offset), Seeks::Wait { outlet, stand_in }) => {
                let _standing_in = stand_in().ok_or(Failure::NoThread)?;
                Ok(seeker::answer(filesystem, outlet, header.node, offset, body)?)
            }
            _ => {
                let request = Request::decode(header, request_body)?;
                dispatch(filesystem, agreement, request, body, granted)
            }
        });
        if header.wants_reply() {
            self.reply(&header, error);
        } else if let Err(failure) = self.line.dismiss(&header) {
            tracing::error!(error = %failure, operation = name_of(&header), "the kernel takes nothing more");
        }
    }

    fn reply(&mut self, header: &Header, error: i32) {
        match self.line.reply(header, error) {
            Ok(Sent::Delivered) if error == 0 => {}
            Ok(Sent::Delivered | Sent::Unwanted) => self.take_back(),
            Err(failure) => {
                report_refused_reply(header, &failure);
                self.take_back();
            }
        }
    }

    /// The kernel did not get what was granted, so it will never give it back.
    fn take_back(&mut self) {
        for ino in self.granted.drain(..) {
            self.filesystem.forget(ino, 1);
        }
    }
}

/// Where a seek for data begins whose answer depends on pages that the kernel has not written back.
fn seek_over_unwritten(filesystem: &FileSystem, header: Header, request_body: Body<'_>) -> Option<u64> {
    match Request::decode(header, request_body) {
        Ok(Request {
            operation:
                Operation::Seek {
                    offset,
                    whence: SEEK_DATA,
                },
            ..
        }) if looks_like_a_hole(filesystem, header.node, offset) => Some(offset),
        _ => None,
    }
}

/// Who keeps what went wrong, for `status`.
pub(super) trait Notes {
    fn dataset(&self) -> &str;
    /// Returns the path of the inode, if it is known.
    fn note(&self, ino: Ino, error: &packstone_fs::Error) -> Option<String>;
}

impl Notes for Arc<FileSystem> {
    fn dataset(&self) -> &str {
        FileSystem::dataset(self)
    }

    fn note(&self, ino: Ino, error: &packstone_fs::Error) -> Option<String> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.note_incident(ino, error, since.unwrap_or_default().as_secs() as i64)
    }
}

pub(super) fn report_refused_reply(header: &Header, failure: &std::io::Error) {
    tracing::error!(error = %failure, operation = name_of(header), "the kernel refused a reply");
}

/// The errno of what `work` does, 0 for success. A panic must not leave the kernel, and with it the program that asked,
/// waiting for ever.
pub(super) fn guard(header: &Header, notes: &dyn Notes, work: impl FnOnce() -> Result<(), Failure>) -> i32 {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => report(header, notes, &failure),
        Err(panic) => {
            let message = panic_message(&*panic);
            tracing::error!(
                operation = name_of(header),
                ino = header.node.0,
                message,
                "a request panicked; answered EIO"
            );
            errno::choose(&Failure::Panicked)
        }
    }
}

/// Logs what a person must know of, and chooses the errno.
fn report(header: &Header, notes: &dyn Notes, failure: &Failure) -> i32 {
    let chosen = errno::choose(failure);
    if errno::is_alarming(failure) {
        let path = match failure {
            Failure::FileSystem(error) => notes.note(header.node, error),
            _ => None,
        };
        let (path, dataset) = (path.unwrap_or_default(), notes.dataset());
        tracing::error!(operation = name_of(header), dataset, path, ino = header.node.0, error = %failure, "answered EIO");
    } else {
        tracing::trace!(operation = name_of(header), ino = header.node.0, errno = chosen, error = %failure);
    }
    chosen
}

fn name_of(header: &Header) -> &'static str {
    header.opcode().map_or("UNKNOWN", |opcode| opcode.name())
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "no message",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl Notes for Nowhere {
        fn dataset(&self) -> &str {
            "none"
        }

        fn note(&self, _: Ino, _: &packstone_fs::Error) -> Option<String> {
            None
        }
    }

    #[test]
    fn a_panic_becomes_an_error_of_that_request_alone() {
        let header = Header {
            opcode_number: 16,
            unique: 1,
            node: Ino(2),
            uid: 0,
            gid: 0,
        };
        assert_eq!(
            guard(&header, &Nowhere, || panic!(
                "on purpose, number {}",
                header.unique
            )),
            libc::EIO
        );
        assert_eq!(
            guard(&header, &Nowhere, || Err(Failure::NotImplemented)),
            libc::ENOSYS
        );
        assert_eq!(guard(&header, &Nowhere, || Ok(())), 0);
    }
}
