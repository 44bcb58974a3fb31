//! The whole crate over a real mount of a real pool, with requests by `/dev/fuse`. Where that cannot be had each test says so and passes.

#![allow(missing_docs, clippy::unwrap_used)]

mod caching;
mod files;
mod fixture;
mod life;
mod names;
mod programs;
mod store;

/// How the tests of this program have their requests come.
const TRANSPORT: packstone_fuse::TransportChoice = packstone_fuse::TransportChoice::Device;
