//! `packstone lab` from the outside: small experiments, resumed, interrupted, refused; and storage that is taken down.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall panic")]

mod support;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::{Place, can_mount, is_root, outcome, say_skipped, send_signal, wait_for};

/// Two directories and a command, so no root is needed.
fn directories(place: &Place, run: &str) -> String {
    let text = format!(
        "name = 'small'\ncontrol = 'one'\nrounds = 1\nnoise_pair = false\n\
         [backing]\ndirectory = '{}'\n\
         [[arm]]\nname = 'one'\nkind = 'directory'\n[[arm]]\nname = 'two'\nkind = 'directory'\n\
         [meters]\nprobe = false\n\
         [workload]\nkind = 'command'\nstorage_bytes = 1000\nrun = '''{run}'''\n",
        place.root().display()
    );
    write(place, &text)
}

fn write(place: &Place, text: &str) -> String {
    let path = place.path("experiment.toml");
    fs::write(&path, text).unwrap();
    path
}

/// The one run that was made here.
fn run_directory(place: &Place) -> PathBuf {
    let runs: Vec<_> = fs::read_dir(place.path("runs")).unwrap().collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs[0].as_ref().unwrap().path()
}

/// What a run has not removed.
fn leftovers(place: &Place) -> Vec<String> {
    let mut left: Vec<String> = fs::read_dir(place.root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("packstone-lab"))
        .collect();
    let loops = fs::read_dir("/sys/block").unwrap().filter_map(|device| {
        let backing = device.unwrap().path().join("loop/backing_file");
        fs::read_to_string(backing).ok()
    });
    let here = place.root().to_str().unwrap();
    left.extend(loops.filter(|file| file.starts_with(here)));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    left.extend(
        mounts
            .lines()
            .filter(|line| line.contains(here))
            .map(str::to_owned),
    );
    left
}

fn journal(run: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(run.join("journal.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn figure(turn: &serde_json::Value, name: &str) -> f64 {
    let figures = turn["figures"].as_array().unwrap();
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no figure '{name}' in {turn}"))["value"]
        .as_f64()
        .unwrap()
}

#[test]
fn run_is_made_killed_resumed_and_reported() {
    let place = Place::new();
    let experiment = directories(&place, "head -c 100000 /dev/zero > file; echo operations=10");
    place.run(&["lab", "run", &experiment, "--dry-run"]).succeeds();
    assert!(!Path::new(&place.path("runs")).exists(), "a dry run does nothing");
    let report = place.run(&["lab", "run", &experiment, "--json"]).json();
    assert!(report.is_object());
    let run = run_directory(&place);
    let turns = journal(&run);
    let arms: Vec<&str> = turns.iter().map(|turn| turn["arm"].as_str().unwrap()).collect();
    assert_eq!(arms, ["one", "two", "two", "one"]);
    assert_eq!(figure(&turns[0], "logical bytes"), 100_000.0);
    assert!(figure(&turns[0], "time") > 0.0);
    assert!(run.join("report.html").is_file() && run.join("report.json").is_file());
    assert_eq!(leftovers(&place), Vec::<String>::new());

    // As if it had been killed while it wrote the third line.
    let text = fs::read_to_string(run.join("journal.jsonl")).unwrap();
    let second_end = text.match_indices('\n').nth(1).unwrap().0 + 1;
    fs::write(run.join("journal.jsonl"), &text[..second_end + 40]).unwrap();
    let shown = run.to_str().unwrap();
    place.run(&["lab", "report", shown]).succeeds();
    let resume = |more: &[&str]| {
        let arguments = [&["lab", "run", &experiment, "--resume", shown], more].concat();
        place.run(&arguments)
    };
    resume(&["--set", "workload.cold=true"]).fails(1, &["'workload' has changed"]);
    resume(&[]).succeeds();
    let resumed = journal(&run);
    assert_eq!(resumed.len(), 4);
    assert_eq!(resumed[..2], turns[..2], "finished turns are not made again");
    assert_eq!(resumed[2]["position"], 2);

    let page = place.path("page.html");
    place.run(&["lab", "report", shown, "--html", &page]).succeeds();
    assert!(fs::read_to_string(page).unwrap().contains("small"));
    place
        .run(&["lab", "report", place.root().to_str().unwrap()])
        .fails(3, &["run.json"]);
}

#[test]
fn interrupted_run_takes_everything_down() {
    let place = Place::new();
    let started = place.path("started");
    let experiment = directories(&place, &format!("touch {started}; sleep 600"));
    let child = place
        .command(&["lab", "run", &experiment])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(wait_for(|| Path::new(&started).exists()));
    let begun = Instant::now();
    send_signal(i32::try_from(child.id()).unwrap(), rustix::process::Signal::TERM);
    let outcome = outcome(child.wait_with_output().unwrap());
    outcome.fails(1, &["interrupted", "--resume"]);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(leftovers(&place), Vec::<String>::new());
    assert_eq!(journal(&run_directory(&place)), Vec::<serde_json::Value>::new());
}

#[test]
fn failed_turn_is_told_and_its_logs_are_kept() {
    let place = Place::new();
    let experiment = directories(&place, "echo what happened > $PACKSTONE_LAB_SCRATCH/log; exit 7");
    place
        .run(&["lab", "run", &experiment])
        .fails(1, &["one in round 1", "exit status: 7"]);
    let log = run_directory(&place).join("failed-turn/log");
    assert_eq!(fs::read_to_string(log).unwrap(), "what happened\n");
    assert_eq!(leftovers(&place), Vec::<String>::new());
}

#[test]
fn mistakes_and_missing_things_are_named() {
    let place = Place::new();
    let experiment = directories(&place, "true");
    let run = |more: &[&str]| place.run(&[&["lab", "check", &experiment], more].concat());
    run(&[]).succeeds();
    run(&["--arms", "three"]).fails(2, &["no arm 'three'", "one, two"]);
    run(&["--set", "profile.device=gp4"]).fails(2, &["gp4"]);
    run(&["--set", "arm.one.settings.full_page_writes=off"]).fails(2, &["full_page_writes"]);
    run(&["--set", "workload.kind=nonsense"]).fails(2, &["nonsense"]);
    run(&["--set", "workload.storage_bytes=1000000000000000"]).fails(3, &["are needed"]);
    run(&["--set", "arm.two.kind=zfs", "--set", "arm.two.name=zfs"]).fails(3, &["missing"]);
    place
        .run(&["lab", "check", "/nowhere.toml"])
        .fails(3, &["/nowhere.toml"]);
    fs::write(&experiment, "name = 'x'\nnonsense = 1\n").unwrap();
    run(&[]).fails(2, &["nonsense"]);
}

#[test]
fn experiments_that_come_along_are_sound() {
    let place = Place::new();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut seen = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = place
            .run(&["lab", "run", path.to_str().unwrap(), "--dry-run"])
            .succeeds();
        assert!(text.contains("in round 1, place 1"), "{path:?}: {text}");
        seen += 1;
    }
    assert!(seen > 0);
}

/// A pool and an ext4 on the same loop device, both held to 40 MB/s: both take as long as that says, what they wrote is
/// counted at the device, and nothing stays.
#[test]
fn pool_and_ext4_lie_on_the_same_limited_device() {
    if !is_root() || !can_mount() || !Path::new("/dev/loop-control").exists() {
        say_skipped(format_args!("needs root, /dev/fuse and loop devices"));
        return;
    }
    let place = Place::new();
    let parent = tempfile::Builder::new()
        .prefix("pk")
        .tempdir_in("/var/tmp")
        .unwrap();
    let experiment = write(
        &place,
        &format!(
            "name = 'pair'\ncontrol = 'ext4'\nrounds = 1\nnoise_pair = false\n\
             [backing]\nsize = '128M'\ndirectory = '{}'\n\
             [profile]\ndevice = {{ bytes_per_second = 40_000_000, operations_per_second = 5000 }}\n\
             [[arm]]\nname = 'ext4'\nkind = 'ext4'\n\
             [[arm]]\nname = 'packstone'\nkind = 'packstone'\nproperties = {{ compression = 'none' }}\n\
             [meters]\nprobe = false\n\
             [workload]\nkind = 'command'\nstorage_bytes = 100_000_000\nrun = 'head -c 12000000 /dev/urandom > file'\n",
            parent.path().display()
        ),
    );
    let ran = place.run(&["lab", "run", &experiment, "--json"]);
    if ran.code == 3 && ran.stderr.contains("control groups") {
        say_skipped(format_args!("needs control groups that limit I/O"));
        return;
    }
    ran.succeeds();
    let turns = journal(&run_directory(&place));
    assert_eq!(turns.len(), 4);
    for turn in &turns {
        let (seconds, written) = (figure(turn, "time"), figure(turn, "device bytes written"));
        assert!((12e6..20e6).contains(&written), "{written} bytes: {turn}");
        assert!(seconds > 0.2, "{seconds} s for 12 MB at 40 MB/s: {turn}");
    }
    let pool = &turns[1];
    assert!(figure(pool, "pool bytes written: data") > 11e6);
    assert!(figure(pool, "CPU seconds of daemon") > 0.0);
    assert_eq!(leftovers(&place), Vec::<String>::new());
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}
