//! Images made to do harm: every structure damaged under a checksum that holds, so that only the checks behind the
//! checksum are left. The pool may refuse or lose such an image; it must not panic, loop, or eat all memory.

use super::world::*;
use crate::batch::{BatchKind, HEADER_BYTES, Header, pool_tag};
use crate::btree::{NodeStore, Root};
use crate::label::{read_label, seal_sector, tail_offset_bytes};
use crate::node::Node;
use crate::segments::{SEGMENTS_PER_PAGE, USAGE_PAGE_BYTES};
use crate::slot::{Ring, Slot, write_slot};
use crate::stores::{TableStore, read_frame, table_key, unpack};
use crate::types::SECTOR_BYTES;
use crate::*;
use packstone_media::{AlignedBuffer, Media, SimulatedMedia};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

const SECTOR: usize = SECTOR_BYTES as usize;

/// A pool with several checkpoints behind it and an unfinished log.
fn lived_in() -> World {
    let mut world = World::new(11, 8 << 20);
    for round in 0..170 {
        world.commit().expect("commits");
        if round % 40 == 39 {
            world.pool.checkpoint_now().expect("checkpoints");
        }
        if round % 5 == 4 {
            world.sync().expect("syncs");
        }
    }
    world
}

/// Opens, reads, writes, checks: whatever the outcome, it has one.
fn live_with(media: &Arc<SimulatedMedia>, world: &World) {
    let read_only = OpenOptions {
        read_only: true,
        memory_bytes: Some(MEMORY_BYTES_MIN),
        ..OpenOptions::default()
    };
    if let Ok(pool) = Pool::open(vec![media.clone() as Arc<dyn Media>], &read_only) {
        let _ = check(&pool, &mut |_, _| {});
    }
    let Ok(pool) = open(media) else { return };
    let _ = pool.statistics();
    let _ = pool.create_dataset("new", Properties::new());
    for (key, item) in world.items.iter().take(60) {
        let _ = pool.read_records(&[item.record]);
        let mut transaction = pool.begin();
        transaction.free(world.tree, item.record);
        transaction.delete(world.tree, key);
        let id = transaction.store(
            world.tree,
            Stream::Data,
            PackedRecord::pack(&content(1, 2000), Compression::None),
        );
        transaction.put(world.tree, key, &id.0.to_le_bytes());
        let _ = pool.commit(transaction);
    }
    let _ = pool.checkpoint_now();
    let _ = pool.step(BackgroundWork::Clean, 1);
    let _ = pool.scan(
        world.tree,
        std::ops::Bound::Unbounded,
        std::ops::Bound::Unbounded,
        1000,
    );
    let _ = check(&pool, &mut |_, _| {});
    let _ = pool.close();
}

fn write_at(media: &SimulatedMedia, offset: u64, bytes: &[u8]) {
    media
        .write(offset, &AlignedBuffer::copy_of(bytes))
        .expect("writes");
}

/// Changes a few bytes, often to extremes.
fn damage(rng: &mut SmallRng, bytes: &mut [u8]) {
    for _ in 0..rng.random_range(1..3) {
        let at = rng.random_range(0..bytes.len());
        let width = [1, 2, 4, 8][rng.random_range(0..4)].min(bytes.len() - at);
        match rng.random_range(0..4) {
            0 => bytes[at..at + width].fill(0xff),
            1 => bytes[at..at + width].fill(0),
            2 => bytes[at] = bytes[at].wrapping_add(1),
            _ => rng.fill(&mut bytes[at..at + width]),
        }
    }
}

#[test]
fn sealed_sectors_that_lie() {
    let world = lived_in();
    let label = read_label(world.media.as_ref()).expect("has a label");
    let slot = Ring::read(world.media.as_ref(), &label).slots[0].clone();
    let mut rng = SmallRng::seed_from_u64(1);
    for case in 0..1200 {
        let media = Arc::new(world.media.fork());
        let (sector, used) = if case % 3 == 0 {
            (label.encode(), 128)
        } else {
            (slot.encode(), 200)
        };
        let mut bytes = sector[..SECTOR - 8].to_vec();
        damage(&mut rng, &mut bytes[8..used]);
        let sealed = seal_sector(&bytes);
        let within = if case % 3 == 0 {
            0
        } else {
            (64 << 10) + slot.number % 32 * SECTOR as u64
        };
        write_at(&media, within, &sealed);
        write_at(&media, tail_offset_bytes(label.capacity_bytes) + within, &sealed);
        live_with(&media, &world);
    }
}

/// Headers of all batches of an image, and where they lie.
fn all_batches(label: &LabelSummary, image: &[u8]) -> Vec<(usize, Header)> {
    let tag = pool_tag(&label.pool_id);
    let mut batches = Vec::new();
    for segment in 0..label.segment_count {
        for offset in (0..SEGMENT_BYTES).step_by(SECTOR) {
            let at = LABEL_AREA_BYTES as usize + segment as usize * SEGMENT_BYTES as usize + offset as usize;
            let bytes = &image[at..at + HEADER_BYTES];
            if let Ok(header) = Header::decode(bytes, tag, SegmentId(segment), offset, SEGMENT_BYTES - offset)
            {
                batches.push((at, header));
            }
        }
    }
    batches
}

#[test]
fn batches_that_lie() {
    let world = lived_in();
    let label = read_label(world.media.as_ref()).expect("has a label");
    let image = world.media.image();
    let batches = all_batches(&label, &image);
    assert!(batches.len() > 30, "{} batches", batches.len());
    let mut rng = SmallRng::seed_from_u64(2);
    for _ in 0..15 {
        for (at, header) in &batches {
            let media = Arc::new(world.media.fork());
            let mut bytes = image[*at..*at + header.total_bytes as usize].to_vec();
            let records_end = HEADER_BYTES + header.records_bytes as usize;
            if rng.random() {
                damage(&mut rng, &mut bytes[16..88]);
            } else if records_end < header.used_bytes() {
                damage(&mut rng, &mut bytes[records_end..header.used_bytes()]);
            }
            let mut hash = Xxh3::new();
            let lengths: u64 = (0..3)
                .map(|field| {
                    u64::from(u32::from_le_bytes(
                        bytes[56 + 4 * field..60 + 4 * field].try_into().expect("four"),
                    ))
                })
                .sum();
            let used = (HEADER_BYTES as u64 + lengths).min(bytes.len() as u64) as usize;
            hash.update(&bytes[..88]);
            hash.update(&bytes[HEADER_BYTES..used]);
            bytes[88..96].copy_from_slice(&hash.digest().to_le_bytes());
            write_at(&media, *at as u64, &bytes);
            live_with(&media, &world);
        }
    }
}

#[test]
fn a_log_that_goes_on_in_live_data_is_refused() {
    let world = lived_in();
    let label = read_label(world.media.as_ref()).expect("has a label");
    let slot = Ring::read(world.media.as_ref(), &label).slots[0].clone();
    let live = {
        let state = world.pool.state.read();
        let found = state.segments.iter().find(|(id, segment)| {
            segment.live_bytes > 0 && slot.cursors.iter().all(|cursor| cursor.segment != *id)
        });
        found.expect("a sealed segment with live data").0
    };
    let image = world.media.image();
    // The last batch: behind any other, batches that are missed would give the lie away.
    let log = all_batches(&label, &image).into_iter();
    let (at, header) = log
        .filter(|(_, header)| header.epoch == slot.epoch && header.kind == BatchKind::Log)
        .max_by_key(|(_, header)| header.sequence)
        .expect("has a log");
    assert!(
        header.sequence >= slot.next_batch,
        "the log goes on behind the checkpoint"
    );
    let mut bytes = image[at..at + header.total_bytes as usize].to_vec();
    bytes[48..52].copy_from_slice(&live.0.to_le_bytes());
    let mut hash = Xxh3::new();
    hash.update(&bytes[..88]);
    hash.update(&bytes[HEADER_BYTES..header.used_bytes()]);
    bytes[88..96].copy_from_slice(&hash.digest().to_le_bytes());
    let media = Arc::new(world.media.fork());
    write_at(&media, at as u64, &bytes);
    let error = open(&media).err().expect("would write over live data");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
}

/// Writes frames of its own into the last segments of an image and makes a checkpoint that names them.
struct Forger {
    media: Arc<SimulatedMedia>,
    label: LabelSummary,
    slot: Slot,
    segment: SegmentId,
    offset_bytes: u32,
}

impl Forger {
    fn new(world: &World) -> Forger {
        let media = Arc::new(world.media.fork());
        let label = read_label(media.as_ref()).expect("has a label");
        let slot = Ring::read(media.as_ref(), &label).slots[0].clone();
        let segment = SegmentId(label.segment_count - 1);
        Forger {
            media,
            label,
            slot,
            segment,
            offset_bytes: 0,
        }
    }

    fn frame(&mut self, raw: &[u8]) -> Location {
        let record = PackedRecord::pack(raw, Compression::default());
        let location = Location {
            segment: self.segment,
            offset_bytes: self.offset_bytes,
            packed_bytes: record.packed_bytes(),
            raw_bytes: record.raw_bytes(),
            checksum: record.checksum(),
        };
        let mut bytes = record.frame().to_vec();
        bytes.resize(bytes.len().div_ceil(SECTOR) * SECTOR, 0);
        let at = LABEL_AREA_BYTES
            + u64::from(self.segment.0) * u64::from(self.label.segment_bytes)
            + u64::from(self.offset_bytes);
        write_at(&self.media, at, &bytes);
        self.offset_bytes += bytes.len() as u32;
        location
    }

    fn node(&mut self, node: &Node) -> Location {
        let packed = node.pack();
        let raw = unpack(packed.frame(), packed.raw_bytes()).expect("unpacks");
        self.frame(&raw)
    }

    fn finish(mut self) -> Arc<SimulatedMedia> {
        self.slot.number += 1;
        write_slot(self.media.as_ref(), &self.label, &self.slot, &mut || Ok(())).expect("writes");
        self.media
    }
}

#[test]
fn a_node_to_which_many_pointers_lead_is_met_once() {
    let world = lived_in();
    let mut forger = Forger::new(&world);
    let mut leaf = Node::new(0);
    let mut place = Vec::new();
    forger.slot.usage_index.encode(&mut place);
    leaf.push(&table_key(RecordId(5)), &place);
    let mut pointer = forger.node(&leaf);
    for level in 1..12 {
        let mut inner = Node::new(level);
        for id in 0..200u64 {
            inner.push(&table_key(RecordId(id)), &TableStore::encode_pointer(&pointer));
        }
        pointer = forger.node(&inner);
    }
    forger.slot.table_root = Some(Root { pointer, level: 11 });
    forger.slot.catalog_root = None;
    live_with(&forger.finish(), &world);
}

#[test]
fn neighbours_with_each_others_keys_are_damage() {
    let world = lived_in();
    let mut forger = Forger::new(&world);
    let mut place = Vec::new();
    forger.slot.usage_index.encode(&mut place);
    let leaf = |ids: &[u64]| {
        let mut node = Node::new(0);
        ids.iter()
            .for_each(|id| node.push(&table_key(RecordId(*id)), &place));
        node
    };
    let (low, high) = (forger.node(&leaf(&[3, 900])), forger.node(&leaf(&[1, 2])));
    let mut root = Node::new(1);
    root.push(&table_key(RecordId(3)), &TableStore::encode_pointer(&low));
    root.push(&table_key(RecordId(100)), &TableStore::encode_pointer(&high));
    let pointer = forger.node(&root);
    forger.slot.table_root = Some(Root { pointer, level: 1 });
    forger.slot.catalog_root = None;
    let media = forger.finish();
    // The first checkpoint works the log into the leaves.
    let error = open(&media).err().expect("two leaves overlap");
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    live_with(&media, &world);
}

#[test]
fn keys_that_unfold_without_end_are_refused() {
    let mut bytes = vec![0];
    crate::encoding::put_varint(&mut bytes, 20_000);
    let long = 400_000usize;
    for at in 0..20_000u64 {
        crate::encoding::put_varint(&mut bytes, if at == 0 { 0 } else { long as u64 + at - 1 });
        crate::encoding::put_varint(&mut bytes, if at == 0 { long as u64 } else { 1 });
        crate::encoding::put_varint(&mut bytes, 0);
        let rest = if at == 0 { long } else { 1 };
        bytes.extend(std::iter::repeat_n(1, rest));
    }
    assert!(Node::decode(&bytes).is_err());
    let mut bytes = vec![0];
    crate::encoding::put_varint(&mut bytes, 100_000);
    for at in 0..100_000u32 {
        let key: Vec<u8> = [vec![1; 1000], at.to_be_bytes().to_vec()].concat();
        crate::encoding::put_varint(&mut bytes, if at == 0 { 0 } else { 1000 });
        let rest = if at == 0 { &key[..] } else { &key[1000..] };
        crate::encoding::put_varint(&mut bytes, rest.len() as u64);
        crate::encoding::put_varint(&mut bytes, 0);
        bytes.extend_from_slice(rest);
    }
    assert!(Node::decode(&bytes).is_err());
}

/// Usage pages that call every segment dead, or of another fill: nothing live is written over.
#[test]
fn usage_that_lies_frees_nothing() {
    let world = lived_in();
    world.pool.close().expect("closes");
    for live_bytes in [0u32, 1, 5000, 2 * SEGMENT_BYTES] {
        let mut forger = Forger::new(&world);
        let geometry = crate::geometry::Geometry {
            label: forger.label.clone(),
            members: vec![forger.media.clone() as Arc<dyn Media>],
            damaged_nodes: Default::default(),
        };
        let index = read_frame(&geometry, &forger.slot.usage_index).expect("reads");
        let index = unpack(&index, 1 << 16).expect("unpacks");
        assert_eq!(index.len(), 24, "one page");
        let mut table = crate::checkpoint::read_usage(&geometry, &forger.slot.usage_index)
            .expect("reads")
            .0
            .encode_page(0);
        for segment in 0..SEGMENTS_PER_PAGE as usize {
            if table[segment * 8 + 4] != 0 {
                table[segment * 8..segment * 8 + 4].copy_from_slice(&live_bytes.to_le_bytes());
            }
        }
        assert_eq!(table.len(), USAGE_PAGE_BYTES);
        let page = forger.frame(&table);
        let mut index = Vec::new();
        for field in [
            page.segment.0,
            page.offset_bytes,
            page.packed_bytes,
            page.raw_bytes,
        ] {
            index.extend_from_slice(&field.to_le_bytes());
        }
        index.extend_from_slice(&page.checksum.to_le_bytes());
        forger.slot.usage_index = forger.frame(&index);
        let media = forger.finish();
        if live_bytes < 2 * SEGMENT_BYTES {
            assert_eq!(
                open(&media).err().map(|error| error.kind()),
                Some(ErrorKind::Damaged),
                "the first checkpoint gives up a page that nobody counted"
            );
        }
        let pool = Pool::open(
            vec![media.clone() as Arc<dyn Media>],
            &OpenOptions {
                read_only: true,
                memory_bytes: None,
                ..OpenOptions::default()
            },
        )
        .expect("opens for reading");
        for item in world.items.values() {
            assert_eq!(
                pool.read_records(&[item.record]).expect("is still there")[0][..],
                content(item.seed, item.length)
            );
        }
        live_with(&media, &world);
    }
}

#[test]
fn a_checkpoint_tried_again_after_a_failed_write_writes_nothing() {
    let mut world = World::new(1, 16 << 20);
    world.commit().expect("commits");
    let pool = &world.pool;
    pool.write_group(&mut pool.log.lock(), false)
        .expect("writes without a flush");
    let taken: Vec<SegmentId> = {
        let mut state = pool.state.write();
        std::iter::from_fn(|| state.segments.allocate(SegmentKind::Nodes)).collect()
    };
    let cursor = pool.checkpointer.lock().cursor.take();
    let error = pool.checkpoint_now().expect_err("has no room for nodes");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    {
        let mut state = pool.state.write();
        for segment in &taken {
            state.segments.seal(*segment);
            state.segments.free(*segment);
        }
    }
    pool.checkpointer.lock().cursor = cursor;
    world.commit().expect("commits");
    world.media.fail_next_writes(1);
    let pool = &world.pool;
    pool.sync(pool.last_commit()).expect_err("the write fails");
    let before = world.media.media_changes();
    let error = pool.checkpoint_now().expect_err("the pool has stopped");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert_eq!(world.media.media_changes(), before);
}

#[test]
fn pools_with_more_segments_than_can_be_counted_are_refused() {
    let plan = |size_bytes, segment_bytes| LabelSummary::plan("tank", [7; 16], size_bytes, segment_bytes);
    assert_eq!(
        plan(1 << 40, Some(256 << 10)).expect_err("too many").kind(),
        ErrorKind::InvalidInput
    );
    plan(7 << 30, Some(256 << 10)).expect("few enough");
    let huge = plan(100 << 40, None).expect("chooses larger segments");
    assert!(huge.segment_bytes > 16 << 20, "{huge:?}");
}

/// Operations that unfold without end: replay keeps what it unfolds in memory.
#[test]
fn a_log_that_unfolds_without_end_is_refused() {
    let mut world = lived_in();
    world.sync().expect("syncs");
    let (cursor, epoch, next_batch) = {
        let log = world.pool.log.lock();
        (log.cursors[0], log.epoch, log.next_batch)
    };
    let mut chunk = Vec::new();
    for number in 0..1u64 {
        let item = crate::changes::Item::put(&number.to_be_bytes(), &[0; 64 << 10], &mut Vec::new());
        crate::transaction::Operation::Change(world.tree, item).encode(&mut chunk);
    }
    let packed = PackedRecord::pack(&chunk, Compression::default());
    assert!(packed.packed_bytes() < 500, "{} bytes", packed.packed_bytes());
    for (chunks, is_refused) in [(3, false), (100, true)] {
        let media = Arc::new(world.media.fork());
        let mut batch =
            crate::batch::BatchBuilder::new(BatchKind::Log, 0, cursor.segment, cursor.offset_bytes);
        (0..chunks).for_each(|_| batch.push_operations(packed.frame()));
        batch.close();
        batch.header.epoch = epoch;
        batch.header.sequence = next_batch;
        batch.header.group_end = true;
        let segment = u64::from(cursor.segment.0) * u64::from(SEGMENT_BYTES);
        let at = LABEL_AREA_BYTES + segment + u64::from(cursor.offset_bytes);
        write_at(&media, at, &batch.encode(world.pool.pool_tag));
        let opened = open(&media);
        assert_eq!(opened.is_err(), is_refused, "{chunks} chunks");
        if let Err(error) = opened {
            assert!(error.to_string().contains("unfold"), "{error}");
        }
    }
}

/// Values that compress well are written so that replay believes them.
#[test]
fn what_compresses_well_is_replayed() {
    let mut world = lived_in();
    let mut transaction = world.pool.begin();
    for number in 0..40u64 {
        transaction.put(
            world.tree,
            &[b"zz".as_slice(), &number.to_be_bytes()].concat(),
            &vec![0; 64 << 10],
        );
    }
    let commit = world.pool.commit(transaction).expect("commits");
    world.pool.sync(commit).expect("syncs");
    world.media.crash_losing_all();
    let pool = open(&world.media).expect("opens");
    let key = [b"zz".as_slice(), &39u64.to_be_bytes()].concat();
    let value = pool.get(world.tree, &key).expect("reads").expect("is there");
    assert_eq!(value.len(), 64 << 10);
    world.will_crash = false;
}

/// A node that no checkpoint can read: changes are refused before they fill the memory, and taken again when it is mended.
#[test]
fn checkpoints_that_fail_for_ever_do_not_fill_the_memory() {
    let mut world = World::new(17, 64 << 20);
    world.will_crash = false;
    for _ in 0..800 {
        world.commit().expect("commits");
    }
    world.pool.close().expect("closes");
    world.pool = open(&world.media).expect("opens");
    world
        .media
        .fail_reads_in(LABEL_AREA_BYTES..world.media.size_bytes() - LABEL_AREA_BYTES);
    let put = |number: u64| {
        let mut transaction = world.pool.begin();
        let key = [b"key/zz".as_slice(), &number.to_be_bytes()].concat();
        transaction.put(world.tree, &key, &vec![7; 60_000]);
        world.pool.commit(transaction)
    };
    let mut taken = 0u64;
    let refused = loop {
        match put(taken) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 1000, "changes pile up without end");
    };
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("checkpoints fail"), "{refused}");
    let bytes = taken * 60_000;
    assert!(
        bytes > MEMORY_BYTES_MIN / 8 && bytes < MEMORY_BYTES_MIN,
        "{bytes} bytes taken"
    );
    world.media.clear_faults();
    world.pool.checkpoint_now().expect("checkpoints");
    put(taken).expect("commits again");
}

/// What counts on from numbers on media must not run over, and must not be believed.
#[test]
fn numbers_without_end_are_not_believed() {
    let mut world = lived_in();
    for (number, epoch) in [
        (u64::MAX, 1),
        (7, u64::MAX),
        (u64::MAX, u64::MAX),
        (1 << 61, 1 << 62),
    ] {
        let mut forger = Forger::new(&world);
        (forger.slot.number, forger.slot.epoch) = (number, epoch);
        write_slot(forger.media.as_ref(), &forger.label, &forger.slot, &mut || Ok(())).expect("writes");
        forger.media.flush().expect("flushes");
        for _ in 0..3 {
            let pool = open(&forger.media).expect("the slot before is whole");
            pool.close().expect("closes");
        }
        world.pool = open(&forger.media).expect("opens");
        world.verify();
    }
}
