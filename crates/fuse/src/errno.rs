//! The one place where an errno is chosen.

use crate::request::Malformed;
use packstone_fs as fs;

/// Why a request is not answered with what it asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Boxed: results of handlers stay small.
    #[error(transparent)]
    FileSystem(Box<fs::Error>),
    #[error("malformed request: {0}")]
    Malformed(#[from] Malformed),
    /// The kernel remembers this answer and does not ask again.
    #[error("not implemented")]
    NotImplemented,
    #[error("unknown ioctl")]
    UnknownIoctl,
    #[error("unsupported mode or flags")]
    UnsupportedMode,
    #[error("invalid argument")]
    InvalidArgument,
    #[error("the value is longer than the caller's buffer")]
    BufferTooSmall,
    /// The system refuses another thread.
    #[error("no thread can be had to serve while this request waits")]
    NoThread,
    /// Logged where it is caught.
    #[error("a handler panicked")]
    Panicked,
}

impl From<fs::Error> for Failure {
    fn from(error: fs::Error) -> Failure {
        Failure::FileSystem(Box::new(error))
    }
}

/// The errno for a failure.
pub(crate) fn choose(failure: &Failure) -> i32 {
    match failure {
        Failure::FileSystem(error) => of_file_system(error.kind()),
        Failure::Malformed(_) | Failure::Panicked => libc::EIO,
        Failure::NotImplemented => libc::ENOSYS,
        Failure::UnknownIoctl => libc::ENOTTY,
        Failure::UnsupportedMode => libc::EOPNOTSUPP,
        Failure::InvalidArgument => libc::EINVAL,
        Failure::BufferTooSmall => libc::ERANGE,
        Failure::NoThread => libc::ENOMEM,
    }
}

fn of_file_system(kind: fs::ErrorKind) -> i32 {
    use fs::ErrorKind::*;
    match kind {
        NotFound => libc::ENOENT,
        AlreadyExists => libc::EEXIST,
        NotDirectory => libc::ENOTDIR,
        IsDirectory => libc::EISDIR,
        DirectoryNotEmpty => libc::ENOTEMPTY,
        InvalidInput => libc::EINVAL,
        NameTooLong => libc::ENAMETOOLONG,
        NoSpace => libc::ENOSPC,
        QuotaExceeded => libc::EDQUOT,
        ReadOnly => libc::EROFS,
        Damaged | Unavailable => libc::EIO,
        Unsupported => libc::EOPNOTSUPP,
        NotPermitted => libc::EPERM,
        TooManyLinks => libc::EMLINK,
        NoSuchAttribute => libc::ENODATA,
        BufferTooSmall => libc::ERANGE,
        FileTooLarge => libc::EFBIG,
        NoSuchOffset => libc::ENXIO,
        Busy => libc::EBUSY,
    }
}

/// True when a person must look: the program sees EIO and learns nothing more from it.
pub(crate) fn is_alarming(failure: &Failure) -> bool {
    choose(failure) == libc::EIO
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_system(kind: fs::ErrorKind) -> Failure {
        Failure::from(fs::Error {
            kind,
            operation: "test",
            message: String::new(),
            source: None,
            place: None,
        })
    }

    #[test]
    fn lost_data_is_never_mistaken_for_an_absent_file() {
        for kind in [fs::ErrorKind::Damaged, fs::ErrorKind::Unavailable] {
            assert_eq!(choose(&file_system(kind)), libc::EIO);
            assert!(is_alarming(&file_system(kind)));
        }
        assert_eq!(choose(&file_system(fs::ErrorKind::NotFound)), libc::ENOENT);
        assert!(!is_alarming(&file_system(fs::ErrorKind::NotFound)));
    }

    #[test]
    fn only_what_the_kernel_should_stop_asking_for_is_enosys() {
        assert_eq!(choose(&Failure::NotImplemented), libc::ENOSYS);
        assert_eq!(choose(&Failure::UnsupportedMode), libc::EOPNOTSUPP);
        assert_eq!(choose(&file_system(fs::ErrorKind::Unsupported)), libc::EOPNOTSUPP);
    }
}
