//! Creating and opening pools.

use crate::batch::pool_tag;
use crate::btree::{Window, scan};
use crate::cache::Caches;
use crate::catalog::{Properties, decode_root, root_range};
use crate::checkpoint::{Checkpointer, read_usage};
use crate::cleaner::Cleaner;
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint::{Failpoint, Failpoints};
use crate::geometry::Geometry;
use crate::label::{LabelSummary, read_label, wipe, write_label};
use crate::log::LogWriter;
use crate::pool::{Damage, Pool, Stable};
use crate::recovery::{Replay, Replayed};
use crate::segments::{SegmentKind, SegmentTable};
use crate::slot::{Cursor, Slot, read_slots};
use crate::state::{Counters, LOG_STREAMS, State};
use crate::stores::{TableStore, TreeStore};
use crate::types::{NUMBER_MAX, RECORD_RAW_BYTES_MAX, SECTOR_BYTES, SegmentId, TreeId};
use packstone_media::Media;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Memory for caches and buffers when nothing else is asked for, bytes.
pub const MEMORY_BYTES_DEFAULT: u64 = 512 << 20;
/// Least memory a pool works with, bytes.
pub const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// How to create a pool.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Name of the pool.
    pub name: String,
    /// Random id, passed in because the pool has no randomness of its own.
    pub pool_id: [u8; 16],
    /// Segment size, a power of two; chosen from the size of the member when `None`.
    pub segment_bytes: Option<u32>,
    /// Properties of the pool.
    pub properties: Properties,
}

/// How to open a pool.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Nothing is written, not even what recovery finds.
    pub read_only: bool,
    /// Budget for caches and buffers; [`MEMORY_BYTES_DEFAULT`] when `None`.
    pub memory_bytes: Option<u64>,
    /// Asked at the joints of the pool; none for ordinary use.
    pub failpoints: Failpoints,
}

impl Pool {
    /// Writes labels and an empty checkpoint. What the members held before is lost: the caller has probed them.
    ///
    /// Errors: `InvalidInput` for a bad name or a member too small, `Unsupported` for more than one member.
    pub fn create(members: &[Arc<dyn Media>], options: &CreateOptions) -> Result<()> {
        const OPERATION: &str = "create pool";
        let [member] = members else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                OPERATION,
                "a pool has exactly one member for now",
            ));
        };
        let label = LabelSummary::plan(
            &options.name,
            options.pool_id,
            member.size_bytes(),
            options.segment_bytes,
        )?;
        wipe(member.as_ref())?;
        let mut segments = SegmentTable::new(label.segment_count);
        let cursors = std::array::from_fn(|stream| {
            let segment = segments.allocate(SegmentKind::Log(stream as u8));
            Cursor {
                segment: segment.unwrap_or_else(|| unreachable!("a new pool has free segments")),
                offset_bytes: 0,
            }
        });
        let log = LogWriter {
            cursors,
            epoch: 1,
            next_batch: 1,
            durable_below: 1,
        };
        let geometry = Geometry {
            label,
            members: members.to_vec(),
        };
        let parts = Parts {
            log,
            state: State::new(segments),
            stable: Stable::default(),
            checkpointer: Checkpointer::new(0, None, Vec::new(), None),
        };
        let pool = assemble(geometry, parts, 1, MEMORY_BYTES_MIN);
        if !options.properties.is_empty() {
            pool.set_properties(options.properties.clone())?;
        }
        pool.close()?;
        // The label comes last: a creation that was cut short left no pool.
        write_label(member.as_ref(), &pool.geometry.label)?;
        pool.geometry.flush()
    }

    /// Opens a pool and recovers it. The caller holds the members exclusively.
    ///
    /// Errors: `NotFound` when no pool lies there, `Unsupported` for a newer format, `Damaged`.
    pub fn open(members: Vec<Arc<dyn Media>>, options: &OpenOptions) -> Result<Pool> {
        const OPERATION: &str = "open pool";
        let [member] = members.as_slice() else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                OPERATION,
                "a pool has exactly one member for now",
            ));
        };
        let label = read_label(member.as_ref())?;
        if label.member_count != 1 {
            return Err(Error::new(
                ErrorKind::Unsupported,
                OPERATION,
                "this program opens pools of one member only",
            ));
        }
        let slot = read_slots(member.as_ref(), &label)
            .into_iter()
            .next()
            .ok_or_else(|| {
                Error::damaged(
                    OPERATION,
                    format!("no checkpoint of pool {} can be read", label.pool_name),
                )
            })?;
        let memory_bytes = options
            .memory_bytes
            .unwrap_or(MEMORY_BYTES_DEFAULT)
            .max(MEMORY_BYTES_MIN);
        let geometry = Geometry { label, members };
        let caches = Caches::new(memory_bytes);
        let (parts, replayed) = recover(&geometry, &caches, &slot)?;
        let mut pool = assemble(geometry, parts, replayed.next_record, memory_bytes);
        pool.caches = caches;
        pool.failpoints = options.failpoints.clone();
        if options.read_only {
            pool.state.write().stopped = Some("the pool was opened for reading only".to_owned());
        } else {
            // Batches of the new epoch must not follow before a checkpoint says so: leftovers of the old epoch behind
            // the end of the log could be taken for its continuation.
            pool.log.lock().epoch += 1;
            pool.reach(Failpoint::AfterReplay)?;
            pool.checkpoint(&mut pool.checkpointer.lock())?;
        }
        Ok(pool)
    }
}

/// What makes a pool besides its geometry.
struct Parts {
    log: LogWriter,
    state: State,
    stable: Stable,
    checkpointer: Checkpointer,
}

fn assemble(geometry: Geometry, parts: Parts, next_record: u64, memory_bytes: u64) -> Pool {
    Pool {
        pool_tag: pool_tag(&geometry.label.pool_id),
        memory_bytes,
        next_record: Arc::new(AtomicU64::new(next_record)),
        caches: Caches::new(memory_bytes),
        cleaner: Mutex::new(Cleaner::default()),
        checkpointer: Mutex::new(parts.checkpointer),
        log: Mutex::new(parts.log),
        stable: RwLock::new(parts.stable),
        state: RwLock::new(parts.state),
        catalog_lock: Mutex::new(()),
        damage: Damage::default(),
        failpoints: Failpoints::default(),
        geometry,
    }
}

fn recover(geometry: &Geometry, caches: &Caches, slot: &Slot) -> Result<(Parts, Replayed)> {
    check_slot(geometry, slot)?;
    let (mut segments, pages) = read_usage(geometry, &slot.usage_index)?;
    for (stream, cursor) in slot.cursors.iter().enumerate() {
        let kind = if stream < LOG_STREAMS {
            SegmentKind::Log(stream as u8)
        } else {
            SegmentKind::Nodes
        };
        segments.open_found(cursor.segment, kind);
    }
    let mut state = State::new(segments);
    state.table_bytes = slot.table_bytes;
    state.next_tree = slot.next_tree;
    let stable = read_roots(geometry, caches, slot, &mut state)?;
    let table = TableStore { geometry, caches };
    let pool_tag = pool_tag(&geometry.label.pool_id);
    let replayed = Replay {
        geometry,
        table,
        stable: &stable,
        slot,
        pool_tag,
    }
    .run(&mut state)?;
    let log = LogWriter {
        cursors: replayed.cursors,
        epoch: slot.epoch,
        next_batch: replayed.next_batch,
        durable_below: replayed.next_batch,
    };
    let node_cursor = slot.cursors.get(LOG_STREAMS).copied();
    let checkpointer = Checkpointer::new(slot.number, node_cursor, pages, Some(slot.usage_index));
    Ok((
        Parts {
            log,
            state,
            stable,
            checkpointer,
        },
        replayed,
    ))
}

fn check_slot(geometry: &Geometry, slot: &Slot) -> Result<()> {
    let segment_bytes = geometry.segment_bytes();
    let bad_cursor = |cursor: &Cursor| {
        cursor.segment.0 >= geometry.label.segment_count
            || cursor.offset_bytes > segment_bytes
            || cursor.offset_bytes % SECTOR_BYTES != 0
    };
    let count = slot.cursors.len();
    let segments: BTreeSet<SegmentId> = slot.cursors.iter().map(|cursor| cursor.segment).collect();
    if !(LOG_STREAMS..=LOG_STREAMS + 1).contains(&count)
        || slot.cursors.iter().any(bad_cursor)
        || segments.len() != count
    {
        return Err(Error::damaged(
            "open pool",
            "the checkpoint names impossible places in the log",
        ));
    }
    let numbers = [slot.number, slot.epoch, slot.next_batch, slot.next_record];
    let capacity_bytes = geometry.label.capacity_bytes;
    if numbers.iter().any(|number| *number >= NUMBER_MAX)
        || slot.table_bytes > capacity_bytes
        || slot.catalog_bytes > capacity_bytes
    {
        return Err(Error::damaged(
            "open pool",
            "the checkpoint holds impossible numbers",
        ));
    }
    geometry.check_location(&slot.usage_index)
}

/// Totals that sums over all trees may be made of without overflow.
fn check_counters(geometry: &Geometry, counters: &Counters) -> Result<()> {
    let capacity_bytes = geometry.label.capacity_bytes;
    if counters.packed_bytes > capacity_bytes
        || counters.node_bytes > capacity_bytes
        || counters.records > capacity_bytes
        || counters.logical_bytes / u64::from(RECORD_RAW_BYTES_MAX) > capacity_bytes
    {
        return Err(Error::damaged("open pool", "the totals of a tree are impossible"));
    }
    Ok(())
}

/// Roots and totals of all trees, from the catalog.
fn read_roots(geometry: &Geometry, caches: &Caches, slot: &Slot, state: &mut State) -> Result<Stable> {
    let mut stable = Stable {
        table_root: slot.table_root,
        ..Stable::default()
    };
    let Some(catalog_root) = slot.catalog_root else {
        return Ok(stable);
    };
    let store = TreeStore {
        table: TableStore { geometry, caches },
        table_root: slot.table_root,
    };
    let (from, to) = root_range();
    for (key, value) in scan(
        &store,
        Some(&catalog_root),
        Window {
            from,
            to,
            limit: usize::MAX,
        },
    )? {
        let (tree, root, counters) = decode_root(&key, &value)?;
        check_counters(geometry, &counters)?;
        state.counters.insert(tree, counters);
        if let Some(root) = root {
            stable.trees.insert(tree, root);
        }
    }
    let catalog = Counters {
        node_bytes: slot.catalog_bytes,
        ..Counters::default()
    };
    state.counters.insert(TreeId::CATALOG, catalog);
    stable.trees.insert(TreeId::CATALOG, catalog_root);
    Ok(stable)
}
