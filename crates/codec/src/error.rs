//! The one error type of this crate.
//!
//! The kind answers what the caller should do; the message says what was wrong with the bytes or the text.

/// Result of a codec operation.
pub type Result<T> = std::result::Result<T, CodecError>;

/// What a caller can do about a [`CodecError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodecErrorKind {
    /// A person or a program asked for something that does not exist: correct the request.
    InvalidInput,
    /// The frame is damaged: read another copy, or report the record as lost.
    Corrupt,
    /// The frame is well formed as far as it can be told, but needs a newer version of the program.
    Unsupported,
    /// The frame says that it holds more raw bytes than the caller allows: the caller's limit or the frame is
    /// wrong.
    TooLarge,
}

/// Failure of a codec operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CodecError {
    kind: CodecErrorKind,
    message: String,
}

impl CodecError {
    /// What the caller can do about it.
    pub fn kind(&self) -> CodecErrorKind {
        self.kind
    }

    pub(crate) fn invalid_input(message: impl Into<String>) -> Self {
        Self {
            kind: CodecErrorKind::InvalidInput,
            message: message.into(),
        }
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self {
            kind: CodecErrorKind::Corrupt,
            message: message.into(),
        }
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self {
            kind: CodecErrorKind::Unsupported,
            message: message.into(),
        }
    }

    pub(crate) fn too_large(raw_bytes: u64, raw_bytes_max: u32) -> Self {
        Self {
            kind: CodecErrorKind::TooLarge,
            message: format!(
                "the frame holds {raw_bytes} raw bytes where at most {raw_bytes_max} are allowed"
            ),
        }
    }
}
