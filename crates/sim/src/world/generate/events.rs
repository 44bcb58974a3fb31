//! Crashes, faults and what else comes from outside of the clients.

use super::Generator;
use crate::world::operation::{Loss, Operation};
use crate::world::profile::pick;
use crate::world::state::{Trouble, World};
use packstone_media::FaultKind;
use packstone_pool::Failpoint;
use rand::Rng;
use std::collections::VecDeque;

/// More than this and everything is synced, so that memory stays bounded.
const HISTORY_CHUNKS_MAX: usize = 12_000;
/// Operations after which trouble that was asked for ends.
const TROUBLE_OPERATIONS_MAX: u32 = 150;

impl Generator {
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
    pub(super) fn event(&mut self, world: &World, number: u32) -> Option<Operation> {
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
}
