//! The one error type of this crate.
//!
//! Every error carries the operation, the path, a sentence that says what is wrong and what to do, and the
//! system's error where there was one. The sentence never repeats the path.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// Result of a media operation.
pub type Result<T> = std::result::Result<T, MediaError>;

/// What a caller can do about a [`MediaError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MediaErrorKind {
    /// The request makes no sense for this media (alignment, range, a path of the wrong type): correct it.
    InvalidInput,
    /// There is nothing at this path.
    NotFound,
    /// There is something at this path already.
    AlreadyExists,
    /// Somebody else is using it; the message says who where that can be found out.
    Busy,
    /// It is smaller than what was asked of it.
    TooSmall,
    /// The file system that holds the file is full: make room.
    NoSpace,
    /// This user may not.
    PermissionDenied,
    /// The device or the system failed; see the source. What was written since the last flush may be lost.
    Unavailable,
}

/// Failure of a media operation. Cheap to clone, so that a pool can keep the error that stopped it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot {operation} {path}: {detail}")]
pub struct MediaError {
    kind: MediaErrorKind,
    operation: &'static str,
    path: String,
    detail: String,
    source: Option<Arc<io::Error>>,
}

impl MediaError {
    /// What a caller can do about it.
    pub fn kind(&self) -> MediaErrorKind {
        self.kind
    }

    /// What was attempted: `open`, `create`, `read`, `write`, `flush`, `discard`.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The media it happened on, as [`crate::Media::description`] has it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The system's error, where there was one.
    pub fn io_error(&self) -> Option<&io::Error> {
        self.source.as_deref()
    }

    pub(crate) fn new(
        kind: MediaErrorKind,
        operation: &'static str,
        path: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            operation,
            path: path.into(),
            detail: detail.into(),
            source: None,
        }
    }

    /// The error for a failed system call; the kind follows from the error number.
    pub(crate) fn from_io(operation: &'static str, path: &Path, error: impl Into<io::Error>) -> Self {
        Self::from_io_described(operation, path.display().to_string(), error.into())
    }

    /// As `from_io`, for a media that has no path.
    pub(crate) fn from_io_described(operation: &'static str, path: String, source: io::Error) -> Self {
        use MediaErrorKind::*;
        let (kind, advice) = match source.kind() {
            io::ErrorKind::NotFound => (NotFound, "check the path; its directory must exist"),
            io::ErrorKind::AlreadyExists => (AlreadyExists, "choose another path or ask to overwrite it"),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                (PermissionDenied, "check who owns it and who you are")
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => (
                NoSpace,
                "make room on the file system that holds it, or choose a smaller size",
            ),
            io::ErrorKind::ResourceBusy => (Busy, "stop what uses it first"),
            io::ErrorKind::IsADirectory => (InvalidInput, "give the path of a file or a block device"),
            io::ErrorKind::UnexpectedEof => (Unavailable, "it is shorter than when it was opened"),
            _ => (Unavailable, "check the device and the kernel's log"),
        };
        Self {
            kind,
            operation,
            path,
            detail: format!("{source}; {advice}"),
            source: Some(Arc::new(source)),
        }
    }
}
