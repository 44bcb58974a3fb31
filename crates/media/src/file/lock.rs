//! One writer at a time, and who it is when it is somebody else.
//!
//! The lock is `flock`: it belongs to the open file, so it goes away with the process that holds it, however
//! that ends. The kernel lists holders in `/proc/locks` by device and inode; from there the process and its
//! command follow. All of that is for the message only: where it cannot be found out the error is the same
//! and names nobody.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, major, minor};

use super::Access;
use crate::error::{MediaError, MediaErrorKind, Result};

/// Takes the lock, or says who has it.
pub(super) fn acquire(file: &File, path: &Path, access: Access, operation: &'static str) -> Result<()> {
    let lock = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    loop {
        match rustix::fs::flock(file, lock) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(busy(file, path, operation)),
            Err(error) => return Err(MediaError::from_io(operation, path, error)),
        }
    }
}

/// Gives the lock back. A failure does not matter: closing the file does it too.
pub(super) fn release(file: &File) {
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

/// The error for a block device that the kernel says is in use.
pub(super) fn busy_device(path: &Path, metadata: &Metadata, error: std::io::Error) -> MediaError {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount_point = mount_point(&mounts, major(metadata.rdev()), minor(metadata.rdev()));
    let detail = mount_point
        .map(|mount_point| format!("it is mounted at {mount_point}; unmount that first"))
        .or_else(|| describe_holder(metadata));
    match detail {
        Some(detail) => MediaError::new(MediaErrorKind::Busy, "open", path.display().to_string(), detail),
        None => MediaError::from_io("open", path, error),
    }
}

fn busy(file: &File, path: &Path, operation: &'static str) -> MediaError {
    let detail = file
        .metadata()
        .ok()
        .and_then(|metadata| describe_holder(&metadata))
        .unwrap_or_else(|| "another process is using it; stop that first".to_owned());
    MediaError::new(
        MediaErrorKind::Busy,
        operation,
        path.display().to_string(),
        detail,
    )
}

/// Who holds the lock on this file or device node, as far as this process may know.
fn describe_holder(metadata: &Metadata) -> Option<String> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let holders = holders(
        &locks,
        major(metadata.dev()),
        minor(metadata.dev()),
        metadata.ino(),
    );
    holders.first().map(|&holder| match holder {
        id if id == std::process::id() => "this process has it open already".to_owned(),
        id => format!("it is in use by {} (process {id}); stop that first", command(id)),
    })
}

fn command(process_id: u32) -> String {
    match std::fs::read_to_string(format!("/proc/{process_id}/comm")) {
        Ok(name) if !name.trim().is_empty() => name.trim().escape_debug().to_string(),
        _ => "a program".to_owned(),
    }
}

/// The processes that hold an flock on a file, from the text of `/proc/locks`.
///
/// A line is `1: FLOCK ADVISORY WRITE 4711 08:02:131073 0 EOF`, with the device in hexadecimal; those with
/// `->` after the number are still waiting.
fn holders(locks: &str, major: u32, minor: u32, inode: u64) -> Vec<u32> {
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    locks
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let (kind, _, _) = (fields.next()?, fields.next()?, fields.next()?);
            let (process_id, place) = (fields.next()?, fields.next()?);
            (kind == "FLOCK" && place == wanted)
                .then(|| process_id.parse().ok())
                .flatten()
        })
        // A holder outside this process's view is listed as 0 or -1.
        .filter(|&process_id| process_id != 0)
        .collect()
}

/// Where a device is mounted, from the text of `/proc/self/mountinfo`.
fn mount_point(mounts: &str, major: u32, minor: u32) -> Option<&str> {
    let wanted = format!("{major}:{minor}");
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let (device, _root, mount_point) = (fields.next()?, fields.next()?, fields.next()?);
        (device == wanted).then_some(mount_point)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "1: POSIX  ADVISORY  READ 11 fe:00:77 128 128\n\
                         2: FLOCK  ADVISORY  WRITE 22 fe:00:77 0 EOF\n\
                         2: -> FLOCK  ADVISORY  WRITE 33 fe:00:77 0 EOF\n\
                         3: FLOCK  ADVISORY  WRITE 44 fe:00:78 0 EOF\n\
                         4: FLOCK  ADVISORY  WRITE 0 08:12:5 0 EOF\n\
                         5: FLOCK  ADVISORY  READ 55 08:12:5 0 EOF\n\
                         truncated\n6: FLOCK\n";

    #[test]
    fn holders_are_found_by_device_and_inode() {
        assert_eq!(holders(LOCKS, 0xfe, 0, 77), [22]);
        assert_eq!(holders(LOCKS, 0xfe, 0, 78), [44]);
        assert_eq!(holders(LOCKS, 0x08, 0x12, 5), [55]);
        assert_eq!(holders(LOCKS, 0x08, 0x12, 77), [] as [u32; 0]);
        assert_eq!(holders("", 0, 0, 0), [] as [u32; 0]);
    }

    #[test]
    fn mount_points_are_found_by_device() {
        let mounts = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n23 22 7:3 / /mnt/a\\040b rw - ext4 /dev/loop3 rw\n";
        assert_eq!(mount_point(mounts, 7, 3), Some("/mnt/a\\040b"));
        assert_eq!(mount_point(mounts, 254, 0), Some("/"));
        assert_eq!(mount_point(mounts, 7, 4), None);
        assert_eq!(mount_point("junk", 7, 4), None);
    }
}
