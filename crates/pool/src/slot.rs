//! Checkpoint slots: the one place that is overwritten, and the root of everything else.
//!
//! The ring has [`SLOTS`] sectors; checkpoint number n goes to slot n mod [`SLOTS`], in both label areas. The valid slot
//! with the highest number wins, so a torn write costs at most the checkpoint being written. If its trees are damaged,
//! older ones are tried (`lifecycle.rs`, `older.rs`).
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
use crate::types::{COUNTED_MAX, Location, RecordId, SECTOR_BYTES, SegmentId};
use packstone_media::{AlignedBuffer, Media};

/// Slots in the ring.
pub(crate) const SLOTS: u64 = 32;
const MAGIC: &[u8; 8] = b"PKCHKPT1";
/// Begins a slot that `create` left unused; the pool id follows.
const UNUSED: &[u8; 8] = b"PKUNUSED";

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
        // What counts on from these must not overflow, whoever wrote them.
        let counts_on = slot.number < COUNTED_MAX && slot.epoch < COUNTED_MAX;
        (slot.pool_id == *pool_id && counts_on).then_some(slot)
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

/// What lies in one sector of a ring.
enum Sector {
    Slot(Box<Slot>),
    /// Never used since the pool was created.
    Unused,
    /// Zeros: as an earlier version left what was never used, or damage.
    Blank,
    /// Torn, damaged, or not to be read.
    Lost,
}

impl Sector {
    fn decode(sector: &[u8], pool_id: &[u8; 16]) -> Sector {
        if let Some(slot) = Slot::decode(sector, pool_id) {
            return Sector::Slot(Box::new(slot));
        }
        let unused = open_sector(sector).is_some_and(|content| {
            content.get(..8) == Some(UNUSED.as_slice()) && content.get(8..24) == Some(pool_id.as_slice())
        });
        match unused {
            true => Sector::Unused,
            false if sector.iter().all(|byte| *byte == 0) => Sector::Blank,
            false => Sector::Lost,
        }
    }
}

/// Whether a checkpoint that cannot be read may have been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Its place holds something else that is whole.
    No,
    /// Its place is blank.
    Possible,
    /// Both copies of its place are damaged.
    Likely,
}

/// Both rings, as read.
pub(crate) struct Ring {
    /// Every valid slot, newest first, without the second copy of one that was already found.
    pub slots: Vec<Slot>,
    sectors: Vec<[Sector; 2]>,
}

impl Ring {
    pub(crate) fn read(member: &dyn Media, label: &LabelSummary) -> Ring {
        let mut ring = Ring {
            slots: Vec::new(),
            sectors: Vec::new(),
        };
        let copies = ring_offsets(label, 0).map(|offset| read_copy(member, label, offset));
        let [front, tail] = copies;
        for pair in front.into_iter().zip(tail) {
            let pair = [pair.0, pair.1];
            for sector in &pair {
                if let Sector::Slot(slot) = sector {
                    ring.slots.push(slot.as_ref().clone());
                }
            }
            ring.sectors.push(pair);
        }
        ring.slots
            .sort_by_key(|slot| std::cmp::Reverse((slot.number, slot.epoch)));
        ring.slots.dedup();
        ring
    }

    pub(crate) fn loss(&self, number: u64) -> Loss {
        match &self.sectors[(number % SLOTS) as usize] {
            [Sector::Slot(_) | Sector::Unused, _] | [_, Sector::Slot(_) | Sector::Unused] => Loss::No,
            [Sector::Lost, Sector::Lost] => Loss::Likely,
            _ => Loss::Possible,
        }
    }

    /// Copies that are damaged while the other is whole. The newest, and the place of the next, may be torn by a crash.
    pub(crate) fn damaged_copies(&self) -> usize {
        let newest = self.slots.first().map_or(0, |slot| slot.number);
        let torn_by_crash = |at: u64| at == newest % SLOTS || at == (newest + 1) % SLOTS;
        let positions = (0..SLOTS).zip(&self.sectors);
        let damaged = positions.filter(|(at, pair)| {
            let lost = pair.iter().any(|copy| matches!(copy, Sector::Lost));
            lost && !torn_by_crash(*at)
        });
        damaged.count()
    }

    /// Rewrites damaged copies: from the other where that is whole, else as unused. Only after a newer checkpoint, number
    /// `newest`, is durable, for what is lost here then no longer matters. Durable when this returns: what follows takes
    /// the place of the next checkpoint for one that was never written.
    pub(crate) fn mend(&self, member: &dyn Media, label: &LabelSummary, newest: u64) -> Result<()> {
        let mut has_written = false;
        for (number, pair) in (0..SLOTS)
            .zip(&self.sectors)
            .filter(|(at, _)| *at != newest % SLOTS)
        {
            let sector = match pair {
                [Sector::Slot(_) | Sector::Unused, Sector::Slot(_) | Sector::Unused] => continue,
                [Sector::Slot(slot), _] | [_, Sector::Slot(slot)] => slot.encode(),
                _ => unused_sector(label),
            };
            for (offset, copy) in ring_offsets(label, number).into_iter().zip(pair) {
                if matches!(copy, Sector::Lost | Sector::Blank) {
                    let written = member.write(offset, &sector);
                    written.map_err(|e| Error::media("mend checkpoint slots", e))?;
                    has_written = true;
                }
            }
        }
        if has_written {
            member
                .flush()
                .map_err(|e| Error::media("mend checkpoint slots", e))?;
        }
        Ok(())
    }
}

/// One copy of the ring, sector by sector where it cannot be read at once.
fn read_copy(member: &dyn Media, label: &LabelSummary, offset: u64) -> Vec<Sector> {
    let mut ring = AlignedBuffer::zeroed((SLOTS * u64::from(SECTOR_BYTES)) as usize);
    let whole = member.read(offset, &mut ring).is_ok();
    let mut sector = AlignedBuffer::zeroed(SECTOR_BYTES as usize);
    (0..SLOTS as usize)
        .map(|at| {
            let start = at * SECTOR_BYTES as usize;
            if whole {
                return Sector::decode(&ring[start..start + SECTOR_BYTES as usize], &label.pool_id);
            }
            match member.read(offset + start as u64, &mut sector) {
                Ok(()) => Sector::decode(&sector, &label.pool_id),
                Err(_) => Sector::Lost,
            }
        })
        .collect()
}

/// Marks every slot of a new pool as unused, so that a damaged one can be told from one that was never written.
pub(crate) fn clear_ring(member: &dyn Media, label: &LabelSummary) -> Result<()> {
    let sector = unused_sector(label);
    for offset in (0..SLOTS).flat_map(|number| ring_offsets(label, number)) {
        member
            .write(offset, &sector)
            .map_err(|e| Error::media("clear checkpoint slots", e))?;
    }
    Ok(())
}

fn unused_sector(label: &LabelSummary) -> AlignedBuffer {
    seal_sector(&[UNUSED.as_slice(), &label.pool_id].concat())
}
