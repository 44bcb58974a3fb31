//! The trait that a pool sees, and the checks that every media makes on a request.

use std::sync::Arc;

use crate::counters::MediaCounters;
use crate::error::{MediaError, MediaErrorKind, Result};

/// The sector of a media unless it says otherwise.
pub const SECTOR_BYTES: u32 = 4096;

/// One of several reads that are made together.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Where to read.
    pub offset_bytes: u64,
    /// What to fill.
    pub buffer: &'a mut [u8],
}

/// A device of a fixed number of bytes.
///
/// All methods may be called from many threads at once. Of concurrent operations on the same sectors either
/// may come first. Offsets and lengths are multiples of [`Media::sector_bytes`]; anything else is refused
/// with [`MediaErrorKind::InvalidInput`]. Memory should come from an [`crate::AlignedBuffer`]: other memory
/// works, at the price of a copy.
pub trait Media: Send + Sync {
    /// Fills the buffer with the bytes at that offset. On an error the buffer's content is unspecified.
    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()>;

    /// Fills the buffers of all requests, at once where the media can; the first error ends it, and the content of every
    /// buffer is then unspecified.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        requests
            .iter_mut()
            .try_for_each(|request| self.read(request.offset_bytes, request.buffer))
    }

    /// Writes all of `data` at that offset. Later reads see it; it is durable after the next successful
    /// flush. On an error each sector of the range may hold old bytes, new bytes or a mix.
    fn write(&self, offset_bytes: u64, data: &[u8]) -> Result<()>;

    /// Makes every write that returned before this call began durable. After one failure every later flush
    /// fails.
    fn flush(&self) -> Result<()>;

    /// Says that these bytes are no longer needed. A hint: media that cannot use it do nothing and return
    /// `Ok`. What a later read of the range returns is unspecified until it is written again.
    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<()>;

    /// Size, a multiple of [`Media::sector_bytes`].
    fn size_bytes(&self) -> u64;

    /// Unit of alignment: 4096 nearly everywhere, larger on some devices, 512 possible on simulated ones.
    ///
    /// A crash can leave any sector that was being written old, new or torn; sectors that were not being
    /// written are never touched.
    fn sector_bytes(&self) -> u32;

    /// The path or another name, for messages.
    fn description(&self) -> String;

    /// What passed through since it was opened.
    fn counters(&self) -> MediaCounters;
}

impl<M: Media + ?Sized> Media for Arc<M> {
    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        (**self).read(offset_bytes, buffer)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        (**self).read_many(requests)
    }

    fn write(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        (**self).write(offset_bytes, data)
    }

    fn flush(&self) -> Result<()> {
        (**self).flush()
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        (**self).discard(offset_bytes, length_bytes)
    }

    fn size_bytes(&self) -> u64 {
        (**self).size_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        (**self).sector_bytes()
    }

    fn description(&self) -> String {
        (**self).description()
    }

    fn counters(&self) -> MediaCounters {
        (**self).counters()
    }
}

/// Checks that a request lies in the media and on sector boundaries.
pub(crate) fn check_request(
    media: &dyn Media,
    operation: &'static str,
    offset_bytes: u64,
    length_bytes: u64,
) -> Result<()> {
    let sector_bytes = u64::from(media.sector_bytes());
    let refuse = |detail: String| {
        Err(MediaError::new(
            MediaErrorKind::InvalidInput,
            operation,
            media.description(),
            detail,
        ))
    };
    if offset_bytes % sector_bytes != 0 || length_bytes % sector_bytes != 0 {
        return refuse(format!(
            "offset {offset_bytes} and length {length_bytes} must be multiples of the sector, {sector_bytes} bytes"
        ));
    }
    let size_bytes = media.size_bytes();
    if offset_bytes
        .checked_add(length_bytes)
        .is_none_or(|end| end > size_bytes)
    {
        return refuse(format!(
            "{length_bytes} bytes at offset {offset_bytes} reach beyond its end at {size_bytes} bytes"
        ));
    }
    Ok(())
}
