//! A few short worlds through the program itself, and that the same seed gives the same life. Long runs: `make sim`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_packstone-sim"))
        .arg("run")
        .args(arguments)
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn short_worlds_keep_their_promises_and_repeat() {
    let output = simulate(&[
        "--seeds",
        "0..12",
        "--operations",
        "600",
        "--check-determinism",
        "--threads",
        "2",
        "--shrink-seconds",
        "20",
    ]);
    assert!(output.status.success());
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(
        line.contains("12 worlds") && !line.contains(" 0 crashes"),
        "{line}"
    );
}

/// Leaving operations out gives a life of its own, which also repeats.
#[test]
fn a_part_of_a_life_can_be_lived_again() {
    let part = ["--seed", "3", "--operations", "300", "--keep", "1-40,60-300"];
    let (first, second) = (simulate(&part), simulate(&part));
    assert!(first.status.success() && second.status.success());
    assert_eq!(first.stdout, second.stdout);
}

#[test]
fn bad_arguments_are_refused() {
    assert!(!simulate(&["--seeds", "5..5"]).status.success());
    assert!(!simulate(&["--seed", "1", "--keep", "1-x"]).status.success());
    assert!(!simulate(&["--pinned", "/nowhere/seeds.txt"]).status.success());
}
