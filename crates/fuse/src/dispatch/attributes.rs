//! Attributes, extended attributes, and the state of the file system.

use super::{Context, Handled};
use crate::abi::{SETXATTR_ACL_KILL_SGID, XATTR_CREATE, XATTR_REPLACE, init, setattr};
use crate::errno::Failure;
use crate::request::{SetAttributesBody, XattrOperation};
use packstone_fs::{SetAttributes, Timestamp, XattrMode};

const PERMISSION_BITS: u32 = 0o7777;
const SET_GROUP_ID: u32 = 0o2000;

/// Picks the fields that `valid` names. `now` stands in for the times the program left to the file system.
fn resolve(body: &SetAttributesBody, now: Timestamp) -> SetAttributes {
    let has = |bit: u32| body.valid & bit != 0;
    let time = |set: u32, set_now: u32, given: Timestamp| match (has(set), has(set_now)) {
        (_, true) => Some(now),
        (true, false) => Some(given),
        (false, false) => None,
    };
    SetAttributes {
        mode: has(setattr::MODE).then_some(body.mode & PERMISSION_BITS),
        uid: has(setattr::UID).then_some(body.uid),
        gid: has(setattr::GID).then_some(body.gid),
        size_bytes: has(setattr::SIZE).then_some(body.size_bytes),
        accessed: time(setattr::ATIME, setattr::ATIME_NOW, body.accessed),
        modified: time(setattr::MTIME, setattr::MTIME_NOW, body.modified),
        changed: has(setattr::CTIME).then_some(body.changed),
        kill_privileges: has(setattr::KILL_SUIDGID),
    }
}

impl Context<'_> {
    pub(super) fn get_attributes(&mut self) -> Handled {
        let attributes = self.filesystem.attributes(self.node)?;
        self.body.attributes(&attributes);
        Ok(())
    }

    pub(super) fn statx(&mut self) -> Handled {
        let attributes = self.filesystem.attributes(self.node)?;
        self.body.statx(&attributes);
        Ok(())
    }

    pub(super) fn set_attributes(&mut self, body: SetAttributesBody) -> Handled {
        let change = resolve(&body, self.caller.now);
        let attributes = self.filesystem.set_attributes(&self.caller, self.node, &change)?;
        self.body.attributes(&attributes);
        Ok(())
    }

    pub(super) fn xattr(&mut self, operation: XattrOperation<'_>) -> Handled {
        if !self.agreement.has(init::POSIX_ACL) {
            // The kernel stops asking, also for capabilities in front of a write.
            return Err(Failure::NotImplemented);
        }
        match operation {
            XattrOperation::Set {
                name,
                value,
                flags,
                extended_flags,
            } => self.set_xattr(name, value, flags, extended_flags),
            XattrOperation::Get { name, size_bytes } => {
                let value = self.filesystem.get_xattr(self.node, name)?;
                self.sized_value(&value, size_bytes)
            }
            XattrOperation::List { size_bytes } => {
                let names = self.filesystem.list_xattrs(self.node)?;
                self.sized_value(&names, size_bytes)
            }
            XattrOperation::Remove { name } => {
                Ok(self.filesystem.remove_xattr(&self.caller, self.node, name)?)
            }
        }
    }

    fn set_xattr(&mut self, name: &[u8], value: &[u8], flags: u32, extended_flags: u32) -> Handled {
        let mode = match flags {
            0 => XattrMode::Set,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Failure::InvalidArgument),
        };
        self.filesystem
            .set_xattr(&self.caller, self.node, name, value, mode)?;
        if extended_flags & SETXATTR_ACL_KILL_SGID != 0 {
            self.clear_set_group_id()?;
        }
        Ok(())
    }

    /// Somebody outside the file's group set its ACL.
    fn clear_set_group_id(&self) -> Handled {
        let attributes = self.filesystem.attributes(self.node)?;
        if attributes.mode & SET_GROUP_ID != 0 {
            let mode = Some(attributes.mode & PERMISSION_BITS & !SET_GROUP_ID);
            let change = SetAttributes {
                mode,
                ..SetAttributes::default()
            };
            self.filesystem.set_attributes(&self.caller, self.node, &change)?;
        }
        Ok(())
    }

    /// With a size of 0 the caller asks how long the value is.
    fn sized_value(&mut self, value: &[u8], size_bytes: u32) -> Handled {
        if size_bytes == 0 {
            self.body.u32(value.len() as u32);
            self.body.u32(0);
        } else if value.len() > size_bytes as usize {
            return Err(Failure::BufferTooSmall);
        } else {
            self.body.bytes.extend_from_slice(value);
        }
        Ok(())
    }

    pub(super) fn statfs(&mut self) -> Handled {
        let statistics = self.filesystem.statistics()?;
        self.body.statistics(&statistics);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp {
        seconds: 1000,
        nanoseconds: 1,
    };

    fn body(valid: u32) -> SetAttributesBody {
        SetAttributesBody {
            valid,
            size_bytes: 4096,
            accessed: Timestamp {
                seconds: 1,
                nanoseconds: 0,
            },
            modified: Timestamp {
                seconds: 2,
                nanoseconds: 0,
            },
            changed: Timestamp {
                seconds: 3,
                nanoseconds: 0,
            },
            mode: libc::S_IFREG | 0o4644,
            uid: 7,
            gid: 8,
        }
    }

    #[test]
    fn fields_that_are_not_valid_stay_alone() {
        let change = resolve(&body(setattr::SIZE | setattr::KILL_SUIDGID), NOW);
        assert_eq!(change.size_bytes, Some(4096));
        assert!(change.kill_privileges);
        assert_eq!((change.mode, change.uid, change.gid), (None, None, None));
        assert_eq!(
            (change.accessed, change.modified, change.changed),
            (None, None, None)
        );
    }

    #[test]
    fn now_is_the_callers_time_and_the_type_is_not_part_of_the_mode() {
        let change = resolve(
            &body(setattr::MODE | setattr::ATIME | setattr::MTIME | setattr::MTIME_NOW),
            NOW,
        );
        assert_eq!(change.mode, Some(0o4644));
        assert_eq!(
            change.accessed,
            Some(Timestamp {
                seconds: 1,
                nanoseconds: 0
            })
        );
        assert_eq!(change.modified, Some(NOW));
    }
}
