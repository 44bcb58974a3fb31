//! What the kernel asks for, one variant an operation, and how each body is laid out.
//!
//! Fields the file system has no use for (file handles, lock owners, padding) are skipped here and go no further.

use super::{Body, Malformed, reader::Reader};
use crate::abi::Opcode;
use packstone_fs::{Ino, Timestamp};

type Decoded<T> = Result<T, Malformed>;

/// A request without its header. Names come without their terminating NUL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    Forget {
        references: u64,
    },
    BatchForget(ForgetItems<'a>),
    GetAttributes,
    Statx,
    SetAttributes(SetAttributesBody),
    ReadSymlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MakeNode {
        name: &'a [u8],
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    MakeDirectory {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Create(CreateFile<'a>),
    TemporaryFile {
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    RemoveDirectory {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: Ino,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        ino: Ino,
        name: &'a [u8],
    },
    Open,
    Release,
    Read {
        offset: u64,
        length: u32,
    },
    Write {
        offset: u64,
        data: &'a [u8],
        write_flags: u32,
    },
    Allocate {
        offset: u64,
        length: u64,
        mode: u32,
    },
    Seek {
        offset: u64,
        whence: u32,
    },
    CopyRange {
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        length: u64,
        wide_reply: bool,
    },
    Fsync {
        fsync_flags: u32,
    },
    SyncFs,
    OpenDirectory,
    ReleaseDirectory,
    ReadDirectory {
        after: u64,
        size_bytes: u32,
        plus: bool,
    },
    Xattr(XattrOperation<'a>),
    StatFs,
    Init {
        major: u32,
        minor: u32,
        readahead_bytes: u32,
        flags: u64,
    },
    Destroy,
    Ioctl,
    /// Everything this crate answers with ENOSYS, so that the kernel does it itself or stops asking: FLUSH, ACCESS,
    /// locks, POLL, BMAP, INTERRUPT, mappings, and opcodes newer than this program.
    NotImplemented,
}

/// SETXATTR, GETXATTR, LISTXATTR and REMOVEXATTR. With a size of 0 the caller asks how long an answer would be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum XattrOperation<'a> {
    Set {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        extended_flags: u32,
    },
    Get {
        name: &'a [u8],
        size_bytes: u32,
    },
    List {
        size_bytes: u32,
    },
    Remove {
        name: &'a [u8],
    },
}

/// CREATE: makes a regular file and opens it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CreateFile<'a> {
    pub name: &'a [u8],
    pub mode: u32,
    pub umask: u32,
}

/// SETATTR; `valid` says which of the fields count (bits in `abi::setattr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetAttributesBody {
    pub valid: u32,
    pub size_bytes: u64,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// The inodes and reference counts of BATCH_FORGET; its length was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ForgetItems<'a> {
    items: &'a [u8],
}

impl ForgetItems<'_> {
    const ITEM_BYTES: usize = 16;

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ino, u64)> {
        self.items.chunks_exact(Self::ITEM_BYTES).filter_map(|item| {
            let mut reader = Reader::new(item.into());
            Some((Ino(reader.u64().ok()?), reader.u64().ok()?))
        })
    }
}

impl<'a> Operation<'a> {
    pub(super) fn decode(opcode: Opcode, body: Body<'a>) -> Decoded<Operation<'a>> {
        let reader = &mut Reader::new(body);
        match opcode {
            Opcode::Init => decode_init(reader),
            Opcode::Destroy => Ok(Operation::Destroy),
            Opcode::StatFs => Ok(Operation::StatFs),
            Opcode::SyncFs => Ok(Operation::SyncFs),
            Opcode::Ioctl => Ok(Operation::Ioctl),
            Opcode::Open => Ok(Operation::Open),
            Opcode::Release => Ok(Operation::Release),
            Opcode::OpenDirectory => Ok(Operation::OpenDirectory),
            Opcode::ReleaseDirectory => Ok(Operation::ReleaseDirectory),
            Opcode::Read
            | Opcode::Write
            | Opcode::Allocate
            | Opcode::Seek
            | Opcode::CopyFileRange
            | Opcode::CopyFileRange64
            | Opcode::Fsync
            | Opcode::FsyncDirectory => decode_data(opcode, reader),
            Opcode::ReadDirectory => decode_read_directory(reader, false),
            Opcode::ReadDirectoryPlus => decode_read_directory(reader, true),
            Opcode::GetAttributes => Ok(Operation::GetAttributes),
            Opcode::Statx => Ok(Operation::Statx),
            Opcode::SetAttributes => decode_set_attributes(reader),
            Opcode::SetXattr | Opcode::GetXattr | Opcode::ListXattr | Opcode::RemoveXattr => {
                decode_xattr(opcode, reader)
            }
            Opcode::Forget => Ok(Operation::Forget {
                references: reader.u64()?,
            }),
            Opcode::BatchForget => decode_batch_forget(reader),
            Opcode::Lookup
            | Opcode::ReadSymlink
            | Opcode::Unlink
            | Opcode::RemoveDirectory
            | Opcode::Rename
            | Opcode::Rename2
            | Opcode::Link => decode_name(opcode, reader),
            Opcode::Symlink
            | Opcode::MakeNode
            | Opcode::MakeDirectory
            | Opcode::Create
            | Opcode::TemporaryFile => decode_new(opcode, reader),
            Opcode::Flush
            | Opcode::GetLock
            | Opcode::SetLock
            | Opcode::SetLockWait
            | Opcode::Access
            | Opcode::Interrupt
            | Opcode::BlockMap
            | Opcode::Poll
            | Opcode::NotifyReply
            | Opcode::SetupMapping
            | Opcode::RemoveMapping => Ok(Operation::NotImplemented),
        }
    }
}

/// Operations on a name that exists, or may.
fn decode_name<'a>(opcode: Opcode, reader: &mut Reader<'a>) -> Decoded<Operation<'a>> {
    Ok(match opcode {
        Opcode::Lookup => Operation::Lookup {
            name: reader.entry_name()?,
        },
        Opcode::ReadSymlink => Operation::ReadSymlink,
        Opcode::Unlink => Operation::Unlink {
            name: reader.entry_name()?,
        },
        Opcode::RemoveDirectory => Operation::RemoveDirectory {
            name: reader.entry_name()?,
        },
        Opcode::Rename | Opcode::Rename2 => {
            let new_parent = Ino(reader.u64()?);
            let mut flags = 0;
            if opcode == Opcode::Rename2 {
                flags = reader.u32()?;
                reader.skip(4)?;
            }
            Operation::Rename {
                name: reader.entry_name()?,
                new_parent,
                new_name: reader.entry_name()?,
                flags,
            }
        }
        Opcode::Link => Operation::Link {
            ino: Ino(reader.u64()?),
            name: reader.entry_name()?,
        },
        _ => Operation::NotImplemented,
    })
}

/// Operations that make an inode.
fn decode_new<'a>(opcode: Opcode, reader: &mut Reader<'a>) -> Decoded<Operation<'a>> {
    Ok(match opcode {
        Opcode::Symlink => Operation::Symlink {
            name: reader.entry_name()?,
            target: reader.name()?,
        },
        Opcode::MakeNode => {
            let (mode, rdev, umask) = (reader.u32()?, reader.u32()?, reader.u32()?);
            reader.skip(4)?;
            Operation::MakeNode {
                name: reader.entry_name()?,
                mode,
                rdev,
                umask,
            }
        }
        Opcode::MakeDirectory => {
            let (mode, umask) = (reader.u32()?, reader.u32()?);
            Operation::MakeDirectory {
                name: reader.entry_name()?,
                mode,
                umask,
            }
        }
        Opcode::Create | Opcode::TemporaryFile => {
            reader.skip(4)?; // open(2) flags: the kernel has acted on them
            let (mode, umask) = (reader.u32()?, reader.u32()?);
            reader.skip(4)?; // further open flags
            if opcode == Opcode::TemporaryFile {
                // A placeholder stands where the name would be.
                return Ok(Operation::TemporaryFile { mode, umask });
            }
            Operation::Create(CreateFile {
                name: reader.entry_name()?,
                mode,
                umask,
            })
        }
        _ => Operation::NotImplemented,
    })
}

/// Operations on the bytes of a file. All but LSEEK's and FSYNC's tail begin with a file handle.
fn decode_data<'a>(opcode: Opcode, reader: &mut Reader<'a>) -> Decoded<Operation<'a>> {
    reader.skip(8)?;
    Ok(match opcode {
        Opcode::Read => Operation::Read {
            offset: reader.u64()?,
            length: reader.u32()?,
        },
        Opcode::Write => {
            let (offset, length, write_flags) = (reader.u64()?, reader.u32()?, reader.u32()?);
            reader.skip(16)?; // lock owner, open(2) flags, padding
            Operation::Write {
                offset,
                data: reader.bytes(length as usize)?,
                write_flags,
            }
        }
        Opcode::Allocate => {
            let (offset, length, mode) = (reader.u64()?, reader.u64()?, reader.u32()?);
            Operation::Allocate { offset, length, mode }
        }
        Opcode::Seek => Operation::Seek {
            offset: reader.u64()?,
            whence: reader.u32()?,
        },
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            let from_offset = reader.u64()?;
            let to = Ino(reader.u64()?);
            reader.skip(8)?; // the other file's handle
            let (to_offset, length) = (reader.u64()?, reader.u64()?);
            let wide_reply = opcode == Opcode::CopyFileRange64;
            Operation::CopyRange {
                from_offset,
                to,
                to_offset,
                length,
                wide_reply,
            }
        }
        Opcode::Fsync | Opcode::FsyncDirectory => Operation::Fsync {
            fsync_flags: reader.u32()?,
        },
        _ => Operation::NotImplemented,
    })
}

fn decode_read_directory<'a>(reader: &mut Reader<'a>, plus: bool) -> Decoded<Operation<'a>> {
    reader.skip(8)?; // file handle
    Ok(Operation::ReadDirectory {
        after: reader.u64()?,
        size_bytes: reader.u32()?,
        plus,
    })
}

fn decode_batch_forget<'a>(reader: &mut Reader<'a>) -> Decoded<Operation<'a>> {
    let count = reader.u32()? as usize;
    reader.skip(4)?;
    match count.checked_mul(ForgetItems::ITEM_BYTES) {
        Some(size) => Ok(Operation::BatchForget(ForgetItems {
            items: reader.bytes(size)?,
        })),
        None => Malformed::because("more items than a request can hold"),
    }
}

fn decode_set_attributes<'a>(reader: &mut Reader<'a>) -> Decoded<Operation<'a>> {
    let valid = reader.u32()?;
    reader.skip(4 + 8)?; // padding, file handle
    let size_bytes = reader.u64()?;
    reader.skip(8)?; // lock owner
    let seconds = [reader.u64()?, reader.u64()?, reader.u64()?];
    let nanoseconds = [reader.u32()?, reader.u32()?, reader.u32()?];
    let timestamp = |index: usize| Timestamp {
        seconds: seconds[index] as i64,
        nanoseconds: nanoseconds[index],
    };
    let mode = reader.u32()?;
    reader.skip(4)?;
    Ok(Operation::SetAttributes(SetAttributesBody {
        valid,
        size_bytes,
        accessed: timestamp(0),
        modified: timestamp(1),
        changed: timestamp(2),
        mode,
        uid: reader.u32()?,
        gid: reader.u32()?,
    }))
}

fn decode_xattr<'a>(opcode: Opcode, reader: &mut Reader<'a>) -> Decoded<Operation<'a>> {
    Ok(Operation::Xattr(match opcode {
        Opcode::SetXattr => {
            let (length, flags, extended_flags) = (reader.u32()?, reader.u32()?, reader.u32()?);
            reader.skip(4)?;
            let name = reader.name()?;
            XattrOperation::Set {
                name,
                value: reader.bytes(length as usize)?,
                flags,
                extended_flags,
            }
        }
        Opcode::GetXattr => {
            let size_bytes = reader.u32()?;
            reader.skip(4)?;
            XattrOperation::Get {
                name: reader.name()?,
                size_bytes,
            }
        }
        Opcode::ListXattr => XattrOperation::List {
            size_bytes: reader.u32()?,
        },
        Opcode::RemoveXattr => XattrOperation::Remove { name: reader.name()? },
        _ => return Ok(Operation::NotImplemented),
    }))
}

fn decode_init<'a>(reader: &mut Reader<'a>) -> Decoded<Operation<'a>> {
    let (major, minor, readahead_bytes, low) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
    // The upper half is there from minor 36 on.
    let high = if reader.is_at_end() { 0 } else { reader.u32()? };
    let flags = u64::from(low) | u64::from(high) << 32;
    Ok(Operation::Init {
        major,
        minor,
        readahead_bytes,
        flags,
    })
}
