//! Attaching a FUSE file system to a directory, detaching it, and finding what is attached.
//!
//! Root mounts with mount(2); anybody else asks `fusermount3`, which is set-uid and hands the descriptor back over a
//! socket. A mount whose daemon died stays in the table and answers everything with "transport endpoint is not
//! connected" (ENOTCONN), and one whose daemon hangs does not answer at all; both are found in the table, without asking
//! the mount, and can be detached.

mod helper;
mod kernel;
mod table;

pub(crate) use kernel::raise_readahead;
pub use table::{MountInfo, mounted_at, mounts};

use crate::{Error, ErrorKind, Result};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The name after "fuse." in the type column of the mount table.
pub(crate) const SUBTYPE: &str = "packstone";

/// What to mount, and how.
#[derive(Clone, Debug)]
pub(crate) struct Attachment<'a> {
    pub mountpoint: &'a Path,
    pub source: &'a str,
    /// Let other users in; the kernel still checks permissions.
    pub allow_other: bool,
    pub read_only: bool,
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Mounts, and returns the descriptor requests come from. The first is INIT.
pub(crate) fn attach(attachment: &Attachment<'_>) -> Result<OwnedFd> {
    if is_root() {
        kernel::attach(attachment)
    } else {
        helper::attach(attachment)
    }
}

/// Checks that `path` can be mounted on; returns it absolute and free of links.
pub(crate) fn prepare_mountpoint(path: &Path) -> Result<PathBuf> {
    const OPERATION: &str = "mount";
    let shown = path.display();
    if let Some(mount) = mounted_at(path).filter(MountInfo::is_ours) {
        let message = format!("{} is mounted on {shown} already; unmount it first", mount.source);
        return Err(Error::new(ErrorKind::Busy, OPERATION, message));
    }
    let metadata = fs::metadata(path).map_err(|error| match error.raw_os_error() {
        // Aborted: the daemon has died just now.
        Some(libc::ENOTCONN | libc::ECONNABORTED) => {
            let message = format!("{shown} is a mount whose daemon has died; unmount it first");
            Error::new(ErrorKind::Busy, OPERATION, message)
        }
        _ => Error::system(OPERATION, &format!("use the mountpoint {shown}"), error),
    })?;
    if !metadata.is_dir() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            OPERATION,
            format!("{shown} is not a directory"),
        ));
    }
    fs::canonicalize(path)
        .map_err(|error| Error::system(OPERATION, &format!("resolve the mountpoint {shown}"), error))
}

/// Detaches whatever is mounted on `path`, also when its daemon has died.
///
/// With `lazy` the mount disappears from the tree at once, and is gone for good when the last open file is closed;
/// without, open files make it fail with [`ErrorKind::Busy`].
pub fn unmount_path(path: impl AsRef<Path>, lazy: bool) -> Result<()> {
    let path = path.as_ref();
    let Some(mount) = mounted_at(path) else {
        let message = format!("nothing is mounted on {}", path.display());
        return Err(Error::new(ErrorKind::NotFound, "unmount", message));
    };
    if is_root() {
        kernel::detach(&mount.mountpoint, lazy)
    } else {
        helper::detach(&mount.mountpoint, lazy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountpoints_must_be_directories() {
        let file = std::env::temp_dir().join(format!("packstone-fuse-mountpoint-{}", std::process::id()));
        fs::write(&file, b"").expect("a file");
        assert_eq!(
            prepare_mountpoint(&file).expect_err("a file").kind(),
            ErrorKind::InvalidInput
        );
        fs::remove_file(&file).expect("removed");
        assert_eq!(
            prepare_mountpoint(&file).expect_err("nothing").kind(),
            ErrorKind::NotFound
        );
    }

    #[test]
    fn unmounting_nothing_is_an_error() {
        let error = unmount_path(std::env::temp_dir().join("packstone-no-such-place"), true);
        assert_eq!(error.expect_err("nothing there").kind(), ErrorKind::NotFound);
    }
}
