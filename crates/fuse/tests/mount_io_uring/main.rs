//! The tests of `mount` again: the whole crate over a real mount of a real pool, with requests over io_uring. Where that cannot be had each test says so and passes.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../mount/caching.rs"]
mod caching;
#[path = "../mount/files.rs"]
mod files;
#[path = "../mount/fixture.rs"]
mod fixture;
#[path = "../mount/life.rs"]
mod life;
#[path = "../mount/names.rs"]
mod names;
#[path = "../mount/programs.rs"]
mod programs;
#[path = "../mount/store.rs"]
mod store;

/// How the tests of this program have their requests come.
const TRANSPORT: packstone_fuse::TransportChoice = packstone_fuse::TransportChoice::IoUring;
