//! Types shared by every operation: what callers pass in and get back, and the error.
//!
//! Nothing here touches the pool or the media. The kernel's numbers (errno, `st_mode` type bits, request flags) stay out:
//! `fuse` translates them.

/// Inode number; never reused. The root directory is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory of every dataset.
    pub const ROOT: Ino = Ino(1);
}

impl std::fmt::Display for Ino {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A point in time since 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Below 1,000,000,000; counts forward also before 1970.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// Whether at least `milliseconds` lie between `earlier` and this time. A clock set back counts as elapsed, so that
    /// delayed work is never stuck behind it.
    pub(crate) fn is_past(self, earlier: Timestamp, milliseconds: i64) -> bool {
        if self < earlier {
            return true;
        }
        let seconds = i128::from(self.seconds) - i128::from(earlier.seconds);
        let nanoseconds = i128::from(self.nanoseconds) - i128::from(earlier.nanoseconds);
        seconds * 1_000_000_000 + nanoseconds >= i128::from(milliseconds) * 1_000_000
    }
}

/// Who asks and when: the clock is passed in, so that the simulator decides what time it is.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// File system user id; owner of what is created.
    pub uid: u32,
    /// File system group id; group of what is created outside setgid directories.
    pub gid: u32,
    /// Applied to new files unless the parent has a default ACL.
    pub umask: u32,
    /// The time of the request.
    pub now: Timestamp,
}

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A file with data.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// What stat(2) shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with suid, sgid and sticky (07777).
    pub mode: u32,
    /// Names; for directories 2 and one for each subdirectory.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of device files.
    pub rdev: u64,
    /// Length of the data, of a symlink's target, or the number of entries of a directory.
    pub size_bytes: u64,
    /// Bytes stored for the file's records, after compression (what `du` shows, rounded up to 512).
    pub stored_bytes: u64,
    /// Preferred size of reads and writes: the file's record size.
    pub block_bytes: u32,
    /// Last read, by the dataset's `atime` property.
    pub accessed: Timestamp,
    /// Last change of the data.
    pub modified: Timestamp,
    /// Last change of data or attributes.
    pub changed: Timestamp,
    /// Creation.
    pub born: Timestamp,
}

/// `None` leaves a field alone. The caller resolves UTIME_NOW to `Caller::now`.
#[derive(Clone, Debug, Default)]
pub struct SetAttributes {
    /// Permission bits, 07777.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Cut or extend the data to this length.
    pub size_bytes: Option<u64>,
    /// Last read.
    pub accessed: Option<Timestamp>,
    /// Last change of the data.
    pub modified: Option<Timestamp>,
    /// Last change of anything; `None` means `Caller::now`.
    pub changed: Option<Timestamp>,
    /// Clear suid and sgid (and security.capability), as a write or chown by an unprivileged caller must.
    pub kill_privileges: bool,
}

/// One name in a directory.
#[derive(Clone, Debug)]
pub struct DirectoryEntry {
    /// 1 to 255 bytes without `/` and NUL.
    pub name: Vec<u8>,
    /// What it names.
    pub ino: Ino,
    /// Kind of that inode.
    pub kind: FileKind,
    /// Pass back as `after` to go on behind this entry; stable; never 0; below 2^63.
    pub cookie: u64,
}

/// What rename does with an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RenameMode {
    /// Replace it.
    #[default]
    Replace,
    /// Fail with `AlreadyExists`.
    NoReplace,
    /// Swap the two names; both must exist.
    Exchange,
}

/// The modes of fallocate(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// extends the size
    Allocate,
    /// leaves the size
    KeepSize,
    /// the range reads as zeros afterwards and takes no space; the size stays
    PunchHole,
    /// the range reads as zeros afterwards
    ZeroRange {
        /// leaves the size although the range ends behind it
        keep_size: bool,
    },
}

/// What setxattr(2) demands of an existing value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    Set,
    /// Must not exist.
    Create,
    /// Must exist.
    Replace,
}

/// What lseek(2) looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next offset with data.
    Data,
    /// The next offset in a hole; the end of the file counts as one.
    Hole,
}

/// What statvfs(3) shows.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Unit of the counts below.
    pub block_bytes: u32,
    /// Capacity.
    pub blocks: u64,
    /// Not used.
    pub blocks_free: u64,
    /// Can be written.
    pub blocks_available: u64,
    /// Longest name.
    pub name_bytes_max: u32,
}

/// What the caller should do; `fuse` alone turns it into an errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No such name, inode or dataset.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// A directory is needed.
    NotDirectory,
    /// A directory is not wanted.
    IsDirectory,
    /// Only empty directories can be removed or replaced.
    DirectoryNotEmpty,
    /// The request makes no sense.
    InvalidInput,
    /// A name above 255 bytes.
    NameTooLong,
    /// The pool is full; delete or truncate something.
    NoSpace,
    /// A quota is used up.
    QuotaExceeded,
    /// Mounted, or turned, read-only.
    ReadOnly,
    /// EIO: bytes failed their check
    Damaged,
    /// EIO: media or pool stopped
    Unavailable,
    /// Not offered here.
    Unsupported,
    /// Not allowed for this kind of inode or attribute.
    NotPermitted,
    /// The link count cannot grow.
    TooManyLinks,
    /// No such extended attribute.
    NoSuchAttribute,
    /// The value does not fit the buffer offered.
    BufferTooSmall,
    /// Offset or size above 2^63-1, or a value above its limit.
    FileTooLarge,
    /// No data (or hole) at or behind this offset.
    NoSuchOffset,
    /// In use.
    Busy,
}

/// What failed, why, and below it the pool's own error.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {message}")]
pub struct Error {
    /// What the caller should do.
    pub kind: ErrorKind,
    /// What was attempted.
    pub operation: &'static str,
    /// What was wrong, with the numbers and names that matter.
    pub message: String,
    /// The pool's error, if it came from there.
    #[source]
    pub source: Option<packstone_pool::Error>,
    /// Which record of a file could not be read; boxed, for results shall stay small.
    pub place: Option<Box<RecordPlace>>,
}

/// A record of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    /// The file.
    pub ino: Ino,
    /// The record, counted from 0.
    pub index: u64,
    /// Where it begins in the file.
    pub offset_bytes: u64,
}

impl Error {
    /// What the caller should do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Every operation returns this.
pub type Result<T> = std::result::Result<T, Error>;
