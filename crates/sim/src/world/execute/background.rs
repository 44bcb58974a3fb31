//! What concerns the whole: syncing, background work, datasets, faults, and ends of all kinds.

use super::{Outcome, Room};
use crate::world::journal::Change;
use crate::world::model::Model;
use crate::world::operation::{Loss, Operation};
use crate::world::slots::Catalog;
use crate::world::state::{Checked, Trouble, World, violation};
use packstone_fs::{Ino, destroy_step};
use packstone_media::{Detachment, FaultKind};
use packstone_pool::{ErrorKind as PoolErrorKind, Failpoint};

impl World {
    pub(super) fn on_the_whole(&mut self, operation: &Operation) -> Checked {
        match *operation {
            Operation::Sync {
                slot,
                file,
                data_only,
            } => match self.target(slot, file)? {
                Some(ino) => self.sync(slot, ino, data_only),
                None => Ok(()),
            },
            Operation::SyncAll { slot } => self.sync_all(slot),
            Operation::Statistics { slot } => self.statistics(slot),
            Operation::Property { slot, name, value } => self.property(slot, name, value),
            Operation::DestroyDataset { slot } => self.destroy_dataset(slot),
            Operation::DestroyStep { slot } => self.destroy_step(slot),
            Operation::CreateDataset { slot } => {
                let absent =
                    self.slots.get(usize::from(slot)).map(|slot| &slot.catalog) == Some(&Catalog::Absent);
                if absent && self.trouble == Trouble::None {
                    self.create_dataset(slot)?;
                }
                Ok(())
            }
            Operation::Advance { milliseconds } => {
                self.time_ms += u64::from(milliseconds);
                Ok(())
            }
            Operation::PoolStep(work) => {
                let stepped = self.pool().step(work, self.time_ms);
                self.judge_pool("background work", Room::NeedsNone, stepped)
                    .map(drop)
            }
            Operation::FsStep { slot } => self.fs_step(slot),
            Operation::Checkpoint => {
                let written = self.pool().checkpoint_now();
                if let Outcome::Done(()) = self.judge_pool("checkpoint", Room::Needs, written)? {
                    self.journal.note_durable(self.journal.number);
                }
                Ok(())
            }
            Operation::Compare { slot, files } => match self.trouble {
                Trouble::None | Trouble::ReadOnly => self.compare(slot, usize::from(files)),
                _ => Ok(()),
            },
            Operation::Reopen if self.trouble == Trouble::None => self.reopen(),
            Operation::Crash(loss) => self.crash(loss),
            _ if self.trouble == Trouble::None => self.make_trouble(operation),
            Operation::ClearFaults if self.trouble == Trouble::Reads => {
                self.media.clear_faults();
                self.trouble = Trouble::None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn make_trouble(&mut self, operation: &Operation) -> Checked {
        match *operation {
            Operation::StopAfter { changes, loss } => {
                self.media.stop_after_changes(u64::from(changes));
                self.trouble = Trouble::Stop;
                self.loss = loss;
                self.count_fault("stopped device");
            }
            Operation::Fault { kind, count } => {
                self.media.inject(kind, u64::from(count));
                self.trouble = match kind {
                    FaultKind::ReadError | FaultKind::ShortRead | FaultKind::MisdirectedRead => {
                        Trouble::Reads
                    }
                    FaultKind::Slow => Trouble::None,
                    _ => Trouble::Writes,
                };
            }
            Operation::FillBackingFile => {
                self.media.fill_backing_file();
                self.trouble = Trouble::Writes;
            }
            Operation::Detach { loss, forgets } => {
                self.media.detach(match forgets {
                    true => Detachment::LosingUnflushed,
                    false => Detachment::KeepingUnflushed,
                });
                self.trouble = Trouble::Stop;
                self.loss = loss;
            }
            Operation::Die { point, skip, loss } => {
                self.joints.arm(point, skip);
                self.trouble = Trouble::Stop;
                self.loss = loss;
            }
            Operation::Damage { kind, seed } => self.damage(kind, seed)?,
            _ => {}
        }
        Ok(())
    }

    /// As `judge`, for calls of the pool that should go through.
    pub(crate) fn judge_pool<T>(
        &mut self,
        what: &'static str,
        room: Room,
        result: packstone_pool::Result<T>,
    ) -> Checked<Outcome<T>> {
        self.note((what, result.as_ref().err().map(|error| error.kind() as u8)));
        match result {
            Ok(found) => Ok(Outcome::Done(found)),
            Err(error) => match error.kind() {
                PoolErrorKind::Unavailable | PoolErrorKind::ReadOnly => {
                    self.failed(what, &error)?;
                    Ok(Outcome::Failed)
                }
                PoolErrorKind::Damaged if self.trouble == Trouble::Reads => {
                    self.failed(what, &error)?;
                    Ok(Outcome::Failed)
                }
                PoolErrorKind::NoSpace if self.may_be_full(room) => {
                    self.counts.full += 1;
                    Ok(Outcome::Full)
                }
                kind => violation(format!("{what}: {kind:?}"), format!("{error}; {}", self.room())),
            },
        }
    }

    fn sync(&mut self, slot: u8, ino: Ino, data_only: bool) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let before = self.pool().last_commit();
        let synced = fs.sync_file(ino, data_only);
        let Outcome::Done(_) = self.judge("sync", Room::NeedsNone, synced, Ok(()))? else {
            return Ok(());
        };
        let number = self.journal.number;
        let committed = self.pool().last_commit() > before;
        let (model, journal) = self.model(slot);
        model.dirty.remove(&ino);
        let node = model.node_mut(ino);
        node.data.note_durable(number);
        // What was committed before the last commit that concerns the file is durable with it.
        journal.note_durable(if committed { number } else { node.touched });
        Ok(())
    }

    fn sync_all(&mut self, slot: u8) -> Checked {
        let Some(fs) = self
            .slots
            .get(usize::from(slot))
            .and_then(|slot| slot.fs.as_ref())
        else {
            return Ok(());
        };
        let synced = fs.sync_all();
        if let Outcome::Done(_) = self.judge("sync all", Room::NeedsNone, synced, Ok(()))? {
            self.everything_is_durable(slot);
        }
        Ok(())
    }

    fn everything_is_durable(&mut self, slot: u8) {
        let number = self.journal.number;
        let (model, journal) = self.model(slot);
        for ino in std::mem::take(&mut model.dirty) {
            if let Some(node) = model.nodes.get_mut(&ino) {
                node.data.note_durable(number);
            }
        }
        journal.note_durable(number);
    }

    fn statistics(&mut self, slot: u8) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let found = fs.statistics();
        let Outcome::Done((found, ())) = self.judge("statistics", Room::NeedsNone, found, Ok(()))? else {
            return Ok(());
        };
        let pool = self.pool().statistics();
        let sound = found.blocks_available <= found.blocks_free
            && found.blocks_free <= found.blocks
            && pool.allocated_bytes + pool.free_bytes == pool.capacity_bytes
            && pool.live_bytes <= pool.allocated_bytes
            && pool.available_bytes <= pool.capacity_bytes;
        self.note((
            found.blocks_free,
            found.blocks_available,
            pool.live_bytes,
            pool.records,
        ));
        if !sound {
            return violation("statistics: impossible", format!("{found:?}, {pool:?}"));
        }
        Ok(())
    }

    fn property(&mut self, number: u8, name: &str, value: &str) -> Checked {
        let slot = self.slot(number);
        let (Catalog::Active(properties), Some(_)) = (&slot.catalog, &slot.fs) else {
            return Ok(());
        };
        let mut properties = properties.clone();
        properties.insert(name.to_owned(), value.to_owned());
        let set = self.pool().set_dataset_properties(&slot.name, properties.clone());
        let Outcome::Done(()) = self.judge_pool("set property", Room::NeedsNone, set)? else {
            return Ok(());
        };
        let slot = self.slot_mut(number);
        let old = std::mem::replace(&mut slot.catalog, Catalog::Active(properties));
        let reloaded = slot
            .fs
            .as_ref()
            .map_or(Ok(()), packstone_fs::FileSystem::reload_properties);
        self.journal.note(Change::Catalog {
            slot: number,
            old,
            model: None,
        });
        self.judge("reload properties", Room::NeedsNone, reloaded, Ok(()))
            .map(drop)
    }

    fn destroy_dataset(&mut self, number: u8) -> Checked {
        if self.trouble != Trouble::None || self.slots.get(usize::from(number)).is_none() {
            return Ok(());
        }
        let Some(fs) = self.slot_mut(number).fs.take() else {
            return Ok(());
        };
        self.listings.iter_mut().for_each(|listing| *listing = None);
        let closed = fs.close();
        drop(fs);
        self.judge("close", Room::NeedsNone, closed, Ok(()))?;
        let marked = self.pool().mark_dataset_destroying(&self.slot(number).name);
        self.judge_pool("mark for destruction", Room::NeedsNone, marked)?;
        let newest = self.pool().last_commit();
        let synced = self.pool().sync(newest);
        let durable = matches!(
            self.judge_pool("sync", Room::NeedsNone, synced)?,
            Outcome::Done(())
        );
        let slot = self.slot_mut(number);
        slot.held.clear();
        let old = std::mem::replace(&mut slot.catalog, Catalog::Destroying);
        let model = std::mem::replace(&mut slot.model, Model::new(number));
        let model = Some(Box::new(model));
        self.journal.note(Change::Catalog {
            slot: number,
            old,
            model,
        });
        if durable {
            self.journal.note_durable(self.journal.number);
        }
        Ok(())
    }

    fn destroy_step(&mut self, number: u8) -> Checked {
        let destroying =
            self.slots.get(usize::from(number)).map(|slot| &slot.catalog) == Some(&Catalog::Destroying);
        if !destroying {
            return Ok(());
        }
        let stepped = destroy_step(self.pool(), &self.slot(number).name);
        let outcome = self.judge("destroy", Room::NeedsNone, stepped, Ok(()))?;
        if let Outcome::Done((false, ())) = outcome {
            let old = std::mem::replace(&mut self.slot_mut(number).catalog, Catalog::Absent);
            self.journal.note(Change::Catalog {
                slot: number,
                old,
                model: None,
            });
        }
        Ok(())
    }

    fn fs_step(&mut self, slot: u8) -> Checked {
        let now = self.now();
        let Some(fs) = self
            .slots
            .get(usize::from(slot))
            .and_then(|slot| slot.fs.as_ref())
        else {
            return Ok(());
        };
        let stepped = fs.step(now);
        self.judge("background work of files", Room::NeedsNone, stepped, Ok(()))
            .map(drop)
    }

    /// A clean end and a new beginning: nothing is lost but what nobody holds.
    pub(crate) fn reopen(&mut self) -> Checked {
        self.counts.reopenings += 1;
        for slot in 0..self.slots.len() as u8 {
            let Some(fs) = self.slot_mut(slot).fs.take() else {
                continue;
            };
            for (ino, held) in self.slot(slot).held.clone() {
                for _ in 0..held.opens {
                    let released = fs.release(ino);
                    self.judge("release", Room::NeedsNone, released, Ok(()))?;
                }
                fs.forget(ino, held.references);
            }
            let closed = fs.close();
            // A full pool of long records may refuse even this; then nothing is promised by it.
            if let Outcome::Done(_) = self.judge("close", Room::NeedsNone, closed, Ok(()))? {
                self.everything_is_durable(slot);
            }
        }
        let closed = self.pool().close();
        if let Outcome::Done(()) = self.judge_pool("close pool", Room::NeedsNone, closed)? {
            self.journal.note_durable(self.journal.number);
        }
        self.pool = None;
        self.media.crash_losing_all();
        self.open_pool()?;
        self.recover()
    }

    /// The power goes and comes back.
    pub(crate) fn crash(&mut self, loss: Loss) -> Checked {
        self.counts.crashes += 1;
        for slot in &mut self.slots {
            slot.fs = None;
        }
        self.pool = None;
        self.lose(loss);
        self.trouble = Trouble::None;
        self.joints.disarm();
        self.power_goes = false;
        // Now and then it goes again while the pool is being recovered.
        let mut again = match loss {
            Loss::Any(seed) if seed % 3 == 0 => Some(seed / 3 % 12),
            _ => None,
        };
        while let Some(changes) = again.take() {
            if changes % 3 == 0 {
                let joints = [
                    Failpoint::AfterReplay,
                    Failpoint::AfterFreeze,
                    Failpoint::BetweenSlotCopies,
                ];
                self.joints.arm(joints[(changes / 3) as usize % 3], 0);
            } else {
                self.media.stop_after_changes(changes);
            }
            if self.try_open_pool().is_ok() {
                self.media.clear_faults();
            } else {
                self.count_fault("died while opening");
                self.lose(loss);
                again = (changes > 2).then_some(changes / 2);
            }
            self.joints.disarm();
        }
        if self.pool.is_none() {
            self.open_pool()?;
        }
        self.recover()
    }

    fn lose(&mut self, loss: Loss) {
        self.media.reattach();
        match loss {
            Loss::All => self.media.crash_losing_all(),
            Loss::Nothing => self.media.crash_losing_nothing(),
            Loss::Any(seed) | Loss::Ordered(seed) => {
                let model = packstone_media::CrashModel {
                    tearing: true,
                    reordering: matches!(loss, Loss::Any(_)),
                };
                self.media.set_crash_model(model);
                self.media.crash(seed);
            }
        }
    }
}
