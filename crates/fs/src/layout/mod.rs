//! Keys and values of a dataset's tree: what the bytes mean, and nothing else. Pure functions.
//!
//! Every decoder checks bounds and ranges and answers `Err` with a short reason on anything an encoder here would not
//! have written; it never panics. `docs/format-fs.md` has the same tables for readers without the source.

pub(crate) mod entry;
pub(crate) mod inode;
pub(crate) mod keys;
pub(crate) mod superblock;
mod wire;

pub(crate) use entry::{Entry, decode_extent, encode_extent};
pub(crate) use inode::{InodeRecord, flags};
pub(crate) use superblock::Superblock;

/// Why a value does not decode.
pub(crate) type DecodeResult<T> = std::result::Result<T, &'static str>;
