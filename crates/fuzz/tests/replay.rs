//! Holds what fuzzers found, without a fuzzer: every seed, cut and flipped a little, and every saved input.
//!
//! Saved inputs lie in `fuzz/regressions`, a directory for each target; a file's name says what it once broke.

use std::fs;
use std::path::Path;

/// A repeatable stream of numbers.
fn next(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

#[test]
fn inputs_that_once_broke_something_do_no_more() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions");
    let mut replayed = 0;
    for (name, run) in packstone_fuzz::TARGETS {
        let Ok(files) = fs::read_dir(directory.join(name)) else {
            continue;
        };
        for file in files {
            let path = file.expect("a readable directory").path();
            println!("{}", path.display());
            run(&fs::read(&path).expect("a readable file"));
            replayed += 1;
        }
    }
    println!("{replayed} inputs");
}

#[test]
fn seeds_and_their_neighbours_do_no_harm() {
    let mut state = 1;
    for (name, bytes) in packstone_fuzz::seeds() {
        let run = packstone_fuzz::target(name).expect("a seed names a target");
        run(&bytes);
        let rounds = if matches!(name, "image" | "session") {
            2
        } else {
            60
        };
        for _ in 0..rounds {
            let mut changed = bytes.clone();
            for _ in 0..1 + next(&mut state) % 3 {
                let at = next(&mut state) % changed.len();
                changed[at] ^= 1 << (next(&mut state) % 8);
            }
            changed.truncate(1 + next(&mut state) % (2 * bytes.len()));
            run(&changed);
        }
    }
}

#[test]
fn every_target_has_seeds() {
    let seeds = packstone_fuzz::seeds();
    for (name, _) in packstone_fuzz::TARGETS {
        assert!(seeds.iter().any(|(target, _)| *target == name), "{name}");
    }
}
