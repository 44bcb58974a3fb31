//! Taking names away: unlink and rmdir.
//!
//! The last name's transaction puts an orphan key instead of removing data, so deleting takes the same time whatever
//! the size; see `orphans` for what follows.

use crate::directory::{Slot, TRIES_MAX};
use crate::error::{damaged, fail};
use crate::filesystem::FileSystem;
use crate::inode::Inode;
use crate::layout::keys;
use crate::locked::Locked;
use crate::types::{Caller, ErrorKind, FileKind, Ino, Result};
use packstone_pool::Transaction;

impl FileSystem {
    /// Removes a name of anything but a directory.
    pub fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove("unlink", caller, parent, name, false)
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        const OPERATION: &str = "remove directory";
        match name {
            b"." => fail(ErrorKind::InvalidInput, OPERATION, "'.' cannot be removed"),
            b".." => fail(ErrorKind::DirectoryNotEmpty, OPERATION, "'..' cannot be removed"),
            _ => self.remove(OPERATION, caller, parent, name, true),
        }
    }

    fn remove(
        &self,
        operation: &'static str,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        directory_wanted: bool,
    ) -> Result<()> {
        self.check_writable(operation)?;
        let directory = self.directory(operation, parent)?;
        for _ in 0..TRIES_MAX {
            if self.try_remove(operation, caller, &directory, name, directory_wanted)? {
                return Ok(());
            }
        }
        Err(self.names_nothing(operation, parent, name))
    }

    /// Finds the name, locks what it leads to, and looks again. False if that was no longer the same.
    fn try_remove(
        &self,
        operation: &'static str,
        caller: &Caller,
        directory: &Inode,
        name: &[u8],
        directory_wanted: bool,
    ) -> Result<bool> {
        let parent = directory.ino;
        let (cookie, entry, child) = self.child(operation, parent, name)?;
        if child.ino == parent {
            return Err(damaged(
                operation,
                format!("{} contains itself", self.describe(parent)),
            ));
        }
        let Ok(mut locked) = Locked::new(operation, &[directory, &child]) else {
            // One of them was destroyed meanwhile: looking again tells which.
            drop(directory.read_state(operation)?);
            return Ok(false);
        };
        match self.slot(operation, parent, name)? {
            Slot::Taken(at, found) if at == cookie && found == entry => {}
            _ => return Ok(false),
        }
        check_removable(operation, name, locked.record(child.ino), directory_wanted)?;
        let mut transaction = self.pool.begin();
        transaction.may_use_reserve();
        transaction.delete(self.tree, &keys::entry(parent, cookie));
        self.take_name(&mut locked, child.ino, caller, &mut transaction);
        let above = locked.change(parent);
        above.size_bytes = above.size_bytes.saturating_sub(1);
        above.modified = caller.now;
        above.changed = caller.now;
        if directory_wanted {
            above.nlink = above.nlink.saturating_sub(1);
        }
        locked.commit(self, operation, transaction)?;
        let unnamed = locked.record(child.ino).nlink == 0;
        drop(locked);
        if unnamed && child.is_unheld() {
            self.reclaim_soon(child.ino);
        }
        Ok(true)
    }

    /// Lowers the link count of an inode that loses a name; an orphan key when it was the last.
    pub(crate) fn take_name(
        &self,
        locked: &mut Locked<'_>,
        ino: Ino,
        caller: &Caller,
        transaction: &mut Transaction,
    ) {
        let record = locked.change(ino);
        record.changed = caller.now;
        record.nlink = if record.kind == FileKind::Directory {
            0
        } else {
            record.nlink.saturating_sub(1)
        };
        if record.nlink == 0 {
            transaction.put(self.tree, &keys::orphan(ino), &[]);
            locked.keep_open_record(ino);
        }
    }
}

/// Whether an inode may lose its name to unlink, or rmdir, or a rename over it.
pub(crate) fn check_removable(
    operation: &'static str,
    name: &[u8],
    record: &crate::layout::InodeRecord,
    directory_wanted: bool,
) -> Result<()> {
    let name = || String::from_utf8_lossy(name).into_owned();
    match (record.kind == FileKind::Directory, directory_wanted) {
        (true, false) => fail(ErrorKind::IsDirectory, operation, name()),
        (false, true) => fail(ErrorKind::NotDirectory, operation, name()),
        (true, true) if record.size_bytes > 0 => fail(ErrorKind::DirectoryNotEmpty, operation, name()),
        _ => Ok(()),
    }
}
