//! Makes errors: of our own finding, from the pool's, and for values that do not decode.
//!
//! The pool's kinds map one to one except `NotFound`: where a record or key that a value of ours refers to is missing,
//! the file is damaged, and callers say so with [`damaged`].

use crate::types::{Error, ErrorKind, Result};
use packstone_pool as pool;

/// An error found here.
pub(crate) fn error(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Error {
    Error {
        kind,
        operation,
        message: message.into(),
        source: None,
        place: None,
    }
}

/// The same, as a result.
pub(crate) fn fail<T>(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Result<T> {
    Err(error(kind, operation, message))
}

/// Wraps an error of the pool; use with `map_err`.
pub(crate) fn from_pool(operation: &'static str) -> impl Fn(pool::Error) -> Error {
    move |source| Error {
        kind: kind_of(&source),
        operation,
        message: source.to_string(),
        source: Some(source),
        place: None,
    }
}

/// What a pool error means to a user of files.
pub(crate) fn kind_of(source: &pool::Error) -> ErrorKind {
    match source.kind() {
        pool::ErrorKind::InvalidInput => ErrorKind::InvalidInput,
        pool::ErrorKind::NotFound => ErrorKind::NotFound,
        pool::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
        pool::ErrorKind::NoSpace => ErrorKind::NoSpace,
        pool::ErrorKind::Damaged => ErrorKind::Damaged,
        pool::ErrorKind::Unavailable => ErrorKind::Unavailable,
        pool::ErrorKind::Unsupported => ErrorKind::Unsupported,
        // No file is read through a view; one that were could be tried again.
        pool::ErrorKind::Busy | pool::ErrorKind::ViewExpired => ErrorKind::Busy,
        pool::ErrorKind::ReadOnly => ErrorKind::ReadOnly,
    }
}

/// A key or value of ours that cannot be what was written.
pub(crate) fn damaged(operation: &'static str, message: impl Into<String>) -> Error {
    error(ErrorKind::Damaged, operation, message)
}
