//! Answers SEEK_DATA where the file system sees a hole but the kernel may hold a dirty page.
//!
//! The kernel sends FUSE_LSEEK without writing back what was stored through a mapping, unlike it does for FALLOCATE and
//! COPY_FILE_RANGE. A `cp` of such a file would take data for a hole. Telling the kernel to drop its pages of the hole
//! makes it write the dirty ones back first; then the file system is asked again.
//!
//! Invariants:
//! - Nobody waits for that who is needed to serve: the notification returns only when workers have served the writes it
//!   causes, so that as many such seeks as there are workers would wait for one another for ever. With the device a
//!   thread of its own answers (`run`). With io_uring, where a request occupies its thread's entry until it is answered,
//!   the worker itself does, and has another thread stand in for it when it is the last of its queue (`rings`).
//! - No lock of the file system is held meanwhile. The kernel holds the inode's lock for the seek, which write-back does
//!   not take; the lock also keeps truncation and hole punching away.
//!
//! Leaves out: SEEK_HOLE. It may call a dirty page a hole, but whoever then asks for data there is told.

use super::worker::{guard, report_refused_reply};
use crate::notify;
use crate::reply::{self, ReplyBody};
use crate::request::Header;
use crate::transport::{DevFuse, Outlet};
use packstone_fs::{ErrorKind, FileSystem, Ino, Seek};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// A seek for data that a worker left unanswered.
pub(super) struct Job {
    /// The line on which the request came: only there the kernel looks for it.
    pub line: DevFuse,
    pub header: Header,
    pub offset: u64,
}

/// True when the file system finds no data at `offset` itself, so that a page the kernel holds would change the answer.
pub(super) fn looks_like_a_hole(filesystem: &FileSystem, ino: Ino, offset: u64) -> bool {
    match filesystem.seek(ino, offset, Seek::Data) {
        Ok(found) => found > offset,
        Err(error) => error.kind() == ErrorKind::NoSuchOffset,
    }
}

/// Serves `jobs` until the last worker is gone.
pub(super) fn run(filesystem: Arc<FileSystem>, jobs: Receiver<Job>) {
    for mut job in jobs {
        let mut body = ReplyBody::default();
        let error = guard(&job.header, &filesystem, || {
            Ok(answer(
                &filesystem,
                &mut job.line,
                job.header.node,
                job.offset,
                &mut body,
            )?)
        });
        if error != 0 {
            body.bytes.clear();
        }
        let head = reply::header(job.header.unique, error, body.bytes.len());
        // A seek grants nothing, so it does not matter whether somebody still waits for it.
        let sent = job.line.send(&[IoSlice::new(&head), IoSlice::new(&body.bytes)]);
        if let Err(failure) = sent {
            report_refused_reply(&job.header, &failure);
        }
    }
}

/// Has the hole at `offset` written back, then seeks again.
pub(super) fn answer(
    filesystem: &FileSystem,
    outlet: &mut DevFuse,
    ino: Ino,
    offset: u64,
    body: &mut ReplyBody,
) -> packstone_fs::Result<()> {
    write_back_hole(filesystem, outlet, ino, offset)?;
    body.u64(filesystem.seek(ino, offset, Seek::Data)?);
    Ok(())
}

fn write_back_hole(
    filesystem: &FileSystem,
    outlet: &mut DevFuse,
    ino: Ino,
    offset: u64,
) -> packstone_fs::Result<()> {
    let length = match filesystem.seek(ino, offset, Seek::Data) {
        Ok(found) if found <= offset => return Ok(()),
        Ok(found) => found - offset,
        Err(error) if error.kind() == ErrorKind::NoSuchOffset => notify::TO_THE_END,
        Err(error) => return Err(error),
    };
    if let Err(error) = notify::invalidate_range(outlet, ino, offset, length) {
        tracing::warn!(%error, ino = ino.0, "could not have dirty pages written back before a seek");
    }
    Ok(())
}
