//! The label of a member: who it is, and how the pool is laid out on it.
//!
//! A member is `front label area | segments | tail label area`. Both areas are [`LABEL_AREA_BYTES`] long and hold the
//! same: the label in the first sector, the ring of checkpoint slots (`slot.rs`) from [`SLOT_RING_OFFSET_BYTES`]. The
//! label is written at creation and when members change, never in normal work.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | magic `PACKSTON` |
//! | 4 | format version |
//! | 8 | features a program must know to read the pool |
//! | 8 | features a program may ignore |
//! | 16 | pool id |
//! | 16 | member id |
//! | 2, 2 | index of this member, number of members |
//! | 8 | size of the member in bytes |
//! | 4 | sector size |
//! | 4 | segment size |
//! | 4, 4 | first segment on this member, number of segments |
//! | varint + n | pool name |
//! | ... | zeros |
//! | 8 | checksum of the first 4088 bytes, at byte 4088 |

use crate::encoding::{Malformed, Reader, put_bytes};
use crate::error::{Error, ErrorKind, Result};
use crate::segments::SegmentTable;
use crate::types::SECTOR_BYTES;
use packstone_media::{AlignedBuffer, Media};
use xxhash_rust::xxh3::xxh3_128;

/// Newest layout this program reads and writes.
pub const FORMAT_VERSION: u32 = 1;
/// Room kept at each end of a member.
pub const LABEL_AREA_BYTES: u64 = 256 << 10;
/// Where the checkpoint ring starts within a label area.
pub(crate) const SLOT_RING_OFFSET_BYTES: u64 = 64 << 10;
/// Smallest member `create` accepts.
pub const MEMBER_BYTES_MIN: u64 = 64 << 20;
/// Longest pool name, bytes.
pub const POOL_NAME_BYTES_MAX: usize = 255;

const MAGIC: &[u8; 8] = b"PACKSTON";
const CHECKSUM_AT: usize = SECTOR_BYTES as usize - 8;
/// Fewest segments a pool can live with: open streams, a checkpoint and the cleaner need room beside the data.
pub(crate) const SEGMENTS_MIN: u32 = 16;

/// What the label of a member says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSummary {
    /// Name given at creation.
    pub pool_name: String,
    /// Random id of the pool.
    pub pool_id: [u8; 16],
    /// Id of this member, derived from the pool's.
    pub member_id: [u8; 16],
    /// Which member this is, from 0.
    pub member_index: u16,
    /// How many members the pool has.
    pub member_count: u16,
    /// Layout the member was written in.
    pub format_version: u32,
    /// Size of the member when it was created, bytes.
    pub capacity_bytes: u64,
    /// Size of every segment, bytes.
    pub segment_bytes: u32,
    /// Number of the first segment on this member.
    pub first_segment: u32,
    /// Segments on this member.
    pub segment_count: u32,
}

impl LabelSummary {
    /// Lays out a pool of one member. `segment_bytes` is chosen from the size when `None`.
    pub(crate) fn plan(
        name: &str,
        pool_id: [u8; 16],
        size_bytes: u64,
        segment_bytes: Option<u32>,
    ) -> Result<LabelSummary> {
        if name.is_empty() || name.len() > POOL_NAME_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "create pool",
                "a pool name has 1 to 255 bytes",
            ));
        }
        let segment_bytes = segment_bytes.unwrap_or_else(|| default_segment_bytes(size_bytes));
        let segment_count_max = SegmentTable::count_max(segment_bytes);
        if !segment_bytes.is_power_of_two() || !(256 << 10..=64 << 20).contains(&segment_bytes) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "create pool",
                format!("segment size {segment_bytes} is not a power of two from 256 KiB to 64 MiB"),
            ));
        }
        let room_bytes = size_bytes.saturating_sub(2 * LABEL_AREA_BYTES);
        let segment_count = u32::try_from(room_bytes / u64::from(segment_bytes)).unwrap_or(u32::MAX - 1);
        if segment_count < SEGMENTS_MIN {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "create pool",
                format!("a member of {size_bytes} bytes is too small: {MEMBER_BYTES_MIN} bytes is the least"),
            ));
        }
        if segment_count > segment_count_max {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "create pool",
                format!(
                    "a member of {size_bytes} bytes has more than {segment_count_max} segments of {segment_bytes} bytes: use larger segments"
                ),
            ));
        }
        let mut member_seed = pool_id.to_vec();
        member_seed.extend_from_slice(&0u16.to_le_bytes());
        Ok(LabelSummary {
            pool_name: name.to_owned(),
            pool_id,
            member_id: xxh3_128(&member_seed).to_le_bytes(),
            member_index: 0,
            member_count: 1,
            format_version: FORMAT_VERSION,
            capacity_bytes: size_bytes,
            segment_bytes,
            first_segment: 0,
            segment_count,
        })
    }

    pub(crate) fn encode(&self) -> AlignedBuffer {
        let mut out = Vec::with_capacity(SECTOR_BYTES as usize);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.format_version.to_le_bytes());
        out.extend_from_slice(&0u64.to_le_bytes());
        out.extend_from_slice(&0u64.to_le_bytes());
        out.extend_from_slice(&self.pool_id);
        out.extend_from_slice(&self.member_id);
        out.extend_from_slice(&self.member_index.to_le_bytes());
        out.extend_from_slice(&self.member_count.to_le_bytes());
        out.extend_from_slice(&self.capacity_bytes.to_le_bytes());
        out.extend_from_slice(&SECTOR_BYTES.to_le_bytes());
        out.extend_from_slice(&self.segment_bytes.to_le_bytes());
        out.extend_from_slice(&self.first_segment.to_le_bytes());
        out.extend_from_slice(&self.segment_count.to_le_bytes());
        put_bytes(&mut out, self.pool_name.as_bytes());
        seal_sector(&out)
    }

    fn decode(sector: &[u8]) -> std::result::Result<LabelSummary, LabelProblem> {
        if sector.get(..8) != Some(MAGIC.as_slice()) {
            return Err(LabelProblem::NoMagic);
        }
        let mut reader = Reader::new(open_sector(sector).ok_or(LabelProblem::BadChecksum)?);
        let label = Self::decode_fields(&mut reader)?;
        let room_bytes = label.capacity_bytes.saturating_sub(2 * LABEL_AREA_BYTES);
        let fits = u64::from(label.segment_count) * u64::from(label.segment_bytes) <= room_bytes;
        let sane =
            label.segment_bytes.is_power_of_two() && (256 << 10..=64 << 20).contains(&label.segment_bytes);
        let countable = label.segment_count <= SegmentTable::count_max(label.segment_bytes);
        if !fits || !sane || !countable || label.segment_count < SEGMENTS_MIN || label.first_segment != 0 {
            return Err(LabelProblem::Malformed(Malformed("has an impossible geometry")));
        }
        Ok(label)
    }

    fn decode_fields(reader: &mut Reader<'_>) -> std::result::Result<LabelSummary, LabelProblem> {
        reader.take(MAGIC.len())?;
        let format_version = reader.u32()?;
        let features_needed = reader.u64()?;
        if format_version > FORMAT_VERSION || features_needed != 0 {
            return Err(LabelProblem::Newer(format_version));
        }
        let _features_optional = reader.u64()?;
        let (pool_id, member_id) = (reader.id128()?, reader.id128()?);
        let (member_index, member_count) = (reader.u16()?, reader.u16()?);
        let capacity_bytes = reader.u64()?;
        if reader.u32()? != SECTOR_BYTES {
            return Err(LabelProblem::Malformed(Malformed("has an unknown sector size")));
        }
        let (segment_bytes, first_segment, segment_count) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let pool_name = String::from_utf8_lossy(reader.bytes()?).into_owned();
        Ok(LabelSummary {
            pool_name,
            pool_id,
            member_id,
            member_index,
            member_count,
            format_version,
            capacity_bytes,
            segment_bytes,
            first_segment,
            segment_count,
        })
    }
}

enum LabelProblem {
    NoMagic,
    BadChecksum,
    Newer(u32),
    Malformed(Malformed),
}

impl From<Malformed> for LabelProblem {
    fn from(malformed: Malformed) -> Self {
        LabelProblem::Malformed(malformed)
    }
}

/// Pads to a sector and appends the checksum.
pub(crate) fn seal_sector(content: &[u8]) -> AlignedBuffer {
    assert!(
        content.len() <= CHECKSUM_AT,
        "content of {} bytes does not fit a sector",
        content.len()
    );
    let mut sector = AlignedBuffer::zeroed(SECTOR_BYTES as usize);
    sector[..content.len()].copy_from_slice(content);
    let checksum = packstone_codec::checksum(&sector[..CHECKSUM_AT]);
    sector[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    sector
}

/// The content of a sealed sector, if its checksum holds.
pub(crate) fn open_sector(sector: &[u8]) -> Option<&[u8]> {
    let (content, checksum) = sector.get(..SECTOR_BYTES as usize)?.split_at(CHECKSUM_AT);
    (packstone_codec::checksum(content).to_le_bytes() == checksum).then_some(content)
}

/// A power of two from 1 to 16 MiB that gives about a thousand segments; more where there would be too many to count.
fn default_segment_bytes(size_bytes: u64) -> u32 {
    let wanted = (size_bytes / 1024).clamp(1 << 20, 16 << 20);
    let mut segment_bytes = 1 << wanted.ilog2();
    while size_bytes / u64::from(segment_bytes) > u64::from(SegmentTable::count_max(segment_bytes))
        && segment_bytes < 64 << 20
    {
        segment_bytes *= 2;
    }
    segment_bytes
}

/// Start of the tail label area of a member of that size.
pub(crate) fn tail_offset_bytes(size_bytes: u64) -> u64 {
    size_bytes.saturating_sub(LABEL_AREA_BYTES) / u64::from(SECTOR_BYTES) * u64::from(SECTOR_BYTES)
}

/// Writes the label at both ends; the caller flushes.
pub(crate) fn write_label(member: &dyn Media, label: &LabelSummary) -> Result<()> {
    let sector = label.encode();
    for offset in [0, tail_offset_bytes(label.capacity_bytes)] {
        member
            .write(offset, &sector)
            .map_err(|e| Error::media("write label", e))?;
    }
    Ok(())
}

/// Reads the label from the front, or from the tail when the front is damaged.
///
/// Errors: `NotFound` when no pool lies there, `Damaged` when both copies are, `Unsupported` for a newer format.
pub fn read_label(member: &dyn Media) -> Result<LabelSummary> {
    const OPERATION: &str = "read label";
    let size_bytes = member.size_bytes();
    if size_bytes < 2 * LABEL_AREA_BYTES {
        return Err(Error::new(
            ErrorKind::NotFound,
            OPERATION,
            format!("{} is too small to be a pool member", member.description()),
        ));
    }
    let mut sector = AlignedBuffer::zeroed(SECTOR_BYTES as usize);
    let mut damage = None;
    for offset in [0, tail_offset_bytes(size_bytes)] {
        match member.read(offset, &mut sector) {
            Ok(()) => {}
            Err(error) => {
                damage = Some(Error::media(OPERATION, error));
                continue;
            }
        }
        match LabelSummary::decode(&sector) {
            Ok(label) if label.capacity_bytes > size_bytes => {
                damage = Some(Error::damaged(
                    OPERATION,
                    format!(
                        "{} has {size_bytes} bytes but its label says {}: it was cut short",
                        member.description(),
                        label.capacity_bytes
                    ),
                ));
            }
            Ok(label) => return Ok(label),
            Err(LabelProblem::Newer(version)) => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    OPERATION,
                    format!(
                        "{} has pool format {version}; this program reads up to {FORMAT_VERSION}: use a newer packstone",
                        member.description()
                    ),
                ));
            }
            Err(LabelProblem::NoMagic) => {}
            Err(LabelProblem::BadChecksum) => {
                damage = Some(Error::damaged(
                    OPERATION,
                    format!("the label of {} fails its checksum", member.description()),
                ));
            }
            Err(LabelProblem::Malformed(malformed)) => {
                damage = Some(Error::malformed(OPERATION, "the label", malformed))
            }
        }
    }
    Err(damage.unwrap_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            OPERATION,
            format!("{} is not a member of a pool", member.description()),
        )
    }))
}

/// What lies on a member before `create` overwrites it.
#[derive(Clone, Debug)]
pub enum MemberContent {
    /// The first MiB holds zeros only.
    Empty,
    /// A pool, whole or with one damaged label.
    Pool(Box<LabelSummary>),
    /// Anything else; a short description.
    Foreign(String),
}

/// Looks at the start of a member. Recognising other file systems by name is the caller's business.
pub fn probe(member: &dyn Media) -> Result<MemberContent> {
    match read_label(member) {
        Ok(label) => return Ok(MemberContent::Pool(Box::new(label))),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return Ok(MemberContent::Foreign(error.to_string()));
        }
        Err(error) if error.kind() == ErrorKind::Damaged => {
            return Ok(MemberContent::Foreign(format!("a damaged pool ({error})")));
        }
        Err(_) => {}
    }
    let length = (1 << 20).min(member.size_bytes() / u64::from(SECTOR_BYTES) * u64::from(SECTOR_BYTES));
    let mut front = AlignedBuffer::zeroed(length as usize);
    member
        .read(0, &mut front)
        .map_err(|e| Error::media("probe member", e))?;
    Ok(if front.iter().all(|byte| *byte == 0) {
        MemberContent::Empty
    } else {
        MemberContent::Foreign("data of an unknown kind".to_owned())
    })
}

/// Makes a member no longer a pool: zeroes both labels and rings.
pub fn wipe(member: &dyn Media) -> Result<()> {
    let zeros = AlignedBuffer::zeroed(LABEL_AREA_BYTES as usize);
    for offset in [0, tail_offset_bytes(member.size_bytes())] {
        member
            .write(offset, &zeros)
            .map_err(|e| Error::media("wipe label", e))?;
    }
    member.flush().map_err(|e| Error::media("wipe label", e))
}

/// Copies of the label that are not what the pool was opened with: "front", "tail".
pub(crate) fn damaged_labels(member: &dyn Media, label: &LabelSummary) -> Vec<&'static str> {
    let mut sector = AlignedBuffer::zeroed(SECTOR_BYTES as usize);
    let copies = [("front", 0), ("tail", tail_offset_bytes(label.capacity_bytes))];
    let damaged = |offset: &(&'static str, u64)| {
        let read = member.read(offset.1, &mut sector).is_ok();
        !read || *sector != *label.encode()
    };
    let mut damaged = damaged;
    copies
        .into_iter()
        .filter(|copy| damaged(copy))
        .map(|(name, _)| name)
        .collect()
}
