//! The frame around one packed record.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | bits 0-3: codec (0 raw, 1 lz4, 2 zstd); bits 4-6: zero; bit 7: a dictionary id follows the length |
//! | 1 | 1-4 | raw length, little-endian base 128, seven bits a byte, shortest form |
//! |   | 1-10 | dictionary id, same encoding; only when bit 7 of byte 0 is set |
//! |   | rest | body |
//!
//! Bodies: *raw*, the bytes themselves; *lz4*, one block without a length in front; *zstd*, frames without
//! magic, content size or checksum. An 8 KiB record therefore carries 3 bytes of header plus 2 that zstd
//! needs.
//!
//! The body runs to the end of the frame: whoever keeps a frame knows its length, and its checksum, which is
//! why neither is in it. So a damaged frame that still unpacks is not noticed here; callers compare
//! [`crate::checksum`] first.
//!
//! A record stays raw unless its frame saves at least a sixteenth of the raw length. Records are packed to
//! the byte, so any saving is real; but below that the room gained (at most 512 bytes of an 8 KiB page) is
//! less than what the time to decompress at every read is worth. File systems that round to sectors ask for
//! an eighth, because less gains nothing there.
//!
//! What is left out: dictionaries. The bit is reserved now so that they need no new format; a frame that has
//! it is reported as unsupported when unpacked.

use crate::contexts;
use crate::error::{CodecError, Result};

/// The longest raw record: 1 MiB of data, and room for callers that add to it.
pub const RAW_BYTES_MAX: u32 = 2 * 1024 * 1024;

/// A record must save at least its length divided by this to be kept compressed.
const SAVING_DIVISOR: usize = 16;

const CODEC_MASK: u8 = 0x0f;
const RESERVED_MASK: u8 = 0x70;
const DICTIONARY_FLAG: u8 = 0x80;

/// Longest encoding of a raw length: `RAW_BYTES_MAX` has 22 bits.
const LENGTH_BYTES_MAX: usize = 4;
/// Longest encoding of any 64-bit number.
const NUMBER_BYTES_MAX: usize = 10;

/// How the body of a frame is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    /// The body is the record itself.
    Raw,
    /// One lz4 block.
    Lz4,
    /// zstd without magic.
    Zstd,
}

impl Codec {
    fn id(self) -> u8 {
        match self {
            Codec::Raw => 0,
            Codec::Lz4 => 1,
            Codec::Zstd => 2,
        }
    }

    fn from_id(id: u8) -> Option<Codec> {
        [Codec::Raw, Codec::Lz4, Codec::Zstd]
            .into_iter()
            .find(|codec| codec.id() == id)
    }
}

impl std::fmt::Display for Codec {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Codec::Raw => "raw",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        })
    }
}

/// Names a dictionary kept by the pool. Reserved in the format; nothing makes one yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DictionaryId(pub u64);

/// What a frame says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// How the body is encoded.
    pub codec: Codec,
    /// Length of the record once unpacked.
    pub raw_bytes: u32,
    /// Length of the header; the body is the rest of the frame.
    pub header_bytes: usize,
    /// The dictionary the body needs; always `None` in frames written by this version.
    pub dictionary: Option<DictionaryId>,
}

/// The longest frame that a record of `raw_bytes` can become.
pub fn packed_bytes_max(raw_bytes: u32) -> u32 {
    raw_bytes + 1 + LENGTH_BYTES_MAX as u32
}

/// Whether a body saves enough to be worth decompressing at every read.
pub(crate) fn saves_enough(raw_bytes: usize, frame_bytes: usize) -> bool {
    frame_bytes + raw_bytes.div_ceil(SAVING_DIVISOR) <= raw_bytes
}

/// A header on its way to the front of a frame.
pub(crate) struct EncodedHeader {
    bytes: [u8; 1 + LENGTH_BYTES_MAX],
    length: usize,
}

impl EncodedHeader {
    /// The header for a record of `raw_bytes`.
    pub(crate) fn new(codec: Codec, raw_bytes: usize) -> EncodedHeader {
        assert!(
            raw_bytes <= RAW_BYTES_MAX as usize,
            "a record of {raw_bytes} bytes is longer than {RAW_BYTES_MAX}"
        );
        let mut header = EncodedHeader {
            bytes: [0; 1 + LENGTH_BYTES_MAX],
            length: 1,
        };
        header.bytes[0] = codec.id();
        let mut rest = raw_bytes;
        loop {
            let more = rest > 0x7f;
            header.bytes[header.length] = (rest & 0x7f) as u8 | if more { 0x80 } else { 0 };
            header.length += 1;
            rest >>= 7;
            if !more {
                return header;
            }
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Reads the header of a frame, without looking at the body.
///
/// Errors: `Corrupt` when the header is cut off, not in its shortest form, or says more than
/// [`RAW_BYTES_MAX`]; `Unsupported` for a codec or flag this version does not know.
pub fn header(frame: &[u8]) -> Result<FrameHeader> {
    let Some((&first, mut rest)) = frame.split_first() else {
        return Err(CodecError::corrupt("the frame is empty"));
    };
    if first & RESERVED_MASK != 0 {
        return Err(CodecError::unsupported(format!(
            "the frame has unknown flags (first byte {first:#04x})"
        )));
    }
    let codec = Codec::from_id(first & CODEC_MASK).ok_or_else(|| {
        CodecError::unsupported(format!("the frame has unknown codec {}", first & CODEC_MASK))
    })?;
    let raw_bytes = take_number(&mut rest, LENGTH_BYTES_MAX)
        .and_then(|number| u32::try_from(number).ok())
        .filter(|&raw_bytes| raw_bytes <= RAW_BYTES_MAX)
        .ok_or_else(|| CodecError::corrupt("the raw length in the frame's header is damaged"))?;
    let dictionary = if first & DICTIONARY_FLAG != 0 {
        let id = take_number(&mut rest, NUMBER_BYTES_MAX)
            .ok_or_else(|| CodecError::corrupt("the dictionary id in the frame's header is damaged"))?;
        Some(DictionaryId(id))
    } else {
        None
    };
    Ok(FrameHeader {
        codec,
        raw_bytes,
        header_bytes: frame.len() - rest.len(),
        dictionary,
    })
}

/// Takes one number off the front; `None` when it is cut off, too long, too large or not in its shortest
/// form.
fn take_number(bytes: &mut &[u8], length_max: usize) -> Option<u64> {
    let mut number = 0u64;
    for (index, &byte) in bytes.iter().take(length_max).enumerate() {
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * index as u32;
        let placed = bits << shift;
        if placed >> shift != bits {
            return None;
        }
        number |= placed;
        if byte & 0x80 == 0 {
            if byte == 0 && index > 0 {
                return None;
            }
            *bytes = &bytes[index + 1..];
            return Some(number);
        }
    }
    None
}

/// Unpacks a frame into a new vector.
///
/// Errors: those of [`header`]; `TooLarge` when the record is longer than `raw_bytes_max` (nothing is
/// allocated then); `Unsupported` when it needs a dictionary; `Corrupt` when the body does not decode to
/// exactly the length promised.
pub fn unpack(frame: &[u8], raw_bytes_max: u32) -> Result<Vec<u8>> {
    let mut raw = Vec::new();
    unpack_into(frame, raw_bytes_max, &mut raw)?;
    Ok(raw)
}

/// Unpacks a frame, replacing what `out` holds; its allocation is used again where it is large enough.
///
/// Errors are those of [`unpack`]; `out` is empty after one.
pub fn unpack_into(frame: &[u8], raw_bytes_max: u32, out: &mut Vec<u8>) -> Result<()> {
    let result = unpack_header_and_body(frame, raw_bytes_max, out);
    if result.is_err() {
        out.clear();
    }
    result
}

fn unpack_header_and_body(frame: &[u8], raw_bytes_max: u32, out: &mut Vec<u8>) -> Result<()> {
    let header = header(frame)?;
    if header.raw_bytes > raw_bytes_max {
        return Err(CodecError::too_large(u64::from(header.raw_bytes), raw_bytes_max));
    }
    if let Some(DictionaryId(id)) = header.dictionary {
        return Err(CodecError::unsupported(format!(
            "the frame needs dictionary {id}, and this version has no dictionaries"
        )));
    }
    let raw_bytes = header.raw_bytes as usize;
    let body = &frame[header.header_bytes..];
    if header.codec == Codec::Raw {
        if body.len() != raw_bytes {
            return Err(wrong_length(Codec::Raw, body.len(), raw_bytes));
        }
        out.clear();
        out.reserve_exact(raw_bytes);
        out.extend_from_slice(body);
        return Ok(());
    }
    out.truncate(raw_bytes);
    out.reserve_exact(raw_bytes - out.len());
    out.resize(raw_bytes, 0);
    let written = match header.codec {
        Codec::Lz4 => contexts::unpack_lz4(body, out).ok_or("not an lz4 block of that length"),
        Codec::Zstd => contexts::unpack_zstd(body, out),
        Codec::Raw => unreachable!("handled above"),
    }
    .map_err(|reason| {
        CodecError::corrupt(format!(
            "the {} body of the frame is damaged: {reason}",
            header.codec
        ))
    })?;
    if written != raw_bytes {
        return Err(wrong_length(header.codec, written, raw_bytes));
    }
    Ok(())
}

fn wrong_length(codec: Codec, found: usize, promised: usize) -> CodecError {
    CodecError::corrupt(format!(
        "the {codec} body of the frame holds {found} bytes where its header promises {promised}"
    ))
}

#[cfg(test)]
mod tests;
