//! One decoded request to one file system call, and its result to a reply body.
//!
//! Handlers are split by family: `names`, `attributes`, `data`, `directory`. Each writes its reply into
//! [`Context::body`] or fails with a [`Failure`], never both: on failure the body is thrown away. What a handler puts in
//! [`Context::granted`] are references the kernel will hold once it has the reply.

mod attributes;
mod data;
mod directory;
mod names;

use crate::abi::{OPEN_CACHE_DIRECTORY, OPEN_KEEP_CACHE, init};
use crate::errno::Failure;
use crate::negotiate::Agreement;
use crate::reply::ReplyBody;
use crate::request::{Header, Operation, Request};
use packstone_fs::{Caller, FileSystem, Ino, Timestamp};
use std::time::{SystemTime, UNIX_EPOCH};

type Handled = Result<(), Failure>;

/// What a handler works with.
pub(crate) struct Context<'a> {
    filesystem: &'a FileSystem,
    agreement: &'a Agreement,
    /// Who asks; the umask is 0 but for operations that carry one.
    caller: Caller,
    /// The inode the request names.
    node: Ino,
    body: &'a mut ReplyBody,
    granted: &'a mut Vec<Ino>,
}

/// Carries out a request.
pub(crate) fn dispatch(
    filesystem: &FileSystem,
    agreement: &Agreement,
    request: Request<'_>,
    body: &mut ReplyBody,
    granted: &mut Vec<Ino>,
) -> Handled {
    let Request { header, operation } = request;
    let caller = caller_of(&header);
    let mut context = Context {
        filesystem,
        agreement,
        caller,
        node: header.node,
        body,
        granted,
    };
    context.handle(operation)
}

fn caller_of(header: &Header) -> Caller {
    Caller {
        uid: header.uid,
        gid: header.gid,
        umask: 0,
        now: now(),
    }
}

/// The precise wall clock: files written one after the other must not share a time because a tick had not passed.
fn now() -> Timestamp {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp {
            seconds: since.as_secs() as i64,
            nanoseconds: since.subsec_nanos(),
        },
        Err(_) => Timestamp::default(),
    }
}

impl Context<'_> {
    fn handle(&mut self, operation: Operation<'_>) -> Handled {
        match operation {
            Operation::Read { offset, length } => self.read(offset, length),
            Operation::Write {
                offset,
                data,
                write_flags,
            } => self.write(offset, data, write_flags),
            Operation::Fsync { fsync_flags } => self.fsync(fsync_flags),
            Operation::SyncFs => Ok(self.filesystem.sync_all()?),
            Operation::Allocate { offset, length, mode } => self.allocate(offset, length, mode),
            Operation::Seek { offset, whence } => self.seek(offset, whence),
            Operation::CopyRange {
                from_offset,
                to,
                to_offset,
                length,
                wide_reply,
            } => self.copy_range(from_offset, to, to_offset, length, wide_reply),
            Operation::Lookup { name } => self.lookup(name),
            Operation::Forget { references } => self.forget(self.node, references),
            Operation::BatchForget(items) => {
                items.iter().try_for_each(|(ino, count)| self.forget(ino, count))
            }
            Operation::ReadSymlink => self.read_symlink(),
            Operation::Symlink { name, target } => self.symlink(name, target),
            Operation::MakeNode {
                name,
                mode,
                rdev,
                umask,
            } => self.make_node(name, mode, rdev, umask),
            Operation::MakeDirectory { name, mode, umask } => self.make_directory(name, mode, umask),
            Operation::Create(create) => self.create(create),
            Operation::TemporaryFile { mode, umask } => self.temporary_file(mode, umask),
            Operation::Unlink { name } => Ok(self.filesystem.unlink(&self.caller, self.node, name)?),
            Operation::RemoveDirectory { name } => {
                Ok(self.filesystem.remove_directory(&self.caller, self.node, name)?)
            }
            Operation::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => self.rename(name, new_parent, new_name, flags),
            Operation::Link { ino, name } => self.link(ino, name),
            Operation::GetAttributes => self.get_attributes(),
            Operation::Statx => self.statx(),
            Operation::SetAttributes(change) => self.set_attributes(change),
            Operation::Xattr(operation) => self.xattr(operation),
            Operation::StatFs => self.statfs(),
            Operation::Open => self.open(init::NO_OPEN_SUPPORT, OPEN_KEEP_CACHE),
            Operation::OpenDirectory => {
                self.open(init::NO_OPENDIR_SUPPORT, OPEN_KEEP_CACHE | OPEN_CACHE_DIRECTORY)
            }
            Operation::ReadDirectory {
                after,
                size_bytes,
                plus,
            } => self.read_directory(after, size_bytes, plus),
            // The file that CREATE opened has a release though others have not; nothing hangs on it.
            Operation::Release | Operation::ReleaseDirectory | Operation::Destroy => Ok(()),
            Operation::Ioctl => Err(Failure::UnknownIoctl),
            Operation::Init { .. } => Err(Failure::InvalidArgument),
            Operation::NotImplemented => Err(Failure::NotImplemented),
        }
    }

    /// ENOSYS makes the kernel open without asking, where it can.
    fn open(&mut self, silent_feature: u64, open_flags: u32) -> Handled {
        if self.agreement.has(silent_feature) {
            return Err(Failure::NotImplemented);
        }
        self.body.opened(open_flags);
        Ok(())
    }

    /// The root has no name that could be looked up, so its references are the kernel's own affair.
    fn forget(&self, ino: Ino, references: u64) -> Handled {
        if ino != Ino::ROOT && references > 0 {
            self.filesystem.forget(ino, references);
        }
        Ok(())
    }
}
