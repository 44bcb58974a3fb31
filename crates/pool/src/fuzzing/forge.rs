//! Changes structures of an image so that every checksum and all books still hold, as a bug or an attacker would.
//!
//! What is in the trees is never changed in place: the changed node or record goes, in a batch of its own, to the last
//! free segment, and the record table, its nodes up to the root and the segment usage follow. So the only lie in the
//! image is the one that was asked for. [`Forge::finish`] writes the usage page and a new checkpoint that names it all.
//!
//! Left out: pools with more than one usage page, for images under test are small.

use crate::batch::{Batch, BatchBuilder, BatchKind, EntryKind, HEADER_BYTES, Header, pool_tag, reseal};
use crate::btree::{NodeStore, Root};
use crate::checkpoint::{encode_usage_index, read_usage};
use crate::geometry::Geometry;
use crate::label::{LABEL_AREA_BYTES, SLOT_RING_OFFSET_BYTES, read_label, seal_sector, tail_offset_bytes};
use crate::lifecycle::OpenOptions;
use crate::node::{NODE_RAW_BYTES_MAX, Node};
use crate::pool::Pool;
use crate::segments::{SEGMENTS_PER_PAGE, SegmentKind, SegmentTable, USAGE_PAGE_BYTES};
use crate::slot::{Ring, SLOTS, Slot};
use crate::stores::{TableStore, TreeStore, decode_location, read_frame, read_node, table_key, unpack};
use crate::types::{Location, RecordId, SECTOR_BYTES, SegmentId, TreeId};
use packstone_codec::{Compression, PackedRecord};
use packstone_media::{AlignedBuffer, Media};
use std::sync::Arc;

const SECTOR: u64 = SECTOR_BYTES as u64;
/// Longest node or record that is written, raw bytes.
const RAW_BYTES_MAX: usize = 64 << 10;

/// A change of bytes.
pub type Edit<'a> = &'a mut dyn FnMut(&mut Vec<u8>);
/// A change of a key and a value, which may borrow from another pair.
pub type PairEdit<'a> = &'a mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>, (&[u8], &[u8]));
/// Chooses the child to go down to, by the number of children.
pub type Descent<'a> = &'a mut dyn FnMut(usize) -> usize;

/// Where what lies in an image; made once, holds for every copy.
#[derive(Clone, Debug)]
pub struct Map {
    /// Offset and length of every batch.
    pub batches: Vec<(u64, u32)>,
    /// Offsets of the sectors that are not all zeros.
    pub sectors: Vec<u64>,
    trees: Vec<(TreeId, Root<RecordId>)>,
    /// Ids of all records that are not tree nodes.
    pub records: Vec<RecordId>,
}

impl Map {
    /// Trees with nodes on media; the catalog is one of them.
    pub fn tree_count(&self) -> usize {
        self.trees.len()
    }
}

/// Looks through an image that is whole.
pub fn map(media: &Arc<dyn Media>) -> crate::Result<Map> {
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let pool = Pool::open(vec![media.clone()], &options)?;
    let mut batches = Vec::new();
    for segment in 0..pool.geometry.label.segment_count {
        for batch in pool.scan_segment(SegmentId(segment))? {
            let at =
                segment_offset(&pool.geometry, SegmentId(segment)) + u64::from(batch.header.offset_bytes);
            batches.push((at, batch.header.total_bytes));
        }
    }
    let mut sector = AlignedBuffer::zeroed(SECTOR as usize);
    let mut sectors = Vec::new();
    for offset in (0..media.size_bytes() / SECTOR).map(|number| number * SECTOR) {
        media
            .read(offset, &mut sector)
            .map_err(|error| crate::Error::media("map image", error))?;
        if sector.iter().any(|byte| *byte != 0) {
            sectors.push(offset);
        }
    }
    let trees = pool
        .stable
        .read()
        .trees
        .iter()
        .map(|(tree, root)| (*tree, *root))
        .collect();
    let records = crate::check(&pool, &mut |_, _| {})?.records;
    Ok(Map {
        batches,
        sectors,
        trees,
        records,
    })
}

fn segment_offset(geometry: &Geometry, segment: SegmentId) -> u64 {
    LABEL_AREA_BYTES + u64::from(segment.0) * u64::from(geometry.segment_bytes())
}

/// An inner node on the way down, and which child was taken.
struct Step {
    node: Arc<Node>,
    place: Location,
    child: usize,
}

/// An image being forged. Calls answer `None` when what they need is not readable (any more) or room ran out.
pub struct Forge {
    media: Arc<dyn Media>,
    geometry: Geometry,
    slot: Slot,
    usage: SegmentTable,
    page: Location,
    segment: SegmentId,
    offset_bytes: u32,
}

impl Forge {
    /// Starts on an image whose newest checkpoint is readable.
    pub fn open(media: Arc<dyn Media>) -> Option<Forge> {
        let label = read_label(media.as_ref()).ok()?;
        let slot = Ring::read(media.as_ref(), &label).slots.into_iter().next()?;
        let geometry = Geometry {
            label,
            members: vec![media.clone()],
            damaged_nodes: Default::default(),
        };
        let (mut usage, pages) = read_usage(&geometry, &slot.usage_index).ok()?;
        let [Some(page)] = pages[..] else { return None };
        let free = usage
            .iter()
            .filter(|(_, segment)| segment.kind == SegmentKind::Free);
        let segment = free.map(|(id, _)| id).last()?;
        usage.open_found(segment, SegmentKind::Nodes);
        Some(Forge {
            media,
            geometry,
            slot,
            usage,
            page,
            segment,
            offset_bytes: 0,
        })
    }

    /// Changes the content of both labels.
    pub fn label(&self, edit: Edit<'_>) -> Option<()> {
        let mut content = self.geometry.label.encode()[..128].to_vec();
        edit(&mut content);
        content.truncate(SECTOR as usize - 8);
        let sector = seal_sector(&content);
        for offset in [0, tail_offset_bytes(self.geometry.label.capacity_bytes)] {
            self.media.write(offset, &sector).ok()?;
        }
        Some(())
    }

    /// Changes any bytes of the batch at `offset`, which keeps its length on media.
    pub fn batch(&self, (offset, total_bytes): (u64, u32), edit: Edit<'_>) -> Option<()> {
        let mut buffer = AlignedBuffer::zeroed(total_bytes as usize);
        self.media.read(offset, &mut buffer).ok()?;
        let mut bytes = buffer.to_vec();
        edit(&mut bytes);
        bytes.resize(total_bytes as usize, 0);
        reseal(&mut bytes);
        buffer.copy_from_slice(&bytes);
        self.media.write(offset, &buffer).ok()
    }

    /// Changes one unpacked chunk of operations of the batch at `offset`.
    pub fn operations(&self, (offset, total_bytes): (u64, u32), chunk: usize, edit: Edit<'_>) -> Option<()> {
        let within = offset.checked_sub(LABEL_AREA_BYTES)?;
        let segment_bytes = u64::from(self.geometry.segment_bytes());
        let (segment, at) = ((within / segment_bytes) as u32, (within % segment_bytes) as u32);
        let tag = pool_tag(&self.geometry.label.pool_id);
        let mut buffer = AlignedBuffer::zeroed(total_bytes as usize);
        self.media.read(offset, &mut buffer).ok()?;
        let header = Header::decode(&buffer, tag, SegmentId(segment), at, total_bytes).ok()?;
        let batch = Batch::decode(header.clone(), buffer).ok()?;
        let mut builder = BatchBuilder::new(header.kind, header.stream, header.segment, header.offset_bytes);
        for (entry, location) in &batch.entries {
            let record = PackedRecord::from_frame(batch.frame(location).into()).ok()?;
            builder.push_record(entry.kind, entry.id, entry.tree, record);
        }
        let chunks = batch.operation_chunks().ok()?;
        let chosen = chunk % chunks.len().max(1);
        for (number, packed) in chunks.into_iter().enumerate() {
            if number != chosen {
                builder.push_operations(packed);
                continue;
            }
            let mut raw = unpack(packed, RAW_BYTES_MAX as u32).ok()?;
            edit(&mut raw);
            raw.truncate(RAW_BYTES_MAX);
            builder.push_operations(PackedRecord::pack(&raw, Compression::default()).frame());
        }
        if builder.close() > total_bytes {
            return None;
        }
        let lengths = builder.header;
        builder.header = Header {
            directory_bytes: lengths.directory_bytes,
            operations_bytes: lengths.operations_bytes,
            ..header
        };
        self.media.write(offset, &builder.encode(tag)).ok()
    }

    /// Changes the unpacked bytes of a node of the record table, `levels` below its root.
    pub fn table_node(&mut self, levels: u8, descent: Descent<'_>, edit: Edit<'_>) -> Option<()> {
        let root = self.slot.table_root?;
        let (mut place, mut steps) = (root.pointer, Vec::new());
        for _ in 0..levels.min(root.level) {
            let node = read_node(&self.geometry, &place).ok()?;
            let child = descent(node.len()) % node.len();
            let next = TableStore::decode_pointer(node.value(child)).ok()?;
            steps.push(Step { node, place, child });
            place = next;
        }
        let mut raw = self.raw(&place)?;
        edit(&mut raw);
        let changed = self.put(EntryKind::TableNode, RecordId(0), TreeId(0), &raw)?;
        self.usage.release(&place);
        self.hang_up(steps, changed)
    }

    /// Changes the unpacked bytes of a node of a tree, `levels` below its root.
    pub fn tree_node(
        &mut self,
        map: &Map,
        tree: usize,
        levels: u8,
        descent: Descent<'_>,
        edit: Edit<'_>,
    ) -> Option<()> {
        let (tree, id) = self.descend(map, tree, levels, descent)?;
        self.record_as(EntryKind::Node, id, tree, edit)
    }

    /// Changes key and value of one pair of a leaf, or of an inner node, and keeps the node well-formed. `edit` gets key
    /// and value, and those of another pair of the node to borrow from.
    pub fn pair(&mut self, map: &Map, tree: usize, descent: Descent<'_>, edit: PairEdit<'_>) -> Option<()> {
        let levels = if descent(8) == 0 { 0 } else { u8::MAX };
        let (tree, id) = self.descend(map, tree, levels, descent)?;
        let node = read_node(&self.geometry, &self.locate(id)?).ok()?;
        let (at, other) = (descent(node.len()) % node.len(), descent(node.len()) % node.len());
        let (mut key, mut value) = (node.key(at).to_vec(), node.value(at).to_vec());
        edit(&mut key, &mut value, (node.key(other), node.value(other)));
        let mut pairs: std::collections::BTreeMap<&[u8], &[u8]> = (0..node.len())
            .filter(|n| *n != at)
            .map(|n| (node.key(n), node.value(n)))
            .collect();
        pairs.insert(&key, &value);
        let mut changed = Node::new(node.level());
        pairs.iter().for_each(|(key, value)| changed.push(key, value));
        let raw = unpack(changed.pack().frame(), u32::MAX).ok()?;
        self.record_as(EntryKind::Node, id, tree, &mut |bytes| *bytes = raw.clone())
    }

    /// Changes the unpacked bytes of a record.
    pub fn record(&mut self, id: RecordId, edit: Edit<'_>) -> Option<()> {
        self.record_as(EntryKind::New, id, TreeId(16), edit)
    }

    /// Changes the frame of a record, as it lies on media.
    pub fn frame(&mut self, id: RecordId, edit: Edit<'_>) -> Option<()> {
        let old = self.locate(id)?;
        let mut frame = read_frame(&self.geometry, &old).ok()?;
        edit(&mut frame);
        let record = PackedRecord::from_frame(frame.into()).ok()?;
        let changed = self.append(EntryKind::New, id, TreeId(16), record)?;
        self.move_record(id, &old, &changed)
    }

    /// Changes where the record table says that a record lies.
    pub fn place(&mut self, id: RecordId, edit: Edit<'_>) -> Option<()> {
        self.table_entry(id, edit)
    }

    /// Writes usage (`edit_page` changes the page) and a checkpoint one newer (`edit_slot` changes its content).
    pub fn finish(mut self, edit_page: Edit<'_>, edit_slot: Edit<'_>) -> Option<()> {
        let old_index = self.slot.usage_index;
        self.usage.release(&self.page.clone());
        self.usage.release(&old_index);
        // Counted first, written then: both have a fixed length (`checkpoint/usage.rs`).
        for bytes in [USAGE_PAGE_BYTES, 24] {
            let packed_bytes = PackedRecord::pack(&vec![0; bytes], Compression::None).packed_bytes();
            self.usage.add(&Location {
                segment: self.segment,
                offset_bytes: 0,
                packed_bytes,
                raw_bytes: 0,
                checksum: 0,
            });
        }
        assert!(
            self.usage.count() <= SEGMENTS_PER_PAGE,
            "images under test have one usage page"
        );
        let mut content = self.usage.encode_page(0);
        edit_page(&mut content);
        content.resize(USAGE_PAGE_BYTES, 0);
        let page = PackedRecord::pack(&content, Compression::None);
        self.page = self.append(EntryKind::UsagePage, RecordId(0), TreeId(0), page)?;
        let index = PackedRecord::pack(&encode_usage_index(&[Some(self.page)]), Compression::None);
        self.slot.usage_index = self.append(EntryKind::UsageIndex, RecordId(0), TreeId(0), index)?;
        self.slot.number += 1;
        let mut content = self.slot.encode()[..256].to_vec();
        edit_slot(&mut content);
        content.truncate(SECTOR as usize - 8);
        let sector = seal_sector(&content);
        let within = SLOT_RING_OFFSET_BYTES + self.slot.number % SLOTS * SECTOR;
        for offset in [
            within,
            tail_offset_bytes(self.geometry.label.capacity_bytes) + within,
        ] {
            self.media.write(offset, &sector).ok()?;
        }
        Some(())
    }

    fn raw(&self, place: &Location) -> Option<Vec<u8>> {
        unpack(&read_frame(&self.geometry, place).ok()?, NODE_RAW_BYTES_MAX).ok()
    }

    fn put(&mut self, kind: EntryKind, id: RecordId, tree: TreeId, raw: &[u8]) -> Option<Location> {
        let raw = &raw[..raw.len().min(RAW_BYTES_MAX)];
        self.append(kind, id, tree, PackedRecord::pack(raw, Compression::default()))
    }

    /// Writes a batch of one record to the segment of forgeries.
    fn append(
        &mut self,
        kind: EntryKind,
        id: RecordId,
        tree: TreeId,
        record: PackedRecord,
    ) -> Option<Location> {
        let mut builder = BatchBuilder::new(BatchKind::Nodes, 3, self.segment, self.offset_bytes);
        let location = builder.push_record(kind, id, tree, record);
        builder.header.epoch = self.slot.epoch;
        builder.header.sequence = self.slot.number + 1;
        let total_bytes = builder.close();
        if u64::from(self.offset_bytes) + u64::from(total_bytes) > u64::from(self.geometry.segment_bytes()) {
            return None;
        }
        let bytes = builder.encode(pool_tag(&self.geometry.label.pool_id));
        self.geometry
            .write(self.segment, self.offset_bytes, &bytes)
            .ok()?;
        self.offset_bytes += total_bytes;
        if !matches!(kind, EntryKind::UsagePage | EntryKind::UsageIndex) {
            self.usage.add(&location);
        }
        debug_assert!(location.offset_bytes as usize % SECTOR as usize >= HEADER_BYTES);
        Some(location)
    }

    fn record_as(&mut self, kind: EntryKind, id: RecordId, tree: TreeId, edit: Edit<'_>) -> Option<()> {
        let old = self.locate(id)?;
        let mut raw = self.raw(&old)?;
        edit(&mut raw);
        let changed = self.put(kind, id, tree, &raw)?;
        self.move_record(id, &old, &changed)
    }

    fn move_record(&mut self, id: RecordId, old: &Location, changed: &Location) -> Option<()> {
        let mut encoded = Vec::new();
        changed.encode(&mut encoded);
        self.table_entry(id, &mut |value| *value = encoded.clone())?;
        self.usage.release(old);
        Some(())
    }

    /// The node `levels` below the root of a tree: its tree and record id.
    fn descend(
        &self,
        map: &Map,
        tree: usize,
        levels: u8,
        descent: Descent<'_>,
    ) -> Option<(TreeId, RecordId)> {
        let (tree, root) = *map.trees.get(tree % map.trees.len().max(1))?;
        let mut id = root.pointer;
        for _ in 0..levels.min(root.level) {
            let node = read_node(&self.geometry, &self.locate(id)?).ok()?;
            id = TreeStore::decode_pointer(node.value(descent(node.len()) % node.len())).ok()?;
        }
        Some((tree, id))
    }

    /// The leaf of the record table that has `id`, if any has, and the nodes above it.
    fn table_leaf(&self, id: RecordId) -> Option<(Vec<Step>, Location, Arc<Node>)> {
        let root = self.slot.table_root?;
        let (mut place, mut steps) = (root.pointer, Vec::new());
        for _ in 0..root.level {
            let node = read_node(&self.geometry, &place).ok()?;
            let child = node.child_for(&table_key(id));
            let next = TableStore::decode_pointer(node.value(child)).ok()?;
            steps.push(Step { node, place, child });
            place = next;
        }
        let leaf = read_node(&self.geometry, &place).ok()?;
        Some((steps, place, leaf))
    }

    fn locate(&self, id: RecordId) -> Option<Location> {
        let (_, _, leaf) = self.table_leaf(id)?;
        decode_location(leaf.value(leaf.search(&table_key(id)).ok()?)).ok()
    }

    fn table_entry(&mut self, id: RecordId, edit: Edit<'_>) -> Option<()> {
        let (steps, place, leaf) = self.table_leaf(id)?;
        let at = leaf.search(&table_key(id)).ok()?;
        let mut value = leaf.value(at).to_vec();
        edit(&mut value);
        let changed = self.put_table_node(&leaf, at, &value)?;
        self.usage.release(&place);
        self.hang_up(steps, changed)
    }

    fn put_table_node(&mut self, node: &Node, at: usize, value: &[u8]) -> Option<Location> {
        let mut changed = Node::new(node.level());
        for number in 0..node.len() {
            changed.push(
                node.key(number),
                if number == at { value } else { node.value(number) },
            );
        }
        self.append(
            EntryKind::TableNode,
            RecordId(0),
            TreeId(u32::from(node.level())),
            changed.pack(),
        )
    }

    /// Lets the nodes above point to the changed one, up to the root.
    fn hang_up(&mut self, steps: Vec<Step>, mut changed: Location) -> Option<()> {
        for step in steps.into_iter().rev() {
            changed = self.put_table_node(&step.node, step.child, &TableStore::encode_pointer(&changed))?;
            self.usage.release(&step.place);
        }
        self.slot.table_root.as_mut()?.pointer = changed;
        Some(())
    }
}
