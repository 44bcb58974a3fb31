//! Views against copies of the model, while a writer commits, checkpoints are written and segments are cleaned.

use super::world::{content, create, open};
use crate::kv::{Durability, Store};
use crate::*;
use packstone_media::SimulatedMedia;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

struct Life {
    store: Store,
    trees: [TreeId; 2],
    models: [Model; 2],
    views: Vec<(View, [Model; 2])>,
    rng: SmallRng,
    keys: u32,
    value_bytes_max: usize,
    expired: u32,
}

impl Life {
    fn new(seed: u64, media: &Arc<SimulatedMedia>) -> Life {
        create(media);
        let store = Store::on(Arc::new(open(media).expect("opens")));
        let trees = [
            store.tree("one").expect("makes"),
            store.tree("two").expect("makes"),
        ];
        Life {
            store,
            trees,
            models: Default::default(),
            views: Vec::new(),
            rng: SmallRng::seed_from_u64(seed),
            keys: 3000,
            value_bytes_max: 200,
            expired: 0,
        }
    }

    fn key(&mut self) -> Vec<u8> {
        match self.rng.random_range(0..self.keys) {
            0 => Vec::new(),
            number => format!("key/{number:05}").into_bytes(),
        }
    }

    fn write(&mut self, changes: u32) {
        let mut models = self.models.clone();
        let mut writer = self.store.begin();
        for _ in 0..changes {
            let at = self.rng.random_range(0..2);
            let key = match self.rng.random_range(0..self.keys) {
                0 => Vec::new(),
                number => format!("key/{number:05}").into_bytes(),
            };
            if self.rng.random_ratio(1, 4) {
                writer.delete(self.trees[at], &key).expect("deletes");
                models[at].remove(&key);
            } else {
                let value = content(self.rng.random(), self.rng.random_range(0..self.value_bytes_max));
                writer.put(self.trees[at], &key, &value).expect("puts");
                models[at].insert(key, value);
            }
        }
        if self.rng.random_ratio(1, 4) {
            let pairs: Result<Vec<Pair>> = writer
                .range(self.trees[0], Bound::Unbounded, Bound::Unbounded)
                .collect();
            assert!(
                pairs.expect("reads").into_iter().eq(models[0].clone()),
                "a writer sees what it wrote"
            );
        }
        if self.rng.random_ratio(1, 10) {
            // Dropped: nothing of it may ever be seen.
            return;
        }
        let durability = if self.rng.random() {
            Durability::Durable
        } else {
            Durability::Buffered
        };
        // Never refused: what is live is far less than the pool, and views do not count.
        writer.commit(durability).expect("commits");
        self.models = models;
    }

    /// Compares one view, or drops it if it has expired.
    fn check(&mut self, at: usize) {
        let tree = self.rng.random_range(0..2);
        let key = self.key();
        let (from, to) = (self.key(), self.key());
        let bounds = if from < to && self.rng.random() {
            (Bound::Included(from.as_slice()), Bound::Excluded(to.as_slice()))
        } else {
            (Bound::Unbounded, Bound::Unbounded)
        };
        let limit = self.rng.random_range(1..400);
        let (view, models) = &self.views[at];
        let model = &models[tree];
        let compare = || -> Result<()> {
            assert_eq!(view.get(self.trees[tree], &key)?.as_ref(), model.get(&key));
            let mut expected = model.range::<[u8], _>(bounds);
            let mut range = view.range(self.trees[tree], bounds.0, bounds.1);
            // From both ends in turns, as far as it goes.
            for step in 0..limit {
                let (pair, due) = if step % 3 == 0 {
                    (range.next_back(), expected.next_back())
                } else {
                    (range.next(), expected.next())
                };
                let pair = pair.transpose()?;
                let due = due.map(|(key, value)| (key.clone(), value.clone()));
                assert_eq!(pair, due);
            }
            Ok(())
        };
        if let Err(error) = compare() {
            assert_eq!(error.kind(), ErrorKind::ViewExpired, "{error}");
            self.expired += 1;
            self.views.remove(at);
        }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..50 => {
                let changes = self.rng.random_range(1..120);
                self.write(changes);
            }
            50..60 => {
                let view = self.store.view();
                self.views.push((view, self.models.clone()));
            }
            60..66 if !self.views.is_empty() => {
                let at = self.rng.random_range(0..self.views.len());
                self.views.remove(at);
            }
            66..72 => self.store.pool().checkpoint_now().expect("writes a checkpoint"),
            72..75 => {
                let mut cleaner = self.store.pool().cleaner.lock();
                self.store.pool().clean_some(&mut cleaner).expect("cleans");
            }
            _ if !self.views.is_empty() => {
                let at = self.rng.random_range(0..self.views.len());
                self.check(at);
            }
            _ => {}
        }
    }

    fn finish(mut self) -> u32 {
        while !self.views.is_empty() {
            self.check(0);
            if !self.views.is_empty() {
                self.views.remove(0);
            }
        }
        assert!(self.store.pool().state.read().views.is_empty());
        let view = self.store.view();
        for (tree, model) in self.trees.iter().zip(&self.models) {
            let pairs: Result<Vec<Pair>> = view.range(*tree, Bound::Unbounded, Bound::Unbounded).collect();
            assert!(pairs.expect("reads").into_iter().eq(model.clone()));
        }
        drop(view);
        let damage = self.store.pool().statistics().members[0].checksum_errors;
        assert_eq!(damage, 0, "an expired view is no damage");
        self.store.close().expect("closes");
        self.expired
    }
}

#[test]
fn views_stay_as_they_were_while_there_is_room() {
    for seed in 0..3 {
        let media = Arc::new(SimulatedMedia::new(96 << 20));
        let mut life = Life::new(seed, &media);
        for _ in 0..700 {
            life.step();
            if life.views.len() > 12 {
                life.views.remove(0);
            }
        }
        assert_eq!(life.finish(), 0, "seed {seed}: no view had to expire");
        let report = check(&open(&media).expect("opens again"), &mut |_, _| {}).expect("checks");
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

/// Amounts are moved between accounts; each view must find the same sum, by a range and key by key.
#[test]
fn threads_with_views_see_whole_commits_while_others_write_and_checkpoint() {
    const ACCOUNTS: u64 = 500;
    const EACH: u64 = 1000;
    let media = Arc::new(SimulatedMedia::new(64 << 20));
    create(&media);
    let store = Store::on(Arc::new(open(&media).expect("opens")));
    let tree = store.tree("accounts").expect("makes");
    let mut writer = store.begin();
    for account in 0..ACCOUNTS {
        writer
            .put(tree, &account.to_be_bytes(), &EACH.to_be_bytes())
            .expect("puts");
    }
    writer.commit(Durability::Durable).expect("commits");
    let amount = |value: &[u8]| u64::from_be_bytes(value.try_into().expect("is a number"));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, is_over) = (&store, &is_over);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    let mut views = 0;
                    while !is_over.load(Ordering::Relaxed) || views < 10 {
                        let view = store.view();
                        let pairs: Result<Vec<Pair>> =
                            view.range(tree, Bound::Unbounded, Bound::Unbounded).collect();
                        let sum: u64 = pairs.expect("reads").iter().map(|(_, value)| amount(value)).sum();
                        assert_eq!(sum, ACCOUNTS * EACH);
                        let single = (0..ACCOUNTS).map(|account| {
                            let value = view.get(tree, &account.to_be_bytes()).expect("reads");
                            amount(&value.expect("is there"))
                        });
                        assert_eq!(single.sum::<u64>(), ACCOUNTS * EACH);
                        views += 1;
                    }
                })
            })
            .collect();
        let checkpoints = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                store.pool().checkpoint_now().expect("writes a checkpoint");
            }
        });
        let mut rng = SmallRng::seed_from_u64(1);
        for _ in 0..1500 {
            let mut writer = store.begin();
            for _ in 0..5 {
                let [from, to] = [(); 2].map(|()| rng.random_range(0..ACCOUNTS).to_be_bytes());
                let has = amount(&writer.get(tree, &from).expect("reads").expect("is there"));
                let moved = rng.random_range(0..=has);
                writer
                    .put(tree, &from, &(has - moved).to_be_bytes())
                    .expect("puts");
                let has = amount(&writer.get(tree, &to).expect("reads").expect("is there"));
                writer.put(tree, &to, &(has + moved).to_be_bytes()).expect("puts");
            }
            writer.commit(Durability::Buffered).expect("commits");
        }
        is_over.store(true, Ordering::Relaxed);
        for thread in readers {
            thread.join().expect("ends well");
        }
        checkpoints.join().expect("ends well");
    });
}

#[test]
fn views_expire_rather_than_refuse_room_or_show_other_data() {
    let mut expired = 0;
    for seed in 0..2 {
        let media = Arc::new(SimulatedMedia::new(20 << 20));
        let mut life = Life::new(seed, &media);
        life.value_bytes_max = 1500;
        for _ in 0..700 {
            life.step();
        }
        expired += life.finish();
    }
    assert!(
        expired > 15,
        "only {expired} views expired: the test shows little"
    );
}
