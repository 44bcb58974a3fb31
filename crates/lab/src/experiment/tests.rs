//! Reading experiments: defaults, ways to write values, refusals that name the key.

use super::*;

const SMALL: &str = r#"
name = "small"
control = "ext4"

[[arm]]
name = "ext4"
kind = "ext4"

[[arm]]
name = "packstone"
kind = "packstone"
properties = { recordsize = "8K", compression = "zstd-1" }
settings = { full_page_writes = false, clients = 8 }

[workload]
kind = "command"
"#;

fn refusal(text: &str) -> String {
    format!("{:#}", Experiment::parse(text).expect_err("a refusal"))
}

#[test]
fn small_experiment_gets_defaults() {
    let experiment = Experiment::parse(SMALL).expect("an experiment");
    assert_eq!(experiment.rounds, 3);
    assert!(experiment.noise_pair && experiment.meters.probe && !experiment.flame_graphs.enabled);
    assert_eq!(experiment.backing.size_bytes(), 8 << 30);
    assert_eq!(experiment.profile.limits().expect("limits"), None);
    let packstone = experiment.arm("packstone").expect("the arm");
    assert_eq!(packstone.settings()["full_page_writes"], "off");
    assert_eq!(packstone.settings()["clients"], "8");
    assert_eq!(
        packstone.summary(),
        "compression=zstd-1, recordsize=8K, clients=8, full_page_writes=off"
    );
}

#[test]
fn sizes_words_and_limits_are_read() {
    let text = format!(
        "memory_limit = \"1G\"\n{SMALL}[backing]\nsize = \"20G\"\n[profile]\ndevice = {{ bytes_per_second = 1000, operations_per_second = 10 }}\n"
    )
    .replace("kind = \"ext4\"", "kind = \"ext4\"\nmkfs_options = \"-O ^has_journal\"\nmemory_limit = 4096");
    let experiment = Experiment::parse(&text).expect("an experiment");
    assert_eq!(experiment.backing.size_bytes(), 20 << 30);
    let ext4 = experiment.arm("ext4").expect("the arm");
    assert_eq!(ext4.mkfs_options(), ["-O", "^has_journal"]);
    assert_eq!(experiment.memory_limit_bytes(ext4), Some(4096));
    let packstone = experiment.arm("packstone").expect("the arm");
    assert_eq!(experiment.memory_limit_bytes(packstone), Some(1 << 30));
    let limits = experiment.profile.limits().expect("limits").expect("some");
    assert_eq!(
        (limits.bytes_per_second, limits.operations_per_second),
        (1000, 10)
    );
}

#[test]
fn refusals_name_the_key() {
    let cases = [
        (
            SMALL.replace("control = \"ext4\"", "control = \"xfs\""),
            "no arm 'xfs'",
        ),
        (SMALL.replace("properties", "propertys"), "propertys"),
        (SMALL.replace("kind = \"ext4\"", "kind = \"ext5\""), "ext5"),
        (
            SMALL.replace("kind = \"ext4\"", "kind = \"ext4\"\nmember = \"file\""),
            "member",
        ),
        (
            SMALL.replace("kind = \"ext4\"", "kind = \"ext4\"\nproperties = { a = 1 }"),
            "properties",
        ),
        (SMALL.replace("kind = \"command\"", ""), "workload.kind"),
        (
            SMALL.replace("name = \"packstone\"", "name = \"ext4\""),
            "two arms",
        ),
        (format!("{SMALL}[profile]\ndevice = \"gp4\"\n"), "gp4"),
        (format!("{SMALL}[backing]\nsize = \"20 gigs\"\n"), "20 gigs"),
        (format!("rounds = 0\n{SMALL}"), "rounds"),
        (
            SMALL.replace("name = \"small\"", "name = \"../small\""),
            "../small",
        ),
        (
            format!(
                "{}[profile]\ndevice = \"gp3\"\n",
                SMALL.replace("kind = \"ext4\"", "kind = \"directory\"")
            ),
            "profile",
        ),
    ];
    for (text, wanted) in cases {
        let message = refusal(&text);
        assert!(message.contains(wanted), "'{wanted}' is missing in: {message}");
    }
}

#[test]
fn overrides_reach_tables_arms_and_new_keys() {
    let mut table: toml::Table = SMALL.parse().expect("a table");
    for assignment in [
        "rounds=1",
        "workload.scale=10",
        "workload.mode=simple",
        "arm.ext4.mount_options=noatime",
        "backing.size=1G",
        "arm.packstone.settings.full_page_writes=on",
    ] {
        apply_override(&mut table, assignment).expect(assignment);
    }
    let experiment = Experiment::from_table(&table).expect("an experiment");
    assert_eq!(experiment.rounds, 1);
    assert_eq!(experiment.workload["scale"].as_integer(), Some(10));
    assert_eq!(experiment.workload["mode"].as_str(), Some("simple"));
    assert_eq!(experiment.arm("ext4").expect("the arm").mount_options, "noatime");
    assert_eq!(experiment.backing.size_bytes(), 1 << 30);
    let packstone = experiment.arm("packstone").expect("the arm");
    assert_eq!(packstone.settings()["full_page_writes"], "on");
    assert!(apply_override(&mut table, "arm.xfs.kind=xfs").is_err());
    assert!(apply_override(&mut table, "rounds").is_err());
    assert!(apply_override(&mut table, "rounds.x=1").is_err());
}

#[test]
fn chosen_arms_bring_the_control() {
    let mut table: toml::Table = SMALL.parse().expect("a table");
    let added = keep_arms(&mut table, &["packstone".to_owned()]).expect("arms");
    assert_eq!(added.as_deref(), Some("ext4"));
    assert_eq!(
        Experiment::from_table(&table).expect("an experiment").arms.len(),
        2
    );
    assert!(keep_arms(&mut table, &["xfs".to_owned()]).is_err());
}
