//! Golden scripts: what a user types, and what the terminal shows.
//!
//! Each file in `scripts/` is commands (`$ packstone ...`) with the output and the exit code they must have. `{DIR}` stands
//! for the directory of the run. `UPDATE_SCRIPTS=1` writes what the commands say now: read the difference before you
//! commit it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod support;
use std::fs;
use std::path::Path;
use support::Place;

#[test]
fn scripts_say_what_they_said() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut scripts: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    scripts.sort();
    assert!(!scripts.is_empty());
    for script in scripts {
        let expected = fs::read_to_string(&script).unwrap();
        let said = play(&expected);
        if std::env::var_os("UPDATE_SCRIPTS").is_some() {
            fs::write(&script, said).unwrap();
        } else {
            assert_eq!(said, expected, "{}", script.display());
        }
    }
}

fn play(script: &str) -> String {
    let place = Place::new();
    let root = place.root().to_str().unwrap();
    let mut said = String::new();
    for line in script.lines() {
        if line.starts_with('#') || line.is_empty() {
            said.push_str(&format!("{line}\n"));
        }
        let Some(command) = line.strip_prefix("$ packstone ") else {
            continue;
        };
        let arguments: Vec<String> = command
            .split(' ')
            .map(|argument| argument.replace("{DIR}", root))
            .collect();
        let outcome = place.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        said.push_str(&format!("{line}\n{}{}", outcome.stdout, outcome.stderr).replace(root, "{DIR}"));
        if outcome.code != 0 {
            said.push_str(&format!("[exit {}]\n", outcome.code));
        }
    }
    said
}
