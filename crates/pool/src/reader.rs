//! Reading records: memory first, then media, with neighbours in one read and every byte checked.
//!
//! A location may go stale between looking it up and reading the bytes: the cleaner moved the record and its segment was
//! written anew. So bytes that fail their checksum are damage only if the record still is where they were read.

use crate::cache::CachedRecord;
use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pool;
use crate::state::Recent;
use crate::stores::{locate, unpack};
use crate::types::{Location, RecordId, SegmentId};
use std::sync::atomic::Ordering;

/// Records whose frames lie closer than this are read together; the gap costs less than another read.
const GAP_BYTES_MAX: u32 = 16 << 10;
/// Longest single read.
const SPAN_BYTES_MAX: u32 = 1 << 20;
/// Spans fetched at once.
const SPANS_AT_ONCE: usize = 128;
/// How often a record may move under a reader before that is taken for a fault.
const MOVES_MAX: u32 = 100;

enum Found {
    Bytes(Vec<u8>),
    At(Location),
}

/// Frames to be fetched with one read: positions in the caller's list and their places.
struct Span {
    wanted: Vec<(usize, Location)>,
    start: u32,
    end: u32,
}

impl Span {
    fn place(&self) -> (SegmentId, u32, u32) {
        (self.wanted[0].1.segment, self.start, self.end)
    }
}

impl Pool {
    /// The raw bytes of each record, verified. Records that lie side by side cost one media read;
    /// what lies apart is read at once.
    ///
    /// Errors: `NotFound` for a record that does not exist, `Damaged` when its bytes fail their check.
    pub fn read_records(&self, ids: &[RecordId]) -> Result<Vec<Vec<u8>>> {
        let mut out: Vec<Option<Vec<u8>>> = vec![None; ids.len()];
        let mut wanted = Vec::new();
        for (at, id) in ids.iter().enumerate() {
            match self.find(*id)? {
                Found::Bytes(bytes) => out[at] = Some(bytes),
                Found::At(location) => {
                    self.geometry.check_location(&location)?;
                    wanted.push((at, location));
                }
            }
        }
        wanted.sort_by_key(|(_, location)| (location.segment, location.offset_bytes));
        let mut spans: Vec<Span> = Vec::new();
        for (at, location) in wanted {
            add_to_spans(&mut spans, at, location);
        }
        // In portions, so that a long read of scattered records does not hold much more memory than it asked for.
        for portion in spans.chunks(SPANS_AT_ONCE) {
            let places: Vec<_> = portion.iter().map(Span::place).collect();
            for (span, (buffer, skip)) in portion.iter().zip(self.geometry.read_many(&places)?) {
                self.unpack_span(span, &buffer[skip..], ids, &mut out)?;
            }
        }
        Ok(out.into_iter().flatten().collect())
    }

    /// Packed length in bytes now, for accounting. Reads nothing but the record table.
    pub fn packed_bytes(&self, id: RecordId) -> Result<u32> {
        if let Recent::Pending(record) = self.state.read().recent(id) {
            return Ok(record.packed_bytes());
        }
        Ok(self.location(id)?.ok_or_else(|| not_found(id))?.packed_bytes)
    }

    /// Where a record lies, if it is on media.
    pub(crate) fn location(&self, id: RecordId) -> Result<Option<Location>> {
        match self.state.read().recent_location(id) {
            Recent::At(location) => return Ok(Some(location)),
            Recent::Gone => return Ok(None),
            Recent::Pending(_) | Recent::Unknown => {}
        }
        let stable = self.stable.read();
        locate(&self.table_store(), stable.table_root.as_ref(), id)
    }

    fn find(&self, id: RecordId) -> Result<Found> {
        if let Some(cached) = self.caches.records.get(&id) {
            return Ok(Found::Bytes(unpack(&cached.frame, cached.raw_bytes)?));
        }
        // In a statement of its own: the lock must not be held while the table is asked.
        let recent = self.state.read().recent(id);
        let pending = match recent {
            Recent::Pending(record) => record,
            Recent::At(location) => return Ok(Found::At(location)),
            Recent::Gone => return Err(not_found(id)),
            Recent::Unknown => return self.location(id)?.map(Found::At).ok_or_else(|| not_found(id)),
        };
        Ok(Found::Bytes(unpack(pending.frame(), pending.raw_bytes())?))
    }

    fn unpack_span(
        &self,
        span: &Span,
        bytes: &[u8],
        ids: &[RecordId],
        out: &mut [Option<Vec<u8>>],
    ) -> Result<()> {
        for (at, location) in &span.wanted {
            let first = (location.offset_bytes - span.start) as usize;
            let frame = &bytes[first..first + location.packed_bytes as usize];
            out[*at] = Some(if packstone_codec::checksum(frame) == location.checksum {
                let bytes = unpack(frame, location.raw_bytes)?;
                let cached = CachedRecord {
                    frame: frame.into(),
                    raw_bytes: location.raw_bytes,
                };
                self.caches.records.insert(ids[*at], cached);
                bytes
            } else {
                self.read_again(ids[*at], *location)?
            });
        }
        Ok(())
    }

    /// After a failed check: follows the record if it moved, else reports the damage.
    fn read_again(&self, id: RecordId, mut location: Location) -> Result<Vec<u8>> {
        for _ in 0..MOVES_MAX {
            let now = match self.find(id)? {
                Found::Bytes(bytes) => return Ok(bytes),
                Found::At(now) => now,
            };
            if now == location {
                self.damage.checksum_errors.fetch_add(1, Ordering::Relaxed);
                return Err(Error::damaged(
                    "read record",
                    format!("record {} at {location} fails its checksum", id.0),
                ));
            }
            location = now;
            match crate::stores::read_frame(&self.geometry, &location) {
                Ok(frame) => return unpack(&frame, location.raw_bytes),
                Err(error) if error.kind() == ErrorKind::Damaged => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::damaged(
            "read record",
            format!("record {} moved {MOVES_MAX} times while it was read", id.0),
        ))
    }
}

fn add_to_spans(spans: &mut Vec<Span>, at: usize, location: Location) {
    let end = location.offset_bytes + location.packed_bytes;
    if let Some(span) = spans.last_mut() {
        let near = span.wanted[0].1.segment == location.segment
            && location.offset_bytes >= span.end
            && location.offset_bytes - span.end <= GAP_BYTES_MAX
            && end - span.start <= SPAN_BYTES_MAX;
        if near {
            span.wanted.push((at, location));
            span.end = end;
            return;
        }
    }
    spans.push(Span {
        wanted: vec![(at, location)],
        start: location.offset_bytes,
        end,
    });
}

fn not_found(id: RecordId) -> Error {
    Error::new(
        ErrorKind::NotFound,
        "read record",
        format!("there is no record {}", id.0),
    )
}
