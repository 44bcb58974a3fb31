//! Compression contexts, one set per thread, and the only file that calls the compression libraries.
//!
//! Making a zstd context costs about as much as compressing an 8 KiB page with it, so every thread keeps one
//! for compressing and one for decompressing, and one lz4 hash table for each size class. Contexts carry no
//! state from one call to the next that could change a result.
//!
//! Memory: a zstd context for compressing grows to what the largest record and highest level of its thread
//! needed: 120 KiB for 8 KiB records at level 1, 0.6 MiB for 1 MiB records, 17 MiB for those at level 19; zstd
//! shrinks it again after a run of smaller uses. One for decompressing takes 94 KiB. The scratch buffer is cut
//! back after large records.

use std::cell::RefCell;

use lz4_flex::block::{self, CompressTable};
use zstd::zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

use crate::compression::ZstdLevel;

/// A scratch buffer longer than this is released after use, so that many threads that once packed a large
/// record do not each keep megabytes.
const SCRATCH_KEPT_BYTES: usize = 256 * 1024;

/// Inputs from this length on need the lz4 table with 32-bit entries.
const LZ4_SMALL_BYTES: usize = u16::MAX as usize;

struct Compressor {
    zstd: Option<(CCtx<'static>, ZstdLevel)>,
    lz4_small: CompressTable,
    lz4_large: Option<CompressTable>,
    scratch: Vec<u8>,
}

thread_local! {
    static COMPRESSOR: RefCell<Compressor> = RefCell::new(Compressor {
        zstd: None,
        lz4_small: CompressTable::small(),
        lz4_large: None,
        scratch: Vec::new(),
    });
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Compresses with lz4 behind `prefix` and hands prefix and body to `consume`; `None` when the library fails.
pub(crate) fn with_lz4<R>(raw: &[u8], prefix: &[u8], consume: impl FnOnce(Option<&[u8]>) -> R) -> R {
    COMPRESSOR.with_borrow_mut(|compressor| {
        let Compressor {
            lz4_small,
            lz4_large,
            scratch,
            ..
        } = compressor;
        let table = if raw.len() < LZ4_SMALL_BYTES {
            lz4_small
        } else {
            lz4_large.get_or_insert_with(CompressTable::large)
        };
        let body = prepare(scratch, prefix, block::get_maximum_output_size(raw.len()));
        let length = block::compress_into_with_table(raw, body, table).ok();
        finish(scratch, prefix.len(), length, consume)
    })
}

/// Compresses with zstd behind `prefix` and hands prefix and body to `consume`; `None` when the library
/// fails.
pub(crate) fn with_zstd<R>(
    raw: &[u8],
    level: ZstdLevel,
    prefix: &[u8],
    consume: impl FnOnce(Option<&[u8]>) -> R,
) -> R {
    COMPRESSOR.with_borrow_mut(|compressor| {
        let Compressor { zstd, scratch, .. } = compressor;
        let Some(context) = zstd_compressor(zstd, level) else {
            return consume(None);
        };
        let body = prepare(scratch, prefix, zstd::zstd_safe::compress_bound(raw.len()));
        let length = context.compress2(body, raw).ok();
        finish(scratch, prefix.len(), length, consume)
    })
}

/// Decompresses an lz4 block; the number of bytes written, or `None` when the block is damaged or does not
/// fit.
pub(crate) fn unpack_lz4(body: &[u8], raw: &mut [u8]) -> Option<usize> {
    block::decompress_into(body, raw).ok()
}

/// Decompresses a zstd frame without magic; the number of bytes written, or what zstd says is wrong.
pub(crate) fn unpack_zstd(body: &[u8], raw: &mut [u8]) -> Result<usize, &'static str> {
    DECOMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = new_zstd_decompressor();
        }
        let context = slot.as_mut().ok_or("out of memory")?;
        context
            .decompress(raw, body)
            .map_err(zstd::zstd_safe::get_error_name)
    })
}

fn zstd_compressor<'a>(
    slot: &'a mut Option<(CCtx<'static>, ZstdLevel)>,
    level: ZstdLevel,
) -> Option<&'a mut CCtx<'static>> {
    if slot.is_none() {
        let mut context = CCtx::try_create()?;
        // The frame around this one has the length, the record table has the checksum, and the codec is
        // known: each of these would be bytes in every record.
        context
            .set_parameter(CParameter::Format(FrameFormat::Magicless))
            .ok()?;
        context.set_parameter(CParameter::ContentSizeFlag(false)).ok()?;
        context.set_parameter(CParameter::ChecksumFlag(false)).ok()?;
        context.set_parameter(CParameter::DictIdFlag(false)).ok()?;
        context
            .set_parameter(CParameter::CompressionLevel(i32::from(level.get())))
            .ok()?;
        *slot = Some((context, level));
    }
    let (context, current) = slot.as_mut()?;
    if *current != level {
        context
            .set_parameter(CParameter::CompressionLevel(i32::from(level.get())))
            .ok()?;
        *current = level;
    }
    Some(context)
}

fn new_zstd_decompressor() -> Option<DCtx<'static>> {
    let mut context = DCtx::try_create()?;
    context
        .set_parameter(DParameter::Format(FrameFormat::Magicless))
        .ok()?;
    Some(context)
}

/// Puts the prefix at the start of the scratch buffer; the `body_bytes_max` after it.
fn prepare<'a>(scratch: &'a mut Vec<u8>, prefix: &[u8], body_bytes_max: usize) -> &'a mut [u8] {
    let total_bytes = prefix.len() + body_bytes_max;
    if scratch.len() < total_bytes {
        scratch.resize(total_bytes, 0);
    }
    scratch[..prefix.len()].copy_from_slice(prefix);
    &mut scratch[prefix.len()..total_bytes]
}

fn finish<R>(
    scratch: &mut Vec<u8>,
    prefix_bytes: usize,
    body_bytes: Option<usize>,
    consume: impl FnOnce(Option<&[u8]>) -> R,
) -> R {
    let result = consume(body_bytes.map(|length| &scratch[..prefix_bytes + length]));
    if scratch.len() > SCRATCH_KEPT_BYTES {
        *scratch = Vec::new();
    }
    result
}
