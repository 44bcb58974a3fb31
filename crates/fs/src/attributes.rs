//! stat, chmod, chown, utimens; truncate comes through here and is done in `truncate`.
//!
//! Who may do what is checked by the kernel. What a change must take along is done here: chown and truncate clear suid,
//! sgid and `security.capability`; chmod moves the ACL's mask.

use crate::acl::{self, Acl};
use crate::error::{fail, from_pool};
use crate::filesystem::FileSystem;
use crate::inode::InodeState;
use crate::layout::{InodeRecord, flags, keys};
use crate::staged::Staged;
use crate::types::{Attributes, Caller, ErrorKind, FileKind, Ino, Result, SetAttributes};
use packstone_pool::Transaction;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
/// Name of the attribute with file capabilities.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

impl FileSystem {
    /// Attributes as of now, buffered writes included.
    pub fn attributes(&self, ino: Ino) -> Result<Attributes> {
        const OPERATION: &str = "get attributes";
        let inode = self.inode(OPERATION, ino)?;
        let state = inode.read_state(OPERATION)?;
        Ok(state.attributes(ino, self.record_bytes()))
    }

    /// Changes attributes, all but the size in one transaction.
    pub fn set_attributes(&self, caller: &Caller, ino: Ino, change: &SetAttributes) -> Result<Attributes> {
        const OPERATION: &str = "set attributes";
        self.check_writable(OPERATION)?;
        let times = [change.accessed, change.modified, change.changed];
        if times
            .iter()
            .flatten()
            .any(|time| time.nanoseconds >= 1_000_000_000)
        {
            // Stored, it would make the inode unreadable.
            let message = "a time with a whole second or more of nanoseconds";
            return fail(ErrorKind::InvalidInput, OPERATION, message);
        }
        let inode = self.inode(OPERATION, ino)?;
        let mut state = inode.write_state(OPERATION)?;
        if let Some(size_bytes) = change.size_bytes {
            self.truncate(OPERATION, caller, &inode, &mut state, size_bytes)?;
        }
        let mut staged = Staged::new(&state);
        staged.put_inode = true;
        let mut transaction = self.pool.begin();
        transaction.may_use_reserve();
        let owner_changes = change.uid.is_some() || change.gid.is_some();
        if owner_changes && staged.record.kind != FileKind::Directory {
            self.drop_privileges(ino, &mut staged.record, true, &mut transaction);
        } else if change.size_bytes.is_some() {
            self.drop_privileges(ino, &mut staged.record, change.kill_privileges, &mut transaction);
        }
        staged.record.uid = change.uid.unwrap_or(staged.record.uid);
        staged.record.gid = change.gid.unwrap_or(staged.record.gid);
        if let Some(mode) = change.mode {
            self.change_mode(OPERATION, ino, &mut staged.record, mode, &mut transaction)?;
        }
        staged.record.accessed = change.accessed.unwrap_or(staged.record.accessed);
        staged.record.modified = change.modified.unwrap_or(staged.record.modified);
        staged.record.changed = change.changed.unwrap_or(caller.now);
        if staged.record != state.record {
            self.commit_one(OPERATION, &inode, &mut state, staged, transaction)?;
        }
        Ok(state.attributes(ino, self.record_bytes()))
    }

    fn change_mode(
        &self,
        operation: &'static str,
        ino: Ino,
        record: &mut InodeRecord,
        mode: u32,
        transaction: &mut Transaction,
    ) -> Result<()> {
        record.mode = mode & 0o7777;
        if record.flags & flags::ACCESS_ACL == 0 {
            return Ok(());
        }
        let key = keys::xattr(ino, acl::ACCESS);
        let value = self.pool.get(self.tree, &key).map_err(from_pool(operation))?;
        let parsed = value
            .map(|value| Acl::parse(operation, &value))
            .transpose()
            .map_err(|why| {
                crate::error::damaged(
                    operation,
                    format!("{}: access ACL: {}", self.describe(ino), why.message),
                )
            })?;
        if let Some(mut acl) = parsed.flatten() {
            acl.set_mode(mode);
            transaction.put(self.tree, &key, &acl.encode());
        }
        Ok(())
    }

    /// What a change of data or owner takes away: capabilities always; suid, and sgid where the group may execute, when
    /// `kill_mode_bits`. True if anything changed.
    pub(crate) fn drop_privileges(
        &self,
        ino: Ino,
        record: &mut InodeRecord,
        kill_mode_bits: bool,
        transaction: &mut Transaction,
    ) -> bool {
        let before = (record.mode, record.flags);
        if kill_mode_bits {
            record.mode = mode_without_privileges(record.mode);
        }
        if record.flags & flags::CAPABILITY != 0 {
            transaction.delete(self.tree, &keys::xattr(ino, CAPABILITY));
            record.flags &= !flags::CAPABILITY;
        }
        before != (record.mode, record.flags)
    }

    /// Before a write: drops privileges in a transaction of its own. Hardly ever has anything to do.
    pub(crate) fn drop_privileges_now(
        &self,
        operation: &'static str,
        inode: &crate::inode::Inode,
        state: &mut InodeState,
        kill_mode_bits: bool,
    ) -> Result<()> {
        let mode = state.record.mode;
        let kills = kill_mode_bits && mode_without_privileges(mode) != mode;
        if !kills && state.record.flags & flags::CAPABILITY == 0 {
            return Ok(());
        }
        let mut staged = Staged::new(state);
        staged.put_inode = true;
        let mut transaction = self.pool.begin();
        self.drop_privileges(inode.ino, &mut staged.record, kill_mode_bits, &mut transaction);
        self.commit_one(operation, inode, state, staged, transaction)
    }

    /// Refuses what has no data.
    pub(crate) fn check_regular(
        &self,
        operation: &'static str,
        ino: Ino,
        record: &InodeRecord,
    ) -> Result<()> {
        match record.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => fail(ErrorKind::IsDirectory, operation, self.describe(ino)),
            _ => fail(
                ErrorKind::InvalidInput,
                operation,
                format!("{} has no data", self.describe(ino)),
            ),
        }
    }
}

fn mode_without_privileges(mode: u32) -> u32 {
    let sgid = if mode & GROUP_EXECUTE != 0 { SETGID } else { 0 };
    mode & !(SETUID | sgid)
}
