//! What programs do over several turns.

use super::{CREATED, Generator};
use crate::world::model::Handle;
use crate::world::operation::Operation;
use crate::world::profile::Kind;
use crate::world::slots::Slot;
use packstone_fs::{FileKind, RenameMode};
use rand::Rng;

impl Generator {
    pub(super) fn script(&mut self, kind: Kind, slot: u8, at: &Slot) -> Vec<Operation> {
        let (parent, name, temporary) = (self.directory(at), self.name(), self.name());
        let create = Operation::Create {
            slot,
            parent,
            name: temporary,
            kind: FileKind::Regular,
            mode: 0o600,
        };
        let sync = Operation::Sync {
            slot,
            file: CREATED,
            data_only: false,
        };
        let mut script = vec![];
        match kind {
            // Pages of 8 KiB written here and there, and synced.
            Kind::Database => {
                let Some((_, file)) = self.busy_file(at) else {
                    return vec![];
                };
                for _ in 0..self.random.random_range(1..6) {
                    let pages = (self.profile.file_bytes / 8192).max(1);
                    let offset = self.random.random_range(0..pages) * 8192;
                    let fill = self.fill();
                    script.push(Operation::Write {
                        slot,
                        file,
                        offset,
                        length: 8192,
                        fill,
                        kill: false,
                    });
                }
                script.push(Operation::Sync {
                    slot,
                    file,
                    data_only: self.percent(50),
                });
            }
            Kind::Replace => {
                script.push(create);
                let mut offset = 0;
                for _ in 0..self.random.random_range(1..5) {
                    let (length, fill) = (self.length().min(5000), self.fill());
                    script.push(Operation::Write {
                        slot,
                        file: CREATED,
                        offset,
                        length,
                        fill,
                        kill: false,
                    });
                    offset += u64::from(length);
                }
                if self.percent(50) {
                    script.push(sync);
                }
                let (from, to) = ((parent, temporary), (parent, name));
                script.push(Operation::Rename {
                    slot,
                    from,
                    to,
                    mode: RenameMode::Replace,
                });
                if self.percent(50) {
                    script.push(Operation::Sync {
                        slot,
                        file: parent,
                        data_only: false,
                    });
                }
            }
            Kind::Mail => {
                script.push(if self.percent(50) {
                    Operation::Unnamed { slot, parent }
                } else {
                    create
                });
                let (length, fill) = (self.length().min(20_000), self.fill());
                script.push(Operation::Write {
                    slot,
                    file: CREATED,
                    offset: 0,
                    length,
                    fill,
                    kill: false,
                });
                script.push(sync);
                script.push(Operation::Link {
                    slot,
                    file: CREATED,
                    parent: self.directory(at),
                    name,
                });
                script.push(Operation::Remove {
                    slot,
                    parent,
                    name: temporary,
                    directory: false,
                });
            }
            // Many renames of few names.
            _ => {
                for _ in 0..self.random.random_range(5..40) {
                    script.push(self.rename(slot, at));
                }
            }
        }
        script
    }
}

/// Fills in what the script created.
pub(super) fn replace_created(operation: &mut Operation, created: Handle) {
    match operation {
        Operation::Write { file, .. } | Operation::Sync { file, .. } | Operation::Link { file, .. }
            if *file == CREATED =>
        {
            *file = created;
        }
        _ => {}
    }
}
