//! Extended attributes.
//!
//! | names | kept where |
//! |---|---|
//! | `user.*`, `trusted.*`, `security.*` | as they are given |
//! | `system.posix_acl_access`, `system.posix_acl_default` | checked; the mode follows the first; not kept when the mode says the same |
//! | `user.packstone.stored`, `.logical`, `.record_size` | nowhere: decimal figures of the file, read-only, not listed |
//!
//! Left out: who may read and set which, which the kernel checks.

use crate::acl::{self, Acl};
use crate::attributes::CAPABILITY;
use crate::error::{fail, from_pool};
use crate::filesystem::FileSystem;
use crate::inode::InodeState;
use crate::layout::{InodeRecord, flags, keys};
use crate::locked::Locked;
use crate::types::{Caller, ErrorKind, FileKind, Ino, Result, XattrMode};
use packstone_pool::Transaction;
use std::ops::Bound;

/// Longest value.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Longest name.
const NAME_BYTES_MAX: usize = 255;
/// Longest list of names that listxattr can return.
const LIST_BYTES_MAX: usize = 64 << 10;
/// Shortest name that counts against it, with its NUL: so this many names are at most scanned.
const NAMES_MAX: usize = LIST_BYTES_MAX / 2;
/// Names of figures.
const VIRTUAL: &[u8] = b"user.packstone.";

impl FileSystem {
    /// Value of an attribute; `NoSuchAttribute` without one.
    pub fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        const OPERATION: &str = "get attribute";
        check_name(OPERATION, name)?;
        let inode = self.inode(OPERATION, ino)?;
        let state = inode.read_state(OPERATION)?;
        if let Some(figure) = name.strip_prefix(VIRTUAL) {
            return self.figure(OPERATION, &state, figure);
        }
        let value = if state.record.flags & flags::XATTRS == 0 || is_absent(&state.record, name) {
            None
        } else {
            self.pool
                .get(self.tree, &keys::xattr(ino, name))
                .map_err(from_pool(OPERATION))?
        };
        match value {
            Some(value) => Ok(value),
            None => fail(
                ErrorKind::NoSuchAttribute,
                OPERATION,
                String::from_utf8_lossy(name),
            ),
        }
    }

    fn figure(&self, operation: &'static str, state: &InodeState, figure: &[u8]) -> Result<Vec<u8>> {
        let record = &state.record;
        let number = match (figure, record.kind) {
            (b"stored", FileKind::Regular) => record.stored_bytes,
            (b"logical", FileKind::Regular) => record.size_bytes,
            (b"record_size", FileKind::Regular) => {
                record.record_bytes().unwrap_or(u64::from(self.record_bytes()))
            }
            _ => {
                return fail(
                    ErrorKind::NoSuchAttribute,
                    operation,
                    String::from_utf8_lossy(figure),
                );
            }
        };
        Ok(number.to_string().into_bytes())
    }

    /// Sets an attribute. An ACL without entries removes it, as an ACL that equals the mode does.
    pub fn set_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        const OPERATION: &str = "set attribute";
        self.check_writable(OPERATION)?;
        check_name(OPERATION, name)?;
        check_not_virtual(OPERATION, name)?;
        if value.len() > VALUE_BYTES_MAX {
            let message = format!(
                "value of {} bytes, at most {VALUE_BYTES_MAX} are possible",
                value.len()
            );
            return fail(ErrorKind::FileTooLarge, OPERATION, message);
        }
        let inode = self.inode(OPERATION, ino)?;
        let mut locked = Locked::new(OPERATION, &[&inode])?;
        let exists = self
            .pool
            .get(self.tree, &keys::xattr(ino, name))
            .map_err(from_pool(OPERATION))?
            .is_some();
        match (exists, mode) {
            (true, XattrMode::Create) => {
                return fail(ErrorKind::AlreadyExists, OPERATION, String::from_utf8_lossy(name));
            }
            (false, XattrMode::Replace) => {
                return fail(
                    ErrorKind::NoSuchAttribute,
                    OPERATION,
                    String::from_utf8_lossy(name),
                );
            }
            _ => {}
        }
        let mut transaction = self.pool.begin();
        if name == acl::ACCESS || name == acl::DEFAULT {
            self.set_acl(OPERATION, ino, name, value, locked.change(ino), &mut transaction)?;
        } else {
            if !exists {
                self.check_list_room(OPERATION, ino, name)?;
            }
            let record = locked.change(ino);
            record.flags |= flags::XATTRS;
            if name == CAPABILITY {
                record.flags |= flags::CAPABILITY;
            }
            transaction.put(self.tree, &keys::xattr(ino, name), value);
        }
        locked.change(ino).changed = caller.now;
        locked.commit(self, OPERATION, transaction).map(|_| ())
    }

    fn set_acl(
        &self,
        operation: &'static str,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        record: &mut InodeRecord,
        transaction: &mut Transaction,
    ) -> Result<()> {
        let default = name == acl::DEFAULT;
        if record.kind == FileKind::Symlink {
            return fail(ErrorKind::Unsupported, operation, "symlinks have no ACLs");
        }
        let acl = Acl::parse(operation, value)?;
        if default && acl.is_some() && record.kind != FileKind::Directory {
            return fail(
                ErrorKind::NotPermitted,
                operation,
                "only directories have default ACLs",
            );
        }
        let flag = if default {
            flags::DEFAULT_ACL
        } else {
            flags::ACCESS_ACL
        };
        let acl = match acl {
            Some(acl) if !default => {
                record.mode = acl.mode(record.mode);
                Some(acl).filter(|acl| !acl.is_minimal())
            }
            acl => acl,
        };
        let key = keys::xattr(ino, name);
        match acl {
            Some(acl) => {
                transaction.put(self.tree, &key, &acl.encode());
                record.flags |= flag | flags::XATTRS;
            }
            None if record.flags & flag != 0 => {
                transaction.delete(self.tree, &key);
                record.flags &= !flag;
            }
            None => {}
        }
        Ok(())
    }

    /// Names, each followed by a NUL, as listxattr(2) returns them.
    pub fn list_xattrs(&self, ino: Ino) -> Result<Vec<u8>> {
        const OPERATION: &str = "list attributes";
        let inode = self.inode(OPERATION, ino)?;
        let state = inode.read_state(OPERATION)?;
        if state.record.flags & flags::XATTRS == 0 {
            return Ok(vec![]);
        }
        self.xattr_names(OPERATION, ino)
    }

    fn xattr_names(&self, operation: &'static str, ino: Ino) -> Result<Vec<u8>> {
        let (from, to) = (keys::xattr(ino, b""), keys::xattr_end(ino));
        let pairs = self
            .pool
            .scan(self.tree, Bound::Included(&from), Bound::Excluded(&to), NAMES_MAX)
            .map_err(from_pool(operation))?;
        let mut list = vec![];
        for (key, _) in &pairs {
            if let Some(keys::Key::Xattr(_, name)) = keys::parse(key) {
                list.extend_from_slice(name);
                list.push(0);
            }
        }
        Ok(list)
    }

    fn check_list_room(&self, operation: &'static str, ino: Ino, name: &[u8]) -> Result<()> {
        let listed_bytes = self.xattr_names(operation, ino)?.len() + name.len() + 1;
        if listed_bytes > LIST_BYTES_MAX {
            return fail(
                ErrorKind::NoSpace,
                operation,
                format!("names of attributes would exceed {LIST_BYTES_MAX} bytes"),
            );
        }
        Ok(())
    }

    /// Removes an attribute; `NoSuchAttribute` without one.
    pub fn remove_xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        const OPERATION: &str = "remove attribute";
        self.check_writable(OPERATION)?;
        check_name(OPERATION, name)?;
        check_not_virtual(OPERATION, name)?;
        let inode = self.inode(OPERATION, ino)?;
        let mut locked = Locked::new(OPERATION, &[&inode])?;
        let key = keys::xattr(ino, name);
        if self
            .pool
            .get(self.tree, &key)
            .map_err(from_pool(OPERATION))?
            .is_none()
        {
            return fail(
                ErrorKind::NoSuchAttribute,
                OPERATION,
                String::from_utf8_lossy(name),
            );
        }
        let mut transaction = self.pool.begin();
        transaction.may_use_reserve();
        transaction.delete(self.tree, &key);
        let record = locked.change(ino);
        record.flags &= !own_flag(name);
        record.changed = caller.now;
        locked.commit(self, OPERATION, transaction).map(|_| ())
    }
}

/// The flag that tells of this attribute alone.
pub(crate) fn own_flag(name: &[u8]) -> u8 {
    match name {
        CAPABILITY => flags::CAPABILITY,
        acl::ACCESS => flags::ACCESS_ACL,
        acl::DEFAULT => flags::DEFAULT_ACL,
        _ => 0,
    }
}

fn is_absent(record: &InodeRecord, name: &[u8]) -> bool {
    let flag = own_flag(name);
    flag != 0 && record.flags & flag == 0
}

fn check_not_virtual(operation: &'static str, name: &[u8]) -> Result<()> {
    if name.starts_with(VIRTUAL) {
        return fail(
            ErrorKind::NotPermitted,
            operation,
            "names in user.packstone are figures and cannot be changed",
        );
    }
    Ok(())
}

fn check_name(operation: &'static str, name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return fail(
            ErrorKind::NameTooLong,
            operation,
            format!("name of {} bytes, at most {NAME_BYTES_MAX}", name.len()),
        );
    }
    let spaces = [&b"user."[..], b"trusted.", b"security."];
    let in_space = spaces
        .iter()
        .any(|space| name.starts_with(space) && name.len() > space.len());
    if name.contains(&0) || !(in_space || name == acl::ACCESS || name == acl::DEFAULT) {
        let message = format!(
            "'{}' is not in user, trusted, security, and no ACL",
            String::from_utf8_lossy(name)
        );
        return fail(ErrorKind::Unsupported, operation, message);
    }
    Ok(())
}
