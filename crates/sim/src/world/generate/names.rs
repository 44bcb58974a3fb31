//! Operations on names.

use super::Generator;
use crate::world::operation::Operation;
use crate::world::profile::{Kind, pick};
use crate::world::slots::Slot;
use packstone_fs::{FileKind, RenameMode};

impl Generator {
    pub(super) fn on_names(&mut self, kind: Kind, number: u8, at: &Slot, client: usize) -> Vec<Operation> {
        let slot = number;
        let (parent, name) = (self.directory(at), self.name());
        let mode = pick(&mut self.random, &[0o644, 0o600, 0o4755, 0o2755, 0o2644]);
        vec![match kind {
            Kind::Create => Operation::Create {
                slot,
                parent,
                name,
                kind: FileKind::Regular,
                mode,
            },
            Kind::Directory => Operation::Create {
                slot,
                parent,
                name,
                kind: FileKind::Directory,
                mode: 0o755,
            },
            Kind::Symlink => Operation::Create {
                slot,
                parent,
                name,
                kind: FileKind::Symlink,
                mode,
            },
            Kind::Special => {
                let kind = pick(
                    &mut self.random,
                    &[FileKind::Fifo, FileKind::Socket, FileKind::CharDevice],
                );
                Operation::Create {
                    slot,
                    parent,
                    name,
                    kind,
                    mode,
                }
            }
            Kind::Unnamed => Operation::Unnamed { slot, parent },
            Kind::Link => match self.file(at) {
                Some(file) => Operation::Link {
                    slot,
                    file,
                    parent,
                    name,
                },
                None => return vec![],
            },
            Kind::Unlink | Kind::RemoveDirectory => {
                let name = if self.percent(90) {
                    self.taken_name(&at.model, parent)
                } else {
                    name
                };
                let directory = (kind == Kind::RemoveDirectory) ^ self.percent(3);
                Operation::Remove {
                    slot,
                    parent,
                    name,
                    directory,
                }
            }
            Kind::Lookup => {
                let name = if self.percent(70) {
                    self.taken_name(&at.model, parent)
                } else {
                    name
                };
                Operation::Lookup { slot, parent, name }
            }
            Kind::List => {
                let limit = pick(&mut self.random, &[1, 3, 20, 200]);
                Operation::List {
                    slot,
                    client: client as u8,
                    directory: parent,
                    limit,
                }
            }
            _ => self.rename(slot, at),
        }]
    }

    pub(super) fn rename(&mut self, slot: u8, at: &Slot) -> Operation {
        let (parent, new_parent) = (self.directory(at), self.directory(at));
        let new_parent = if self.percent(50) { parent } else { new_parent };
        let name = self.taken_name(&at.model, parent);
        let new_name = if self.percent(50) {
            self.taken_name(&at.model, new_parent)
        } else {
            self.name()
        };
        let modes = [
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
        ];
        let mode = pick(&mut self.random, &modes);
        Operation::Rename {
            slot,
            from: (parent, name),
            to: (new_parent, new_name),
            mode,
        }
    }
}
