//! Printers of on-media structures, for people who look into a pool that is not open.
//!
//! Everything is read from the members as it lies there, without opening the pool for writing; damage is printed where it
//! is met and does not stop the rest.

use crate::batch::{Batch, EntryKind, Header};
use crate::btree::walk;
use crate::error::{Error, ErrorKind, Result};
use crate::label::read_label;
use crate::lifecycle::OpenOptions;
use crate::pool::Pool;
use crate::segments::SegmentKind;
use crate::slot::{Ring, Slot};
use crate::stores::{decode_location, read_frame, unpack};
use crate::transaction::Operation;
use crate::types::{Location, RecordId, SegmentId, TreeId};
use packstone_media::Media;
use std::fmt::Write as _;
use std::io;
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

/// A fact about something printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// An id, a place, a length.
    Number(u64),
    /// Anything else.
    Text(String),
}

/// One printed thing: for people as text (one or more lines), for programs as named fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What it is: `label`, `checkpoint`, `segment`, `batch`, `entry`, `operation`, `node`, `pair`, `record`.
    pub kind: &'static str,
    /// Lines, each with its line feed.
    pub text: String,
    /// Facts by name; units last.
    pub fields: Vec<(&'static str, Field)>,
}

/// Takes the items as they are met.
type Printer<'a> = &'a mut dyn FnMut(Item) -> io::Result<()>;

/// Gives `print` one item after the other. Errors: those of opening the pool for reading, and of `print`.
pub fn inspect(members: &[Arc<dyn Media>], target: Target, print: Printer<'_>) -> Result<()> {
    match target {
        Target::Label => members.iter().try_for_each(|member| {
            let label = read_label(member.as_ref())?;
            let fields = vec![
                ("pool", Field::Text(label.pool_name.clone())),
                ("pool_id", Field::Text(hexadecimal(&label.pool_id))),
                ("member_id", Field::Text(hexadecimal(&label.member_id))),
                ("member_index", Field::Number(label.member_index.into())),
                ("member_count", Field::Number(label.member_count.into())),
                ("format_version", Field::Number(label.format_version.into())),
                ("capacity_bytes", Field::Number(label.capacity_bytes)),
                ("segment_bytes", Field::Number(label.segment_bytes.into())),
                ("first_segment", Field::Number(label.first_segment.into())),
                ("segment_count", Field::Number(label.segment_count.into())),
            ];
            emit(
                print,
                "label",
                fields,
                format!("{}\n{label:#?}\n", member.description()),
            )
        }),
        Target::Checkpoints => members.iter().try_for_each(|member| {
            let label = read_label(member.as_ref())?;
            Ring::read(member.as_ref(), &label)
                .slots
                .iter()
                .try_for_each(|slot| checkpoint(slot, print))
        }),
        _ => {
            let options = OpenOptions {
                read_only: true,
                memory_bytes: None,
                ..OpenOptions::default()
            };
            inspect_open(&Pool::open(members.to_vec(), &options)?, target, print)
        }
    }
}

fn inspect_open(pool: &Pool, target: Target, print: Printer<'_>) -> Result<()> {
    match target {
        Target::Label | Target::Checkpoints => Ok(()),
        Target::Segments => segments(pool, print),
        Target::Segment(segment) => {
            if segment.0 >= pool.geometry.label.segment_count {
                return Err(not_found(format!("there is no segment {segment}")));
            }
            pool.scan_segment(segment)?
                .iter()
                .try_for_each(|found| batch(found, print))
        }
        Target::Table => table(pool, print),
        Target::Tree(tree) => tree_nodes(pool, tree, print),
        Target::Record(id) => {
            let place = pool.location(id)?;
            let place = place.ok_or_else(|| not_found(format!("there is no record {}", id.0)))?;
            let raw = unpack(&read_frame(&pool.geometry, &place)?, place.raw_bytes)?;
            let mut fields = place_fields(id, &place);
            fields.push(("content", Field::Text(show(&raw))));
            let text = format!(
                "record {} at {place}, checksum {:016x}\n{}\n",
                id.0,
                place.checksum,
                show(&raw)
            );
            emit(print, "record", fields, text)
        }
    }
}

fn not_found(message: String) -> Error {
    Error::new(ErrorKind::NotFound, "inspect", message)
}

fn emit(
    print: Printer<'_>,
    kind: &'static str,
    fields: Vec<(&'static str, Field)>,
    text: String,
) -> Result<()> {
    print(Item { kind, text, fields })
        .map_err(|e| Error::new(ErrorKind::Unavailable, "inspect", format!("cannot print: {e}")))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn place_fields(id: RecordId, place: &Location) -> Vec<(&'static str, Field)> {
    vec![
        ("record", Field::Number(id.0)),
        ("segment", Field::Number(place.segment.0.into())),
        ("offset_bytes", Field::Number(place.offset_bytes.into())),
        ("packed_bytes", Field::Number(place.packed_bytes.into())),
        ("raw_bytes", Field::Number(place.raw_bytes.into())),
        ("checksum", Field::Text(format!("{:016x}", place.checksum))),
    ]
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

fn checkpoint(slot: &Slot, print: Printer<'_>) -> Result<()> {
    let fields = vec![
        ("number", Field::Number(slot.number)),
        ("epoch", Field::Number(slot.epoch)),
        ("next_batch", Field::Number(slot.next_batch)),
        ("next_record", Field::Number(slot.next_record)),
        ("next_tree", Field::Number(slot.next_tree.into())),
        ("table_bytes", Field::Number(slot.table_bytes)),
        ("catalog_bytes", Field::Number(slot.catalog_bytes)),
    ];
    emit(print, "checkpoint", fields, slot_line(slot))
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

fn segments(pool: &Pool, print: Printer<'_>) -> Result<()> {
    let table = pool.state.read().segments.clone();
    for (id, segment) in table
        .iter()
        .filter(|(_, segment)| segment.kind != SegmentKind::Free)
    {
        let percent = u64::from(segment.live_bytes) * 100 / u64::from(pool.geometry.segment_bytes());
        let open = if table.is_open(id) { ", open" } else { "" };
        let fields = vec![
            ("segment", Field::Number(id.0.into())),
            ("use", Field::Text(format!("{:?}", segment.kind))),
            ("live_bytes", Field::Number(segment.live_bytes.into())),
            ("open", Field::Number(table.is_open(id).into())),
        ];
        let text = format!(
            "segment {id}: {:?}, {} live bytes ({percent} %){open}\n",
            segment.kind, segment.live_bytes
        );
        emit(print, "segment", fields, text)?;
    }
    let fields = vec![
        ("free", Field::Number(table.free_count().into())),
        ("count", Field::Number(table.count().into())),
    ];
    let text = format!("{} of {} segments are free\n", table.free_count(), table.count());
    emit(print, "segments", fields, text)
}

fn batch(batch: &Batch, print: Printer<'_>) -> Result<()> {
    let header = &batch.header;
    let fields = vec![
        ("offset_bytes", Field::Number(header.offset_bytes.into())),
        ("holds", Field::Text(format!("{:?}", header.kind))),
        ("sequence", Field::Number(header.sequence)),
        ("epoch", Field::Number(header.epoch)),
        ("stream", Field::Number(header.stream.into())),
        ("total_bytes", Field::Number(header.total_bytes.into())),
        ("records_bytes", Field::Number(header.records_bytes.into())),
        ("directory_bytes", Field::Number(header.directory_bytes.into())),
        ("operations_bytes", Field::Number(header.operations_bytes.into())),
        ("durable_below", Field::Number(header.durable_below)),
        ("covered_below", Field::Number(header.covered_below)),
        ("group_end", Field::Number(header.group_end.into())),
    ];
    emit(print, "batch", fields, header_line(header))?;
    for (entry, location) in &batch.entries {
        let what = match entry.kind {
            EntryKind::TableNode => "level",
            _ => "tree",
        };
        let mut fields = place_fields(entry.id, location);
        fields.push(("entry", Field::Text(format!("{:?}", entry.kind))));
        fields.push((what, Field::Number(entry.tree.0.into())));
        let text = format!(
            "  {:?} {} {what} {} at {location}\n",
            entry.kind, entry.id.0, entry.tree.0
        );
        emit(print, "entry", fields, text)?;
    }
    match batch.operation_chunks() {
        Ok(chunks) => chunks.iter().try_for_each(|chunk| operations(chunk, print)),
        Err(malformed) => emit(
            print,
            "damage",
            vec![],
            format!("  the operations section {}\n", malformed.0),
        ),
    }
}

fn header_line(header: &Header) -> String {
    format!(
        "offset {}: {:?} batch {} epoch {} stream {}, {} bytes ({} records, {} directory, {} operations), durable below {}{}{}{}\n",
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
        match header.covered_below {
            0 => String::new(),
            below => format!(", covered below {below}"),
        },
        if header.group_end { ", end of group" } else { "" },
        match header.next_segment {
            SegmentId::NONE => String::new(),
            next => format!(", goes on in segment {next}"),
        },
    )
}

fn operations(chunk: &[u8], print: Printer<'_>) -> Result<()> {
    let decoded = unpack(chunk, 1 << 20)
        .ok()
        .and_then(|raw| Operation::decode_chunk(&raw).ok());
    let Some(decoded) = decoded else {
        return emit(
            print,
            "damage",
            vec![],
            "  a chunk of operations cannot be read\n".to_owned(),
        );
    };
    decoded.iter().try_for_each(|operation| {
        let (name, tree, rest, text) = match operation {
            Operation::Change(tree, item) => {
                let key = show(item.key());
                let mut rest = vec![("key", Field::Text(key.clone()))];
                match item.value().map(show) {
                    Some(value) => {
                        rest.push(("value", Field::Text(value.clone())));
                        (
                            "put",
                            tree,
                            rest,
                            format!("  put tree {} {key} = {value}\n", tree.0),
                        )
                    }
                    None => ("delete", tree, rest, format!("  delete tree {} {key}\n", tree.0)),
                }
            }
            Operation::Free(tree, id) => {
                let rest = vec![("record", Field::Number(id.0))];
                (
                    "free",
                    tree,
                    rest,
                    format!("  free tree {} record {}\n", tree.0, id.0),
                )
            }
        };
        let mut fields = vec![
            ("operation", Field::Text(name.to_owned())),
            ("tree", Field::Number(tree.0.into())),
        ];
        fields.extend(rest);
        emit(print, "operation", fields, text)
    })
}

fn table(pool: &Pool, print: Printer<'_>) -> Result<()> {
    let root = pool.stable.read().table_root;
    walk(&pool.table_store(), root.as_ref(), &mut |pointer, node| {
        let fields = vec![
            ("level", Field::Number(node.level().into())),
            ("pairs", Field::Number(node.len() as u64)),
            ("segment", Field::Number(pointer.segment.0.into())),
            ("offset_bytes", Field::Number(pointer.offset_bytes.into())),
        ];
        let text = format!(
            "node level {} with {} pairs at {pointer}\n",
            node.level(),
            node.len()
        );
        emit(print, "node", fields, text)?;
        for at in 0..if node.level() == 0 { node.len() } else { 0 } {
            let place = decode_location(node.value(at))?;
            let id = node
                .key(at)
                .iter()
                .fold(0u64, |id, byte| id << 8 | u64::from(*byte));
            let text = format!("  record {id} at {place}\n");
            emit(print, "record", place_fields(RecordId(id), &place), text)?;
        }
        Ok(())
    })
}

fn tree_nodes(pool: &Pool, tree: TreeId, print: Printer<'_>) -> Result<()> {
    let stable = pool.stable.read().clone();
    let root = stable.trees.get(&tree);
    if root.is_none() {
        let fields = vec![("tree", Field::Number(tree.0.into()))];
        emit(
            print,
            "empty",
            fields,
            "the tree has no nodes on media\n".to_owned(),
        )?;
    }
    walk(&pool.tree_store(&stable), root, &mut |id, node| {
        let fields = vec![
            ("node", Field::Number(id.0)),
            ("level", Field::Number(node.level().into())),
            ("pairs", Field::Number(node.len() as u64)),
        ];
        let text = format!("node {} level {} with {} pairs\n", id.0, node.level(), node.len());
        emit(print, "node", fields, text)?;
        for at in 0..node.len() {
            let (key, value) = (show(node.key(at)), show(node.value(at)));
            let text = format!("  {key} = {value}\n");
            emit(
                print,
                "pair",
                vec![("key", Field::Text(key)), ("value", Field::Text(value))],
                text,
            )?;
        }
        Ok(())
    })
}
