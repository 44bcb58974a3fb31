//! Named joints of the pool, at which a test or a simulation may have it fail or die.
//!
//! A crash between two writes is where promises break, and which two writes those were is easier to say by name than by
//! number. At each [`Failpoint`] the pool asks the handler it was opened with, if any. An error from the handler counts as
//! a failure of the media at that place: the pool stops writing. A handler may also end the process, wait, or just count.
//!
//! Without a handler a joint costs one comparison. There is nothing global and nothing that depends on how the program was
//! compiled: the joints of the released program can be reached too.

use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pool;
use std::fmt;
use std::sync::Arc;

macro_rules! failpoints {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// A joint of the pool, or of the file system above it. Names are stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Failpoint {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Failpoint {
            /// Every joint, in the order of the enum.
            pub const ALL: &[Failpoint] = &[$(Failpoint::$variant,)*];

            /// The stable name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Failpoint::$variant => $name,)*
                }
            }
        }
    };
}

failpoints! {
    /// Log: before a batch of a group that is not its last one.
    BeforeBatch = "before-batch",
    /// Log: before the last batch of a group, which has the operations; its records may lie in earlier ones.
    BeforeLastBatch = "before-last-batch",
    /// Log: the group is written, and not yet flushed.
    BeforeLogFlush = "before-log-flush",
    /// Log: the group is durable, and nobody knows.
    AfterLogFlush = "after-log-flush",
    /// Checkpoint: overlays are swapped, nothing of the trees is written.
    AfterFreeze = "after-freeze",
    /// Checkpoint: before a batch of nodes or of segment usage.
    BeforeNodeBatch = "before-node-batch",
    /// Checkpoint: everything but the slot is written, and not yet flushed.
    BeforeNodeFlush = "before-node-flush",
    /// Checkpoint: everything but the slot is durable.
    BetweenNodesAndSlot = "between-nodes-and-slot",
    /// Checkpoint: one of the two copies of the slot is written.
    BetweenSlotCopies = "between-slot-copies",
    /// Checkpoint: both copies of the slot are written, and not yet flushed.
    BeforeSlotFlush = "before-slot-flush",
    /// Checkpoint: the slot is durable, and nobody knows.
    BeforePublish = "before-publish",
    /// Checkpoint: readers see the new trees, and empty segments are free.
    AfterPublish = "after-publish",
    /// Cleaner: the records of a segment are moved and written; the checkpoint that frees the segment is yet to come.
    MidClean = "mid-clean",
    /// Opening: the log is replayed, the checkpoint that ends the old log is yet to come.
    AfterReplay = "after-replay",
    /// Files: between the transactions of an operation that takes several: long cuts, holes, removals, destroyed datasets.
    BetweenPieces = "between-pieces",
}

impl Failpoint {
    /// The joint of that name.
    pub fn from_name(name: &str) -> Option<Failpoint> {
        Failpoint::ALL.iter().copied().find(|point| point.name() == name)
    }
}

impl fmt::Display for Failpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What decides at the joints.
pub trait FailpointHandler: Send + Sync {
    /// The pool has reached a joint. An error, a sentence saying why, stops the pool there. Locks of the pool may be held: do
    /// not call it from here.
    fn reach(&self, point: Failpoint) -> std::result::Result<(), String>;
}

/// The handler a pool was opened with, or none.
#[derive(Clone, Default)]
pub struct Failpoints(Option<Arc<dyn FailpointHandler>>);

impl Failpoints {
    /// Has this handler asked at every joint.
    pub fn new(handler: Arc<dyn FailpointHandler>) -> Failpoints {
        Failpoints(Some(handler))
    }
}

impl fmt::Debug for Failpoints {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() {
            "Failpoints(set)"
        } else {
            "Failpoints(none)"
        })
    }
}

impl Pool {
    /// Asks the handler, if there is one. The layer above calls this at its own joints; take no lock on state before.
    pub fn reach(&self, point: Failpoint) -> Result<()> {
        let Some(handler) = &self.failpoints.0 else {
            return Ok(());
        };
        let failed = handler.reach(point).map_err(|why| {
            let message = format!("stopped at the failpoint {point}: {why}");
            Error::new(ErrorKind::Unavailable, "reach failpoint", message)
        });
        self.stop_on_error(failed)
    }
}
