//! Errors of mounting and unmounting, for the command line to show.
//!
//! Errors of single requests never get here: they become an errno (see `errno`) for the program that asked.

use std::io;

/// What the caller of `mount` or `unmount_path` can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The mountpoint or an option is wrong; another one will work.
    InvalidInput,
    /// Nothing is there: no such directory, or nothing mounted on it.
    NotFound,
    /// The kernel or `fusermount3` refuses this user.
    NotPermitted,
    /// In use: something is mounted already, or files are still open.
    Busy,
    /// The kernel, or a helper that is not installed, cannot do it.
    Unsupported,
    /// The kernel answered with something else; the message says what.
    Unavailable,
}

/// A failed mount or unmount.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {message}")]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    message: String,
    #[source]
    source: Option<io::Error>,
}

/// Result of mounting and unmounting.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn new(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Error {
        Error {
            kind,
            operation,
            message: message.into(),
            source: None,
        }
    }

    /// Wraps an error of the operating system; `doing` completes "could not ...".
    pub(crate) fn system(operation: &'static str, doing: &str, source: impl Into<io::Error>) -> Error {
        let source = source.into();
        let kind = match source.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => ErrorKind::NotPermitted,
            io::ErrorKind::ResourceBusy => ErrorKind::Busy,
            io::ErrorKind::InvalidInput | io::ErrorKind::NotADirectory => ErrorKind::InvalidInput,
            io::ErrorKind::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::Unavailable,
        };
        Error {
            kind,
            operation,
            message: format!("could not {doing}: {source}"),
            source: Some(source),
        }
    }
}
