//! Several inodes locked together, and one transaction over them.
//!
//! Inodes are locked in ino order, whatever their kinds, so operations over overlapping sets never wait in a circle.
//! Which inodes an operation concerns is found without locks (names are looked up), so it checks again under the locks
//! and starts over if the names changed meanwhile.

use crate::filesystem::FileSystem;
use crate::inode::{Inode, InodeState};
use crate::layout::InodeRecord;
use crate::staged::Staged;
use crate::types::{Ino, Result};
use packstone_pool::{CommitSequence, Transaction};
use parking_lot::RwLockWriteGuard;

struct LockedInode<'i> {
    inode: &'i Inode,
    state: RwLockWriteGuard<'i, InodeState>,
    staged: Option<Staged>,
}

/// Exclusive access to a set of inodes.
pub(crate) struct Locked<'i> {
    members: Vec<LockedInode<'i>>,
}

impl<'i> Locked<'i> {
    /// Locks each inode once. `NotFound` if one has been destroyed.
    pub(crate) fn new(operation: &'static str, inodes: &[&'i Inode]) -> Result<Locked<'i>> {
        let mut inodes = inodes.to_vec();
        inodes.sort_by_key(|inode| inode.ino);
        inodes.dedup_by_key(|inode| inode.ino);
        let mut members = Vec::with_capacity(inodes.len());
        for inode in inodes {
            members.push(LockedInode {
                inode,
                state: inode.write_state(operation)?,
                staged: None,
            });
        }
        Ok(Locked { members })
    }

    fn member(&self, ino: Ino) -> &LockedInode<'i> {
        let found = self.members.iter().find(|member| member.inode.ino == ino);
        found.unwrap_or_else(|| panic!("inode {ino} is used without being locked"))
    }

    /// Attributes as they will be.
    pub(crate) fn record(&self, ino: Ino) -> &InodeRecord {
        let member = self.member(ino);
        member
            .staged
            .as_ref()
            .map_or(&member.state.record, |staged| &staged.record)
    }

    pub(crate) fn state(&self, ino: Ino) -> &InodeState {
        &self.member(ino).state
    }

    /// Attributes to change; they will be part of the transaction, and so will buffered data of the inode.
    pub(crate) fn change(&mut self, ino: Ino) -> &mut InodeRecord {
        let found = self.members.iter_mut().find(|member| member.inode.ino == ino);
        let member = found.unwrap_or_else(|| panic!("inode {ino} is changed without being locked"));
        let staged = member.staged.get_or_insert_with(|| Staged::new(&member.state));
        staged.put_inode = true;
        &mut staged.record
    }

    /// The inode loses its last name in this transaction: what is buffered need not be stored.
    pub(crate) fn keep_open_record(&mut self, ino: Ino) {
        let staged = self.members.iter_mut().filter(|member| member.inode.ino == ino);
        staged
            .filter_map(|member| member.staged.as_mut())
            .for_each(|staged| staged.keep_open_record = true);
    }

    /// Commits `transaction` with all changes; on an error nothing has changed.
    pub(crate) fn commit(
        &mut self,
        fs: &FileSystem,
        operation: &'static str,
        mut transaction: Transaction,
    ) -> Result<Option<CommitSequence>> {
        for member in &mut self.members {
            if let Some(staged) = &mut member.staged {
                fs.stage(operation, member.inode, &member.state, staged, &mut transaction)?;
            }
        }
        let sequence = fs.commit(operation, transaction)?;
        for member in &mut self.members {
            if let Some(staged) = member.staged.take() {
                fs.settle(member.inode, &mut member.state, staged, sequence);
            }
        }
        Ok(sequence)
    }
}
