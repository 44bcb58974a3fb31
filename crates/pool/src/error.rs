//! The pool's error: a kind that says what the caller should do, the operation, and what happened.

use crate::encoding::Malformed;
use crate::types::TreeId;
use packstone_media::{MediaError, MediaErrorKind};

/// What the caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Fix the argument; nothing was changed.
    InvalidInput,
    /// There is no such thing.
    NotFound,
    /// There is one already.
    AlreadyExists,
    /// Make room: delete, or grow the pool. Nothing was changed.
    NoSpace,
    /// Bytes on media fail their check. Restore from a mirror or a backup.
    Damaged,
    /// A medium failed or has gone. Look at the device.
    Unavailable,
    /// Written by a newer program, or not offered yet.
    Unsupported,
    /// Somebody else is using it; try again later.
    Busy,
    /// A view was kept for longer than there is room for what it sees. Open a new one and begin again.
    ViewExpired,
    /// The pool was opened for reading, or stopped accepting writes after a failed write or flush.
    ReadOnly,
}

/// An error of the pool.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {message}")]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    message: String,
    #[source]
    source: Option<Box<MediaError>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Error {
        Error {
            kind,
            operation,
            message: message.into(),
            source: None,
        }
    }

    pub(crate) fn damaged(operation: &'static str, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Damaged, operation, message)
    }

    pub(crate) fn malformed(operation: &'static str, what: &str, malformed: Malformed) -> Error {
        Error::damaged(operation, format!("{what} {}", malformed.0))
    }

    pub(crate) fn media(operation: &'static str, source: MediaError) -> Error {
        let kind = match source.kind() {
            MediaErrorKind::Busy => ErrorKind::Busy,
            MediaErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Unavailable,
        };
        Error {
            kind,
            operation,
            message: source.to_string(),
            source: Some(Box::new(source)),
        }
    }

    /// Says which tree could not be read; who reads it knows its dataset.
    pub(crate) fn within_tree(mut self, tree: TreeId) -> Error {
        self.message = match tree {
            TreeId::CATALOG => format!("catalog: {}", self.message),
            TreeId(number) => format!("tree {number}: {}", self.message),
        };
        self
    }

    /// The same for a structure with a name.
    pub(crate) fn within(mut self, what: &str) -> Error {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The member that failed, if one did.
    pub fn member(&self) -> Option<&str> {
        self.source.as_deref().map(MediaError::path)
    }

    /// What the caller should do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Result of a pool operation.
pub type Result<T> = std::result::Result<T, Error>;
