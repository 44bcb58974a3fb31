//! Looking names up, and giving names: new inodes of every kind, and further links.
//!
//! A new inode, its name, and the directory's attributes are one transaction. The inode number is taken before any
//! lock; a number whose creation fails is skipped.

use crate::acl::{self, Inherited};
use crate::directory::{Slot, TRIES_MAX, check_name};
use crate::error::{damaged, fail, from_pool};
use crate::filesystem::FileSystem;
use crate::inode::Inode;
use crate::layout::{Entry, InodeRecord, flags, keys};
use crate::locked::Locked;
use crate::streams::stream_of;
use crate::types::{Attributes, Caller, ErrorKind, FileKind, Ino, Result};
use packstone_pool::{CommitSequence, Transaction};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Longest target of a symlink.
const TARGET_BYTES_MAX: usize = 4095;
/// More links than this no inode gets.
const LINKS_MAX: u32 = i32::MAX as u32;
const SETGID: u32 = 0o2000;

/// What to create.
struct New<'a> {
    kind: FileKind,
    mode: u32,
    rdev: u64,
    /// Of a symlink.
    target: &'a [u8],
}

impl FileSystem {
    /// The inode that `name` in `parent` names, with a reference.
    pub fn lookup(&self, _caller: &Caller, parent: Ino, name: &[u8]) -> Result<Attributes> {
        const OPERATION: &str = "lookup";
        let directory = self.directory(OPERATION, parent)?;
        if name == b"." || name == b".." {
            let up = directory.read_state(OPERATION)?.record.parent;
            let ino = if name == b"." { parent } else { up };
            return self.refer(OPERATION, &*self.inode(OPERATION, ino)?);
        }
        check_name(OPERATION, name)?;
        for _ in 0..TRIES_MAX {
            let (_, _, inode) = self.child(OPERATION, parent, name)?;
            match self.refer(OPERATION, &inode) {
                Ok(attributes) => {
                    inode.remember_name(parent, name);
                    return Ok(attributes);
                }
                // Unlinked between the two; the name may mean something else by now.
                Err(gone) if gone.kind == ErrorKind::NotFound => {}
                Err(other) => return Err(other),
            }
        }
        Err(self.names_nothing(OPERATION, parent, name))
    }

    /// Attributes with a reference; `NotFound` for an inode without a name.
    fn refer(&self, operation: &'static str, inode: &Inode) -> Result<Attributes> {
        // The reference first: who destroys the inode looks at the count under the state's lock.
        inode.references.fetch_add(1, Ordering::SeqCst);
        let found = match inode.read_state(operation) {
            Ok(state) if state.record.nlink > 0 => Ok(state.attributes(inode.ino, self.record_bytes())),
            Ok(_) => fail(
                ErrorKind::NotFound,
                operation,
                format!("inode {} has no name any more", inode.ino),
            ),
            Err(gone) => Err(gone),
        };
        if found.is_err() {
            inode.references.fetch_sub(1, Ordering::SeqCst);
            self.let_go(inode);
        }
        found
    }

    /// Regular, fifo, socket and device files.
    pub fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        kind: FileKind,
        mode: u32,
        rdev: u64,
    ) -> Result<Attributes> {
        const OPERATION: &str = "create";
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            return fail(
                ErrorKind::InvalidInput,
                OPERATION,
                "directories and symlinks are created otherwise",
            );
        }
        let rdev = if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
            rdev
        } else {
            0
        };
        self.create_named(
            OPERATION,
            caller,
            parent,
            name,
            New {
                kind,
                mode,
                rdev,
                target: b"",
            },
        )
    }

    /// An empty directory.
    pub fn create_directory(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
    ) -> Result<Attributes> {
        let new = New {
            kind: FileKind::Directory,
            mode,
            rdev: 0,
            target: b"",
        };
        self.create_named("create directory", caller, parent, name, new)
    }

    /// A symbolic link with any target of 1 to 4095 bytes.
    pub fn create_symlink(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attributes> {
        const OPERATION: &str = "create symlink";
        if target.len() > TARGET_BYTES_MAX {
            let message = format!(
                "target of {} bytes, at most {TARGET_BYTES_MAX} are possible",
                target.len()
            );
            return fail(ErrorKind::NameTooLong, OPERATION, message);
        }
        if target.is_empty() {
            return fail(ErrorKind::NotFound, OPERATION, "empty target");
        }
        let new = New {
            kind: FileKind::Symlink,
            mode: 0o777,
            rdev: 0,
            target,
        };
        self.create_named(OPERATION, caller, parent, name, new)
    }

    /// Target of a symlink.
    pub fn read_symlink(&self, ino: Ino) -> Result<Vec<u8>> {
        const OPERATION: &str = "read symlink";
        let inode = self.inode(OPERATION, ino)?;
        if inode.read_state(OPERATION)?.record.kind != FileKind::Symlink {
            return fail(
                ErrorKind::InvalidInput,
                OPERATION,
                format!("{} is not a symlink", self.describe(ino)),
            );
        }
        let target = self
            .pool
            .get(self.tree, &keys::symlink(ino))
            .map_err(from_pool(OPERATION))?;
        target.ok_or_else(|| damaged(OPERATION, format!("{} has no target", self.describe(ino))))
    }

    /// An unnamed regular file (O_TMPFILE); `link` may give it a name.
    pub fn create_unnamed(&self, caller: &Caller, parent: Ino, mode: u32) -> Result<Attributes> {
        const OPERATION: &str = "create unnamed";
        self.check_writable(OPERATION)?;
        let directory = self.directory(OPERATION, parent)?;
        let ino = self.allocate_number(OPERATION)?;
        let locked = Locked::new(OPERATION, &[&directory])?;
        let mut transaction = self.pool.begin();
        let new = New {
            kind: FileKind::Regular,
            mode,
            rdev: 0,
            target: b"",
        };
        let mut record = self.put_new(
            OPERATION,
            caller,
            parent,
            locked.record(parent),
            b"",
            &new,
            ino,
            &mut transaction,
        )?;
        record.nlink = 0;
        transaction.put(self.tree, &keys::inode(ino), &record.encode());
        transaction.put(self.tree, &keys::orphan(ino), &[]);
        self.introduce(OPERATION, ino, record, || self.commit(OPERATION, transaction))
            .map(|(_, attributes)| attributes)
    }

    fn create_named(
        &self,
        operation: &'static str,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        new: New<'_>,
    ) -> Result<Attributes> {
        self.check_writable(operation)?;
        check_name(operation, name)?;
        let directory = self.directory(operation, parent)?;
        let ino = self.allocate_number(operation)?;
        let mut locked = Locked::new(operation, &[&directory])?;
        check_exists(operation, locked.record(parent))?;
        let cookie = match self.slot(operation, parent, name)? {
            Slot::Free(cookie) => cookie,
            Slot::Taken(..) => {
                return fail(ErrorKind::AlreadyExists, operation, String::from_utf8_lossy(name));
            }
        };
        let mut transaction = self.pool.begin();
        let record = self.put_new(
            operation,
            caller,
            parent,
            locked.record(parent),
            name,
            &new,
            ino,
            &mut transaction,
        )?;
        transaction.put(self.tree, &keys::inode(ino), &record.encode());
        let entry = Entry {
            kind: new.kind,
            ino,
            name: name.to_vec(),
        };
        transaction.put(self.tree, &keys::entry(parent, cookie), &entry.encode());
        let above = locked.change(parent);
        above.size_bytes += 1;
        above.modified = caller.now;
        above.changed = caller.now;
        if new.kind == FileKind::Directory {
            add_link(operation, above)?;
        }
        let (inode, attributes) = self.introduce(operation, ino, record, || {
            locked.commit(self, operation, transaction)
        })?;
        inode.remember_name(parent, name);
        Ok(attributes)
    }

    /// Runs the commit that creates an inode with the inode already in memory and locked, so that whoever finds it right
    /// after the commit finds it complete, and nobody reclaims an unnamed one.
    fn introduce(
        &self,
        operation: &'static str,
        ino: Ino,
        record: InodeRecord,
        commit: impl FnOnce() -> Result<Option<CommitSequence>>,
    ) -> Result<(Arc<Inode>, Attributes)> {
        let inode = self.inodes.insert_new(ino, record, self.pool.last_commit());
        let inode = inode.ok_or_else(|| {
            damaged(
                operation,
                format!("inode number {ino} is new and in use: the superblock is damaged"),
            )
        })?;
        let mut state = inode.any_state();
        match commit() {
            Ok(sequence) => {
                state.last_commit = sequence.unwrap_or(state.last_commit);
                let attributes = state.attributes(ino, self.record_bytes());
                drop(state);
                Ok((inode, attributes))
            }
            Err(failed) => {
                state.dead = true;
                drop(state);
                inode.references.store(0, Ordering::SeqCst);
                self.inodes.note_idle(&inode);
                Err(failed)
            }
        }
    }

    /// Attributes of a new inode, with its ACLs and target put into the transaction; the attributes themselves are not.
    #[expect(
        clippy::too_many_arguments,
        reason = "one place decides everything about a new inode"
    )]
    fn put_new(
        &self,
        operation: &'static str,
        caller: &Caller,
        parent: Ino,
        above: &InodeRecord,
        name: &[u8],
        new: &New<'_>,
        ino: Ino,
        transaction: &mut Transaction,
    ) -> Result<InodeRecord> {
        let directory = new.kind == FileKind::Directory;
        let mut record = InodeRecord {
            kind: new.kind,
            stream: stream_of(above.stream, name, new.kind),
            record_bytes_log2: 0,
            flags: 0,
            mode: new.mode & 0o7777,
            nlink: if directory { 2 } else { 1 },
            uid: caller.uid,
            gid: caller.gid,
            rdev: new.rdev,
            size_bytes: new.target.len() as u64,
            stored_bytes: 0,
            parent: if directory { parent } else { Ino(0) },
            accessed: caller.now,
            modified: caller.now,
            changed: caller.now,
            born: caller.now,
        };
        if above.mode & SETGID != 0 {
            record.gid = above.gid;
            if directory {
                record.mode |= SETGID;
            }
        }
        if new.kind == FileKind::Symlink {
            transaction.put(self.tree, &keys::symlink(ino), new.target);
            return Ok(record);
        }
        let default = if above.flags & flags::DEFAULT_ACL != 0 {
            self.pool
                .get(self.tree, &keys::xattr(parent, acl::DEFAULT))
                .map_err(from_pool(operation))?
        } else {
            None
        };
        let Some(default) = default else {
            record.mode &= !(caller.umask & 0o777);
            return Ok(record);
        };
        let Inherited { mode, access } = acl::inherit(operation, &default, record.mode).map_err(|why| {
            damaged(
                operation,
                format!("{}: default ACL: {}", self.describe(parent), why.message),
            )
        })?;
        record.mode = mode;
        if let Some(access) = access {
            transaction.put(self.tree, &keys::xattr(ino, acl::ACCESS), &access);
            record.flags |= flags::ACCESS_ACL | flags::XATTRS;
        }
        if directory {
            transaction.put(self.tree, &keys::xattr(ino, acl::DEFAULT), &default);
            record.flags |= flags::DEFAULT_ACL | flags::XATTRS;
        }
        Ok(record)
    }

    /// A further name of an inode that is not a directory.
    pub fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attributes> {
        const OPERATION: &str = "link";
        self.check_writable(OPERATION)?;
        check_name(OPERATION, name)?;
        let directory = self.directory(OPERATION, parent)?;
        let inode = self.inode(OPERATION, ino)?;
        let mut locked = Locked::new(OPERATION, &[&directory, &inode])?;
        check_exists(OPERATION, locked.record(parent))?;
        let kind = locked.record(ino).kind;
        if kind == FileKind::Directory {
            return fail(ErrorKind::NotPermitted, OPERATION, "a directory has one name");
        }
        let cookie = match self.slot(OPERATION, parent, name)? {
            Slot::Free(cookie) => cookie,
            Slot::Taken(..) => {
                return fail(ErrorKind::AlreadyExists, OPERATION, String::from_utf8_lossy(name));
            }
        };
        let mut transaction = self.pool.begin();
        let entry = Entry {
            kind,
            ino,
            name: name.to_vec(),
        };
        transaction.put(self.tree, &keys::entry(parent, cookie), &entry.encode());
        if locked.record(ino).nlink == 0 {
            transaction.delete(self.tree, &keys::orphan(ino));
        }
        let linked = locked.change(ino);
        add_link(OPERATION, linked)?;
        linked.changed = caller.now;
        let above = locked.change(parent);
        above.size_bytes += 1;
        above.modified = caller.now;
        above.changed = caller.now;
        locked.commit(self, OPERATION, transaction)?;
        inode.references.fetch_add(1, Ordering::SeqCst);
        Ok(locked.state(ino).attributes(ino, self.record_bytes()))
    }
}

/// A directory that was removed while it is still referred to takes no names.
pub(crate) fn check_exists(operation: &'static str, directory: &InodeRecord) -> Result<()> {
    if directory.nlink == 0 {
        return fail(ErrorKind::NotFound, operation, "the directory has been removed");
    }
    Ok(())
}

pub(crate) fn add_link(operation: &'static str, record: &mut InodeRecord) -> Result<()> {
    if record.nlink >= LINKS_MAX {
        return fail(
            ErrorKind::TooManyLinks,
            operation,
            format!("it has {LINKS_MAX} links already"),
        );
    }
    record.nlink += 1;
    Ok(())
}
