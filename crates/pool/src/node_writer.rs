//! Where a checkpoint puts nodes: node batches in segments of their own.
//!
//! A node's place is known as soon as it is added. The writer keeps two accounts: the *image*, the segment table as the
//! checkpoint will persist it (what was live when the overlay was frozen, plus this checkpoint's own doing), and the list
//! of changes that are repeated on the live table when the checkpoint is published.

use crate::batch::{BatchBuilder, BatchKind, ENTRY_BYTES_MAX, EntryKind};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint::Failpoint;
use crate::pool::Pool;
use crate::segments::{SegmentKind, SegmentTable};
use crate::slot::Cursor;
use crate::state::NODE_STREAM;
use crate::types::{Location, RecordId, SegmentId, TreeId};
use packstone_codec::PackedRecord;

/// Batches are written when they reach this size.
const BATCH_BYTES: u32 = 1 << 20;

pub(crate) struct NodeWriter<'a> {
    pool: &'a Pool,
    pub image: SegmentTable,
    pub cursor: Option<Cursor>,
    pub number: u64,
    pub epoch: u64,
    builder: Option<BatchBuilder>,
    /// Batches end at this length.
    pub batch_bytes_max: u32,
    /// In order, for the live table.
    pub added: Vec<Location>,
    pub released: Vec<Location>,
    /// Segments opened by this checkpoint.
    pub opened: Vec<SegmentId>,
    /// Segments this checkpoint filled.
    pub sealed: Vec<SegmentId>,
    pub written_bytes: u64,
}

impl<'a> NodeWriter<'a> {
    pub(crate) fn new(
        pool: &'a Pool,
        image: SegmentTable,
        cursor: Option<Cursor>,
        number: u64,
        epoch: u64,
    ) -> NodeWriter<'a> {
        NodeWriter {
            pool,
            image,
            cursor,
            number,
            epoch,
            builder: None,
            batch_bytes_max: BATCH_BYTES,
            added: Vec::new(),
            released: Vec::new(),
            opened: Vec::new(),
            sealed: Vec::new(),
            written_bytes: 0,
        }
    }

    /// Adds a node and counts it as live.
    pub(crate) fn append(
        &mut self,
        kind: EntryKind,
        id: RecordId,
        tree: TreeId,
        record: PackedRecord,
    ) -> Result<Location> {
        self.make_place(record.packed_bytes() + ENTRY_BYTES_MAX)?;
        let Some(builder) = self.builder.as_mut() else {
            unreachable!("a place was just made")
        };
        let location = builder.push_record(kind, id, tree, record);
        self.image.add(&location);
        self.added.push(location);
        Ok(location)
    }

    /// What lay there is no longer needed by the state this checkpoint describes.
    pub(crate) fn release(&mut self, location: &Location) {
        self.image.release(location);
        self.released.push(*location);
    }

    /// Makes sure that `bytes` of frames and entries fit into the open batch.
    pub(crate) fn make_place(&mut self, bytes: u32) -> Result<()> {
        let segment_bytes = self.pool.geometry.segment_bytes();
        if let Some(builder) = &self.builder {
            let total = builder.bytes_with(bytes);
            if total <= self.batch_bytes_max.max(bytes)
                && builder.header.offset_bytes + total <= segment_bytes
            {
                return Ok(());
            }
            self.write_out()?;
        }
        let needs = |offset_bytes: u32| {
            BatchBuilder::new(BatchKind::Nodes, 0, SegmentId(0), offset_bytes).bytes_with(bytes)
        };
        let cursor = match self.cursor {
            Some(cursor) if cursor.offset_bytes + needs(0) <= segment_bytes => cursor,
            _ => self.next_segment()?,
        };
        self.cursor = Some(cursor);
        self.builder = Some(BatchBuilder::new(
            BatchKind::Nodes,
            NODE_STREAM as u8,
            cursor.segment,
            cursor.offset_bytes,
        ));
        Ok(())
    }

    fn next_segment(&mut self) -> Result<Cursor> {
        let allocated = self.pool.state.write().segments.allocate(SegmentKind::Nodes);
        let segment = allocated.ok_or_else(|| {
            Error::new(
                ErrorKind::NoSpace,
                "write checkpoint",
                "no free segment is left for tree nodes",
            )
        })?;
        if let Some(cursor) = self.cursor {
            self.image.seal(cursor.segment);
            self.sealed.push(cursor.segment);
        }
        self.image.open_found(segment, SegmentKind::Nodes);
        self.opened.push(segment);
        Ok(Cursor {
            segment,
            offset_bytes: 0,
        })
    }

    /// Writes the open batch, if there is one.
    pub(crate) fn write_out(&mut self) -> Result<()> {
        let Some(mut builder) = self.builder.take() else {
            return Ok(());
        };
        builder.header.epoch = self.epoch;
        builder.header.sequence = self.number;
        builder.header.group_end = true;
        let total = builder.close();
        let bytes = builder.encode(self.pool.pool_tag);
        self.pool.reach(Failpoint::BeforeNodeBatch)?;
        let written = self
            .pool
            .geometry
            .write(builder.header.segment, builder.header.offset_bytes, &bytes);
        self.pool.stop_on_error(written)?;
        self.written_bytes += u64::from(total);
        self.cursor = Some(Cursor {
            segment: builder.header.segment,
            offset_bytes: builder.header.offset_bytes + total,
        });
        Ok(())
    }
}
