//! Rename in its three modes.
//!
//! One transaction changes both names, both directories, and what loses its last name; buffered data of the renamed
//! file is stored in it too, so replacing a file by renaming never shows an empty or half file.
//!
//! A directory that moves to another directory must not move below itself. Only such moves change who is below whom,
//! so one lock for them keeps the tree still while a mover looks upwards from its destination.

use crate::directory::{Slot, TRIES_MAX, check_name};
use crate::error::{damaged, fail};
use crate::filesystem::FileSystem;
use crate::inode::Inode;
use crate::layout::{Entry, keys};
use crate::locked::Locked;
use crate::names::{add_link, check_exists};
use crate::remove::check_removable;
use crate::types::{Caller, ErrorKind, FileKind, Ino, RenameMode, Result};
use std::sync::Arc;

const OPERATION: &str = "rename";
/// No path is this deep; a longer way up means a circle.
const DEPTH_MAX: usize = 1 << 20;

/// One of the two names, as it was found.
struct Found {
    cookie: u64,
    entry: Entry,
    inode: Arc<Inode>,
}

/// The names a rename is about.
struct Names<'a> {
    parent: Ino,
    name: &'a [u8],
    new_parent: Ino,
    new_name: &'a [u8],
}

impl FileSystem {
    /// Gives what `name` in `parent` names the name `new_name` in `new_parent`.
    pub fn rename(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.check_writable(OPERATION)?;
        check_name(OPERATION, name)?;
        check_name(OPERATION, new_name)?;
        let from = self.directory(OPERATION, parent)?;
        let to = self.directory(OPERATION, new_parent)?;
        let names = Names {
            parent,
            name,
            new_parent,
            new_name,
        };
        // Each try finds both names, locks what they name, and looks again.
        for _ in 0..TRIES_MAX {
            if self.try_rename(caller, &from, &to, &names, mode)? {
                return Ok(());
            }
        }
        Err(self.names_nothing(OPERATION, parent, name))
    }

    fn try_rename(
        &self,
        caller: &Caller,
        from: &Inode,
        to: &Inode,
        names: &Names<'_>,
        mode: RenameMode,
    ) -> Result<bool> {
        let (cookie, entry, inode) = self.child(OPERATION, names.parent, names.name)?;
        let source = Found { cookie, entry, inode };
        let target = match self.child(OPERATION, names.new_parent, names.new_name) {
            Ok((cookie, entry, inode)) => Some(Found { cookie, entry, inode }),
            Err(free) if free.kind == ErrorKind::NotFound => None,
            Err(other) => return Err(other),
        };
        let is_directory = |found: &Found| found.entry.kind == FileKind::Directory;
        let exchanged = target.as_ref().filter(|_| mode == RenameMode::Exchange);
        let moves = is_directory(&source) || exchanged.is_some_and(is_directory);
        let _still = (moves && names.parent != names.new_parent).then(|| self.rename_lock.lock());
        if _still.is_some() {
            self.check_not_below(source.entry.ino, names.new_parent)?;
            if let Some(exchanged) = exchanged {
                self.check_not_below(exchanged.entry.ino, names.parent)?;
            }
        }
        let mut inodes = vec![from, to, &source.inode];
        inodes.extend(target.as_ref().map(|target| target.inode.as_ref()));
        let Ok(mut locked) = Locked::new(OPERATION, &inodes) else {
            drop(from.read_state(OPERATION)?);
            drop(to.read_state(OPERATION)?);
            return Ok(false);
        };
        check_exists(OPERATION, locked.record(names.parent))?;
        check_exists(OPERATION, locked.record(names.new_parent))?;
        let Some(new_cookie) = self.recheck(names, &source, target.as_ref())? else {
            return Ok(false);
        };
        match (&target, mode) {
            (Some(_), RenameMode::NoReplace) => fail(
                ErrorKind::AlreadyExists,
                OPERATION,
                String::from_utf8_lossy(names.new_name),
            ),
            (None, RenameMode::Exchange) => fail(
                ErrorKind::NotFound,
                OPERATION,
                String::from_utf8_lossy(names.new_name),
            ),
            (Some(target), _) if target.entry.ino == source.entry.ino => Ok(true),
            (Some(target), RenameMode::Exchange) => {
                self.exchange(caller, &mut locked, names, &source, target)?;
                Ok(true)
            }
            (target, _) => {
                self.replace(caller, &mut locked, names, &source, target.as_ref(), new_cookie)?;
                drop(locked);
                if let Some(target) = target.as_ref().filter(|target| target.inode.is_unheld()) {
                    self.reclaim_soon(target.inode.ino);
                }
                Ok(true)
            }
        }
    }

    /// Under the locks: whether both names are still what they were. Answers the cookie for the new name.
    fn recheck(&self, names: &Names<'_>, source: &Found, target: Option<&Found>) -> Result<Option<u64>> {
        match self.slot(OPERATION, names.parent, names.name)? {
            Slot::Taken(cookie, entry) if cookie == source.cookie && entry == source.entry => {}
            _ => return Ok(None),
        }
        Ok(
            match (self.slot(OPERATION, names.new_parent, names.new_name)?, target) {
                (Slot::Free(cookie), None) => Some(cookie),
                (Slot::Taken(cookie, entry), Some(target))
                    if cookie == target.cookie && entry == target.entry =>
                {
                    Some(cookie)
                }
                _ => None,
            },
        )
    }

    /// Whether `destination` is outside of `moved`, seen from the destination upwards. Needs the rename lock.
    fn check_not_below(&self, moved: Ino, destination: Ino) -> Result<()> {
        let mut at = destination;
        for _ in 0..DEPTH_MAX {
            if at == moved {
                return fail(
                    ErrorKind::InvalidInput,
                    OPERATION,
                    "a directory cannot move below itself",
                );
            }
            if at == Ino::ROOT {
                return Ok(());
            }
            let inode = self.inode(OPERATION, at)?;
            at = inode.read_state(OPERATION)?.record.parent;
        }
        Err(damaged(
            OPERATION,
            format!("{} does not lead to the root", self.describe(destination)),
        ))
    }

    fn replace(
        &self,
        caller: &Caller,
        locked: &mut Locked<'_>,
        names: &Names<'_>,
        source: &Found,
        target: Option<&Found>,
        new_cookie: u64,
    ) -> Result<()> {
        let directory = source.entry.kind == FileKind::Directory;
        let mut transaction = self.pool.begin();
        if let Some(target) = target {
            check_removable(
                OPERATION,
                names.new_name,
                locked.record(target.entry.ino),
                directory,
            )?;
            // It may free more than it takes.
            transaction.may_use_reserve();
            self.take_name(locked, target.entry.ino, caller, &mut transaction);
        }
        transaction.delete(self.tree, &keys::entry(names.parent, source.cookie));
        let entry = Entry {
            name: names.new_name.to_vec(),
            ..source.entry.clone()
        };
        transaction.put(
            self.tree,
            &keys::entry(names.new_parent, new_cookie),
            &entry.encode(),
        );
        let from = locked.change(names.parent);
        from.size_bytes = from.size_bytes.saturating_sub(1);
        from.nlink = from.nlink.saturating_sub(u32::from(directory));
        let to = locked.change(names.new_parent);
        to.size_bytes += u64::from(target.is_none());
        // A directory that replaces another takes over its place in the link count.
        if directory && target.is_none() {
            add_link(OPERATION, to)?;
        }
        let moved = locked.change(source.entry.ino);
        moved.changed = caller.now;
        if directory {
            moved.parent = names.new_parent;
        }
        self.finish(caller, locked, names, transaction)?;
        source.inode.remember_name(names.new_parent, names.new_name);
        Ok(())
    }

    fn exchange(
        &self,
        caller: &Caller,
        locked: &mut Locked<'_>,
        names: &Names<'_>,
        source: &Found,
        target: &Found,
    ) -> Result<()> {
        let mut transaction = self.pool.begin();
        let old = Entry {
            name: names.name.to_vec(),
            ..target.entry.clone()
        };
        let new = Entry {
            name: names.new_name.to_vec(),
            ..source.entry.clone()
        };
        transaction.put(
            self.tree,
            &keys::entry(names.parent, source.cookie),
            &old.encode(),
        );
        transaction.put(
            self.tree,
            &keys::entry(names.new_parent, target.cookie),
            &new.encode(),
        );
        let moves = [
            (source, names.parent, names.new_parent),
            (target, names.new_parent, names.parent),
        ];
        for (found, from, to) in moves {
            let directory = found.entry.kind == FileKind::Directory;
            if directory {
                add_link(OPERATION, locked.change(to))?;
                let left = locked.change(from);
                left.nlink = left.nlink.saturating_sub(1);
            }
            let moved = locked.change(found.entry.ino);
            moved.changed = caller.now;
            if directory {
                moved.parent = to;
            }
        }
        self.finish(caller, locked, names, transaction)?;
        source.inode.remember_name(names.new_parent, names.new_name);
        target.inode.remember_name(names.parent, names.name);
        Ok(())
    }

    fn finish(
        &self,
        caller: &Caller,
        locked: &mut Locked<'_>,
        names: &Names<'_>,
        transaction: packstone_pool::Transaction,
    ) -> Result<()> {
        for ino in [names.parent, names.new_parent] {
            let directory = locked.change(ino);
            directory.modified = caller.now;
            directory.changed = caller.now;
        }
        locked.commit(self, OPERATION, transaction).map(|_| ())
    }
}
