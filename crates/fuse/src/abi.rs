//! Numbers of the FUSE protocol, major version 7, as the kernel's `linux/fuse.h` defines them.
//!
//! Only what this crate uses is here. All integers are in the machine's own byte order. Structures are not declared as
//! Rust types: `request` reads and `reply` writes them field by field, which needs no `unsafe` and checks every length.
//!
//! Every request begins with this header, every reply with the second one:
//!
//! | offset | request | offset | reply |
//! |---|---|---|---|
//! | 0 | u32 length of all | 0 | u32 length of all |
//! | 4 | u32 opcode | 4 | i32 0 or a negated errno; a notification code when unique is 0 |
//! | 8 | u64 unique | 8 | u64 unique of the request |
//! | 16 | u64 node | | |
//! | 24 | u32 uid | | |
//! | 28 | u32 gid | | |
//! | 32 | u32 pid | | |
//! | 36 | u16 extension length in 8 bytes, u16 unused | | |

/// Bytes of the largest write the kernel sends as one request, and of the largest read it asks for.
pub const WRITE_BYTES_MAX: usize = 1 << 20;

pub(crate) const REQUEST_HEADER_BYTES: usize = 40;
pub(crate) const REPLY_HEADER_BYTES: usize = 16;
/// Bytes between the start of a WRITE request and its data: the header and `fuse_write_in`.
pub(crate) const WRITE_DATA_OFFSET: usize = REQUEST_HEADER_BYTES + 40;
/// The kernel refuses to hand out requests to a buffer smaller than the largest write with its headers; the rest of the
/// page leaves room for names and xattr values beside it.
pub(crate) const REQUEST_BYTES_MAX: usize = WRITE_BYTES_MAX + 4096;
pub(crate) const PAGES_PER_REQUEST_MAX: u16 = 256;

pub(crate) const VERSION_MAJOR: u32 = 7;
/// Newest minor version this crate knows the messages of.
pub(crate) const VERSION_MINOR: u32 = 45;
/// Oldest minor version it can talk: Linux 5.4. Everything after that is optional and agreed on by flags.
pub(crate) const VERSION_MINOR_MIN: u32 = 31;

macro_rules! opcodes {
    ($($variant:ident = $number:literal $name:literal,)*) => {
        /// What the kernel asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum Opcode { $($variant = $number,)* }

        impl Opcode {
            pub(crate) fn from_number(number: u32) -> Option<Opcode> {
                match number { $($number => Some(Opcode::$variant),)* _ => None }
            }

            /// The protocol's own name, for counters and logs.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Opcode::$variant => $name,)* }
            }
        }
    };
}

opcodes! {
    Lookup = 1 "LOOKUP",
    Forget = 2 "FORGET",
    GetAttributes = 3 "GETATTR",
    SetAttributes = 4 "SETATTR",
    ReadSymlink = 5 "READLINK",
    Symlink = 6 "SYMLINK",
    MakeNode = 8 "MKNOD",
    MakeDirectory = 9 "MKDIR",
    Unlink = 10 "UNLINK",
    RemoveDirectory = 11 "RMDIR",
    Rename = 12 "RENAME",
    Link = 13 "LINK",
    Open = 14 "OPEN",
    Read = 15 "READ",
    Write = 16 "WRITE",
    StatFs = 17 "STATFS",
    Release = 18 "RELEASE",
    Fsync = 20 "FSYNC",
    SetXattr = 21 "SETXATTR",
    GetXattr = 22 "GETXATTR",
    ListXattr = 23 "LISTXATTR",
    RemoveXattr = 24 "REMOVEXATTR",
    Flush = 25 "FLUSH",
    Init = 26 "INIT",
    OpenDirectory = 27 "OPENDIR",
    ReadDirectory = 28 "READDIR",
    ReleaseDirectory = 29 "RELEASEDIR",
    FsyncDirectory = 30 "FSYNCDIR",
    GetLock = 31 "GETLK",
    SetLock = 32 "SETLK",
    SetLockWait = 33 "SETLKW",
    Access = 34 "ACCESS",
    Create = 35 "CREATE",
    Interrupt = 36 "INTERRUPT",
    BlockMap = 37 "BMAP",
    Destroy = 38 "DESTROY",
    Ioctl = 39 "IOCTL",
    Poll = 40 "POLL",
    NotifyReply = 41 "NOTIFY_REPLY",
    BatchForget = 42 "BATCH_FORGET",
    Allocate = 43 "FALLOCATE",
    ReadDirectoryPlus = 44 "READDIRPLUS",
    Rename2 = 45 "RENAME2",
    Seek = 46 "LSEEK",
    CopyFileRange = 47 "COPY_FILE_RANGE",
    SetupMapping = 48 "SETUPMAPPING",
    RemoveMapping = 49 "REMOVEMAPPING",
    SyncFs = 50 "SYNCFS",
    TemporaryFile = 51 "TMPFILE",
    Statx = 52 "STATX",
    CopyFileRange64 = 53 "COPY_FILE_RANGE_64",
}

/// One more than the largest opcode number.
pub(crate) const OPCODES: usize = 54;

/// Bits of the flags exchanged by INIT; those from 32 up travel in `flags2`.
pub(crate) mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Bits of `fuse_setattr_in.valid`.
pub(crate) mod setattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
pub(crate) const FSYNC_DATA_ONLY: u32 = 1 << 0;
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

pub(crate) const OPEN_KEEP_CACHE: u32 = 1 << 1;
pub(crate) const OPEN_CACHE_DIRECTORY: u32 = 1 << 3;

pub(crate) const RENAME_NOREPLACE: u32 = 1 << 0;
pub(crate) const RENAME_EXCHANGE: u32 = 1 << 1;

pub(crate) const ALLOCATE_KEEP_SIZE: u32 = 0x01;
pub(crate) const ALLOCATE_PUNCH_HOLE: u32 = 0x02;
pub(crate) const ALLOCATE_ZERO_RANGE: u32 = 0x10;

pub(crate) const SEEK_DATA: u32 = 3;
pub(crate) const SEEK_HOLE: u32 = 4;

pub(crate) const XATTR_CREATE: u32 = 1;
pub(crate) const XATTR_REPLACE: u32 = 2;

/// Bits of `statx.stx_mask`: everything stat(2) has, and the time of birth.
pub(crate) const STATX_BASIC_STATS: u32 = 0x7ff;
pub(crate) const STATX_BTIME: u32 = 0x800;

pub(crate) const NOTIFY_INVALIDATE_INODE: i32 = 2;
pub(crate) const NOTIFY_INVALIDATE_ENTRY: i32 = 3;
