//! Checkpoint slots: the one place that is overwritten, and the root of everything else.
//!
//! The ring has [`SLOTS`] sectors; checkpoint number n goes to slot n mod [`SLOTS`], in both label areas. The valid slot
//! with the highest number wins, so a torn write costs at most the checkpoint being written.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | magic `PKCHKPT1` |
//! | 16 | pool id |
//! | 8 | checkpoint number |
//! | 8 | epoch: batches of this checkpoint's log carry the same; grows at every open |
//! | 8 | sequence number the next batch of the log will have |
//! | 8 | next record id |
//! | 4 | next tree id |
//! | 1 + 8 n | streams: segment and offset where each goes on |
//! | 1 (+ 1 + location) | root of the record table, if it has one: level and place |
//! | 1 (+ 1 + varint) | root of the catalog, if it has one: level and record id |
//! | location | index of the segment usage pages |
//! | 8, 8 | packed bytes of record table nodes, of catalog nodes |
//! | ... | zeros |
//! | 8 | checksum, at byte 4088 |

use crate::btree::Root;
use crate::encoding::{Malformed, Reader, put_varint};
use crate::error::{Error, Result};
use crate::label::{LabelSummary, SLOT_RING_OFFSET_BYTES, open_sector, seal_sector, tail_offset_bytes};
use crate::types::{Location, RecordId, SECTOR_BYTES, SegmentId};
use packstone_media::{AlignedBuffer, Media};

/// Slots in the ring.
pub(crate) const SLOTS: u64 = 32;
const MAGIC: &[u8; 8] = b"PKCHKPT1";

/// Where a stream appends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub segment: SegmentId,
    pub offset_bytes: u32,
}

/// Content of a checkpoint slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub pool_id: [u8; 16],
    pub number: u64,
    pub epoch: u64,
    pub next_batch: u64,
    pub next_record: u64,
    pub next_tree: u32,
    pub cursors: Vec<Cursor>,
    pub table_root: Option<Root<Location>>,
    pub catalog_root: Option<Root<RecordId>>,
    pub usage_index: Location,
    pub table_bytes: u64,
    pub catalog_bytes: u64,
}

impl Slot {
    pub(crate) fn encode(&self) -> AlignedBuffer {
        let mut out = Vec::with_capacity(512);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.pool_id);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.next_batch.to_le_bytes());
        out.extend_from_slice(&self.next_record.to_le_bytes());
        out.extend_from_slice(&self.next_tree.to_le_bytes());
        out.push(self.cursors.len() as u8);
        for cursor in &self.cursors {
            out.extend_from_slice(&cursor.segment.0.to_le_bytes());
            out.extend_from_slice(&cursor.offset_bytes.to_le_bytes());
        }
        out.push(u8::from(self.table_root.is_some()));
        if let Some(root) = &self.table_root {
            out.push(root.level);
            root.pointer.encode(&mut out);
        }
        out.push(u8::from(self.catalog_root.is_some()));
        if let Some(root) = &self.catalog_root {
            out.push(root.level);
            put_varint(&mut out, root.pointer.0);
        }
        self.usage_index.encode(&mut out);
        out.extend_from_slice(&self.table_bytes.to_le_bytes());
        out.extend_from_slice(&self.catalog_bytes.to_le_bytes());
        seal_sector(&out)
    }

    /// `None` when the sector is no valid slot of this pool: an empty, torn or foreign one.
    pub(crate) fn decode(sector: &[u8], pool_id: &[u8; 16]) -> Option<Slot> {
        let content = open_sector(sector)?;
        if content.get(..8) != Some(MAGIC.as_slice()) {
            return None;
        }
        let slot = Self::decode_fields(&mut Reader::new(&content[8..])).ok()?;
        (slot.pool_id == *pool_id).then_some(slot)
    }

    fn decode_fields(reader: &mut Reader<'_>) -> std::result::Result<Slot, Malformed> {
        let pool_id = reader.id128()?;
        let (number, epoch, next_batch) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (next_record, next_tree) = (reader.u64()?, reader.u32()?);
        let cursor_count = reader.u8()?;
        let mut cursors = Vec::new();
        for _ in 0..cursor_count {
            cursors.push(Cursor {
                segment: SegmentId(reader.u32()?),
                offset_bytes: reader.u32()?,
            });
        }
        let table_root = match reader.u8()? {
            0 => None,
            _ => Some(Root {
                level: reader.u8()?,
                pointer: Location::decode(reader)?,
            }),
        };
        let catalog_root = match reader.u8()? {
            0 => None,
            _ => Some(Root {
                level: reader.u8()?,
                pointer: RecordId(reader.varint()?),
            }),
        };
        let usage_index = Location::decode(reader)?;
        let (table_bytes, catalog_bytes) = (reader.u64()?, reader.u64()?);
        Ok(Slot {
            pool_id,
            number,
            epoch,
            next_batch,
            next_record,
            next_tree,
            cursors,
            table_root,
            catalog_root,
            usage_index,
            table_bytes,
            catalog_bytes,
        })
    }
}

fn ring_offsets(label: &LabelSummary, number: u64) -> [u64; 2] {
    let within = SLOT_RING_OFFSET_BYTES + (number % SLOTS) * u64::from(SECTOR_BYTES);
    [within, tail_offset_bytes(label.capacity_bytes) + within]
}

/// Writes the slot to both rings, and asks in between; the caller flushes before and after.
pub(crate) fn write_slot(
    member: &dyn Media,
    label: &LabelSummary,
    slot: &Slot,
    between_copies: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let sector = slot.encode();
    for (copy, offset) in ring_offsets(label, slot.number).into_iter().enumerate() {
        if copy > 0 {
            between_copies()?;
        }
        member
            .write(offset, &sector)
            .map_err(|e| Error::media("write checkpoint slot", e))?;
    }
    Ok(())
}

/// Every valid slot of both rings, newest first, without the second copy of one that was already found.
pub(crate) fn read_slots(member: &dyn Media, label: &LabelSummary) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    let mut ring = AlignedBuffer::zeroed((SLOTS * u64::from(SECTOR_BYTES)) as usize);
    for offset in ring_offsets(label, 0) {
        // An unreadable ring is as good as an invalid one: the other copy decides.
        if member.read(offset, &mut ring).is_err() {
            continue;
        }
        slots.extend(
            ring.chunks(SECTOR_BYTES as usize)
                .filter_map(|sector| Slot::decode(sector, &label.pool_id)),
        );
    }
    slots.sort_by_key(|slot| std::cmp::Reverse((slot.number, slot.epoch)));
    slots.dedup();
    slots
}
