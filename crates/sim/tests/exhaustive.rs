//! A small part of the exhaustive exploration: one round of every script but those of full pools.

use packstone_sim::exhaustive::{Options, run, script_names};

/// Take seconds each in this profile; `make crash-points` has them.
const LONG: [&str; 4] = ["overwrite", "cleaning", "full", "clean-when-full"];

#[test]
fn short_scripts_survive_a_crash_at_every_change() {
    let short = script_names().into_iter().filter(|name| !LONG.contains(name));
    for name in short {
        let options = Options {
            script: Some(name.to_owned()),
            round: Some(0),
            by_chance: 4,
            ..Options::default()
        };
        assert!(run(&options).expect("the script exists"), "{name}");
    }
}
