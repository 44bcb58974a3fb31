//! mount(2) and umount2(2), for root.

use super::{Attachment, SUBTYPE};
use crate::{Error, Result};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

pub(super) fn attach(attachment: &Attachment<'_>) -> Result<OwnedFd> {
    const OPERATION: &str = "mount";
    let device: OwnedFd = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(|error| {
            Error::system(
                OPERATION,
                "open /dev/fuse (is the kernel's fuse module loaded?)",
                error,
            )
        })?
        .into();
    let mut options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions",
        device.as_raw_fd()
    );
    if attachment.allow_other {
        options.push_str(",allow_other");
    }
    let mut flags = MountFlags::empty();
    if attachment.read_only {
        flags |= MountFlags::RDONLY;
    }
    let file_system_type = format!("fuse.{SUBTYPE}");
    let options = CString::new(options).map_err(|error| Error::system(OPERATION, "pass options", error))?;
    rustix::mount::mount(
        attachment.source,
        attachment.mountpoint,
        file_system_type.as_str(),
        flags,
        options.as_c_str(),
    )
    .map_err(|error| {
        Error::system(
            OPERATION,
            &format!("mount on {}", attachment.mountpoint.display()),
            error,
        )
    })?;
    Ok(device)
}

pub(super) fn detach(mountpoint: &Path, lazy: bool) -> Result<()> {
    let mut flags = UnmountFlags::NOFOLLOW;
    if lazy {
        flags |= UnmountFlags::DETACH;
    }
    rustix::mount::unmount(mountpoint, flags)
        .map_err(|error| Error::system("unmount", &format!("unmount {}", mountpoint.display()), error))
}

/// Lets sequential readers run further ahead than the kernel's 128 KiB. Nice to have: a failure is only noted.
pub(crate) fn raise_readahead(device: (u32, u32), kib: u32) {
    let setting = format!("/sys/class/bdi/{}:{}/read_ahead_kb", device.0, device.1);
    if let Err(error) = fs::write(&setting, kib.to_string()) {
        tracing::debug!(%error, setting, "read-ahead stays as it is");
    }
}
