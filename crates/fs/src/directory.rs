//! Names in one directory: finding one, finding room for one, listing them in cookie order.
//!
//! A name lives in the bucket of its hash, at one of 256 slots. Looking it up is a scan of the bucket, which nearly
//! always holds one entry. Listing is a scan of the directory's range from a cookie on: entries created or removed
//! meanwhile never make it skip or repeat another one.

use crate::error::{damaged, fail, from_pool};
use crate::filesystem::FileSystem;
use crate::inode::Inode;
use crate::layout::{Entry, entry, keys};
use crate::types::{DirectoryEntry, Error, ErrorKind, FileKind, Ino, Result};
use std::ops::Bound;
use std::sync::Arc;

/// Cookies of `.` and `..`, below every hash.
const COOKIE_SELF: u64 = 1;
const COOKIE_PARENT: u64 = 2;

/// Operations that find names without locks look again this often when what they found was gone under the locks.
pub(crate) const TRIES_MAX: usize = 1000;

/// Where a name is, or could be put.
pub(crate) enum Slot {
    Taken(u64, Entry),
    Free(u64),
}

impl FileSystem {
    /// The inode, which must be a directory.
    pub(crate) fn directory(&self, operation: &'static str, ino: Ino) -> Result<Arc<Inode>> {
        let inode = self.inode(operation, ino)?;
        if inode.read_state(operation)?.record.kind != FileKind::Directory {
            return fail(ErrorKind::NotDirectory, operation, self.describe(ino));
        }
        Ok(inode)
    }

    /// Looks a name up.
    pub(crate) fn slot(&self, operation: &'static str, directory: Ino, name: &[u8]) -> Result<Slot> {
        let first = keys::bucket(self.hash_seed, name);
        let (from, to) = (
            keys::entry(directory, first),
            keys::entry(directory, first + keys::SLOTS - 1),
        );
        let pairs = self
            .pool
            .scan(
                self.tree,
                Bound::Included(&from),
                Bound::Included(&to),
                keys::SLOTS as usize,
            )
            .map_err(from_pool(operation))?;
        let mut free = first;
        for (key, value) in &pairs {
            let (cookie, entry) = self.decode_entry(operation, directory, key, value)?;
            if entry.name == name {
                return Ok(Slot::Taken(cookie, entry));
            }
            if cookie == free {
                free += 1;
            }
        }
        if free == first + keys::SLOTS {
            return fail(
                ErrorKind::NoSpace,
                operation,
                "too many names with the same hash in the directory",
            );
        }
        Ok(Slot::Free(free))
    }

    /// The entry of a name; `NotFound` without one.
    pub(crate) fn entry(&self, operation: &'static str, directory: Ino, name: &[u8]) -> Result<(u64, Entry)> {
        match self.slot(operation, directory, name)? {
            Slot::Taken(cookie, entry) => Ok((cookie, entry)),
            Slot::Free(_) => fail(ErrorKind::NotFound, operation, String::from_utf8_lossy(name)),
        }
    }

    /// The entry of a name and its inode. Both may be out of date when this returns, unless the directory is locked.
    pub(crate) fn child(
        &self,
        operation: &'static str,
        directory: Ino,
        name: &[u8],
    ) -> Result<(u64, Entry, Arc<Inode>)> {
        for _ in 0..TRIES_MAX {
            let (cookie, entry) = self.entry(operation, directory, name)?;
            match self.inode(operation, entry.ino) {
                Ok(inode) => return Ok((cookie, entry, inode)),
                // Removed since, or an entry that names nothing.
                Err(missing) if missing.kind == ErrorKind::NotFound => {}
                Err(other) => return Err(other),
            }
        }
        Err(self.names_nothing(operation, directory, name))
    }

    /// The error for a name that still leads to what is gone after `TRIES_MAX` looks: no race takes that long.
    pub(crate) fn names_nothing(&self, operation: &'static str, directory: Ino, name: &[u8]) -> Error {
        let name = String::from_utf8_lossy(name);
        damaged(
            operation,
            format!(
                "{}: '{name}' names an inode that does not exist",
                self.describe(directory)
            ),
        )
    }

    fn decode_entry(
        &self,
        operation: &'static str,
        directory: Ino,
        key: &[u8],
        value: &[u8],
    ) -> Result<(u64, Entry)> {
        let Some(keys::Key::Entry(_, cookie)) = keys::parse(key) else {
            return Err(damaged(
                operation,
                format!("{}: bad key among its names", self.describe(directory)),
            ));
        };
        let entry = Entry::decode(value).map_err(|why| {
            damaged(
                operation,
                format!("{}, entry {cookie:#x}: {why}", self.describe(directory)),
            )
        })?;
        Ok((cookie, entry))
    }

    /// At most `limit` entries behind cookie `after` (0: from the start), `.` and `..` included.
    pub fn read_directory(&self, ino: Ino, after: u64, limit: usize) -> Result<Vec<DirectoryEntry>> {
        const OPERATION: &str = "read directory";
        let directory = self.directory(OPERATION, ino)?;
        let parent = directory.read_state(OPERATION)?.record.parent;
        let mut entries = vec![];
        let dots = [(COOKIE_SELF, &b"."[..], ino), (COOKIE_PARENT, &b".."[..], parent)];
        for (cookie, name, ino) in dots {
            if after < cookie && entries.len() < limit {
                entries.push(DirectoryEntry {
                    name: name.to_vec(),
                    ino,
                    kind: FileKind::Directory,
                    cookie,
                });
            }
        }
        let room = limit - entries.len();
        if room == 0 {
            return Ok(entries);
        }
        let (from, to) = (
            keys::entry(ino, after.max(COOKIE_PARENT)),
            keys::entry(ino, u64::MAX),
        );
        let pairs = self
            .pool
            .scan(self.tree, Bound::Excluded(&from), Bound::Included(&to), room)
            .map_err(from_pool(OPERATION))?;
        for (key, value) in &pairs {
            let (cookie, Entry { kind, ino, name }) = self.decode_entry(OPERATION, ino, key, value)?;
            entries.push(DirectoryEntry {
                name,
                ino,
                kind,
                cookie,
            });
        }
        Ok(entries)
    }
}

/// Refuses names that no directory holds.
pub(crate) fn check_name(operation: &'static str, name: &[u8]) -> Result<()> {
    if name.len() > entry::NAME_BYTES_MAX {
        let message = format!(
            "name of {} bytes, at most {} are possible",
            name.len(),
            entry::NAME_BYTES_MAX
        );
        return fail(ErrorKind::NameTooLong, operation, message);
    }
    if !entry::is_name(name) {
        let message = format!("'{}' cannot be a name", String::from_utf8_lossy(name));
        return fail(ErrorKind::InvalidInput, operation, message);
    }
    Ok(())
}
