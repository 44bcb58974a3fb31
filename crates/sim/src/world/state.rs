//! A world: the device, the pool and its datasets, the model of them, and the time.

use super::joints::Joints;
use super::journal::{Change, Journal};
use super::model::Model;
use super::profile::Profile;
use super::slots::{Catalog, Held, Listing, Slot};
use packstone_fs::{Caller, FileSystem, Ino, MountOptions, Timestamp};
use packstone_media::{Media, SimulatedMedia};
use packstone_pool::{CreateOptions, Failpoints, OpenOptions, Pool, Properties, TreeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Key of the witness.
pub(crate) const WITNESS: &[u8] = b"operation";
/// Dataset that holds nothing but the witness.
const WITNESS_DATASET: &str = "witness";

/// A promise that was not kept.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    /// Same for the same kind of failure.
    pub(crate) what: String,
    pub(crate) detail: String,
}

/// What a step answers.
pub(crate) type Checked<T = ()> = Result<T, Violation>;

/// Refuses to go on.
pub(crate) fn violation<T>(what: impl Into<String>, detail: impl Into<String>) -> Checked<T> {
    Err(Violation {
        what: what.into(),
        detail: detail.into(),
    })
}

/// Faults that are there now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// The device will stop, or has.
    Stop,
    /// Reads fail.
    Reads,
    /// A write or flush will fail.
    Writes,
    /// One has failed: the pool takes no more writes.
    ReadOnly,
}

/// What happened so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) operations: u64,
    pub(crate) crashes: u64,
    pub(crate) reopenings: u64,
    pub(crate) full: u64,
    pub(crate) faults: BTreeMap<String, u64>,
    /// Changes that crashes took back; a world without any says little.
    pub(crate) lost: u64,
}

pub(crate) struct World {
    pub(crate) profile: Profile,
    pub(crate) media: Arc<SimulatedMedia>,
    pub(crate) joints: Arc<Joints>,
    /// `None` only while it is being opened.
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) witness: TreeId,
    pub(crate) slots: Vec<Slot>,
    pub(crate) listings: Vec<Option<Listing>>,
    pub(crate) journal: Journal,
    pub(crate) trouble: Trouble,
    /// What the stopped device will lose.
    pub(crate) loss: super::operation::Loss,
    /// A crash follows this operation at once.
    pub(crate) power_goes: bool,
    pub(crate) time_ms: u64,
    pub(crate) digest: u64,
    pub(crate) counts: Counts,
}

pub(crate) fn pool_violation<T>(what: &str, result: packstone_pool::Result<T>) -> Checked<T> {
    result.or_else(|error| violation(format!("{what}: {:?}", error.kind()), error.to_string()))
}

pub(crate) fn fs_violation<T>(what: &str, result: packstone_fs::Result<T>) -> Checked<T> {
    result.or_else(|error| {
        violation(
            format!("{what}: {:?}", error.kind()),
            format!("{error} ({:?})", error.source),
        )
    })
}

impl World {
    /// A new pool with its datasets.
    pub(crate) fn new(profile: Profile) -> Checked<World> {
        let media = Arc::new(SimulatedMedia::new(profile.member_bytes));
        let member: Arc<dyn Media> = media.clone();
        let options = CreateOptions {
            name: "world".into(),
            pool_id: [7; 16],
            segment_bytes: Some(profile.segment_bytes),
            properties: Default::default(),
        };
        pool_violation("create", Pool::create(&[member], &options))?;
        let mut world = World {
            slots: (0..profile.slots).map(Slot::new).collect(),
            listings: (0..profile.clients).map(|_| None).collect(),
            profile,
            media,
            joints: Arc::new(Joints::default()),
            pool: None,
            witness: TreeId::CATALOG,
            journal: Journal::default(),
            trouble: Trouble::None,
            loss: super::operation::Loss::All,
            power_goes: false,
            time_ms: 1_000_000,
            digest: 0,
            counts: Counts::default(),
        };
        world.open_pool()?;
        let created = world.pool().create_dataset(WITNESS_DATASET, Properties::new());
        world.witness = pool_violation("create dataset", created)?.tree;
        for slot in 0..world.slots.len() {
            world.create_dataset(slot as u8)?;
        }
        world.commit_witness()?;
        let newest = world.pool().last_commit();
        pool_violation("sync", world.pool().sync(newest))?;
        world.journal.restart(0);
        Ok(world)
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        match &self.pool {
            Some(pool) => pool,
            None => panic!("the pool is used while it is closed"),
        }
    }

    /// Opens the pool; an error is the caller's business.
    pub(crate) fn try_open_pool(&mut self) -> packstone_pool::Result<()> {
        let member: Arc<dyn Media> = self.media.clone();
        let options = OpenOptions {
            read_only: false,
            memory_bytes: Some(16 << 20),
            failpoints: Failpoints::new(self.joints.clone()),
        };
        self.pool = Some(Arc::new(Pool::open(vec![member], &options)?));
        Ok(())
    }

    pub(crate) fn open_pool(&mut self) -> Checked {
        let opened = self.try_open_pool();
        pool_violation("open", opened)
    }

    /// Who asks, at the world's time.
    pub(crate) fn caller(&self) -> Caller {
        Caller {
            uid: 0,
            gid: 0,
            umask: 0o022,
            now: self.now(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp {
            seconds: (self.time_ms / 1000) as i64,
            nanoseconds: (self.time_ms % 1000 * 1_000_000) as u32,
        }
    }

    pub(crate) fn slot(&self, slot: u8) -> &Slot {
        &self.slots[usize::from(slot)]
    }

    pub(crate) fn slot_mut(&mut self, slot: u8) -> &mut Slot {
        &mut self.slots[usize::from(slot)]
    }

    /// The model of a dataset and the journal to tell changes to.
    pub(crate) fn model(&mut self, slot: u8) -> (&mut Model, &mut Journal) {
        (&mut self.slots[usize::from(slot)].model, &mut self.journal)
    }

    pub(crate) fn note(&mut self, outcome: impl std::hash::Hash) {
        self.digest = super::model::hash_of((self.digest, outcome));
    }

    pub(crate) fn count_fault(&mut self, kind: &str) {
        *self.counts.faults.entry(kind.to_owned()).or_default() += 1;
    }

    /// What happened, the device's and the joints' own counts included.
    pub(crate) fn all_counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        for (kind, count) in self.media.fault_counts().iter() {
            counts.faults.insert(format!("{kind:?}"), count);
        }
        for (point, count) in self.joints.died() {
            counts.faults.insert(format!("died {point}"), count);
        }
        counts
    }

    /// Makes the dataset of a slot; false when the pool is full.
    pub(crate) fn create_dataset(&mut self, number: u8) -> Checked<bool> {
        let properties: Properties = [
            ("recordsize", self.profile.record_size),
            ("compression", self.profile.compression),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let name = self.slot(number).name.clone();
        match self.pool().create_dataset(&name, properties.clone()) {
            Err(error) if error.kind() == packstone_pool::ErrorKind::NoSpace => return Ok(false),
            created => drop(pool_violation("create dataset", created)?),
        }
        let slot = self.slot_mut(number);
        let old = std::mem::replace(&mut slot.catalog, Catalog::Active(properties));
        let model = std::mem::replace(&mut slot.model, Model::new(number));
        self.journal.note(Change::Catalog {
            slot: number,
            old,
            model: Some(Box::new(model)),
        });
        self.mount(number)
    }

    /// Opens the dataset of a slot. False when the pool is too full to format it.
    pub(crate) fn mount(&mut self, number: u8) -> Checked<bool> {
        let pool = self.pool().clone();
        let caller = self.caller();
        let slot = self.slot_mut(number);
        slot.held.clear();
        match FileSystem::open_with_seed(pool, &slot.name, MountOptions::default(), &caller, 42) {
            Ok(fs) => {
                slot.fs = Some(fs);
                Ok(true)
            }
            Err(error) if error.kind() == packstone_fs::ErrorKind::NoSpace => Ok(false),
            Err(error) => fs_violation("mount", Err(error)),
        }
    }

    /// Commits the number of the operation. What stands in its way is no failure: then it is just not known.
    pub(crate) fn commit_witness(&mut self) -> Checked {
        let mut transaction = self.pool().begin();
        transaction.may_use_reserve();
        transaction.put(self.witness, WITNESS, &self.journal.number.to_le_bytes());
        if self.pool().commit(transaction).is_ok() {
            self.journal.note_witness();
        }
        Ok(())
    }

    /// The number that the pool holds.
    pub(crate) fn read_witness(&self) -> Checked<u64> {
        let value = pool_violation("read witness", self.pool().get(self.witness, WITNESS))?;
        match value.as_deref().and_then(|value| value.try_into().ok()) {
            Some(bytes) => Ok(u64::from_le_bytes(bytes)),
            None => violation("witness lost", "the first witness was synced and is not there"),
        }
    }

    /// Another reference to an inode, as answers add them.
    pub(crate) fn refer(&mut self, slot: u8, ino: Ino) {
        self.held(slot, ino).references += 1;
    }

    pub(crate) fn held(&mut self, slot: u8, ino: Ino) -> &mut Held {
        self.slot_mut(slot).held.entry(ino).or_default()
    }

    /// An inode without a name and without holders is gone.
    pub(crate) fn drop_if_unheld(&mut self, slot: u8, ino: Ino) {
        let at = self.slot_mut(slot);
        let held = at.held.get(&ino).copied().unwrap_or_default();
        if held.references > 0 || held.opens > 0 {
            return;
        }
        at.held.remove(&ino);
        if at.model.nodes.get(&ino).is_some_and(|node| node.links == 0) {
            let (model, journal) = self.model(slot);
            model.drop_node(journal, ino);
        }
    }

    /// Chunks of old versions that the model holds.
    pub(crate) fn history_chunks(&self) -> usize {
        self.slots.iter().map(Slot::history_chunks).sum()
    }

    /// Chunks of all files, roughly: what was written since the world began fills the device at most.
    pub(crate) fn content_chunks(&self) -> u64 {
        match &self.pool {
            Some(pool) => pool.space().used_bytes / super::file_data::CHUNK_BYTES,
            None => 0,
        }
    }
}

impl Slot {
    pub(crate) fn history_chunks(&self) -> usize {
        let dirty = self
            .model
            .dirty
            .iter()
            .filter_map(|ino| self.model.nodes.get(ino));
        dirty.map(|node| node.data.history_chunks()).sum()
    }
}
