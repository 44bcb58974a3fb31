//! Writing and reading segment usage.
//!
//! The pages themselves lie in segments whose usage they describe. That is not a circle, because a page has a fixed
//! length: the room they take is counted first, and only then their content is written. Writing a page gives up its old
//! place, which changes the page that describes *that* segment, so the set of pages to write is grown until it is closed.
//!
//! The index is one record: 24 bytes a page (segment, offset, packed length, raw length: 4 bytes each; checksum: 8).

use crate::batch::{ENTRY_BYTES_MAX, EntryKind};
use crate::encoding::{Malformed, Reader};
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::node_writer::NodeWriter;
use crate::segments::{SEGMENTS_PER_PAGE, SegmentTable, USAGE_PAGE_BYTES};
use crate::stores::{read_frame, unpack};
use crate::types::{Location, RecordId, SegmentId, TreeId};
use packstone_codec::{Compression, PackedRecord};
use std::collections::BTreeSet;

const INDEX_ENTRY_BYTES: usize = 24;

/// Where the pages lie.
pub(crate) struct Pages {
    pub locations: Vec<Option<Location>>,
    pub index: Location,
}

/// Writes the pages that changed, those of `forced`, and the index.
pub(super) fn write_usage(
    writer: &mut NodeWriter<'_>,
    old_pages: &[Option<Location>],
    old_index: Option<&Location>,
    forced: &BTreeSet<u32>,
) -> Result<Pages> {
    let page_count = writer.image.page_count();
    let page_frame_bytes = raw_record(&[0; USAGE_PAGE_BYTES]).packed_bytes();
    let index_frame_bytes = raw_record(&vec![0; page_count as usize * INDEX_ENTRY_BYTES]).packed_bytes();
    // One batch holds them all, so that no segment is opened after they were counted. `label.rs` sees to it that they fit.
    writer.batch_bytes_max = u32::MAX;
    writer.make_place(
        page_count * (page_frame_bytes + ENTRY_BYTES_MAX) + index_frame_bytes + ENTRY_BYTES_MAX,
    )?;
    let own_segment = writer.cursor.map_or(SegmentId(0), |cursor| cursor.segment);
    old_index.into_iter().for_each(|index| writer.release(index));
    let chosen = choose_pages(writer, old_pages, forced, own_segment);

    let mut counted = vec![counted_only(own_segment, page_frame_bytes); chosen.len()];
    counted.push(counted_only(own_segment, index_frame_bytes));
    counted.iter().for_each(|location| writer.image.add(location));
    let contents: Vec<(u32, PackedRecord)> = chosen
        .iter()
        .map(|page| (*page, raw_record(&writer.image.encode_page(*page))))
        .collect();
    counted.iter().for_each(|location| writer.image.release(location));

    let mut locations: Vec<Option<Location>> = old_pages.to_vec();
    locations.resize(page_count as usize, None);
    for (page, record) in contents {
        locations[page as usize] =
            Some(writer.append(EntryKind::UsagePage, RecordId(u64::from(page)), TreeId(0), record)?);
    }
    let index = writer.append(
        EntryKind::UsageIndex,
        RecordId(0),
        TreeId(0),
        raw_record(&encode_index(&locations)),
    )?;
    writer.write_out()?;
    assert!(
        index.segment == own_segment,
        "usage pages left the segment they were counted in"
    );
    Ok(Pages { locations, index })
}

/// Pages that must be written; gives up their old places.
fn choose_pages(
    writer: &mut NodeWriter<'_>,
    old_pages: &[Option<Location>],
    forced: &BTreeSet<u32>,
    own_segment: SegmentId,
) -> BTreeSet<u32> {
    let mut chosen = BTreeSet::new();
    let mut more = forced.clone();
    more.insert(own_segment.0 / SEGMENTS_PER_PAGE);
    while !more.is_empty() {
        for page in &more {
            if let Some(Some(old)) = old_pages.get(*page as usize) {
                writer.release(old);
            }
        }
        chosen.append(&mut more);
        let page_count = writer.image.page_count();
        more = (0..page_count)
            .filter(|page| !chosen.contains(page) && page_changed(&writer.image, old_pages, *page))
            .collect();
    }
    chosen
}

fn page_changed(image: &SegmentTable, old_pages: &[Option<Location>], page: u32) -> bool {
    match old_pages.get(page as usize) {
        Some(Some(old)) => raw_record(&image.encode_page(page)).checksum() != old.checksum,
        _ => true,
    }
}

fn raw_record(bytes: &[u8]) -> PackedRecord {
    PackedRecord::pack(bytes, Compression::None)
}

/// Stands for a frame of that length until its place is known.
fn counted_only(segment: SegmentId, packed_bytes: u32) -> Location {
    Location {
        segment,
        offset_bytes: 0,
        packed_bytes,
        raw_bytes: 0,
        checksum: 0,
    }
}

pub(crate) fn encode_index(locations: &[Option<Location>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(locations.len() * INDEX_ENTRY_BYTES);
    for location in locations.iter().flatten() {
        for field in [
            location.segment.0,
            location.offset_bytes,
            location.packed_bytes,
            location.raw_bytes,
        ] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.extend_from_slice(&location.checksum.to_le_bytes());
    }
    assert!(
        out.len() == locations.len() * INDEX_ENTRY_BYTES,
        "every usage page has a place by now"
    );
    out
}

/// Where `page_count` pages lie.
pub(crate) fn decode_index(bytes: &[u8], page_count: u32) -> std::result::Result<Vec<Location>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut locations = Vec::new();
    for _ in 0..page_count {
        locations.push(Location {
            segment: SegmentId(reader.u32()?),
            offset_bytes: reader.u32()?,
            packed_bytes: reader.u32()?,
            raw_bytes: reader.u32()?,
            checksum: reader.u64()?,
        });
    }
    Ok(locations)
}

/// Reads the segment table that a checkpoint left, and where its pages lie.
pub(crate) fn read_usage(
    geometry: &Geometry,
    index: &Location,
) -> Result<(SegmentTable, Vec<Option<Location>>)> {
    const OPERATION: &str = "read segment usage";
    let mut table = SegmentTable::new(geometry.label.segment_count);
    let page_count = table.page_count();
    let frame = read_frame(geometry, index)?;
    let bytes = unpack(&frame, page_count * INDEX_ENTRY_BYTES as u32)?;
    let index = decode_index(&bytes, page_count).map_err(|m| Error::malformed(OPERATION, "the index", m))?;
    let mut locations = Vec::new();
    for (page, location) in (0..).zip(index) {
        let content = unpack(&read_frame(geometry, &location)?, USAGE_PAGE_BYTES as u32)?;
        table
            .decode_page(page, &content, geometry.segment_bytes())
            .map_err(|m| Error::malformed(OPERATION, &format!("page {page}"), m))?;
        locations.push(Some(location));
    }
    Ok((table, locations))
}
