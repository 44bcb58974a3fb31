//! The newest checkpoint is damaged: an older one stands in for it with everything that was acknowledged, or the pool
//! refuses. Never less without a word.

use super::world::*;
use crate::label::{read_label, tail_offset_bytes};
use crate::slot::{Ring, Slot};
use crate::*;
use packstone_media::{AlignedBuffer, Fate, Media, SimulatedMedia};
use parking_lot::Mutex;
use rand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is damaged, of the newest checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Slot,
    SlotBlank,
    /// So many slots from the newest down.
    Slots(u64),
    UsageIndex,
    TableRoot,
    CatalogRoot,
}

const PARTS: [Part; 8] = [
    Part::Slot,
    Part::SlotBlank,
    Part::Slots(2),
    Part::Slots(4),
    Part::Slots(9),
    Part::UsageIndex,
    Part::TableRoot,
    Part::CatalogRoot,
];

fn slots(media: &SimulatedMedia) -> Vec<Slot> {
    let label = read_label(media).expect("has a label");
    Ring::read(media, &label).slots
}

fn slot_offsets(media: &SimulatedMedia, number: u64) -> [u64; 2] {
    let within = (64 << 10) + number % 32 * 4096;
    [within, tail_offset_bytes(media.size_bytes()) + within]
}

fn open_to_read(media: &Arc<SimulatedMedia>) -> Result<Pool> {
    Pool::open(
        vec![media.clone() as Arc<dyn Media>],
        &OpenOptions {
            read_only: true,
            memory_bytes: Some(MEMORY_BYTES_MIN),
            ..OpenOptions::default()
        },
    )
}

fn damage_place(media: &SimulatedMedia, place: &Location) {
    let segment = u64::from(place.segment.0) * u64::from(SEGMENT_BYTES);
    let at = LABEL_AREA_BYTES + segment + u64::from(place.offset_bytes);
    media.corrupt(at, 0x55);
}

/// Damages the part; false when the checkpoint has none.
fn damage(media: &Arc<SimulatedMedia>, part: Part) -> bool {
    let newest = slots(media)[0].clone();
    match part {
        Part::Slot => slot_offsets(media, newest.number)
            .iter()
            .for_each(|at| media.corrupt(at + 40, 0x55)),
        Part::SlotBlank => {
            for at in slot_offsets(media, newest.number) {
                media.write(at, &AlignedBuffer::zeroed(4096)).expect("writes");
            }
        }
        Part::Slots(count) => {
            // The first checkpoint is older than anything that was acknowledged: it stays.
            for number in (2..=newest.number).rev().take(count as usize) {
                for at in slot_offsets(media, number) {
                    media.corrupt(at + 100, 0x55);
                }
            }
        }
        Part::UsageIndex => damage_place(media, &newest.usage_index),
        Part::TableRoot => match newest.table_root {
            Some(root) => damage_place(media, &root.pointer),
            None => return false,
        },
        Part::CatalogRoot => {
            let Some(root) = newest.catalog_root else {
                return false;
            };
            let pool = open_to_read(media).expect("opens before it is damaged");
            let place = crate::stores::locate(&pool.table_store(), newest.table_root.as_ref(), root.pointer);
            damage_place(media, &place.expect("reads").expect("is in the table"));
        }
    }
    true
}

#[derive(Default, Debug)]
struct Outcomes {
    whole: u32,
    refused: u32,
    /// Of those refused.
    shown: u32,
}

/// Opens a damaged copy and judges what comes out.
fn judge(world: &World, media: &Arc<SimulatedMedia>, part: Part, outcomes: &mut Outcomes) {
    match open(media) {
        Ok(pool) => {
            world.verify_copy(&pool);
            let unmarked = part == Part::SlotBlank && pool.notes().is_empty();
            assert!(
                !pool.notes().is_empty() || unmarked,
                "{part:?}: opened without a word"
            );
            outcomes.whole += 1;
            // Life goes on from there, and the damage is mended.
            let mut transaction = pool.begin();
            transaction.put(world.tree, b"zz later", b"is here");
            transaction.may_use_reserve();
            pool.sync(pool.commit(transaction).expect("commits"))
                .expect("syncs");
            drop(pool);
            media.crash_losing_all();
            let pool = open(media).expect("opens again");
            assert_eq!(pool.notes(), Vec::<String>::new());
            let later = pool.get(world.tree, b"zz later").expect("reads");
            assert_eq!(later, Some(b"is here".to_vec()));
            pool.close().expect("closes");
            let report = check(&open_to_read(media).expect("opens"), &mut |_, _| {}).expect("checks");
            assert_eq!(report.problems, Vec::<String>::new());
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
            outcomes.refused += 1;
            // Nodes that replay needs may be gone as well; then there is nothing to show.
            if let Ok(pool) = open_to_read(media) {
                outcomes.shown += 1;
                let report = check(&pool, &mut |_, _| {}).expect("checks");
                assert!(!report.problems.is_empty(), "what is shown looks complete");
                assert!(
                    pool.notes().iter().any(|note| note.starts_with("INCOMPLETE")),
                    "{:?} beside {error}",
                    pool.notes()
                );
            }
        }
    }
}

/// Damages every part at many moments of a random life with crashes in it.
fn damaged_life(seed: u64, size_bytes: u64, keys: u32, record_bytes_max: usize) -> BTreeMap<Part, Outcomes> {
    let mut outcomes: BTreeMap<Part, Outcomes> = BTreeMap::new();
    let mut world = World::new(seed, size_bytes);
    (world.keys, world.record_bytes_max) = (keys, record_bytes_max);
    for _ in 0..30 {
        for _ in 0..world.rng.random_range(1..120) {
            match world.rng.random_range(0..100) {
                0..75 => drop(world.commit()),
                75..85 => world.sync().expect("syncs"),
                85..97 => world.step().expect("steps"),
                _ => drop(world.pool.checkpoint_now()),
            }
        }
        for part in PARTS {
            let media = Arc::new(world.media.fork());
            match world.rng.random_range(0..3) {
                0 => media.crash_losing_all(),
                1 => media.crash_losing_nothing(),
                _ => media.crash(world.rng.random()),
            }
            if damage(&media, part) {
                judge(&world, &media, part, outcomes.entry(part).or_default());
            }
        }
        if world.rng.random_ratio(1, 3) {
            world.media.crash(world.rng.random());
            world.reopen_after_crash();
        }
    }
    outcomes
}

#[test]
fn an_older_checkpoint_stands_in_for_a_damaged_one() {
    for seed in 0..3 {
        let outcomes = damaged_life(seed, 16 << 20, 400, 9000);
        println!("with room, seed {seed}: {outcomes:?}");
        for (part, outcome) in &outcomes {
            // Several lost at once is more than is promised. The root of the catalog may be that of both checkpoints.
            let whole = outcome.refused == 0 || matches!(part, Part::Slots(_) | Part::CatalogRoot);
            assert!(whole && outcome.whole > 0, "{part:?}: {outcome:?}");
        }
    }
}

#[test]
fn a_nearly_full_pool_refuses_where_data_would_be_missing() {
    let mut refused = 0;
    for seed in 10..13 {
        let outcomes = damaged_life(seed, 8 << 20, 3000, 9000);
        println!("nearly full, seed {seed}: {outcomes:?}");
        refused += outcomes.values().map(|outcome| outcome.refused).sum::<u32>();
    }
    assert!(
        refused > 0,
        "nothing was refused: the pool was not full enough to tell"
    );
}

/// Fails at one joint while it is set.
struct Trap(Mutex<Option<Failpoint>>);

impl FailpointHandler for Trap {
    fn reach(&self, point: Failpoint) -> std::result::Result<(), String> {
        match *self.0.lock() {
            Some(armed) if armed == point => Err("asked for".into()),
            _ => Ok(()),
        }
    }
}

fn open_with(media: &Arc<SimulatedMedia>, trap: &Arc<Trap>) -> Result<Pool> {
    let options = OpenOptions {
        memory_bytes: Some(MEMORY_BYTES_MIN),
        failpoints: Failpoints::new(trap.clone()),
        ..OpenOptions::default()
    };
    Pool::open(vec![media.clone() as Arc<dyn Media>], &options)
}

/// A checkpoint dies before its first flush: its nodes persist and tell of a log that does not. The next opening dies in a
/// checkpoint of the same number, with both copies of its slot torn. Nothing acknowledged is missing, so what the first
/// attempt left must not be believed.
#[test]
fn nodes_of_a_checkpoint_that_never_was_prove_nothing() {
    let media = Arc::new(SimulatedMedia::new(16 << 20));
    create(&media);
    let trap = Arc::new(Trap(Mutex::new(None)));
    let pool = open_with(&media, &trap).expect("opens");
    let dataset = pool.create_dataset("data", Properties::new()).expect("creates");
    pool.checkpoint_now().expect("checkpoints");
    for number in 0..3000u64 {
        let mut transaction = pool.begin();
        transaction.put(dataset.tree, &number.to_be_bytes(), &content(number, 150));
        pool.commit(transaction).expect("commits");
    }
    *trap.0.lock() = Some(Failpoint::BeforeNodeFlush);
    pool.checkpoint_now().expect_err("dies");
    drop(pool);
    // All of the log is lost, all else persists. Byte 4 of a batch is its kind.
    let mut of_write = (u64::MAX, Fate::Persisted);
    media.crash_with(&mut |sector| {
        if sector.write != of_write.0 {
            let is_log = sector.new.starts_with(b"PKBT") && sector.new[4] == 0;
            of_write = (sector.write, if is_log { Fate::Lost } else { Fate::Persisted });
        }
        of_write.1
    });
    *trap.0.lock() = Some(Failpoint::BeforeSlotFlush);
    open_with(&media, &trap).err().expect("dies while opening");
    let mut torn = 0;
    media.crash_with(&mut |sector| {
        if sector.new.starts_with(b"PKCHKPT1") {
            torn += 1;
            return Fate::Torn {
                split_bytes: 2048,
                front_is_new: true,
            };
        }
        Fate::Persisted
    });
    assert_eq!(torn, 2, "both copies of the slot are torn");
    let pool = open(&media).expect("nothing acknowledged was lost");
    assert!(pool.dataset("data").is_ok());
}
