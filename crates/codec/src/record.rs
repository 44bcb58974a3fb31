//! A packed record in memory: a frame, with the numbers the record table keeps about it.

use std::fmt;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::compression::Compression;
use crate::contexts;
use crate::error::{CodecError, Result};
use crate::frame::{Codec, EncodedHeader, header, packed_bytes_max, saves_enough};

#[cfg(doc)]
use crate::frame::RAW_BYTES_MAX;

/// The 64-bit checksum of packed bytes: XXH3 (64 bits, seed 0) by Yann Collet.
///
/// It finds accidental damage; it is no defence against someone who means to forge a record.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// A packed record. Cheap to clone: clones share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct PackedRecord {
    frame: Arc<[u8]>,
    raw_bytes: u32,
    checksum: u64,
}

impl PackedRecord {
    /// Packs a record; one that does not save a sixteenth of its length stays raw.
    ///
    /// # Panics
    /// When `raw` is longer than [`RAW_BYTES_MAX`]: whoever cuts records knows the limit.
    pub fn pack(raw: &[u8], compression: Compression) -> PackedRecord {
        let compressed = match compression {
            Compression::None => None,
            Compression::Lz4 => {
                let header = EncodedHeader::new(Codec::Lz4, raw.len());
                contexts::with_lz4(raw, header.as_slice(), |frame| keep_if_worth_it(raw, frame))
            }
            Compression::Zstd(level) => {
                let header = EncodedHeader::new(Codec::Zstd, raw.len());
                contexts::with_zstd(raw, level, header.as_slice(), |frame| {
                    keep_if_worth_it(raw, frame)
                })
            }
        };
        let frame = compressed.unwrap_or_else(|| raw_frame(raw));
        let checksum = checksum(&frame);
        PackedRecord {
            frame,
            raw_bytes: raw.len() as u32,
            checksum,
        }
    }

    /// Takes a frame that was packed before. Only its header is looked at; errors are those of [`header`].
    pub fn from_frame(frame: Arc<[u8]>) -> Result<PackedRecord> {
        let header = header(&frame)?;
        if frame.len() > packed_bytes_max(header.raw_bytes) as usize + header.header_bytes {
            return Err(CodecError::corrupt(format!(
                "a frame of {} bytes is longer than its {} raw bytes can need",
                frame.len(),
                header.raw_bytes
            )));
        }
        let checksum = checksum(&frame);
        Ok(PackedRecord {
            raw_bytes: header.raw_bytes,
            checksum,
            frame,
        })
    }

    /// The packed bytes: what goes to the media.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Length of the frame.
    pub fn packed_bytes(&self) -> u32 {
        self.frame.len() as u32
    }

    /// Length of the record once unpacked.
    pub fn raw_bytes(&self) -> u32 {
        self.raw_bytes
    }

    /// [`checksum`] of the frame.
    pub fn checksum(&self) -> u64 {
        self.checksum
    }
}

impl fmt::Debug for PackedRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PackedRecord")
            .field("packed_bytes", &self.packed_bytes())
            .field("raw_bytes", &self.raw_bytes)
            .field("checksum", &format_args!("{:016x}", self.checksum))
            .finish()
    }
}

fn keep_if_worth_it(raw: &[u8], frame: Option<&[u8]>) -> Option<Arc<[u8]>> {
    frame
        .filter(|frame| saves_enough(raw.len(), frame.len()))
        .map(Arc::from)
}

fn raw_frame(raw: &[u8]) -> Arc<[u8]> {
    let header = EncodedHeader::new(Codec::Raw, raw.len());
    let mut frame = Vec::with_capacity(header.as_slice().len() + raw.len());
    frame.extend_from_slice(header.as_slice());
    frame.extend_from_slice(raw);
    Arc::from(frame)
}
