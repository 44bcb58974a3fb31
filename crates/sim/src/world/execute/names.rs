//! Operations on names.

use super::{Outcome, Room};
use crate::world::model::{Handle, Name, Node};
use crate::world::names::{self, bytes};
use crate::world::operation::Operation;
use crate::world::slots::Listing;
use crate::world::state::{Checked, World, fs_violation, violation};
use packstone_fs::{Attributes, ErrorKind, FileKind, Ino, RenameMode};

impl World {
    pub(super) fn on_names(&mut self, handle: Handle, operation: &Operation) -> Checked {
        match *operation {
            Operation::Create {
                slot,
                parent,
                name,
                kind,
                mode,
            } => {
                let Some(parent) = self.target(slot, parent)? else {
                    return Ok(());
                };
                self.create(slot, handle, (parent, name), kind, mode)
            }
            Operation::Unnamed { slot, parent } => self.unnamed(slot, handle, parent),
            Operation::Link {
                slot,
                file,
                parent,
                name,
            } => match (self.target(slot, file)?, self.target(slot, parent)?) {
                (Some(ino), Some(parent)) => self.link(slot, ino, parent, name),
                _ => Ok(()),
            },
            Operation::Remove {
                slot,
                parent,
                name,
                directory,
            } => {
                let Some(parent) = self.target(slot, parent)? else {
                    return Ok(());
                };
                self.remove(slot, (parent, name), directory)
            }
            Operation::Rename { slot, from, to, mode } => {
                match (self.target(slot, from.0)?, self.target(slot, to.0)?) {
                    (Some(parent), Some(new_parent)) => {
                        self.rename(slot, (parent, from.1), (new_parent, to.1), mode)
                    }
                    _ => Ok(()),
                }
            }
            Operation::Lookup { slot, parent, name } => {
                let Some(parent) = self.target(slot, parent)? else {
                    return Ok(());
                };
                self.lookup(slot, parent, name)
            }
            Operation::List {
                slot,
                client,
                directory,
                limit,
            } => {
                let Some(directory) = self.target(slot, directory)? else {
                    return Ok(());
                };
                self.list(slot, client, directory, limit)
            }
            _ => Ok(()),
        }
    }

    fn create(
        &mut self,
        slot: u8,
        handle: Handle,
        (parent, name): (Ino, Name),
        kind: FileKind,
        mode: u32,
    ) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let (caller, text) = (self.caller(), bytes(name));
        let target = [&b"some/where/"[..], &text, &vec![b't'; (mode % 1000) as usize]].concat();
        let created = match kind {
            FileKind::Directory => fs.create_directory(&caller, parent, &text, mode),
            FileKind::Symlink => fs.create_symlink(&caller, parent, &text, &target),
            _ => fs.create(&caller, parent, &text, kind, mode, 0),
        };
        let expected = self.slot(slot).model.can_create(parent, name);
        let Outcome::Done((found, ())) = self.judge("create", Room::Needs, created, expected)? else {
            return Ok(());
        };
        let mode = match kind {
            FileKind::Symlink => 0o777,
            _ => mode & !caller.umask,
        };
        let mut node = Node::new(handle, kind, mode);
        node.parent = parent;
        node.modified = Some(caller.now);
        if kind == FileKind::Symlink {
            node.target = target;
        }
        self.note(found.ino);
        self.name_changes(slot, parent, name);
        let (model, journal) = self.model(slot);
        if model.nodes.contains_key(&found.ino) {
            return violation("create: an inode number is used twice", found.ino.to_string());
        }
        model.create(journal, found.ino, node, Some((parent, name)));
        model.node_mut(parent).modified = Some(caller.now);
        self.refer(slot, found.ino);
        self.compare_attributes(slot, &found)
    }

    fn unnamed(&mut self, slot: u8, handle: Handle, parent: Handle) -> Checked {
        let Some(parent) = self.target(slot, parent)? else {
            return Ok(());
        };
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let caller = self.caller();
        let created = fs.create_unnamed(&caller, parent, 0o600);
        let Outcome::Done((found, ())) = self.judge("create unnamed", Room::Needs, created, Ok(()))? else {
            return Ok(());
        };
        let mut node = Node::new(handle, FileKind::Regular, 0o600);
        node.modified = Some(caller.now);
        let (model, journal) = self.model(slot);
        model.create(journal, found.ino, node, None);
        self.refer(slot, found.ino);
        if let Some(fs) = &self.slot(slot).fs {
            let opened = fs.open_file(found.ino);
            fs_violation("open", opened)?;
        }
        self.held(slot, found.ino).opens += 1;
        Ok(())
    }

    fn link(&mut self, slot: u8, ino: Ino, parent: Ino, name: Name) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let linked = fs.link(&self.caller(), ino, parent, &bytes(name));
        let expected = self.slot(slot).model.can_link(ino, parent, name);
        let Outcome::Done((found, ())) = self.judge("link", Room::Needs, linked, expected)? else {
            return Ok(());
        };
        self.name_changes(slot, parent, name);
        let number = self.journal.number;
        let now = self.now();
        let (model, journal) = self.model(slot);
        model.link(journal, ino, parent, name);
        model.node_mut(ino).data.note_committed(number);
        model.node_mut(parent).modified = Some(now);
        self.refer(slot, ino);
        self.compare_attributes(slot, &found)
    }

    fn remove(&mut self, slot: u8, (parent, name): (Ino, Name), directory: bool) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let (caller, text) = (self.caller(), bytes(name));
        let removed = match directory {
            true => fs.remove_directory(&caller, parent, &text),
            false => fs.unlink(&caller, parent, &text),
        };
        let expected = self.slot(slot).model.can_remove(parent, name, directory);
        let Outcome::Done(((), ino)) = self.judge("remove", Room::NeedsNone, removed, expected)? else {
            return Ok(());
        };
        self.name_changes(slot, parent, name);
        let (model, journal) = self.model(slot);
        model.remove(journal, parent, name);
        model.node_mut(parent).modified = Some(caller.now);
        self.drop_if_unheld(slot, ino);
        Ok(())
    }

    fn rename(&mut self, slot: u8, from: (Ino, Name), to: (Ino, Name), mode: RenameMode) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let caller = self.caller();
        let renamed = fs.rename(&caller, from.0, &bytes(from.1), to.0, &bytes(to.1), mode);
        let expected = self.slot(slot).model.can_rename(from, to, mode);
        let room = Room::Needs;
        let Outcome::Done(((), (ino, target))) = self.judge("rename", room, renamed, expected)? else {
            return Ok(());
        };
        if target == Some(ino) {
            return Ok(());
        }
        self.name_changes(slot, from.0, from.1);
        self.name_changes(slot, to.0, to.1);
        let number = self.journal.number;
        let (model, journal) = self.model(slot);
        model.rename(journal, from, to, mode);
        // What was buffered of a renamed file is stored with it.
        model.node_mut(ino).data.note_committed(number);
        for directory in [from.0, to.0] {
            model.node_mut(directory).modified = Some(caller.now);
        }
        if let Some(target) = target {
            self.drop_if_unheld(slot, target);
        }
        Ok(())
    }

    fn lookup(&mut self, slot: u8, parent: Ino, name: Name) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let found = fs.lookup(&self.caller(), parent, &bytes(name));
        let expected = self.slot(slot).model.find(parent, name);
        let Outcome::Done((found, ino)) = self.judge("lookup", Room::NeedsNone, found, expected)? else {
            return Ok(());
        };
        self.refer(slot, found.ino);
        if found.ino != ino {
            return violation(
                "lookup: another inode",
                format!("{} where {ino} is right", found.ino),
            );
        }
        self.compare_attributes(slot, &found)
    }

    /// Compares attributes that an operation answered.
    pub(crate) fn compare_attributes(&self, slot: u8, found: &Attributes) -> Checked {
        let Some(node) = self.slot(slot).model.nodes.get(&found.ino) else {
            return violation(
                "attributes: of an inode that should not be",
                found.ino.to_string(),
            );
        };
        let size_bytes = match node.kind {
            FileKind::Regular => node.data.size_bytes(),
            FileKind::Directory => node.entries.len() as u64,
            FileKind::Symlink => node.target.len() as u64,
            _ => 0,
        };
        let times_agree = node.modified.is_none_or(|modified| modified == found.modified);
        let links_agree = node.links == 0 || found.nlink == node.link_count();
        let agree = found.kind == node.kind
            && found.mode == node.meta.mode
            && found.uid == node.meta.uid
            && links_agree
            && found.size_bytes == size_bytes
            && times_agree;
        if !agree {
            let expected = (
                node.kind,
                node.meta.mode,
                node.meta.uid,
                node.link_count(),
                size_bytes,
                node.modified,
            );
            return violation(
                "attributes: differ",
                format!("{found:?} where {expected:?} is right"),
            );
        }
        Ok(())
    }

    /// Listings under way may or may not see a name that changes.
    fn name_changes(&mut self, slot: u8, directory: Ino, name: Name) {
        for listing in self.listings.iter_mut().flatten() {
            if listing.slot == slot && listing.directory == directory {
                listing.steady.remove(&name);
                listing.passing.insert(name);
            }
        }
    }

    /// One piece of a client's listing; begins one if there is none.
    fn list(&mut self, slot: u8, client: u8, directory: Ino, limit: u16) -> Checked {
        let client = usize::from(client) % self.listings.len();
        let mut listing = match self.listings[client].take() {
            Some(listing)
                if self
                    .slot(listing.slot)
                    .model
                    .nodes
                    .contains_key(&listing.directory) =>
            {
                listing
            }
            _ => {
                let node = self.slot(slot).model.nodes.get(&directory);
                let Some(node) = node.filter(|node| node.kind == FileKind::Directory) else {
                    return Ok(());
                };
                Listing {
                    slot,
                    directory,
                    after: 0,
                    steady: node.entries.keys().copied().collect(),
                    passing: Default::default(),
                    seen: Default::default(),
                }
            }
        };
        let Some(fs) = &self.slot(listing.slot).fs else {
            return Ok(());
        };
        let limit = usize::from(limit).max(1);
        let entries = fs.read_directory(listing.directory, listing.after, limit);
        let Outcome::Done((entries, ())) =
            self.judge("list", Room::NeedsNone, entries, Ok::<_, ErrorKind>(()))?
        else {
            return Ok(());
        };
        let end = entries.len() < limit;
        for entry in entries {
            if entry.cookie <= listing.after {
                return violation("list: cookies do not ascend", format!("{entry:?}"));
            }
            listing.after = entry.cookie;
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let Some(name) = names::parse(&entry.name) else {
                return violation("list: a name from nowhere", format!("{entry:?}"));
            };
            let known = listing.steady.contains(&name) || listing.passing.contains(&name);
            if !known {
                return violation("list: a name that was never there", format!("{entry:?}"));
            }
            if !listing.seen.insert(name) && !listing.passing.contains(&name) {
                return violation("list: a name twice", format!("{entry:?}"));
            }
        }
        if !end {
            self.listings[client] = Some(listing);
        } else if let Some(name) = listing.steady.difference(&listing.seen).next() {
            return violation(
                "list: a name was skipped",
                format!("{name} of {}", listing.directory),
            );
        }
        Ok(())
    }
}
