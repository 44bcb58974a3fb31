//! Creating and opening pools.

use crate::batch::pool_tag;
use crate::cache::Caches;
use crate::catalog::Properties;
use crate::checkpoint::Checkpointer;
use crate::cleaner::Cleaner;
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint::{Failpoint, Failpoints};
use crate::geometry::Geometry;
use crate::incidents::Journal;
use crate::label::{LabelSummary, read_label, wipe, write_label};
use crate::log::LogWriter;
use crate::opening::{Note, Opening, find_checkpoint};
use crate::pool::{Damage, Pool, Stable};
use crate::segments::{SegmentKind, SegmentTable};
use crate::slot::{Cursor, Ring, clear_ring};
use crate::state::State;

use packstone_media::Media;
use parking_lot::{Mutex, RwLock};
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
        clear_ring(member.as_ref(), &label)?;
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
            damaged_nodes: AtomicU64::new(0),
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
        let memory_bytes = options
            .memory_bytes
            .unwrap_or(MEMORY_BYTES_DEFAULT)
            .max(MEMORY_BYTES_MIN);
        let geometry = Geometry {
            label,
            members,
            damaged_nodes: AtomicU64::new(0),
        };
        let ring = Ring::read(geometry.member(), &geometry.label);
        let found = find_checkpoint(&geometry, &ring, memory_bytes, options.read_only)?;
        let mut pool = assemble(geometry, found.parts, found.next_record, memory_bytes);
        pool.caches = found.caches;
        pool.notes = Mutex::new(found.notes);
        pool.failpoints = options.failpoints.clone();
        if options.read_only {
            pool.state.write().stopped = Some("the pool was opened for reading only".to_owned());
            pool.opening = Mutex::new(Some(Opening {
                ring,
                next_epoch: found.next_epoch,
                incomplete: found.incomplete,
            }));
        } else {
            pool.begin_epoch(&ring, found.next_epoch)?;
        }
        Ok(pool)
    }

    /// The first write to a pool. Batches of the new epoch must not follow before a checkpoint says so: leftovers of the
    /// old epoch behind the end of the log could be taken for its continuation.
    pub(crate) fn begin_epoch(&self, ring: &Ring, epoch: u64) -> Result<()> {
        self.log.lock().epoch = epoch;
        self.reach(Failpoint::AfterReplay)?;
        let mut checkpointer = self.checkpointer.lock();
        self.checkpoint(&mut checkpointer)?;
        let newest = checkpointer.number;
        drop(checkpointer);
        self.stop_on_error(ring.mend(self.geometry.member(), &self.geometry.label, newest))
    }

    /// What opening found out of the ordinary, a line each: that a checkpoint or the log could not be read, and what that
    /// means.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().iter().map(|note| note.text.clone()).collect()
    }

    /// Those of the notes that tell of damage.
    pub(crate) fn damage_noted(&self) -> Vec<String> {
        let notes = self.notes.lock();
        let damage = notes.iter().filter(|note| note.is_damage);
        damage.map(|note| note.text.clone()).collect()
    }

    /// Keeps notes of an earlier opening, for a pool that is closed and opened again at once.
    pub fn keep_notes(&self, earlier: Vec<String>) {
        let past = earlier.into_iter().map(|text| Note {
            text,
            is_damage: false,
        });
        self.notes.lock().splice(0..0, past);
    }
}

/// What makes a pool besides its geometry.
pub(crate) struct Parts {
    pub log: LogWriter,
    pub state: State,
    pub stable: Stable,
    pub checkpointer: Checkpointer,
}

fn assemble(geometry: Geometry, parts: Parts, next_record: u64, memory_bytes: u64) -> Pool {
    Pool {
        pool_tag: pool_tag(&geometry.label.pool_id),
        memory_bytes,
        next_record: Arc::new(AtomicU64::new(next_record)),
        caches: Caches::new(memory_bytes),
        cleaner: Mutex::new(Cleaner::default()),
        checkpointer: Mutex::new(parts.checkpointer),
        turn: Default::default(),
        log: Mutex::new(parts.log),
        stable: RwLock::new(parts.stable),
        state: RwLock::new(parts.state),
        catalog_lock: Mutex::new(()),
        damage: Damage::default(),
        failpoints: Failpoints::default(),
        incidents: Journal::default(),
        notes: Mutex::default(),
        opening: Mutex::default(),
        geometry,
    }
}
