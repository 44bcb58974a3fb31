//! A way in for fuzzers: every decoder of on-media bytes, and a forger of whole images. Only with the feature `fuzzing`.
//!
//! The decoders here give their bytes a valid checksum first where the format has one, so that what lies behind the
//! checksum is reached. Each answers whether the bytes were believed; what is believed must encode to something that
//! decodes to the same again, or the function panics. Nothing here is used by the pool itself.

mod forge;

pub use forge::{Descent, Edit, Forge, Map, PairEdit, map};

use crate::batch::{Batch, BatchBuilder, BatchKind, EntryKind, HEADER_BYTES, Header, pool_tag, reseal};
use crate::btree::Root;
use crate::catalog::{decode_dataset, decode_root, encode_dataset, encode_root};
use crate::changes::Item;
use crate::checkpoint::{decode_usage_index, encode_usage_index};
use crate::encoding::Reader;
use crate::label::{LABEL_AREA_BYTES, LabelSummary, read_label, seal_sector};
use crate::node::Node;
use crate::segments::{SegmentTable, USAGE_PAGE_BYTES};
use crate::slot::{Cursor, Slot};
use crate::state::Counters;
use crate::stores::unpack;
use crate::transaction::Operation;
use crate::types::{Location, RecordId, SECTOR_BYTES, SegmentId, TreeId};
use packstone_codec::{Compression, PackedRecord};
use packstone_media::{AlignedBuffer, Media, SimulatedMedia};

/// Bytes of a sealed sector that are not its checksum.
const CONTENT_BYTES: usize = SECTOR_BYTES as usize - 8;
/// Every batch that is decoded here says it lies at the start of this segment, which is this long.
const SEGMENT: SegmentId = SegmentId(3);
const SEGMENT_BYTES: u32 = 256 << 10;
const POOL_ID: [u8; 16] = *b"a pool of fuzzes";

fn sealed(content: &[u8]) -> AlignedBuffer {
    seal_sector(&content[..content.len().min(CONTENT_BYTES)])
}

/// A label, as the front copy of a member of 64 MiB.
pub fn label(content: &[u8]) -> bool {
    let media = SimulatedMedia::new(64 << 20);
    let read = |sector: &AlignedBuffer| {
        media.write(0, sector).ok()?;
        read_label(&media).ok()
    };
    let Some(label) = read(&sealed(content)) else {
        return false;
    };
    assert!(label.segment_count > 0 && label.capacity_bytes > 2 * LABEL_AREA_BYTES);
    assert_eq!(read(&label.encode()), Some(label));
    true
}

/// A checkpoint slot.
pub fn slot(content: &[u8]) -> bool {
    let sector = sealed(content);
    let Some(pool_id) = content.get(8..24).and_then(|id| id.try_into().ok()) else {
        return Slot::decode(&sector, &POOL_ID).is_some();
    };
    let Some(slot) = Slot::decode(&sector, &pool_id) else {
        return false;
    };
    assert_eq!(Slot::decode(&slot.encode(), &pool_id).as_ref(), Some(&slot));
    true
}

/// A batch: header, directory, frames and operations. Magic, pool, place and checksum are put right first.
pub fn batch(bytes: &[u8]) -> bool {
    let mut buffer =
        AlignedBuffer::zeroed((bytes.len().max(HEADER_BYTES)).next_multiple_of(SECTOR_BYTES as usize));
    buffer[..bytes.len()].copy_from_slice(bytes);
    let tag = pool_tag(&POOL_ID);
    buffer[..4].copy_from_slice(b"PKBT");
    buffer[8..16].copy_from_slice(&tag.to_le_bytes());
    buffer[40..44].copy_from_slice(&SEGMENT.0.to_le_bytes());
    buffer[44..48].fill(0);
    reseal(&mut buffer);
    let room_bytes = SEGMENT_BYTES.min(buffer.len() as u32);
    let Ok(header) = Header::decode(&buffer, tag, SEGMENT, 0, room_bytes) else {
        return false;
    };
    let Ok(batch) = Batch::decode(header.clone(), buffer) else {
        return false;
    };
    let mut builder = BatchBuilder::new(header.kind, header.stream, SEGMENT, 0);
    for (entry, location) in &batch.entries {
        let frame = batch.frame(location);
        assert_eq!(frame.len(), entry.packed_bytes as usize);
        let Ok(record) = PackedRecord::from_frame(frame.into()) else {
            return true;
        };
        if record.checksum() != entry.checksum || record.raw_bytes() != entry.raw_bytes {
            return true;
        }
        builder.push_record(entry.kind, entry.id, entry.tree, record);
    }
    let Ok(chunks) = batch.operation_chunks() else {
        return true;
    };
    for chunk in chunks {
        if let Ok(raw) = unpack(chunk, 1 << 20) {
            operations(&raw);
        }
        builder.push_operations(chunk);
    }
    builder.close();
    let lengths = (builder.header.records_bytes, builder.header.record_count);
    assert_eq!(lengths, (header.records_bytes, header.record_count));
    builder.header = Header {
        total_bytes: builder.header.total_bytes,
        directory_bytes: builder.header.directory_bytes,
        operations_bytes: builder.header.operations_bytes,
        ..header
    };
    let encoded = builder.encode(tag);
    let again = Header::decode(&encoded, tag, SEGMENT, 0, u32::MAX)
        .and_then(|header| Batch::decode(header, encoded))
        .unwrap_or_else(|malformed| panic!("a batch that was believed {}", malformed.0));
    assert_eq!(again.entries, batch.entries);
    assert_eq!(again.operation_chunks(), batch.operation_chunks());
    true
}

/// A node of a tree, unpacked.
pub fn node(raw: &[u8]) -> bool {
    let Ok(node) = Node::decode(raw) else { return false };
    assert!(
        node.memory_bytes() < 16 << 20,
        "a node of {} bytes",
        node.memory_bytes()
    );
    let packed = node.pack();
    let again = unpack(packed.frame(), u32::MAX).map(|raw| Node::decode(&raw));
    let Ok(Ok(again)) = again else {
        panic!("a node that was believed is not readable once written")
    };
    assert_eq!((again.level(), again.len()), (node.level(), node.len()));
    for at in 0..node.len() {
        assert_eq!((again.key(at), again.value(at)), (node.key(at), node.value(at)));
        assert_eq!(node.search(node.key(at)), Ok(at));
        assert!(node.child_for(node.key(at)) == at);
    }
    true
}

/// A chunk of operations of the log, unpacked.
pub fn operations(raw: &[u8]) -> bool {
    let Ok(operations) = Operation::decode_chunk(raw) else {
        return false;
    };
    let mut encoded = Vec::new();
    operations
        .iter()
        .for_each(|operation| operation.encode(&mut encoded));
    assert_eq!(Operation::decode_chunk(&encoded), Ok(operations));
    true
}

/// A location, an entry of the record table.
pub fn location(bytes: &[u8]) -> bool {
    let Ok(location) = Location::decode(&mut Reader::new(bytes)) else {
        return false;
    };
    let mut encoded = Vec::new();
    location.encode(&mut encoded);
    assert_eq!(Location::decode(&mut Reader::new(&encoded)), Ok(location));
    let _ = (location.footprint_bytes(), location.to_string());
    true
}

/// A pair of the catalog: a dataset if the key's first byte is even, else a tree root. The first byte of `bytes` is the
/// length of the key.
pub fn catalog(bytes: &[u8]) -> bool {
    let Some((&key_bytes, rest)) = bytes.split_first() else {
        return false;
    };
    let (key, value) = rest.split_at(usize::from(key_bytes).min(rest.len()));
    if key.first().is_some_and(|byte| byte % 2 == 1) {
        let Ok((tree, root, counters)) = decode_root(key, value) else {
            return false;
        };
        if let Some(encoded) = encode_root(root.as_ref(), &counters) {
            assert_eq!(decode_root(key, &encoded).ok(), Some((tree, root, counters)));
        }
        return true;
    }
    let Ok(dataset) = decode_dataset(key, value) else {
        return false;
    };
    assert_eq!(decode_dataset(key, &encode_dataset(&dataset)).ok(), Some(dataset));
    true
}

/// A page of segment usage; the first byte chooses which of three, of which the last is short.
pub fn usage_page(bytes: &[u8]) -> bool {
    let Some((&page, content)) = bytes.split_first() else {
        return false;
    };
    let page = u32::from(page % 3);
    let mut table = SegmentTable::new(1030);
    if table.decode_page(page, content, SEGMENT_BYTES).is_err() {
        return false;
    }
    let encoded = table.encode_page(page);
    assert_eq!(encoded.len(), USAGE_PAGE_BYTES);
    let mut again = SegmentTable::new(1030);
    assert_eq!(again.decode_page(page, &encoded, SEGMENT_BYTES), Ok(()));
    assert!(again.iter().eq(table.iter()) && again.live_bytes() == table.live_bytes());
    assert_eq!(
        (again.free_count(), again.empty_segments()),
        (table.free_count(), table.empty_segments())
    );
    true
}

/// The index of usage pages.
pub fn usage_index(bytes: &[u8]) -> bool {
    let pages = (bytes.len() / 24) as u32;
    let Ok(locations) = decode_usage_index(bytes, pages) else {
        return false;
    };
    let some: Vec<Option<Location>> = locations.into_iter().map(Some).collect();
    assert_eq!(encode_usage_index(&some), &bytes[..pages as usize * 24]);
    true
}

/// Valid bytes for each decoder here, by its name, for a fuzzer to start from.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let place = Location {
        segment: SegmentId(4),
        offset_bytes: 33097,
        packed_bytes: 100,
        raw_bytes: 98,
        checksum: 0x0123_4567_89ab_cdef,
    };
    let mut seeds = Vec::new();
    if let Ok(label) = LabelSummary::plan("tank", POOL_ID, 64 << 20, Some(SEGMENT_BYTES)) {
        seeds.push(("label", label.encode()[..128].to_vec()));
    }
    let slot = Slot {
        pool_id: POOL_ID,
        number: 5,
        epoch: 3,
        next_batch: 4,
        next_record: 6,
        next_tree: 17,
        cursors: (0..4)
            .map(|n| Cursor {
                segment: SegmentId(n),
                offset_bytes: n * SECTOR_BYTES,
            })
            .collect(),
        table_root: Some(Root {
            pointer: place,
            level: 1,
        }),
        catalog_root: Some(Root {
            pointer: RecordId(300),
            level: 0,
        }),
        usage_index: place,
        table_bytes: 100,
        catalog_bytes: 33,
    };
    seeds.push(("slot", slot.encode()[..200].to_vec()));
    let mut encoded = Vec::new();
    place.encode(&mut encoded);
    seeds.push(("location", encoded.clone()));
    let mut leaf = Node::new(0);
    let mut inner = Node::new(2);
    for id in 0..5u64 {
        leaf.push(&(id * 300).to_be_bytes(), &encoded);
        inner.push(&[b"key/".as_slice(), &id.to_be_bytes()].concat(), &[id as u8]);
    }
    for node in [&leaf, &inner] {
        let packed = node.pack();
        if let Ok(raw) = unpack(packed.frame(), u32::MAX) {
            seeds.push(("node", raw));
        }
    }
    let mut chunk = Vec::new();
    for operation in [
        Operation::Change(TreeId(16), Item::put(b"a key", b"a value", &mut Vec::new())),
        Operation::Change(TreeId(16), Item::delete(b"a key")),
        Operation::Free(TreeId(300), RecordId(1 << 40)),
    ] {
        operation.encode(&mut chunk);
    }
    seeds.push(("operations", chunk.clone()));
    seeds.push(("batch", seed_batch(&chunk)));
    let dataset = crate::Dataset {
        name: "pg".into(),
        tree: TreeId(16),
        properties: [("recordsize".into(), "8K".into())].into(),
        state: crate::DatasetState::Active,
    };
    seeds.push((
        "catalog",
        [b"\x03dpg".as_slice(), &encode_dataset(&dataset)].concat(),
    ));
    let root = Root {
        pointer: RecordId(300),
        level: 1,
    };
    if let Some(value) = encode_root(Some(&root), &Counters::default()) {
        seeds.push(("catalog", [b"\x05u\0\0\0\x10".as_slice(), &value].concat()));
    }
    let mut table = SegmentTable::new(1030);
    for stream in 0..3 {
        table.allocate(crate::SegmentKind::Log(stream));
    }
    table.add(&Location {
        segment: SegmentId(1),
        ..place
    });
    seeds.push(("usage_page", [&[0], table.encode_page(0).as_slice()].concat()));
    seeds.push(("usage_page", [&[2], table.encode_page(2).as_slice()].concat()));
    seeds.push(("usage_index", encode_usage_index(&[Some(place), Some(place)])));
    seeds
}

fn seed_batch(chunk: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchKind::Log, 1, SEGMENT, 0);
    for (id, kind) in [(7, EntryKind::New), (900, EntryKind::New), (3, EntryKind::Moved)] {
        let record = PackedRecord::pack(&[id as u8; 500], Compression::default());
        builder.push_record(kind, RecordId(id), TreeId(16), record);
    }
    builder.push_operations(PackedRecord::pack(chunk, Compression::None).frame());
    builder.header.group_end = true;
    builder.close();
    let used_bytes =
        builder.header.records_bytes + builder.header.directory_bytes + builder.header.operations_bytes;
    builder.encode(pool_tag(&POOL_ID))[..HEADER_BYTES + used_bytes as usize].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The decoder that a seed's name stands for.
    fn decoder(name: &str) -> fn(&[u8]) -> bool {
        match name {
            "label" => label,
            "slot" => slot,
            "location" => location,
            "node" => node,
            "operations" => operations,
            "batch" => batch,
            "catalog" => catalog,
            "usage_page" => usage_page,
            "usage_index" => usage_index,
            other => panic!("no decoder {other}"),
        }
    }

    #[test]
    fn seeds_are_believed_and_their_prefixes_do_no_harm() {
        for (name, bytes) in seeds() {
            assert!(decoder(name)(&bytes), "{name}");
            for length in (0..bytes.len()).step_by(1 + bytes.len() / 512) {
                decoder(name)(&bytes[..length]);
            }
        }
    }
}
