//! Finding batches of the log where they may lie, with long reads.
//!
//! A log of small commits is tens of thousands of short batches. Reading each header and each batch from the device by
//! itself would make recovery a matter of round trips, so a *window* of each segment is read at once and looked into.
//! Where a window cannot be read, the exact bytes are tried, so that a bad sector hides nothing but itself.
//!
//! The log must not grow while a scanner is used: its windows would not show it.

use crate::batch::{Batch, HEADER_BYTES, Header};
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::Geometry;
use crate::slot::Cursor;
use crate::types::{SECTOR_BYTES, SegmentId};
use packstone_media::AlignedBuffer;
use std::cell::RefCell;
use std::ops::Range;

/// Length of a window: long enough that the device's time for a round trip does not count.
const WINDOW_BYTES: u32 = 1 << 20;
/// As many as there are streams of the log, and one for looking elsewhere.
const WINDOWS: usize = 4;

/// A piece of a segment in memory.
struct Window {
    segment: SegmentId,
    start: u32,
    bytes: AlignedBuffer,
}

impl Window {
    fn piece(&self, segment: SegmentId, start: u32, end: u32) -> Option<&[u8]> {
        if self.segment != segment {
            return None;
        }
        let first = start.checked_sub(self.start)? as usize;
        self.bytes.get(first..first + (end - start) as usize)
    }
}

/// Finds batches where they may lie.
pub(crate) struct Scanner<'a> {
    geometry: &'a Geometry,
    pool_tag: u64,
    /// The least recently read one first.
    windows: RefCell<Vec<Window>>,
    /// Windows, and (empty ranges) starts of exact reads, that could not be read: a device may take seconds to say so, and is
    /// not asked again.
    unreadable: RefCell<Vec<(SegmentId, Range<u32>)>>,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(geometry: &'a Geometry, pool_tag: u64) -> Scanner<'a> {
        Scanner {
            geometry,
            pool_tag,
            windows: RefCell::default(),
            unreadable: RefCell::default(),
        }
    }

    /// The header at a place, if a batch seems to begin there. An error is one of the media.
    pub(crate) fn header_at(&self, cursor: &Cursor) -> Result<Option<Header>> {
        let room = self.geometry.segment_bytes().saturating_sub(cursor.offset_bytes);
        if room < SECTOR_BYTES {
            return Ok(None);
        }
        self.with_bytes(cursor, SECTOR_BYTES, |bytes| {
            let header = &bytes[..HEADER_BYTES];
            Header::decode(header, self.pool_tag, cursor.segment, cursor.offset_bytes, room).ok()
        })
    }

    /// The header of the batch that a segment begins with. Reads no more than that.
    pub(crate) fn first_header(&self, segment: SegmentId) -> Result<Option<Header>> {
        let room = self.geometry.segment_bytes();
        let (bytes, _) = self.geometry.read(segment, 0, SECTOR_BYTES)?;
        Ok(Header::decode(&bytes[..HEADER_BYTES], self.pool_tag, segment, 0, room).ok())
    }

    /// The batch at a place, if it is whole. An error is one of the media.
    pub(crate) fn batch_at(&self, cursor: &Cursor, header: Header) -> Result<Option<Batch>> {
        let bytes = self.with_bytes(cursor, header.total_bytes, AlignedBuffer::copy_of)?;
        Ok(Batch::decode(header, bytes).ok())
    }

    pub(crate) fn is_whole(&self, cursor: &Cursor, header: &Header) -> bool {
        matches!(self.batch_at(cursor, header.clone()), Ok(Some(_)))
    }

    /// Every header from a place to the end of its segment, whatever lies between; what cannot be read is passed over.
    pub(crate) fn headers_behind(&self, cursor: &Cursor) -> impl Iterator<Item = (Cursor, Header)> {
        let segment = cursor.segment;
        (cursor.offset_bytes..self.geometry.segment_bytes())
            .step_by(SECTOR_BYTES as usize)
            .filter_map(move |offset_bytes| {
                let at = Cursor {
                    segment,
                    offset_bytes,
                };
                Some((at, self.header_at(&at).ok()??))
            })
    }

    /// Hands over `length_bytes` from a place on; the place and the length are whole sectors within the segment.
    fn with_bytes<T>(&self, cursor: &Cursor, length_bytes: u32, look: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let (segment, start, end) = (
            cursor.segment,
            cursor.offset_bytes,
            cursor.offset_bytes + length_bytes,
        );
        let mut windows = self.windows.borrow_mut();
        for window in windows.iter() {
            if let Some(piece) = window.piece(segment, start, end) {
                return Ok(look(piece));
            }
        }
        let bytes = self.read_window(segment, start, end)?;
        windows.retain(|window| window.segment != segment);
        if windows.len() == WINDOWS {
            windows.remove(0);
        }
        let seen = look(&bytes[..length_bytes as usize]);
        windows.push(Window {
            segment,
            start,
            bytes,
        });
        Ok(seen)
    }

    /// Reads from `start` to the end of a window, or at least to `end` where the rest cannot be read.
    fn read_window(&self, segment: SegmentId, start: u32, end: u32) -> Result<AlignedBuffer> {
        let window_end = self
            .geometry
            .segment_bytes()
            .min(start.saturating_add(WINDOW_BYTES));
        let mut unreadable = self.unreadable.borrow_mut();
        let touches_unreadable = unreadable
            .iter()
            .any(|(other, range)| *other == segment && start < range.end && range.start < window_end);
        if end < window_end && !touches_unreadable {
            match self.geometry.read(segment, start, window_end) {
                Ok((bytes, _)) => return Ok(bytes),
                Err(_) => unreadable.push((segment, start..window_end)),
            }
        }
        if unreadable
            .iter()
            .any(|(other, range)| *other == segment && *range == (start..start))
        {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "read segment",
                format!("segment {segment} offset {start} could not be read just before"),
            ));
        }
        match self.geometry.read(segment, start, end) {
            Ok((bytes, _)) => Ok(bytes),
            Err(error) => {
                unreadable.push((segment, start..start));
                Err(error)
            }
        }
    }
}
