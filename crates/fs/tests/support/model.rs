//! A file system as plain maps, against which the real one is compared. It says what each operation should do; where an
//! operation must fail it says with which kind.

use packstone_fs::{ErrorKind, FileKind, Ino, RenameMode};
use std::collections::BTreeMap;

/// An inode of the model.
#[derive(Clone, Debug)]
pub struct Node {
    pub kind: FileKind,
    pub data: Vec<u8>,
    pub entries: BTreeMap<Vec<u8>, Ino>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub links: u32,
    pub parent: Ino,
}

/// All inodes; those without links are the unlinked ones that are still open.
#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: BTreeMap<Ino, Node>,
}

type Outcome<T> = Result<T, ErrorKind>;

impl Model {
    pub fn new() -> Model {
        let mut model = Model {
            nodes: BTreeMap::new(),
        };
        model
            .nodes
            .insert(Ino::ROOT, Node::new(FileKind::Directory, Ino::ROOT));
        model
    }

    pub fn node(&self, ino: Ino) -> &Node {
        &self.nodes[&ino]
    }

    pub fn node_mut(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).unwrap()
    }

    /// Inodes of a kind that have names.
    pub fn named(&self, kind: FileKind) -> Vec<Ino> {
        let named = self
            .nodes
            .iter()
            .filter(|(_, node)| node.kind == kind && node.links > 0);
        named.map(|(ino, _)| *ino).collect()
    }

    pub fn find(&self, parent: Ino, name: &[u8]) -> Outcome<Ino> {
        self.node(parent)
            .entries
            .get(name)
            .copied()
            .ok_or(ErrorKind::NotFound)
    }

    pub fn can_create(&self, parent: Ino, name: &[u8]) -> Outcome<()> {
        if self.find(parent, name).is_ok() {
            Err(ErrorKind::AlreadyExists)
        } else {
            Ok(())
        }
    }

    pub fn create(&mut self, parent: Ino, name: &[u8], ino: Ino, kind: FileKind, data: &[u8]) {
        let mut node = Node::new(kind, parent);
        node.data = data.to_vec();
        assert!(
            self.nodes.insert(ino, node).is_none(),
            "inode number {ino} was used before"
        );
        self.node_mut(parent).entries.insert(name.to_vec(), ino);
    }

    pub fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Outcome<()> {
        self.can_create(parent, name)?;
        self.node_mut(parent).entries.insert(name.to_vec(), ino);
        self.node_mut(ino).links += 1;
        Ok(())
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

    /// Answers the inode that lost a name.
    pub fn remove(&mut self, parent: Ino, name: &[u8], directory: bool) -> Outcome<Ino> {
        let ino = self.find(parent, name)?;
        self.check_removable(ino, directory)?;
        self.node_mut(parent).entries.remove(name);
        self.node_mut(ino).links -= 1;
        Ok(ino)
    }

    fn is_below(&self, mut at: Ino, top: Ino) -> bool {
        while at != top && at != Ino::ROOT {
            at = self.node(at).parent;
        }
        at == top
    }

    /// Answers the inode that was replaced.
    pub fn rename(
        &mut self,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        mode: RenameMode,
    ) -> Outcome<Option<Ino>> {
        let ino = self.find(parent, name)?;
        let target = self.find(new_parent, new_name).ok();
        let directory = self.node(ino).kind == FileKind::Directory;
        let exchanged = target.filter(|_| mode == RenameMode::Exchange);
        let other_directory = exchanged.is_some_and(|other| self.node(other).kind == FileKind::Directory);
        if parent != new_parent {
            let circle = directory && self.is_below(new_parent, ino);
            if circle || other_directory && self.is_below(parent, exchanged.unwrap()) {
                return Err(ErrorKind::InvalidInput);
            }
        }
        match (target, mode) {
            (Some(_), RenameMode::NoReplace) => return Err(ErrorKind::AlreadyExists),
            (None, RenameMode::Exchange) => return Err(ErrorKind::NotFound),
            (Some(target), _) if target == ino => return Ok(None),
            (Some(target), RenameMode::Replace) => {
                self.check_removable(target, directory)?;
                self.node_mut(target).links -= 1;
            }
            _ => {}
        }
        self.node_mut(parent).entries.remove(name);
        self.node_mut(new_parent).entries.insert(new_name.to_vec(), ino);
        self.node_mut(ino).parent = new_parent;
        if let Some(exchanged) = exchanged {
            self.node_mut(parent).entries.insert(name.to_vec(), exchanged);
            self.node_mut(exchanged).parent = parent;
            return Ok(None);
        }
        Ok(target)
    }

    /// Link count as stat shows it.
    pub fn link_count(&self, ino: Ino) -> u32 {
        let node = self.node(ino);
        if node.kind != FileKind::Directory {
            return node.links;
        }
        let below = node
            .entries
            .values()
            .filter(|ino| self.node(**ino).kind == FileKind::Directory);
        2 + below.count() as u32
    }
}

impl Node {
    pub fn new(kind: FileKind, parent: Ino) -> Node {
        Node {
            kind,
            data: vec![],
            entries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            links: 1,
            parent,
        }
    }

    pub fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        if !data.is_empty() && self.data.len() < end {
            self.data.resize(end, 0);
        }
        if !data.is_empty() {
            self.data[offset..end].copy_from_slice(data);
        }
    }

    /// Capabilities of a file go when its data changes.
    pub fn drop_capability(&mut self) {
        self.xattrs.remove(&b"security.capability"[..]);
    }

    pub fn zero(&mut self, offset: usize, length: usize) {
        let end = (offset + length).min(self.data.len());
        if offset < end {
            self.data[offset..end].fill(0);
        }
    }
}
