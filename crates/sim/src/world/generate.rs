//! Chooses what happens next, from the seed and from what exists.
//!
//! Several clients take turns by chance. Most of what they do is one operation drawn by weight; some follow a script
//! over several turns, as programs do: a database that writes pages and syncs, a file replaced by rename, a message
//! delivered.

mod events;
mod files;
mod names;
mod scripts;

use super::model::{Handle, Model, Name, ROOT_HANDLE};
use super::operation::{Fill, Operation, Step};
use super::profile::{Kind, Profile, pick};
use super::slots::{Catalog, Slot};
use super::state::World;
use packstone_fs::Ino;
use packstone_pool::BackgroundWork;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use scripts::replace_created;
use std::collections::VecDeque;
use std::rc::Rc;

/// Where a script's file comes from.
const CREATED: Handle = Handle::MAX;

pub(crate) struct Generator {
    random: SmallRng,
    profile: Rc<Profile>,
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
            profile: Rc::new(profile.clone()),
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
}
