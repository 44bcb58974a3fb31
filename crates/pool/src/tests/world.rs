//! A pool beside a plain model that knows what was committed and what was acknowledged as durable.
//!
//! Every transaction also puts its own number under one key, so that after a crash the recovered state names the commit
//! it stands at; it must be one between the last acknowledged and the last made, and everything must be as it was then.

use crate::*;
use packstone_media::{Media, SimulatedMedia};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

pub(super) const SEGMENT_BYTES: u32 = 256 << 10;
const COUNTER_KEY: &[u8] = b"~commits";

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Item {
    pub record: RecordId,
    pub seed: u64,
    pub length: usize,
}

type Items = BTreeMap<Vec<u8>, Item>;

pub(super) struct World {
    pub media: Arc<SimulatedMedia>,
    pub pool: Pool,
    pub tree: TreeId,
    pub rng: SmallRng,
    pub keys: u32,
    pub record_bytes_max: usize,
    /// Whether states are kept to be compared after a crash; costs a copy of the model a commit.
    pub will_crash: bool,
    pub items: Items,
    commits: u64,
    acknowledged: u64,
    /// States since the last acknowledged commit, that one included.
    history: BTreeMap<u64, Items>,
    now_ms: u64,
}

/// Bytes that compress somewhat, all determined by the seed.
pub(super) fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let noise = rng.random_range(1..=4);
    (0..length)
        .map(|at| if at % 4 < noise { rng.random() } else { b'x' })
        .collect()
}

pub(super) fn create(media: &Arc<SimulatedMedia>) {
    let member: Arc<dyn Media> = media.clone();
    let options = CreateOptions {
        name: "tank".into(),
        pool_id: [7; 16],
        segment_bytes: Some(SEGMENT_BYTES),
        properties: Properties::new(),
    };
    Pool::create(&[member], &options).expect("creates");
}

pub(super) fn open(media: &Arc<SimulatedMedia>) -> Result<Pool> {
    Pool::open(
        vec![media.clone() as Arc<dyn Media>],
        &OpenOptions {
            read_only: false,
            memory_bytes: Some(MEMORY_BYTES_MIN),
            ..OpenOptions::default()
        },
    )
}

impl World {
    pub(super) fn new(seed: u64, size_bytes: u64) -> World {
        let media = Arc::new(SimulatedMedia::new(size_bytes));
        create(&media);
        let pool = open(&media).expect("opens");
        let tree = pool
            .create_dataset("data", Properties::new())
            .expect("creates dataset")
            .tree;
        pool.sync(pool.last_commit()).expect("syncs");
        World {
            media,
            pool,
            tree,
            rng: SmallRng::seed_from_u64(seed),
            keys: 400,
            record_bytes_max: 9000,
            will_crash: true,
            items: Items::new(),
            commits: 0,
            acknowledged: 0,
            history: BTreeMap::from([(0, Items::new())]),
            now_ms: 0,
        }
    }

    /// Commits a random transaction. `NoSpace` leaves everything as it was.
    pub(super) fn commit(&mut self) -> Result<()> {
        let mut removed = Vec::new();
        let mut added = Vec::new();
        let mut transaction = self.pool.begin();
        let changes = self.rng.random_range(1..6);
        let deletes = self.rng.random_ratio(1, 4);
        let mut touched = std::collections::BTreeSet::new();
        for _ in 0..changes {
            let key = format!("key/{:05}", self.rng.random_range(0..self.keys)).into_bytes();
            if !touched.insert(key.clone()) {
                continue;
            }
            if let Some(old) = self.items.get(&key) {
                removed.push(key.clone());
                transaction.free(self.tree, old.record);
                transaction.delete(self.tree, &key);
            }
            if !deletes {
                let (seed, length) = (self.rng.random(), self.rng.random_range(0..self.record_bytes_max));
                let compression = if self.rng.random() {
                    Compression::default()
                } else {
                    Compression::None
                };
                let stream = if self.rng.random() {
                    Stream::Data
                } else {
                    Stream::ShortLived
                };
                let record = transaction.store(
                    self.tree,
                    stream,
                    PackedRecord::pack(&content(seed, length), compression),
                );
                transaction.put(self.tree, &key, &record.0.to_le_bytes());
                added.push((key, Item { record, seed, length }));
            }
        }
        if deletes {
            transaction.may_use_reserve();
        }
        transaction.put(self.tree, COUNTER_KEY, &(self.commits + 1).to_le_bytes());
        self.pool.commit(transaction)?;
        for key in &removed {
            self.items.remove(key);
        }
        self.items.extend(added);
        self.count_commit();
        Ok(())
    }

    pub(super) fn delete_some(&mut self, count: usize) {
        for _ in 0..count {
            let Some((key, item)) = self.items.pop_first() else {
                return;
            };
            let mut transaction = self.pool.begin();
            transaction.free(self.tree, item.record);
            transaction.delete(self.tree, &key);
            transaction.put(self.tree, COUNTER_KEY, &(self.commits + 1).to_le_bytes());
            transaction.may_use_reserve();
            self.pool
                .commit(transaction)
                .expect("a delete is always admitted");
            self.count_commit();
        }
    }

    fn count_commit(&mut self) {
        self.commits += 1;
        if self.will_crash {
            self.history.insert(self.commits, self.items.clone());
        }
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        self.pool.sync(self.pool.last_commit())?;
        self.acknowledge();
        Ok(())
    }

    fn acknowledge(&mut self) {
        self.acknowledged = self.commits;
        self.history = self.history.split_off(&self.acknowledged);
    }

    pub(super) fn step(&mut self) -> Result<()> {
        self.now_ms += self.rng.random_range(0..3000);
        let work = [
            BackgroundWork::Flush,
            BackgroundWork::Checkpoint,
            BackgroundWork::Clean,
        ][self.rng.random_range(0..3)];
        self.pool.step(work, self.now_ms).map(drop)
    }

    /// Opens what the crash left and finds out at which commit it stands.
    pub(super) fn reopen_after_crash(&mut self) {
        self.pool = open(&self.media).expect("opens after a crash");
        let counter = self.pool.get(self.tree, COUNTER_KEY).expect("reads");
        let at = counter.map_or(0, |bytes| {
            u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
        });
        assert!(
            (self.acknowledged..=self.commits).contains(&at),
            "recovered commit {at}, acknowledged {}, made {}",
            self.acknowledged,
            self.commits
        );
        self.items = self.history.get(&at).expect("a state that existed").clone();
        self.commits = at;
        self.history = BTreeMap::from([(at, self.items.clone())]);
        // Recovery ends with a checkpoint: what it found is durable.
        self.acknowledged = at;
        self.verify();
    }

    /// Everything the model holds is there, byte for byte, and nothing else.
    pub(super) fn verify(&self) {
        let pairs = self
            .pool
            .scan(
                self.tree,
                Bound::Unbounded,
                Bound::Excluded(COUNTER_KEY),
                usize::MAX,
            )
            .expect("scans");
        let expected: Vec<Pair> = self
            .items
            .iter()
            .map(|(key, item)| (key.clone(), item.record.0.to_le_bytes().to_vec()))
            .collect();
        assert_eq!(pairs, expected);
        let ids: Vec<RecordId> = self.items.values().map(|item| item.record).collect();
        let records = self.pool.read_records(&ids).expect("reads");
        for (item, bytes) in self.items.values().zip(records) {
            assert_eq!(
                bytes[..],
                content(item.seed, item.length),
                "record {:?}",
                item.record
            );
        }
        let usage = self.pool.tree_usage(self.tree);
        let logical: usize = self.items.values().map(|item| item.length).sum();
        assert_eq!(
            (usage.records, usage.logical_bytes),
            (self.items.len() as u64, logical as u64)
        );
    }

    /// Closes, checks every byte and the books on a read-only view, opens again.
    pub(super) fn check_offline(&mut self) {
        self.pool.close().expect("closes");
        self.acknowledge();
        let view = Pool::open(
            vec![self.media.clone() as Arc<dyn Media>],
            &OpenOptions {
                read_only: true,
                memory_bytes: None,
                ..OpenOptions::default()
            },
        )
        .expect("opens for reading");
        let report = check(&view, &mut |_, _| {}).expect("checks");
        assert_eq!(report.problems, Vec::<String>::new());
        let mut expected: Vec<RecordId> = self.items.values().map(|item| item.record).collect();
        expected.sort_unstable();
        assert_eq!(
            report.records, expected,
            "records without an owner, or the other way round"
        );
        drop(view);
        self.pool = open(&self.media).expect("opens");
        self.verify();
    }
}
