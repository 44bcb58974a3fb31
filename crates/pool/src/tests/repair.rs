//! Repair: each kind of inconsistency is mended, a clean check follows, and a healthy pool stays as it is.

use super::world::*;
use crate::label::tail_offset_bytes;
use crate::segments::SegmentKind;
use crate::*;
use packstone_media::{Media, SimulatedMedia};
use std::sync::Arc;

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

fn lived_in() -> World {
    let mut world = World::new(21, 16 << 20);
    for round in 0..300 {
        world.commit().expect("commits");
        if round % 50 == 49 {
            world.pool.checkpoint_now().expect("checkpoints");
        }
    }
    world.sync().expect("syncs");
    world
}

fn owners(world: &World) -> Owners {
    let records = world.items.values().map(|item| item.record).collect();
    Owners::from([(world.tree, records)])
}

fn plan(pool: &Pool, world: &World) -> (CheckReport, PoolRepair) {
    let report = check(pool, &mut |_, _| {}).expect("checks");
    let repair = PoolRepair::plan(pool, &report, Some(&owners(world)));
    (report, repair)
}

/// Checks, repairs, and checks that nothing is left to do and nothing was lost.
fn mend(world: &World, media: &Arc<SimulatedMedia>) -> Vec<String> {
    let pool = open_to_read(media).expect("opens for reading");
    let before = media.media_changes();
    let (_, repair) = plan(&pool, world);
    assert!(!repair.is_empty(), "nothing was found");
    assert_eq!(media.media_changes(), before, "planning wrote something");
    repair.apply(&pool).expect("repairs");
    pool.close().expect("closes");
    drop(pool);
    let pool = open_to_read(media).expect("opens");
    let (report, again) = plan(&pool, world);
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(again.problems, Vec::<String>::new());
    assert_eq!(again.lines, Vec::<String>::new());
    drop(pool);
    let pool = open(media).expect("opens for writing");
    world.verify_copy(&pool);
    pool.close().expect("closes");
    repair.lines
}

#[test]
fn a_healthy_pool_is_left_as_it_is() {
    let world = lived_in();
    world.pool.close().expect("closes");
    let image = world.media.image();
    let pool = open_to_read(&world.media).expect("opens");
    let (report, repair) = plan(&pool, &world);
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((repair.lines, repair.problems), (vec![], vec![]));
    drop(pool);
    assert!(world.media.image() == image, "looking changed the pool");
}

#[test]
fn usage_that_is_wrong_is_counted_anew() {
    // Leaked room, lent room, and a segment in use that is said to be empty: opening for writing would free it.
    for change in [40_000i64, -700, i64::MIN] {
        let mut world = lived_in();
        let mut state = world.pool.state.write();
        let segment = state
            .segments
            .iter()
            .find(|(id, segment)| segment.live_bytes > 1000 && !state.segments.is_open(*id))
            .expect("has a sealed segment");
        let live_bytes = i64::from(segment.1.live_bytes).saturating_add(change).max(0) as u32;
        state.segments.recount(segment.0, segment.1.kind, live_bytes);
        drop(state);
        world.pool.checkpoint_now().expect("checkpoints");
        world.media.crash_losing_nothing();
        let media = Arc::new(world.media.fork());
        let lines = mend(&world, &media);
        assert!(
            lines[0].starts_with(&format!("count segment {}", segment.0)),
            "{lines:?}"
        );
        world.will_crash = false;
    }
}

/// The log behind the checkpoint frees more than usage says is there: replay notices, and the repair still mends it.
#[test]
fn usage_that_replay_found_wrong_is_counted_anew() {
    let mut world = lived_in();
    let mut state = world.pool.state.write();
    let (id, segment) = state
        .segments
        .iter()
        .find(|(id, segment)| segment.live_bytes > 20_000 && !state.segments.is_open(*id))
        .expect("has a sealed segment");
    state.segments.recount(id, segment.kind, 1);
    drop(state);
    world.pool.checkpoint_now().expect("checkpoints");
    world.delete_some(500);
    world.sync().expect("syncs");
    world.media.crash_losing_nothing();
    let media = Arc::new(world.media.fork());
    let found = open_to_read(&media).expect("opens");
    assert_eq!(
        found.state.read().segments.mismatch(),
        Some(id),
        "replay noticed nothing"
    );
    drop(found);
    let refused = open(&media).err().expect("is refused for writing");
    assert_eq!(refused.kind(), ErrorKind::Damaged);
    let lines = mend(&world, &Arc::new(world.media.fork())).join("\n");
    assert!(lines.contains(&format!("count segment {id} anew")), "{lines}");
    assert!(lines.contains("trust the usage"), "{lines}");
    world.will_crash = false;
}

/// A segment that is said to be free holds live bytes, and its first batch no longer says what it is used for.
#[test]
fn a_segment_with_live_bytes_is_never_left_free() {
    let mut world = lived_in();
    let mut state = world.pool.state.write();
    let (id, _) = state
        .segments
        .iter()
        .find(|(id, segment)| {
            matches!(segment.kind, SegmentKind::Log(_))
                && segment.live_bytes > 1000
                && !state.segments.is_open(*id)
        })
        .expect("has a sealed segment");
    state.segments.recount(id, SegmentKind::Free, 0);
    drop(state);
    world.pool.checkpoint_now().expect("checkpoints");
    world.media.crash_losing_nothing();
    let media = Arc::new(world.media.fork());
    media.corrupt(
        LABEL_AREA_BYTES + u64::from(id.0) * u64::from(SEGMENT_BYTES),
        0x55,
    );
    let lines = mend(&world, &media);
    assert!(
        lines[0].starts_with(&format!("count segment {id} anew")),
        "{lines:?}"
    );
    world.will_crash = false;
}

/// Two records at one place can add up to more than a segment holds: no usage that could be written would be true.
#[test]
fn a_count_beyond_a_segment_is_refused() {
    let world = lived_in();
    world.pool.close().expect("closes");
    let image = world.media.image();
    let pool = open_to_read(&world.media).expect("opens");
    let mut report = check(&pool, &mut |_, _| {}).expect("checks");
    let books = report.books.as_mut().expect("has books");
    let live = books.live.values_mut().next().expect("has a segment in use");
    *live = 2 * u64::from(SEGMENT_BYTES) + 1;
    let repair = PoolRepair::plan(&pool, &report, Some(&owners(&world)));
    assert!(
        repair.problems[0].contains("more than fit"),
        "{:?}",
        repair.problems
    );
    let refused = repair.apply(&pool).expect_err("is refused");
    assert_eq!(refused.kind(), ErrorKind::Damaged);
    assert!(world.media.image() == image, "a refused repair wrote something");
}

#[test]
fn leaked_records_are_freed_and_totals_counted_anew() {
    let world = lived_in();
    let mut transaction = world.pool.begin();
    for seed in 0..3 {
        let record = PackedRecord::pack(&content(seed, 5000), Compression::None);
        transaction.store(world.tree, Stream::Data, record);
    }
    world.pool.commit(transaction).expect("commits");
    let mut state = world.pool.state.write();
    state.table_bytes += 77;
    state.counters.entry(world.tree).or_default().node_bytes += 5;
    drop(state);
    world.pool.close().expect("closes");
    let lines = mend(&world, &world.media).join("\n");
    assert!(lines.contains("free 3 records"), "{lines}");
    assert!(
        lines.contains(&format!("totals of tree {}", world.tree.0)),
        "{lines}"
    );
    assert!(lines.contains("record table"), "{lines}");
}

#[test]
fn damaged_copies_are_written_from_the_others() {
    let world = lived_in();
    world.pool.close().expect("closes");
    let tail = tail_offset_bytes(world.media.size_bytes());
    for (at, words) in [
        (100, "label at the front"),
        (tail + 100, "label at the tail"),
        ((64 << 10) + 3 * 4096 + 50, "1 copies of checkpoint slots"),
        (tail + (64 << 10) + 2 * 4096 + 50, "1 copies of checkpoint slots"),
    ] {
        let media = Arc::new(world.media.fork());
        media.corrupt(at, 0x11);
        let report = check(&open_to_read(&media).expect("opens"), &mut |_, _| {}).expect("checks");
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        let lines = mend(&world, &media);
        assert!(lines.len() == 1 && lines[0].contains(words), "{lines:?}");
    }
}

/// A usage page that no checkpoint rewrote is shared by all of them: no older one can stand in.
#[test]
fn lost_usage_is_counted_from_the_table() {
    let world = lived_in();
    world.pool.close().expect("closes");
    let media = Arc::new(world.media.fork());
    let label = read_label(media.as_ref()).expect("has a label");
    let slots = crate::slot::Ring::read(media.as_ref(), &label).slots;
    for slot in slots {
        let place = slot.usage_index;
        let segment = u64::from(place.segment.0) * u64::from(SEGMENT_BYTES);
        media.corrupt(
            LABEL_AREA_BYTES + segment + u64::from(place.offset_bytes) + 1,
            0x77,
        );
    }
    let refused = open(&media).err().expect("is refused");
    assert_eq!(refused.kind(), ErrorKind::Damaged);
    assert!(refused.to_string().contains("check --repair"), "{refused}");
    let lines = mend(&world, &media);
    assert!(
        lines.iter().any(|line| line.contains("counted anew")),
        "{lines:?}"
    );
}

#[test]
fn a_repair_may_be_cut_short_at_any_write() {
    let world = lived_in();
    let mut transaction = world.pool.begin();
    for seed in 0..3 {
        let record = PackedRecord::pack(&content(seed, 5000), Compression::None);
        transaction.store(world.tree, Stream::Data, record);
    }
    world.pool.commit(transaction).expect("commits");
    let mut state = world.pool.state.write();
    let sealed = state
        .segments
        .iter()
        .find(|(id, segment)| segment.live_bytes > 1000 && !state.segments.is_open(*id));
    let (id, segment) = sealed.expect("has a sealed segment");
    state.segments.recount(id, segment.kind, segment.live_bytes - 900);
    drop(state);
    world.pool.checkpoint_now().expect("checkpoints");
    world.media.crash_losing_nothing();
    let mut cut = 0;
    for call in 0.. {
        let media = Arc::new(world.media.fork());
        let pool = open_to_read(&media).expect("opens");
        let (_, repair) = plan(&pool, &world);
        media.stop_after_changes(media.media_changes() + call);
        let done = repair.apply(&pool).and_then(|()| pool.close());
        media.clear_faults();
        drop(pool);
        if done.is_ok() {
            break;
        }
        cut += 1;
        media.crash(call);
        let pool = open_to_read(&media).expect("opens after a crash");
        let (_, again) = plan(&pool, &world);
        again.apply(&pool).expect("repairs");
        pool.close().expect("closes");
        drop(pool);
        let pool = open_to_read(&media).expect("opens");
        let (report, again) = plan(&pool, &world);
        assert_eq!(report.problems, Vec::<String>::new(), "cut at {call}");
        assert_eq!((again.lines, again.problems), (vec![], vec![]), "cut at {call}");
        world.verify_copy(&pool);
    }
    assert!(cut > 5, "{cut} cuts are too few to mean anything");
}
