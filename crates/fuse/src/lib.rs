//! The kernel's FUSE requests, turned into calls of [`packstone_fs::FileSystem`].
//!
//! ```text
//!  program ── kernel ── /dev/fuse ──► transport ──► request ──► dispatch ──► packstone_fs
//!                    or io_uring          ▲        (decode)        │
//!                                         └───────── reply ◄───────┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `abi` | numbers of the protocol: opcodes, flags, sizes |
//! | `request` | bytes to a typed operation, every length checked |
//! | `dispatch` | a typed operation to a file system call, one file a family |
//! | `reply` | results to bytes |
//! | `errno` | the one place that chooses an errno |
//! | `negotiate` | what kernel and daemon agree on at the start |
//! | `transport` | how requests come and replies go: by `/dev/fuse`, or over io_uring |
//! | `session` | threads, their loop, the end of a mount |
//! | `mount` | attaching, detaching and finding mounts |
//! | `notify` | telling the kernel to drop what it caches |
//!
//! Invariants:
//! - Every request that wants a reply gets exactly one, also when a handler panics.
//! - A write reaches the file system as the program made it, up to [`WRITE_BYTES_MAX`] at once: the kernel's
//!   write-back cache stays off.
//! - The kernel caches data, names and attributes for as long as it likes, because every change to a mounted dataset
//!   passes through its one mount. Whoever changes a dataset behind the mount must use the `invalidate` calls.
//! - References counted by `lookup` and `create` are given back exactly once, by FORGET or by a reply that did not
//!   arrive.
//!
//! ```no_run
//! # fn example(filesystem: std::sync::Arc<packstone_fs::FileSystem>) -> packstone_fuse::Result<()> {
//! let mounted = packstone_fuse::mount(filesystem, packstone_fuse::MountConfig::new("/mnt/pg", "tank/pg"))?;
//! mounted.wait();
//! # Ok(())
//! # }
//! ```

mod abi;
mod dispatch;
mod errno;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod mount;
mod negotiate;
mod notify;
mod reply;
mod request;
mod session;
mod statistics;
mod transport;

pub use abi::WRITE_BYTES_MAX;
pub use error::{Error, ErrorKind, Result};
pub use mount::{MountInfo, mounted_at, mounts, unmount_path};
pub use session::{MountConfig, Mounted, TransportChoice, TransportInUse, UnknownTransport, mount};
pub use statistics::RequestStatistics;
