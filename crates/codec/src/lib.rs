//! Packed-record frames: how the bytes of one record look once compressed.
//!
//! ```text
//!   raw bytes ──pack──► frame: header | body ──checksum──► 64 bits kept by the record table
//!   raw bytes ◄─unpack─ frame
//! ```
//!
//! A record is what the pool stores as one unit: a file's page or block, or a tree node. This crate turns raw
//! bytes into a self-describing *frame* and back. It does not know where frames are kept, and it holds no
//! state that a caller can see.
//!
//! Invariants:
//! - `unpack(pack(raw))` is `raw`, for every codec and level, for 0 to [`RAW_BYTES_MAX`] bytes.
//! - No bytes given to [`header`], [`unpack`] or [`PackedRecord::from_frame`] panic, and none make them
//!   allocate more than the caller's limit.
//! - A frame is never longer than [`packed_bytes_max`] of its raw length: what does not compress stays raw.
//!
//! ```
//! use packstone_codec::{Compression, PackedRecord, checksum, unpack};
//!
//! let page = vec![7u8; 8192];
//! let record = PackedRecord::pack(&page, Compression::default());
//! assert!(record.packed_bytes() < 100);
//! assert_eq!(record.checksum(), checksum(record.frame()));
//! assert_eq!(unpack(record.frame(), 8192)?, page);
//! # Ok::<(), packstone_codec::CodecError>(())
//! ```
//!
//! Dictionaries are not here yet; the frame has room for them (see [`FrameHeader::dictionary`]).

mod compression;
mod contexts;
mod error;
mod frame;
mod record;

pub use compression::{Compression, ZstdLevel};
pub use error::{CodecError, CodecErrorKind, Result};
pub use frame::{
    Codec, DictionaryId, FrameHeader, RAW_BYTES_MAX, header, packed_bytes_max, unpack, unpack_into,
};
pub use record::{PackedRecord, checksum};
