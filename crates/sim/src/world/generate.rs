//! Chooses what happens next, from the seed and from what exists.
//!
//! Several clients take turns by chance. Most of what they do is one operation drawn by weight; some follow a script
//! over several turns, as programs do: a database that writes pages and syncs, a file replaced by rename, a message
//! delivered.

use super::model::{Handle, Model, Name, ROOT_HANDLE};
use super::operation::{Fill, Loss, Operation, Step};
use super::profile::{COMPRESSIONS, Kind, Profile, RECORD_SIZES, pick};
use super::slots::{Catalog, Slot};
use super::state::{Trouble, World};
use packstone_fs::{AllocateMode, FileKind, Ino, RenameMode, XattrMode};
use packstone_media::FaultKind;
use packstone_pool::{BackgroundWork, Failpoint};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;

/// More than this and everything is synced, so that memory stays bounded.
const HISTORY_CHUNKS_MAX: usize = 12_000;
/// Operations after which trouble that was asked for ends.
const TROUBLE_OPERATIONS_MAX: u32 = 150;

/// Where a script's file comes from.
const CREATED: Handle = Handle::MAX;

pub(crate) struct Generator {
    random: SmallRng,
    profile: Profile,
    /// What each client will do next; `CREATED` stands for what its last creation made.
    scripts: Vec<VecDeque<Operation>>,
    created: Vec<Handle>,
    trouble_since: Option<u32>,
}

impl Generator {
    pub(crate) fn new(seed: u64, profile: &Profile) -> Generator {
        let clients = usize::from(profile.clients);
        Generator {
            random: SmallRng::seed_from_u64(seed ^ 0x5EED),
            profile: profile.clone(),
            scripts: vec![VecDeque::new(); clients],
            created: vec![ROOT_HANDLE; clients],
            trouble_since: None,
        }
    }

    pub(crate) fn next(&mut self, world: &World, number: u32) -> Step {
        let witness = self.percent(self.profile.witness_percent);
        let operation = match self.event(world, number) {
            Some(operation) => operation,
            None => self.client(world, number),
        };
        Step {
            number,
            witness,
            operation,
        }
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn every(&mut self, interval: u32) -> bool {
        interval > 0 && self.random.random_range(0..interval) == 0
    }

    fn loss(&mut self) -> Loss {
        let seed = self.random.random();
        match self.random.random_range(0..8) {
            0 => Loss::All,
            1 => Loss::Nothing,
            2 => Loss::Ordered(seed),
            _ => Loss::Any(seed),
        }
    }

    /// Crashes, faults and what else comes from outside.
    fn event(&mut self, world: &World, number: u32) -> Option<Operation> {
        let trouble = world.trouble != Trouble::None;
        if !trouble {
            self.trouble_since = None;
        } else {
            let since = *self.trouble_since.get_or_insert(number);
            let left = match world.trouble {
                Trouble::ReadOnly => 25,
                Trouble::Reads => 60,
                _ => TROUBLE_OPERATIONS_MAX,
            };
            if number - since > left {
                let loss = self.loss();
                self.clear_scripts();
                return Some(match world.trouble {
                    Trouble::Reads => Operation::ClearFaults,
                    _ => Operation::Crash(loss),
                });
            }
            return None;
        }
        if world.history_chunks() > HISTORY_CHUNKS_MAX {
            let slot = (0..world.slots.len()).max_by_key(|slot| world.slots[*slot].history_chunks());
            return slot.map(|slot| Operation::SyncAll { slot: slot as u8 });
        }
        // A crash costs as much as there is to compare.
        let costly = (world.content_chunks() / 30) as u32;
        let profile = self.profile.clone();
        if self.every(profile.crash_interval + costly) {
            let loss = self.loss();
            self.clear_scripts();
            return Some(Operation::Crash(loss));
        }
        if profile.stop_interval > 0 && self.every(profile.stop_interval + costly) {
            let changes = pick(&mut self.random, &[1, 2, 3, 5, 10, 30]);
            let changes = self.random.random_range(0..changes);
            let loss = self.loss();
            if self.percent(40) {
                let point = pick(&mut self.random, Failpoint::ALL);
                let skip = pick(&mut self.random, &[0, 0, 1, 4]);
                return Some(Operation::Die { point, skip, loss });
            }
            return Some(Operation::StopAfter { changes, loss });
        }
        if profile.reopen_interval > 0 && self.every(profile.reopen_interval + costly) {
            self.clear_scripts();
            return Some(Operation::Reopen);
        }
        if self.every(profile.read_fault_interval) {
            let kinds = [
                FaultKind::ReadError,
                FaultKind::ReadError,
                FaultKind::ShortRead,
                FaultKind::MisdirectedRead,
                FaultKind::Slow,
            ];
            let (kind, count) = (pick(&mut self.random, &kinds), self.random.random_range(1..6));
            return Some(Operation::Fault { kind, count });
        }
        if profile.write_fault_interval > 0 && self.every(profile.write_fault_interval + costly) {
            return Some(self.write_fault());
        }
        if profile.damage_interval > 0 && self.every(profile.damage_interval + 3 * costly) {
            self.clear_scripts();
            let kinds = [
                FaultKind::BitRot,
                FaultKind::GarbageSector,
                FaultKind::ZeroedSector,
                FaultKind::PhantomWrite,
                FaultKind::MisdirectedWrite,
            ];
            let (kind, seed) = (pick(&mut self.random, &kinds), self.random.random());
            return Some(Operation::Damage { kind, seed });
        }
        if self.every(profile.compare_interval + costly) {
            let slot = self.random.random_range(0..world.slots.len()) as u8;
            return Some(Operation::Compare { slot, files: 16 });
        }
        None
    }

    fn write_fault(&mut self) -> Operation {
        let loss = self.loss();
        let kind = match self.random.random_range(0..7) {
            0 => FaultKind::WriteError,
            1 => FaultKind::ShortWrite,
            2 => FaultKind::FlushError,
            3 => FaultKind::DroppingFlush,
            4 => return Operation::FillBackingFile,
            _ => {
                let forgets = self.percent(50);
                return Operation::Detach { loss, forgets };
            }
        };
        Operation::Fault { kind, count: 1 }
    }

    fn clear_scripts(&mut self) {
        self.scripts.iter_mut().for_each(VecDeque::clear);
    }

    fn client(&mut self, world: &World, number: u32) -> Operation {
        let client = self.random.random_range(0..self.scripts.len());
        if self.scripts[client].is_empty() {
            let script = self.draw(world, client);
            self.scripts[client].extend(script);
        }
        let Some(mut operation) = self.scripts[client].pop_front() else {
            return Operation::Advance { milliseconds: 1 };
        };
        let created = self.created[client];
        replace_created(&mut operation, created);
        if matches!(operation, Operation::Create { .. } | Operation::Unnamed { .. }) {
            self.created[client] = number;
        }
        operation
    }

    fn slot(&mut self, world: &World) -> Option<u8> {
        let slot = self.random.random_range(0..world.slots.len());
        matches!(world.slots[slot].catalog, Catalog::Active(_)).then_some(slot as u8)
    }

    fn directory(&mut self, slot: &Slot) -> Handle {
        let directories = &slot.model.directories;
        for _ in 0..4 {
            let ino = pick(&mut self.random, directories);
            if let Some(node) = slot.model.nodes.get(&ino) {
                return node.handle;
            }
        }
        ROOT_HANDLE
    }

    /// A file with a name, or one that is held.
    fn file(&mut self, slot: &Slot) -> Option<Handle> {
        let files = &slot.model.files;
        for _ in 0..if files.is_empty() { 0 } else { 6 } {
            let ino = pick(&mut self.random, files);
            if let Some(node) = slot.model.nodes.get(&ino) {
                return Some(node.handle);
            }
        }
        None
    }

    /// Usually one of few files, so that much happens to each.
    fn busy_file(&mut self, slot: &Slot) -> Option<(Ino, Handle)> {
        let files = &slot.model.files;
        for _ in 0..if files.is_empty() { 0 } else { 6 } {
            let among = if self.percent(70) {
                files.len().min(4)
            } else {
                files.len()
            };
            let ino = files[self.random.random_range(0..among)];
            if let Some(node) = slot.model.nodes.get(&ino) {
                return Some((ino, node.handle));
            }
        }
        None
    }

    fn name(&mut self) -> Name {
        self.random.random_range(0..self.profile.names)
    }

    /// A name that is there, if there is any.
    fn taken_name(&mut self, model: &Model, directory: Handle) -> Name {
        let name = self.name();
        let Some(ino) = model.resolve(directory) else {
            return name;
        };
        let entries = &model.node(ino).entries;
        let found = entries.range(name..).next().or_else(|| entries.iter().next());
        found.map_or(name, |(name, _)| *name)
    }

    fn fill(&mut self) -> Fill {
        let seed = self.random.random();
        let at = self.random.random_range(0..100);
        if at < self.profile.zero_percent {
            Fill::Zeros
        } else if self.percent(self.profile.noise_percent) {
            Fill::Noise(seed)
        } else {
            Fill::Text(seed)
        }
    }

    fn offset(&mut self, size_bytes: u64) -> u64 {
        if self.percent(self.profile.far_percent) {
            let bits = pick(&mut self.random, &[31, 40, 62]);
            return self.random.random_range(0..1u64 << bits);
        }
        let end = match self.percent(70) {
            true => self.profile.file_bytes.min(size_bytes + 10_000),
            false => self.profile.file_bytes,
        };
        self.random.random_range(0..end)
    }

    fn length(&mut self) -> u32 {
        let most = self.profile.write_bytes;
        if self.percent(50) {
            self.random.random_range(1..=most.min(600))
        } else {
            self.random.random_range(1..=most)
        }
    }

    fn draw(&mut self, world: &World, client: usize) -> Vec<Operation> {
        let kind = self.profile.kind(&mut self.random);
        let operation = match kind {
            Kind::Advance => {
                let milliseconds = pick(&mut self.random, &[1, 20, 300, 1_100, 6_000, 130_000]);
                Operation::Advance { milliseconds }
            }
            Kind::PoolStep => Operation::PoolStep(pick(
                &mut self.random,
                &[
                    BackgroundWork::Flush,
                    BackgroundWork::Flush,
                    BackgroundWork::Checkpoint,
                    BackgroundWork::Clean,
                ],
            )),
            Kind::Checkpoint => Operation::Checkpoint,
            Kind::Dataset => return self.dataset(world),
            _ => {
                let Some(number) = self.slot(world) else {
                    return vec![Operation::CreateDataset {
                        slot: self.random.random_range(0..world.slots.len()) as u8,
                    }];
                };
                let slot = &world.slots[usize::from(number)];
                return match kind {
                    Kind::Create
                    | Kind::Directory
                    | Kind::Symlink
                    | Kind::Special
                    | Kind::Unnamed
                    | Kind::Link
                    | Kind::Unlink
                    | Kind::RemoveDirectory
                    | Kind::Rename
                    | Kind::Lookup
                    | Kind::List => self.on_names(kind, number, slot, client),
                    Kind::Database | Kind::Replace | Kind::Mail | Kind::Storm => {
                        self.script(kind, number, slot)
                    }
                    _ => self.on_file(kind, number, slot).into_iter().collect(),
                };
            }
        };
        vec![operation]
    }

    fn dataset(&mut self, world: &World) -> Vec<Operation> {
        let number = self.random.random_range(0..world.slots.len()) as u8;
        let slot = number;
        match world.slots[usize::from(number)].catalog {
            Catalog::Absent => vec![Operation::CreateDataset { slot }],
            Catalog::Destroying => vec![Operation::DestroyStep { slot }; 4],
            // Seldom, for it ends a rich history.
            Catalog::Active(_) if self.percent(10) => {
                let mut script = vec![Operation::DestroyDataset { slot }];
                script.extend(vec![Operation::DestroyStep { slot }; 6]);
                script.push(Operation::CreateDataset { slot });
                script
            }
            Catalog::Active(_) => vec![Operation::Statistics { slot }],
        }
    }

    fn on_names(&mut self, kind: Kind, number: u8, at: &Slot, client: usize) -> Vec<Operation> {
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

    fn rename(&mut self, slot: u8, at: &Slot) -> Operation {
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

    fn on_file(&mut self, kind: Kind, slot: u8, at: &Slot) -> Option<Operation> {
        let (ino, file) = self.busy_file(at)?;
        let size_bytes = at.model.node(ino).data.size_bytes();
        let offset = self.offset(size_bytes);
        Some(match kind {
            Kind::WriteAligned | Kind::WriteSmall | Kind::WritePage | Kind::Append => {
                self.write(kind, slot, file, offset, size_bytes)
            }
            Kind::Read => {
                let length = self.length().max(pick(&mut self.random, &[1, 8192, 100_000]));
                Operation::Read {
                    slot,
                    file,
                    offset,
                    length,
                }
            }
            Kind::Truncate => {
                let size_bytes = pick(&mut self.random, &[0, offset, offset, offset / 4096 * 4096]);
                let kill = self.percent(30);
                Operation::Truncate {
                    slot,
                    file,
                    size_bytes,
                    kill,
                }
            }
            Kind::Allocate => {
                let keep_size = self.percent(50);
                let modes = [
                    AllocateMode::Allocate,
                    AllocateMode::KeepSize,
                    AllocateMode::PunchHole,
                    AllocateMode::PunchHole,
                    AllocateMode::ZeroRange { keep_size },
                ];
                let mode = pick(&mut self.random, &modes);
                let length = u64::from(self.length()) * pick(&mut self.random, &[1, 1, 4, 100]);
                Operation::Allocate {
                    slot,
                    file,
                    offset,
                    length,
                    mode,
                }
            }
            Kind::Seek => Operation::Seek {
                slot,
                file,
                offset: offset.min(size_bytes),
            },
            Kind::Copy => {
                let (_, to) = self.busy_file(at)?;
                let to_offset = self.offset(self.profile.file_bytes / 2);
                let length = self.length().saturating_mul(pick(&mut self.random, &[1, 1, 8]));
                Operation::Copy {
                    slot,
                    from: (file, offset),
                    to: (to, to_offset),
                    length,
                }
            }
            Kind::Xattr => {
                let (name, length) = (self.random.random_range(0..4), self.random.random_range(0..2000));
                let length = if self.percent(3) { 60_000 } else { length };
                let mode = pick(
                    &mut self.random,
                    &[XattrMode::Set, XattrMode::Create, XattrMode::Replace],
                );
                match self.random.random_range(0..10) {
                    0..3 => Operation::RemoveXattr { slot, file, name },
                    3..5 => Operation::GetXattr { slot, file, name },
                    _ => Operation::SetXattr {
                        slot,
                        file,
                        name,
                        length,
                        mode,
                    },
                }
            }
            Kind::Attributes => match self.random.random_range(0..3) {
                0 => {
                    let mode = pick(&mut self.random, &[0o644, 0o4755, 0o2755, 0o1777, 0]);
                    Operation::Chmod { slot, file, mode }
                }
                1 => Operation::Chown {
                    slot,
                    file,
                    uid: self.random.random_range(0..3),
                },
                _ => Operation::Times {
                    slot,
                    file,
                    seconds: self.random.random_range(-10..1_000_000),
                },
            },
            Kind::OpenRelease if self.percent(50) => {
                let held = at
                    .held
                    .iter()
                    .filter(|(_, held)| held.opens > 0)
                    .map(|(ino, _)| *ino);
                let held: Vec<Ino> = held.collect();
                if held.is_empty() {
                    return None;
                }
                let file = at.model.node(pick(&mut self.random, &held)).handle;
                Operation::Release { slot, file }
            }
            Kind::OpenRelease => Operation::Open { slot, file },
            Kind::Forget => {
                let from = self.random.random();
                let held = at
                    .held
                    .range(Ino(from)..)
                    .next()
                    .or_else(|| at.held.iter().next());
                Operation::Forget {
                    slot,
                    file: at.model.node(*held?.0).handle,
                }
            }
            Kind::Sync | Kind::DataSync => {
                let file = if self.percent(20) {
                    self.directory(at)
                } else {
                    file
                };
                Operation::Sync {
                    slot,
                    file,
                    data_only: kind == Kind::DataSync,
                }
            }
            Kind::SyncAll => Operation::SyncAll { slot },
            Kind::FsStep => Operation::FsStep { slot },
            Kind::Property => match self.percent(50) {
                true => Operation::Property {
                    slot,
                    name: "recordsize",
                    value: pick(&mut self.random, &RECORD_SIZES),
                },
                false => Operation::Property {
                    slot,
                    name: "compression",
                    value: pick(&mut self.random, &COMPRESSIONS),
                },
            },
            _ => Operation::Statistics { slot },
        })
    }

    fn write(&mut self, kind: Kind, slot: u8, file: Handle, offset: u64, size_bytes: u64) -> Operation {
        let (fill, kill) = (self.fill(), self.percent(30));
        let length = self.length();
        let most = self.profile.write_bytes;
        let (offset, length) = match kind {
            Kind::WriteAligned => {
                let unit = pick(&mut self.random, &[8192, 4096, 16384, 131_072]);
                let count = (most / unit).clamp(1, 64);
                let unit = u64::from(unit);
                (
                    offset / unit * unit,
                    self.random.random_range(1..=count) * unit as u32,
                )
            }
            // A page of a mapping that is written back.
            Kind::WritePage if size_bytes > 0 => {
                let page = self.random.random_range(0..size_bytes) / 4096 * 4096;
                (page, (size_bytes - page).min(4096) as u32)
            }
            Kind::Append if size_bytes < 4 * self.profile.file_bytes => (size_bytes, length),
            _ => (offset, length),
        };
        Operation::Write {
            slot,
            file,
            offset,
            length,
            fill,
            kill,
        }
    }

    fn script(&mut self, kind: Kind, slot: u8, at: &Slot) -> Vec<Operation> {
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

fn replace_created(operation: &mut Operation, created: Handle) {
    match operation {
        Operation::Write { file, .. } | Operation::Sync { file, .. } | Operation::Link { file, .. }
            if *file == CREATED =>
        {
            *file = created;
        }
        _ => {}
    }
}
