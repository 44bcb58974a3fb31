//! The fuzzer: libFuzzer calls the target that `PACKSTONE_FUZZ_TARGET` names with one input after the other.
//!
//! An allocator of its own bounds memory: a single allocation above [`ALLOCATION_BYTES_MAX`] ends the process as a crash.
//! (libFuzzer's own limit for allocations needs a sanitizer, which stable Rust does not have; its limit for all of the
//! memory does not.)

#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;

use packstone_fuzz::Target;

/// No structure of the small images under test calls for more at once.
const ALLOCATION_BYTES_MAX: usize = 64 << 20;

struct Bounded;

fn check(bytes: usize) {
    if bytes > ALLOCATION_BYTES_MAX {
        // Not a panic, which would allocate.
        std::process::abort();
    }
}

// SAFETY: every call goes to the system's allocator unchanged, or ends the process.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check(layout.size());
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        check(new_size);
        // SAFETY: the caller keeps the promises of `GlobalAlloc::realloc`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

fn chosen() -> Target {
    static CHOSEN: OnceLock<Target> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("PACKSTONE_FUZZ_TARGET").unwrap_or_default();
        packstone_fuzz::target(&name).unwrap_or_else(|| {
            let names: Vec<&str> = packstone_fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
            eprintln!("PACKSTONE_FUZZ_TARGET must be one of: {}", names.join(" "));
            std::process::exit(2);
        })
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    chosen()(bytes);
});
