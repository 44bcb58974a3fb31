//! Extended attributes, modes and owners, and what the kernel holds.

use super::data::{CAPABILITY, take_privileges};
use super::{Outcome, Room};
use crate::world::model::hash_of;
use crate::world::operation::{Fill, Operation};
use crate::world::state::{Checked, World, violation};
use packstone_fs::{ErrorKind, FileKind, Ino, SetAttributes, Timestamp, XattrMode};
use std::rc::Rc;

fn xattr_name(name: u8) -> &'static [u8] {
    [b"user.a", &b"user.a longer name"[..], CAPABILITY, b"trusted.b"][usize::from(name % 4)]
}

impl World {
    pub(super) fn on_attributes(&mut self, operation: &Operation) -> Checked {
        let (slot, handle) = match *operation {
            Operation::SetXattr { slot, file, .. }
            | Operation::GetXattr { slot, file, .. }
            | Operation::RemoveXattr { slot, file, .. }
            | Operation::Chmod { slot, file, .. }
            | Operation::Chown { slot, file, .. }
            | Operation::Times { slot, file, .. }
            | Operation::Open { slot, file }
            | Operation::Release { slot, file }
            | Operation::Forget { slot, file } => (slot, file),
            _ => return Ok(()),
        };
        let Some(ino) = self.target(slot, handle)? else {
            return Ok(());
        };
        match *operation {
            Operation::SetXattr {
                name, length, mode, ..
            } => self.set_xattr(slot, ino, name, length, mode),
            Operation::GetXattr { name, .. } => self.get_xattr(slot, ino, name),
            Operation::RemoveXattr { name, .. } => self.remove_xattr(slot, ino, name),
            Operation::Chmod { mode, .. } => {
                let mode = Some(mode);
                self.set_attributes(
                    slot,
                    ino,
                    SetAttributes {
                        mode,
                        ..Default::default()
                    },
                )
            }
            Operation::Chown { uid, .. } => {
                let uid = Some(uid);
                self.set_attributes(
                    slot,
                    ino,
                    SetAttributes {
                        uid,
                        ..Default::default()
                    },
                )
            }
            Operation::Times { seconds, .. } => {
                let modified = Some(Timestamp {
                    seconds,
                    nanoseconds: 5,
                });
                self.set_attributes(
                    slot,
                    ino,
                    SetAttributes {
                        modified,
                        ..Default::default()
                    },
                )
            }
            Operation::Open { .. } => self.open(slot, ino),
            Operation::Release { .. } => self.release(slot, ino),
            _ => self.forget(slot, ino),
        }
    }

    /// Every change of attributes stores what is buffered of the file in the same transaction.
    fn committed(&mut self, slot: u8, ino: Ino) {
        let number = self.journal.number;
        self.model(slot).0.node_mut(ino).data.note_committed(number);
    }

    fn set_xattr(&mut self, slot: u8, ino: Ino, name: u8, length: u16, mode: XattrMode) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let name = xattr_name(name);
        let value = Fill::Noise(hash_of((self.journal.number, name))).bytes(usize::from(length));
        let set = fs.set_xattr(&self.caller(), ino, name, &value, mode);
        let there = self.slot(slot).model.node(ino).meta.xattrs.contains_key(name);
        let expected = match (there, mode) {
            (true, XattrMode::Create) => Err(ErrorKind::AlreadyExists),
            (false, XattrMode::Replace) => Err(ErrorKind::NoSuchAttribute),
            _ => Ok(()),
        };
        if let Outcome::Done(_) = self.judge("set xattr", Room::Needs, set, expected)? {
            let (model, journal) = self.model(slot);
            model.change_meta(journal, ino, |meta| {
                meta.xattrs.insert(name.to_vec(), Rc::from(value));
            });
            self.committed(slot, ino);
        }
        Ok(())
    }

    fn get_xattr(&mut self, slot: u8, ino: Ino, name: u8) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let name = xattr_name(name);
        let found = fs.get_xattr(ino, name);
        let value = self.slot(slot).model.node(ino).meta.xattrs.get(name).cloned();
        let expected = value.ok_or(ErrorKind::NoSuchAttribute);
        if let Outcome::Done((found, expected)) = self.judge("get xattr", Room::NeedsNone, found, expected)?
            && found[..] != expected[..]
        {
            return violation(
                "get xattr: wrong value",
                format!("inode {ino}: {} bytes", found.len()),
            );
        }
        Ok(())
    }

    fn remove_xattr(&mut self, slot: u8, ino: Ino, name: u8) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let name = xattr_name(name);
        let removed = fs.remove_xattr(&self.caller(), ino, name);
        let there = self.slot(slot).model.node(ino).meta.xattrs.contains_key(name);
        let expected = if there {
            Ok(())
        } else {
            Err(ErrorKind::NoSuchAttribute)
        };
        if let Outcome::Done(_) = self.judge("remove xattr", Room::NeedsNone, removed, expected)? {
            let (model, journal) = self.model(slot);
            model.change_meta(journal, ino, |meta| drop(meta.xattrs.remove(name)));
            self.committed(slot, ino);
        }
        Ok(())
    }

    fn set_attributes(&mut self, slot: u8, ino: Ino, change: SetAttributes) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let done = fs.set_attributes(&self.caller(), ino, &change);
        let Outcome::Done((found, ())) = self.judge("set attributes", Room::Needs, done, Ok(()))? else {
            return Ok(());
        };
        let (model, journal) = self.model(slot);
        let file = model.node(ino).kind != FileKind::Directory;
        model.change_meta(journal, ino, |meta| {
            if change.uid.is_some() && file {
                take_privileges(meta, true);
            }
            meta.mode = change.mode.unwrap_or(meta.mode);
            meta.uid = change.uid.unwrap_or(meta.uid);
        });
        let node = model.node_mut(ino);
        node.modified = change.modified.or(node.modified);
        self.committed(slot, ino);
        self.compare_attributes(slot, &found)
    }

    fn open(&mut self, slot: u8, ino: Ino) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let opened = fs.open_file(ino);
        if let Outcome::Done(_) = self.judge("open", Room::NeedsNone, opened, Ok(()))? {
            self.held(slot, ino).opens += 1;
        }
        Ok(())
    }

    fn release(&mut self, slot: u8, ino: Ino) -> Checked {
        if self.held(slot, ino).opens == 0 {
            return Ok(());
        }
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let released = fs.release(ino);
        // Whatever it answers, the file is closed.
        self.held(slot, ino).opens -= 1;
        if let Outcome::Done(_) = self.judge("release", Room::NeedsNone, released, Ok(()))?
            && self.held(slot, ino).opens == 0
        {
            self.committed(slot, ino);
        }
        self.drop_if_unheld(slot, ino);
        Ok(())
    }

    fn forget(&mut self, slot: u8, ino: Ino) -> Checked {
        let references = std::mem::take(&mut self.held(slot, ino).references);
        if let Some(fs) = &self.slot(slot).fs {
            fs.forget(ino, references);
        }
        self.drop_if_unheld(slot, ino);
        Ok(())
    }
}
