//! What fuzzers feed with bytes: a table of targets, each a function that must return, whatever the bytes.
//!
//! ```text
//!   fuzz/ (libFuzzer, outside the workspace) ──┐
//!   tests/replay.rs: seeds, saved crashes ─────┼──► TARGETS ──► decoders, requests, whole images
//!   packstone-fuzz replay TARGET FILE ─────────┘
//! ```
//!
//! A target panics when something is wrong: in the product, or in what must hold of it (what was decoded encodes to the
//! same; no answer is longer than what was asked for; background work ends). Targets are deterministic but for the clock
//! of kernel requests, take a few milliseconds at most, and keep nothing from one input to the next.
//!
//! Left out: the HTTP, JSON and command-line libraries, which have fuzzers of their own; the kernel's side of a mount.

mod decoders;
mod image;
mod input;
mod requests;

/// Takes any bytes and returns.
pub type Target = fn(&[u8]);

/// Every target by name. The order is that of `make fuzz`.
pub const TARGETS: [(&str, Target); 13] = [
    ("label", decoders::label),
    ("slot", decoders::slot),
    ("batch", decoders::batch),
    ("node", decoders::node),
    ("operations", decoders::operations),
    ("tables", decoders::tables),
    ("frame", decoders::frame),
    ("files", decoders::files),
    ("typed", decoders::typed),
    ("control", decoders::control),
    ("request", requests::decode),
    ("session", requests::session),
    ("image", image::live),
];

/// The target with that name.
pub fn target(name: &str) -> Option<Target> {
    let found = TARGETS.iter().find(|(target, _)| *target == name);
    found.map(|(_, target)| *target)
}

/// Inputs to start from, made from valid encodings: target and bytes.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    [decoders::seeds(), requests::seeds(), image::seeds()].concat()
}
