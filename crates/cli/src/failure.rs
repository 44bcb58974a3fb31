//! What went wrong, in the coarse terms a script can act on: the exit code of the command and the code of a control reply.
//!
//! Every error that a user can cause or cure is a [`Failure`] with a message that says what to do. Errors of the layers
//! below keep their own types; [`kind_of`] finds the one that decides the exit code by walking the chain of sources.
//! The table of codes is printed by `packstone --help` and kept in `docs/cli.md`.

use serde::{Deserialize, Serialize};
use std::io;

/// Printed below `packstone --help`; the same table as in `docs/cli.md`.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed (an input/output error, or something unforeseen)
  2  wrong usage: an argument, a size, a name or a property is not acceptable
  3  not found: no such pool, dataset, member, mount or program
  4  busy: another process has it open, or files on the mount are in use
  5  damage found: a structure or a checksum is wrong
  6  no space
  7  refused: something that exists would be lost or replaced; --force may allow it
  8  not supported: a newer format, or something this build cannot do
  9  not permitted";

/// What the caller should do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// An input/output error or something unforeseen.
    Failed,
    /// Correct the command line.
    Usage,
    /// Name something that exists.
    NotFound,
    /// Wait for, or stop, whoever holds it.
    Busy,
    /// Bytes on the media are wrong.
    Damaged,
    /// Make room.
    NoSpace,
    /// Something of value is in the way.
    Refused,
    /// Use another build of the program.
    Unsupported,
    /// Be another user.
    NotPermitted,
    /// The daemon is on its way out: ask again once it is gone. Seen on the control socket only.
    Closing,
}

impl FailureKind {
    /// The process exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            FailureKind::Failed => 1,
            FailureKind::Usage => 2,
            FailureKind::NotFound => 3,
            FailureKind::Busy | FailureKind::Closing => 4,
            FailureKind::Damaged => 5,
            FailureKind::NoSpace => 6,
            FailureKind::Refused => 7,
            FailureKind::Unsupported => 8,
            FailureKind::NotPermitted => 9,
        }
    }
}

/// An error whose message is written for the user.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Decides the exit code.
    pub kind: FailureKind,
    /// What happened and what to do.
    pub message: String,
}

impl Failure {
    /// An `anyhow` error of this kind.
    pub fn error(kind: FailureKind, message: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Failure {
            kind,
            message: message.into(),
        })
    }
    /// The command line is wrong.
    pub fn usage(message: impl Into<String>) -> anyhow::Error {
        Failure::error(FailureKind::Usage, message)
    }
    /// Something named does not exist.
    pub fn not_found(message: impl Into<String>) -> anyhow::Error {
        Failure::error(FailureKind::NotFound, message)
    }
    /// Somebody else holds it.
    pub fn busy(message: impl Into<String>) -> anyhow::Error {
        Failure::error(FailureKind::Busy, message)
    }
    /// Something would be lost.
    pub fn refused(message: impl Into<String>) -> anyhow::Error {
        Failure::error(FailureKind::Refused, message)
    }
}

/// The kind of the first error in the chain that has one; [`FailureKind::Failed`] when none has.
pub fn kind_of(error: &anyhow::Error) -> FailureKind {
    error
        .chain()
        .find_map(kind_of_link)
        .unwrap_or(FailureKind::Failed)
}

/// The whole chain in one line. Some layers repeat their source in their own words: what has been said is not said twice.
pub fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for link in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = link;
        } else if !text.contains(&link) {
            text = format!("{text}: {link}");
        }
    }
    text
}

fn kind_of_link(link: &(dyn std::error::Error + 'static)) -> Option<FailureKind> {
    if let Some(failure) = link.downcast_ref::<Failure>() {
        return Some(failure.kind);
    }
    if let Some(error) = link.downcast_ref::<packstone_pool::Error>() {
        return Some(kind_of_pool(error.kind()));
    }
    if let Some(error) = link.downcast_ref::<packstone_fs::Error>() {
        return Some(kind_of_file_system(error.kind()));
    }
    if let Some(error) = link.downcast_ref::<packstone_media::MediaError>() {
        return Some(kind_of_media(error.kind()));
    }
    if let Some(error) = link.downcast_ref::<packstone_fuse::Error>() {
        return Some(kind_of_mount(error.kind()));
    }
    link.downcast_ref::<io::Error>().map(kind_of_io)
}

fn kind_of_pool(kind: packstone_pool::ErrorKind) -> FailureKind {
    use packstone_pool::ErrorKind as Kind;
    match kind {
        Kind::InvalidInput => FailureKind::Usage,
        Kind::NotFound => FailureKind::NotFound,
        Kind::AlreadyExists => FailureKind::Refused,
        Kind::NoSpace => FailureKind::NoSpace,
        Kind::Damaged => FailureKind::Damaged,
        Kind::Unavailable => FailureKind::Failed,
        Kind::Unsupported => FailureKind::Unsupported,
        Kind::Busy | Kind::ViewExpired => FailureKind::Busy,
        Kind::ReadOnly => FailureKind::Failed,
    }
}

fn kind_of_file_system(kind: packstone_fs::ErrorKind) -> FailureKind {
    use packstone_fs::ErrorKind as Kind;
    match kind {
        Kind::NotFound => FailureKind::NotFound,
        Kind::AlreadyExists => FailureKind::Refused,
        Kind::InvalidInput => FailureKind::Usage,
        Kind::NoSpace | Kind::QuotaExceeded => FailureKind::NoSpace,
        Kind::Damaged => FailureKind::Damaged,
        Kind::Unsupported => FailureKind::Unsupported,
        Kind::NotPermitted => FailureKind::NotPermitted,
        Kind::Busy => FailureKind::Busy,
        _ => FailureKind::Failed,
    }
}

fn kind_of_media(kind: packstone_media::MediaErrorKind) -> FailureKind {
    use packstone_media::MediaErrorKind as Kind;
    match kind {
        Kind::InvalidInput | Kind::TooSmall => FailureKind::Usage,
        Kind::NotFound => FailureKind::NotFound,
        Kind::AlreadyExists => FailureKind::Refused,
        Kind::Busy => FailureKind::Busy,
        Kind::NoSpace => FailureKind::NoSpace,
        Kind::PermissionDenied => FailureKind::NotPermitted,
        Kind::Unavailable => FailureKind::Failed,
    }
}

fn kind_of_mount(kind: packstone_fuse::ErrorKind) -> FailureKind {
    use packstone_fuse::ErrorKind as Kind;
    match kind {
        Kind::InvalidInput => FailureKind::Usage,
        Kind::NotFound => FailureKind::NotFound,
        Kind::NotPermitted => FailureKind::NotPermitted,
        Kind::Busy => FailureKind::Busy,
        Kind::Unsupported => FailureKind::Unsupported,
        Kind::Unavailable => FailureKind::Failed,
    }
}

fn kind_of_io(error: &io::Error) -> FailureKind {
    match error.kind() {
        io::ErrorKind::NotFound => FailureKind::NotFound,
        io::ErrorKind::PermissionDenied => FailureKind::NotPermitted,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FailureKind::NoSpace,
        io::ErrorKind::ResourceBusy => FailureKind::Busy,
        _ => FailureKind::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn the_kind_survives_context() {
        let error = Err::<(), _>(Failure::busy("held"))
            .context("open tank")
            .context("mount")
            .unwrap_err();
        assert_eq!(kind_of(&error), FailureKind::Busy);
        assert_eq!(format!("{error:#}"), "mount: open tank: held");
    }

    #[test]
    fn what_has_been_said_is_not_said_twice() {
        let error = anyhow::Error::new(io::Error::other("disk on fire"))
            .context("write: disk on fire; check it")
            .context("flush");
        assert_eq!(describe(&error), "flush: write: disk on fire; check it");
    }

    #[test]
    fn io_errors_have_kinds_of_their_own() {
        let error = anyhow::Error::new(io::Error::from_raw_os_error(libc::ENOSPC)).context("write");
        assert_eq!(kind_of(&error).exit_code(), 6);
        let error = anyhow::Error::new(io::Error::from_raw_os_error(libc::EIO)).context("write");
        assert_eq!(kind_of(&error).exit_code(), 1);
    }
}
