//! What a check found that can be mended without guessing: counts that are counted again, names that lead nowhere, inodes
//! that lost their name. [`crate::repair()`] does it.

use crate::layout::InodeRecord;
use crate::types::{FileKind, Ino};
use std::collections::BTreeMap;

/// A change of one entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameMend {
    /// It names an inode that does not exist.
    Drop(Ino),
    /// It says another kind than the inode does.
    Kind(FileKind),
}

/// Everything that would be done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mends {
    /// Attributes as they are and as they should be.
    pub inodes: BTreeMap<Ino, (InodeRecord, InodeRecord)>,
    /// By directory and cookie.
    pub names: BTreeMap<(Ino, u64), NameMend>,
    /// Orphan keys of inodes that have a name, or do not exist.
    pub orphans: Vec<Ino>,
    /// Inodes without a name, for `lost+found`.
    pub nameless: Vec<(Ino, FileKind)>,
    /// Highest inode number that is in use and not given out.
    pub highest: Option<Ino>,
}

impl Mends {
    pub(crate) fn change(&mut self, ino: Ino, record: &InodeRecord) -> &mut InodeRecord {
        &mut self.inodes.entry(ino).or_insert((*record, *record)).1
    }

    pub(crate) fn drop_name(&mut self, directory: Ino, cookie: u64, ino: Ino) {
        self.names.insert((directory, cookie), NameMend::Drop(ino));
    }

    pub(crate) fn name_kind(&mut self, directory: Ino, cookie: u64, kind: FileKind) {
        self.names.insert((directory, cookie), NameMend::Kind(kind));
    }

    pub(crate) fn drop_orphan(&mut self, ino: Ino) {
        self.orphans.push(ino);
    }

    pub(crate) fn find(&mut self, ino: Ino, kind: FileKind) {
        if ino != Ino::ROOT {
            self.nameless.push((ino, kind));
        }
    }

    pub(crate) fn raise_next_ino(&mut self, ino: Ino) {
        self.highest = self.highest.max(Some(ino));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inodes.is_empty()
            && self.names.is_empty()
            && self.orphans.is_empty()
            && self.nameless.is_empty()
            && self.highest.is_none()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .inodes
            .iter()
            .map(|(ino, (from, to))| describe_change(*ino, from, to))
            .collect();
        lines.extend(self.names.iter().map(|((directory, cookie), mend)| match mend {
            NameMend::Drop(ino) => {
                format!("remove entry {cookie:#x} of directory {directory}: inode {ino} does not exist")
            }
            NameMend::Kind(kind) => format!("set entry {cookie:#x} of directory {directory} to {kind:?}"),
        }));
        let orphans = self.orphans.iter();
        lines.extend(orphans.map(|ino| format!("remove the orphan key of inode {ino}")));
        let nameless = self.nameless.iter();
        lines.extend(nameless.map(|(ino, _)| format!("name inode {ino} /lost+found/inode-{ino}")));
        lines.extend(
            self.highest
                .map(|ino| format!("give out inode numbers behind {ino} from now on")),
        );
        lines
    }
}

fn describe_change(ino: Ino, from: &InodeRecord, to: &InodeRecord) -> String {
    let mut parts = vec![];
    let mut compare = |what: &str, from: u64, to: u64| {
        if from != to {
            parts.push(format!("{what} {from} to {to}"));
        }
    };
    compare("link count", from.nlink.into(), to.nlink.into());
    compare("size", from.size_bytes, to.size_bytes);
    compare("stored bytes", from.stored_bytes, to.stored_bytes);
    compare("flags", from.flags.into(), to.flags.into());
    compare("parent", from.parent.0, to.parent.0);
    format!("change inode {ino}: {}", parts.join(", "))
}
