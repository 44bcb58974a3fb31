//! Printers of on-media structures, for people who look into a pool that is not open.
//!
//! Everything is read from the members as it lies there, without opening the pool for writing; damage is printed where it
//! is met and does not stop the rest.

use crate::batch::{Batch, EntryKind};
use crate::btree::walk;
use crate::error::{Error, ErrorKind, Result};
use crate::label::read_label;
use crate::lifecycle::OpenOptions;
use crate::pool::Pool;
use crate::slot::{Slot, read_slots};
use crate::stores::{decode_location, read_frame, unpack};
use crate::transaction::Operation;
use crate::types::{RecordId, SegmentId, TreeId};
use packstone_media::Media;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;

/// What to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The label of each member.
    Label,
    /// All valid checkpoint slots, newest first.
    Checkpoints,
    /// Usage of every segment that is not free.
    Segments,
    /// The batches of one segment, with directories and operations.
    Segment(SegmentId),
    /// The record table: every record and where it lies.
    Table,
    /// The nodes and pairs of one tree, as on media.
    Tree(TreeId),
    /// One record: its place and its bytes.
    Record(RecordId),
}

/// Bytes of a key, value or record that are printed.
const SHOWN_BYTES: usize = 48;

/// Writes lines about `target`. Errors: those of opening the pool for reading, and of `out`.
pub fn inspect(members: &[Arc<dyn Media>], target: Target, out: &mut dyn Write) -> Result<()> {
    match target {
        Target::Label => members.iter().try_for_each(|member| {
            let label = read_label(member.as_ref())?;
            emit(out, &format!("{}\n{label:#?}\n", member.description()))
        }),
        Target::Checkpoints => members.iter().try_for_each(|member| {
            let label = read_label(member.as_ref())?;
            read_slots(member.as_ref(), &label)
                .iter()
                .try_for_each(|slot| emit(out, &slot_line(slot)))
        }),
        _ => {
            let pool = Pool::open(
                members.to_vec(),
                &OpenOptions {
                    read_only: true,
                    memory_bytes: None,
                },
            )?;
            inspect_open(&pool, target, out)
        }
    }
}

fn inspect_open(pool: &Pool, target: Target, out: &mut dyn Write) -> Result<()> {
    match target {
        Target::Label | Target::Checkpoints => Ok(()),
        Target::Segments => segments(pool, out),
        Target::Segment(segment) => {
            if segment.0 >= pool.geometry.label.segment_count {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    "inspect",
                    format!("there is no segment {segment}"),
                ));
            }
            pool.scan_segment(segment)?
                .iter()
                .try_for_each(|batch| emit(out, &batch_lines(batch)))
        }
        Target::Table => table(pool, out),
        Target::Tree(tree) => tree_nodes(pool, tree, out),
        Target::Record(id) => {
            let place = pool.location(id)?;
            let place = place.ok_or_else(|| {
                Error::new(
                    ErrorKind::NotFound,
                    "inspect",
                    format!("there is no record {}", id.0),
                )
            })?;
            let raw = unpack(&read_frame(&pool.geometry, &place)?, place.raw_bytes)?;
            emit(
                out,
                &format!(
                    "record {} at {place}, checksum {:016x}\n{}\n",
                    id.0,
                    place.checksum,
                    show(&raw)
                ),
            )
        }
    }
}

fn emit(out: &mut dyn Write, text: &str) -> Result<()> {
    out.write_all(text.as_bytes())
        .map_err(|e| Error::new(ErrorKind::Unavailable, "inspect", format!("cannot print: {e}")))
}

/// Printable bytes as they are, others as hexadecimal escapes.
fn show(bytes: &[u8]) -> String {
    let mut text: String = bytes
        .iter()
        .take(SHOWN_BYTES)
        .flat_map(|byte| byte.escape_ascii())
        .map(char::from)
        .collect();
    if bytes.len() > SHOWN_BYTES {
        let _ = write!(text, "... ({} bytes)", bytes.len());
    }
    text
}

fn slot_line(slot: &Slot) -> String {
    let cursors: Vec<String> = slot
        .cursors
        .iter()
        .map(|cursor| format!("{}+{}", cursor.segment, cursor.offset_bytes))
        .collect();
    format!(
        "checkpoint {} epoch {}: next batch {}, next record {}, streams at {}, table root {}, catalog root {}, usage index at {}\n",
        slot.number,
        slot.epoch,
        slot.next_batch,
        slot.next_record,
        cursors.join(" "),
        slot.table_root.map_or("none".to_owned(), |root| format!(
            "level {} at {}",
            root.level, root.pointer
        )),
        slot.catalog_root.map_or("none".to_owned(), |root| format!(
            "level {} record {}",
            root.level, root.pointer.0
        )),
        slot.usage_index
    )
}

fn segments(pool: &Pool, out: &mut dyn Write) -> Result<()> {
    let table = pool.state.read().segments.clone();
    for (id, segment) in table
        .iter()
        .filter(|(_, segment)| segment.kind != crate::segments::SegmentKind::Free)
    {
        let percent = u64::from(segment.live_bytes) * 100 / u64::from(pool.geometry.segment_bytes());
        let open = if table.is_open(id) { ", open" } else { "" };
        emit(
            out,
            &format!(
                "segment {id}: {:?}, {} live bytes ({percent} %){open}\n",
                segment.kind, segment.live_bytes
            ),
        )?;
    }
    emit(
        out,
        &format!("{} of {} segments are free\n", table.free_count(), table.count()),
    )
}

fn batch_lines(batch: &Batch) -> String {
    let header = &batch.header;
    let mut text = format!(
        "offset {}: {:?} batch {} epoch {} stream {}, {} bytes ({} records, {} directory, {} operations), durable below {}{}{}\n",
        header.offset_bytes,
        header.kind,
        header.sequence,
        header.epoch,
        header.stream,
        header.total_bytes,
        header.records_bytes,
        header.directory_bytes,
        header.operations_bytes,
        header.durable_below,
        if header.group_end { ", end of group" } else { "" },
        if header.next_segment == SegmentId::NONE {
            String::new()
        } else {
            format!(", goes on in segment {}", header.next_segment)
        },
    );
    for (entry, location) in &batch.entries {
        let what = match entry.kind {
            EntryKind::TableNode => format!("level {}", entry.tree.0),
            _ => format!("tree {}", entry.tree.0),
        };
        let _ = writeln!(text, "  {:?} {} {what} at {location}", entry.kind, entry.id.0);
    }
    match batch.operation_chunks() {
        Ok(chunks) => chunks
            .iter()
            .for_each(|chunk| text.push_str(&operation_lines(chunk))),
        Err(malformed) => {
            let _ = writeln!(text, "  the operations section {}", malformed.0);
        }
    }
    text
}

fn operation_lines(chunk: &[u8]) -> String {
    let Ok(raw) = unpack(chunk, 1 << 20) else {
        return "  a chunk of operations cannot be unpacked\n".to_owned();
    };
    let Ok(operations) = Operation::decode_chunk(&raw) else {
        return "  a chunk of operations is malformed\n".to_owned();
    };
    let line = |operation: &Operation| match operation {
        Operation::Put(tree, key, value) => {
            format!("  put tree {} {} = {}\n", tree.0, show(key), show(value))
        }
        Operation::Delete(tree, key) => format!("  delete tree {} {}\n", tree.0, show(key)),
        Operation::Free(tree, id) => format!("  free tree {} record {}\n", tree.0, id.0),
    };
    operations.iter().map(line).collect()
}

fn table(pool: &Pool, out: &mut dyn Write) -> Result<()> {
    let root = pool.stable.read().table_root;
    walk(&pool.table_store(), root.as_ref(), &mut |pointer, node| {
        emit(
            out,
            &format!(
                "node level {} with {} pairs at {pointer}\n",
                node.level(),
                node.len()
            ),
        )?;
        for at in 0..if node.level() == 0 { node.len() } else { 0 } {
            let place = decode_location(node.value(at))?;
            let id = node
                .key(at)
                .iter()
                .fold(0u64, |id, byte| id << 8 | u64::from(*byte));
            emit(out, &format!("  record {id} at {place}\n"))?;
        }
        Ok(())
    })
}

fn tree_nodes(pool: &Pool, tree: TreeId, out: &mut dyn Write) -> Result<()> {
    let stable = pool.stable.read().clone();
    let root = stable.trees.get(&tree);
    if root.is_none() {
        emit(out, "the tree has no nodes on media\n")?;
    }
    walk(&pool.tree_store(&stable), root, &mut |id, node| {
        emit(
            out,
            &format!("node {} level {} with {} pairs\n", id.0, node.level(), node.len()),
        )?;
        for at in 0..node.len() {
            emit(
                out,
                &format!("  {} = {}\n", show(node.key(at)), show(node.value(at))),
            )?;
        }
        Ok(())
    })
}
