//! Where the bytes of a pool live.
//!
//! ```text
//!   pool ──► dyn Media ──┬── FileMedia        a regular file or a block device
//!                        ├── SimulatedMedia   memory, with the crashes and faults of a real device
//!                        └── LossyMedia       around another: what was not flushed dies with the process; for tests
//! ```
//!
//! [`Media`] is a small trait of bytes and offsets; nothing above it sees a file descriptor, so that mirrors,
//! object stores and remote devices can stand in its place.
//!
//! Invariants:
//! - Bytes are durable once a [`Media::flush`] that began after their write returned `Ok`; before that, any
//!   subset of the sectors written may survive a crash, each whole, not at all, or torn.
//! - After one failed flush every later flush of the same media fails: what the device lost cannot be brought
//!   back by asking again.
//! - Whoever has a [`FileMedia`] open for writing is the only one; a second gets an error of kind
//!   [`MediaErrorKind::Busy`] that names the first.
//!
//! ```no_run
//! use std::path::Path;
//! use packstone_media::{AlignedBuffer, CreateMode, FileMedia, Media};
//!
//! let media = FileMedia::create(Path::new("/srv/tank.pack"), 1 << 30, CreateMode::New)?;
//! let mut sector = AlignedBuffer::zeroed(4096);
//! sector[..5].copy_from_slice(b"hello");
//! media.write(0, &sector)?;
//! media.flush()?;
//! # Ok::<(), packstone_media::MediaError>(())
//! ```

mod aligned;
mod counters;
mod error;
mod file;
mod lossy;
mod media;
mod simulated;

pub use aligned::AlignedBuffer;
pub use counters::MediaCounters;
pub use error::{MediaError, MediaErrorKind, Result};
pub use file::{Access, CreateMode, FileMedia};
pub use lossy::{LossyMedia, LossyOptions};
pub use media::{Media, ReadRequest, SECTOR_BYTES};
pub use simulated::{
    CrashModel, Detachment, Fate, FaultCounts, FaultKind, FaultPlan, InjectedFault, SectorDamage,
    SectorWrite, SimulatedImage, SimulatedMedia,
};
