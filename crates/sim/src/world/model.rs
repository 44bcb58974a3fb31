//! One dataset as plain maps: what each operation on names should do, and with which error it should fail.
//!
//! Every change of a name, an attribute or an inode is told to a [`Journal`], so that it can be undone; all that a crash
//! must keep in order is summed up in one number, which changes with every change ([`Model::sum`]). Bytes of files have a
//! history of their own (`file_data`).

use super::file_data::FileData;
use super::journal::{Change, Journal};
use packstone_fs::{ErrorKind, FileKind, Ino, RenameMode, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::rc::Rc;
use xxhash_rust::xxh3::Xxh3Default;

/// Number that stands for a name; see `names`.
pub(crate) type Name = u32;
/// Number of the operation that created something; stays when others are left out.
pub(crate) type Handle = u32;
/// The handle of every root.
pub(crate) const ROOT_HANDLE: Handle = 0;

type Outcome<T> = Result<T, ErrorKind>;

/// What is changed by commits of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Meta {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Rc<[u8]>>,
}

/// An inode.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) handle: Handle,
    pub(crate) kind: FileKind,
    pub(crate) meta: Meta,
    pub(crate) links: u32,
    pub(crate) parent: Ino,
    pub(crate) entries: BTreeMap<Name, Ino>,
    pub(crate) subdirectories: u32,
    pub(crate) target: Vec<u8>,
    pub(crate) data: FileData,
    /// The last operation that committed a change of this inode.
    pub(crate) touched: u64,
    /// Time of last change of the data, where the model knows it.
    pub(crate) modified: Option<Timestamp>,
}

impl Node {
    pub(crate) fn new(handle: Handle, kind: FileKind, mode: u32) -> Node {
        Node {
            handle,
            kind,
            meta: Meta {
                mode,
                uid: 0,
                xattrs: BTreeMap::new(),
            },
            links: 0,
            parent: Ino::ROOT,
            entries: BTreeMap::new(),
            subdirectories: 0,
            target: vec![],
            data: FileData::default(),
            touched: 0,
            modified: None,
        }
    }

    /// Link count as stat shows it.
    pub(crate) fn link_count(&self) -> u32 {
        match self.kind {
            FileKind::Directory => 2 + self.subdirectories,
            _ => self.links,
        }
    }
}

/// All inodes of a dataset; those without links are the unlinked ones that are still held.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) slot: u8,
    pub(crate) nodes: HashMap<Ino, Node>,
    pub(crate) handles: HashMap<Handle, Ino>,
    /// Candidates for operations, some of them gone; see `Choice`.
    pub(crate) files: Vec<Ino>,
    pub(crate) directories: Vec<Ino>,
    /// Files with a history.
    pub(crate) dirty: std::collections::BTreeSet<Ino>,
    /// Names and attributes of all inodes with a name, summed up.
    pub(crate) sum: u64,
}

pub(crate) fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = Xxh3Default::new();
    value.hash(&mut hasher);
    hasher.digest()
}

/// What an inode adds to the sum.
pub(crate) fn inode_hash(ino: Ino, kind: FileKind, meta: &Meta, target: &[u8]) -> u64 {
    hash_of((ino, kind, meta, target))
}

/// What a name adds to the sum.
pub(crate) fn entry_hash(parent: Ino, name: Name, ino: Ino) -> u64 {
    hash_of((parent, name, ino))
}

impl Model {
    pub(crate) fn new(slot: u8) -> Model {
        let mut model = Model {
            slot,
            nodes: HashMap::new(),
            handles: HashMap::new(),
            files: vec![],
            directories: vec![],
            dirty: Default::default(),
            sum: 0,
        };
        let mut root = Node::new(ROOT_HANDLE, FileKind::Directory, 0o755);
        root.links = 1;
        model.sum = inode_hash(Ino::ROOT, root.kind, &root.meta, &[]);
        model.handles.insert(ROOT_HANDLE, Ino::ROOT);
        model.directories.push(Ino::ROOT);
        model.nodes.insert(Ino::ROOT, root);
        model
    }

    pub(crate) fn node(&self, ino: Ino) -> &Node {
        &self.nodes[&ino]
    }

    pub(crate) fn node_mut(&mut self, ino: Ino) -> &mut Node {
        match self.nodes.get_mut(&ino) {
            Some(node) => node,
            None => panic!("the model has no inode {ino}"),
        }
    }

    pub(crate) fn resolve(&self, handle: Handle) -> Option<Ino> {
        self.handles.get(&handle).copied()
    }

    pub(crate) fn find(&self, parent: Ino, name: Name) -> Outcome<Ino> {
        let found = self.node(parent).entries.get(&name);
        found.copied().ok_or(ErrorKind::NotFound)
    }

    /// Some name of an inode.
    pub(crate) fn can_create(&self, parent: Ino, name: Name) -> Outcome<()> {
        if self.node(parent).links == 0 {
            return Err(ErrorKind::NotFound);
        }
        match self.find(parent, name) {
            Ok(_) => Err(ErrorKind::AlreadyExists),
            Err(_) => Ok(()),
        }
    }

    /// Sets or removes one name without telling anybody.
    pub(crate) fn set_entry(&mut self, parent: Ino, name: Name, new: Option<Ino>) -> Option<Ino> {
        let entries = &mut self.node_mut(parent).entries;
        let old = match new {
            Some(ino) => entries.insert(name, ino),
            None => entries.remove(&name),
        };
        if let Some(ino) = old {
            self.sum = self.sum.wrapping_sub(entry_hash(parent, name, ino));
            let node = self.node_mut(ino);
            node.links -= 1;
            let (directory, unnamed) = (node.kind == FileKind::Directory, node.links == 0);
            let hash = inode_hash(ino, node.kind, &node.meta, &node.target);
            self.sum = self.sum.wrapping_sub(if unnamed { hash } else { 0 });
            self.node_mut(parent).subdirectories -= u32::from(directory);
        }
        if let Some(ino) = new {
            self.sum = self.sum.wrapping_add(entry_hash(parent, name, ino));
            let node = self.node_mut(ino);
            node.links += 1;
            let (directory, named) = (node.kind == FileKind::Directory, node.links == 1);
            if directory {
                node.parent = parent;
            }
            let hash = inode_hash(ino, node.kind, &node.meta, &node.target);
            self.sum = self.sum.wrapping_add(if named { hash } else { 0 });
            self.node_mut(parent).subdirectories += u32::from(directory);
        }
        old
    }

    /// Replaces the attributes without telling anybody.
    pub(crate) fn set_meta(&mut self, ino: Ino, meta: Meta) -> Meta {
        let node = self.node_mut(ino);
        let before = inode_hash(ino, node.kind, &node.meta, &node.target);
        let old = std::mem::replace(&mut node.meta, meta);
        let after = inode_hash(ino, node.kind, &node.meta, &node.target);
        if node.links > 0 {
            self.sum = self.sum.wrapping_sub(before).wrapping_add(after);
        }
        old
    }

    /// A node comes back, or comes in: it must not have links yet.
    pub(crate) fn insert(&mut self, ino: Ino, node: Node) {
        self.handles.insert(node.handle, ino);
        let candidates = match node.kind {
            FileKind::Regular => Some(&mut self.files),
            FileKind::Directory => Some(&mut self.directories),
            _ => None,
        };
        if let Some(candidates) = candidates {
            if candidates.len() > 2 * self.nodes.len() + 32 {
                candidates.retain(|ino| self.nodes.contains_key(ino));
            }
            candidates.push(ino);
        }
        if node.data.history_chunks() > 0 {
            self.dirty.insert(ino);
        }
        self.nodes.insert(ino, node);
    }

    pub(crate) fn take(&mut self, ino: Ino) -> Option<Node> {
        let node = self.nodes.remove(&ino)?;
        self.handles.remove(&node.handle);
        self.dirty.remove(&ino);
        Some(node)
    }

    fn change_entry(&mut self, journal: &mut Journal, parent: Ino, name: Name, new: Option<Ino>) {
        let old = self.set_entry(parent, name, new);
        journal.note(Change::Entry {
            slot: self.slot,
            parent,
            name,
            old,
        });
        for ino in [Some(parent), old, new].into_iter().flatten() {
            self.node_mut(ino).touched = journal.number;
        }
    }

    /// Changes attributes.
    pub(crate) fn change_meta(&mut self, journal: &mut Journal, ino: Ino, change: impl FnOnce(&mut Meta)) {
        let mut meta = self.node(ino).meta.clone();
        change(&mut meta);
        if meta == self.node(ino).meta {
            return;
        }
        let old = self.set_meta(ino, meta);
        self.node_mut(ino).touched = journal.number;
        journal.note(Change::Meta {
            slot: self.slot,
            ino,
            old: Box::new(old),
        });
    }

    /// A new inode, with a name or without.
    pub(crate) fn create(
        &mut self,
        journal: &mut Journal,
        ino: Ino,
        mut node: Node,
        name: Option<(Ino, Name)>,
    ) {
        assert!(!self.nodes.contains_key(&ino), "inode {ino} was given out twice");
        node.touched = journal.number;
        self.insert(ino, node);
        journal.note(Change::Created { slot: self.slot, ino });
        if let Some((parent, name)) = name {
            self.change_entry(journal, parent, name, Some(ino));
        }
    }

    /// An inode without a name that nobody holds any more.
    pub(crate) fn drop_node(&mut self, journal: &mut Journal, ino: Ino) {
        if let Some(node) = self.take(ino) {
            journal.note(Change::Dropped {
                slot: self.slot,
                ino,
                node: Box::new(node),
            });
        }
    }

    pub(crate) fn can_link(&self, ino: Ino, parent: Ino, name: Name) -> Outcome<()> {
        if self.node(parent).links == 0 {
            return Err(ErrorKind::NotFound);
        }
        if self.node(ino).kind == FileKind::Directory {
            return Err(ErrorKind::NotPermitted);
        }
        self.can_create(parent, name)
    }

    pub(crate) fn link(&mut self, journal: &mut Journal, ino: Ino, parent: Ino, name: Name) {
        self.change_entry(journal, parent, name, Some(ino));
    }

    fn check_removable(&self, ino: Ino, directory: bool) -> Outcome<()> {
        let node = self.node(ino);
        match (node.kind == FileKind::Directory, directory) {
            (true, false) => Err(ErrorKind::IsDirectory),
            (false, true) => Err(ErrorKind::NotDirectory),
            (true, true) if !node.entries.is_empty() => Err(ErrorKind::DirectoryNotEmpty),
            _ => Ok(()),
        }
    }

    pub(crate) fn can_remove(&self, parent: Ino, name: Name, directory: bool) -> Outcome<Ino> {
        let ino = self.find(parent, name)?;
        self.check_removable(ino, directory).map(|()| ino)
    }

    pub(crate) fn remove(&mut self, journal: &mut Journal, parent: Ino, name: Name) {
        self.change_entry(journal, parent, name, None);
    }

    /// Whether `at` is `top` or below it. `NotFound` below a directory that is gone.
    fn is_below(&self, mut at: Ino, top: Ino) -> Outcome<bool> {
        while at != top && at != Ino::ROOT {
            at = self.nodes.get(&at).ok_or(ErrorKind::NotFound)?.parent;
        }
        Ok(at == top)
    }

    /// What a rename would do: the moved inode, and the one at the new name unless it is the same.
    pub(crate) fn can_rename(
        &self,
        (parent, name): (Ino, Name),
        (new_parent, new_name): (Ino, Name),
        mode: RenameMode,
    ) -> Outcome<(Ino, Option<Ino>)> {
        let ino = self.find(parent, name)?;
        let target = self.find(new_parent, new_name).ok();
        let directory = self.node(ino).kind == FileKind::Directory;
        let exchanged = target.filter(|_| mode == RenameMode::Exchange);
        if parent != new_parent {
            let other = exchanged.filter(|other| self.node(*other).kind == FileKind::Directory);
            let moves = directory || other.is_some();
            if moves && self.is_below(new_parent, ino)? {
                return Err(ErrorKind::InvalidInput);
            }
            if let Some(other) = other
                && self.is_below(parent, other)?
            {
                return Err(ErrorKind::InvalidInput);
            }
        }
        if self.node(new_parent).links == 0 {
            return Err(ErrorKind::NotFound);
        }
        match (target, mode) {
            (Some(_), RenameMode::NoReplace) => Err(ErrorKind::AlreadyExists),
            (None, RenameMode::Exchange) => Err(ErrorKind::NotFound),
            (Some(target), RenameMode::Replace) if target != ino => self
                .check_removable(target, directory)
                .map(|()| (ino, Some(target))),
            (target, _) => Ok((ino, target)),
        }
    }

    pub(crate) fn rename(
        &mut self,
        journal: &mut Journal,
        (parent, name): (Ino, Name),
        (new_parent, new_name): (Ino, Name),
        mode: RenameMode,
    ) {
        let (ino, target) = (self.find(parent, name).ok(), self.find(new_parent, new_name).ok());
        if ino == target {
            return;
        }
        let back = target.filter(|_| mode == RenameMode::Exchange);
        self.change_entry(journal, parent, name, back);
        self.change_entry(journal, new_parent, new_name, ino);
    }
}
