//! The whole crate over a real mount of a real pool. Where `/dev/fuse` cannot be opened each test says so and passes.

#![allow(missing_docs, clippy::unwrap_used)]

mod caching;
mod files;
mod fixture;
mod life;
mod names;
mod programs;
