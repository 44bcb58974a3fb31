//! The storage pool: records, trees and transactions on a log of segments.
//!
//! ```text
//!   Transaction ──commit──► overlay + group (memory) ──► batches in the log ──flush──► durable
//!                                 │
//!                             checkpoint ──► trees, record table, segment usage ──► slot
//! ```
//!
//! A *record* is a packed run of bytes with an id that never changes; where it lies now stands in the *record table*.
//! *Trees* map keys to values and are what `fs` builds files of. A *transaction* stores and frees records and changes
//! trees, all or nothing. What has been committed is visible at once and durable after [`Pool::sync`].
//!
//! Invariants:
//! - Bytes from media are checked before they are believed; damage is an [`ErrorKind::Damaged`], never a panic.
//! - After a failed write or flush nothing more is written and nothing more is promised.
//! - A segment is written again only after a checkpoint that does not need it is durable.
//! - No clock, no randomness, no threads: [`Pool::step`] is driven from outside.
//!
//! ```
//! use packstone_media::{Media, SimulatedMedia};
//! use packstone_pool::{Compression, CreateOptions, OpenOptions, PackedRecord, Pool, Stream};
//! use std::sync::Arc;
//!
//! let member: Arc<dyn Media> = Arc::new(SimulatedMedia::new(64 << 20));
//! let options = CreateOptions { name: "tank".into(), pool_id: [7; 16], segment_bytes: None, properties: Default::default() };
//! Pool::create(&[member.clone()], &options)?;
//! let pool = Pool::open(vec![member], &OpenOptions::default())?;
//! let tree = pool.create_dataset("pg", Default::default())?.tree;
//!
//! let mut transaction = pool.begin();
//! let record = transaction.store(tree, Stream::Data, PackedRecord::pack(&[1; 8192], Compression::default()));
//! transaction.put(tree, b"page 0", &record.0.to_le_bytes());
//! pool.sync(pool.commit(transaction)?)?;
//! assert_eq!(pool.read_records(&[record])?[0][..], [1; 8192]);
//! pool.close()?;
//! # Ok::<(), packstone_pool::Error>(())
//! ```

mod batch;
mod btree;
mod cache;
mod catalog;
mod changes;
mod check;
mod checkpoint;
mod cleaner;
mod encoding;
mod error;
mod failpoint;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod geometry;
mod incidents;
pub mod inspect;
pub mod kv;
mod label;
mod lifecycle;
mod log;
mod node;
mod node_writer;
mod older;
mod opening;
mod overlay;
mod pool;
mod reader;
mod recovery;
mod repair;
mod scan;
mod scanner;
mod segments;
mod sinks;
mod slot;
mod space;
mod state;
mod statistics;
mod step;
mod stores;
mod transaction;
mod types;
mod view;

pub use catalog::{Dataset, DatasetState, Properties, TreeUsage};
pub use check::{CheckReport, check};
pub use error::{Error, ErrorKind, Result};
pub use failpoint::{Failpoint, FailpointHandler, Failpoints};
pub use incidents::{INCIDENTS_MAX, Incident, IncidentKind};
pub use label::{
    FORMAT_VERSION, LABEL_AREA_BYTES, LabelSummary, MEMBER_BYTES_MIN, MemberContent, POOL_NAME_BYTES_MAX,
    probe, read_label, wipe,
};
pub use lifecycle::{CreateOptions, MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN, OpenOptions};
pub use node::Pair;
pub use packstone_codec::{Compression, PackedRecord};
pub use pool::Pool;
pub use repair::{Owners, PoolRepair};
pub use segments::SegmentKind;
pub use space::Space;
pub use state::WrittenBytes;
pub use statistics::{MemberStatistics, PoolState, PoolStatistics};
pub use step::{BackgroundWork, StepOutcome};
pub use transaction::{KEY_BYTES_MAX, Transaction, VALUE_BYTES_MAX};
pub use types::{CommitSequence, Location, RecordId, SegmentId, Stream, TreeId};
pub use view::{Range, View};

#[cfg(test)]
mod tests;
