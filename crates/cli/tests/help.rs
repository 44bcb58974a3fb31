//! Help is part of the interface: every command explains itself with examples.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod support;
use support::Place;

const COMMANDS: &[&[&str]] = &[
    &["create"],
    &["import"],
    &["destroy"],
    &["dataset"],
    &["dataset", "create"],
    &["dataset", "list"],
    &["dataset", "get"],
    &["dataset", "set"],
    &["dataset", "destroy"],
    &["get"],
    &["set"],
    &["mount"],
    &["unmount"],
    &["status"],
    &["check"],
    &["inspect"],
    &["inspect", "label"],
    &["inspect", "tree"],
    &["estimate"],
    &["postgres"],
    &["postgres", "create"],
    &["lab"],
    &["lab", "run"],
    &["lab", "report"],
    &["lab", "check"],
    &["daemon"],
];

#[test]
fn every_command_has_help_with_examples() {
    let place = Place::new();
    for command in COMMANDS {
        let mut arguments = command.to_vec();
        if command.first() == Some(&"inspect") && command.len() > 1 {
            arguments.insert(1, "tank");
        }
        let text = place
            .run(&[arguments.as_slice(), &["--help"]].concat())
            .succeeds();
        assert!(
            text.contains("Examples:\n  packstone ") && text.contains("Usage: packstone"),
            "{command:?}:\n{text}"
        );
    }
}

#[test]
fn every_command_in_the_list_is_tested_here() {
    let text = Place::new().run(&["--help"]).succeeds();
    let listed: Vec<&str> = text
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(listed.len() > 10, "{text}");
    for command in listed {
        assert!(COMMANDS.iter().any(|tested| tested[0] == command), "{command}");
    }
}

#[test]
fn exit_codes_are_documented_where_users_look() {
    let help = Place::new().run(&["--help"]).succeeds();
    assert!(help.contains("Exit codes:"));
    let document =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")).unwrap();
    for line in help.lines().skip_while(|line| *line != "Exit codes:").skip(1) {
        let (code, meaning) = line.trim().split_once("  ").unwrap();
        let plain = document.replace('`', "");
        assert!(
            plain.contains(&format!("| {code} | {} |", meaning.trim())),
            "docs/cli.md lacks: {code} {meaning}"
        );
    }
}

#[test]
fn version_and_usage() {
    let place = Place::new();
    assert_eq!(
        place.run(&["--version"]).succeeds(),
        format!("packstone {}\n", env!("CARGO_PKG_VERSION"))
    );
    place.run(&[]).fails(2, &["Usage"]);
    place.run(&["frobnicate"]).fails(2, &["frobnicate"]);
    place.run(&["create", "tank"]).fails(2, &["MEMBER"]);
    place.run(&["status", "--frobnicate"]).fails(2, &["frobnicate"]);
    assert!(!place.state_directory().exists(), "help creates nothing");
}
