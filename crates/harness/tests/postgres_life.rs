//! PostgreSQL on a pool in ordinary days: stop and start, and a pool that fills up.

use std::fs::File;
use std::io::Write;

use anyhow::{Result, ensure};
use packstone_harness::events::Draw;
use packstone_harness::fixture::{self, Mounted};
use packstone_harness::ledger::{self, Ledger, Load};

#[test]
fn cluster_is_the_same_after_stop_unmount_mount_start() -> Result<()> {
    if !fixture::can_run_postgres("cluster_is_the_same_after_stop_unmount_mount_start") {
        return Ok(());
    }
    let (mounted, cluster) = Mounted::with_postgres("2G")?;
    cluster.start_with(&mounted.cleanup)?;
    ledger::create_tables(&mut cluster.connect("postgres")?)?;
    let ledger = Ledger::new(2, &mounted.home.join("ledger"))?;
    for round in 0..2 {
        let load = Load::start(&cluster, &ledger, round);
        std::thread::sleep(std::time::Duration::from_secs(2));
        load.stop()?;
        cluster.stop()?;
        mounted.remount()?;
        cluster.start()?;
        ensure!(
            !cluster.log_tail(30).contains("was not properly shut down"),
            "the stop was not clean"
        );
        let adopted = ledger.verify(&mut cluster.connect("postgres")?)?;
        ensure!(adopted == 0, "{adopted} transactions that no client knows of");
    }
    cluster.amcheck()?;
    cluster.stop()?;
    mounted.finish()
}

/// PostgreSQL gets ENOSPC from a full pool as it does from a full ext4, and goes on once there is room again.
#[test]
fn cluster_outlives_a_full_pool() -> Result<()> {
    if !fixture::can_run_postgres("cluster_outlives_a_full_pool") {
        return Ok(());
    }
    let (mounted, cluster) = Mounted::with_postgres("768M")?;
    let cluster = cluster
        .with_setting("max_wal_size", "64MB")
        .with_setting("min_wal_size", "32MB");
    cluster.start_with(&mounted.cleanup)?;
    let mut database = cluster.connect("postgres")?;
    database.batch_execute("CREATE TABLE note (id bigint PRIMARY KEY, text text NOT NULL); CHECKPOINT")?;

    // The ballast lies beside the tables and leaves little room.
    let ballast = cluster.data_directory().join("ballast");
    let kept_free_bytes = 48 << 20;
    let ballast_bytes = mounted.available_bytes()?.saturating_sub(kept_free_bytes);
    write_random(&ballast, ballast_bytes)?;

    let insert =
        "INSERT INTO note SELECT $1::bigint + n, (SELECT string_agg(md5(random()::text || i || n), '') FROM
                  generate_series(1, 30) i) FROM generate_series(1, 1000) n";
    let mut committed: i64 = 0;
    let mut refusal = None;
    while refusal.is_none() && committed < 2_000_000 {
        match database.execute(insert, &[&committed]) {
            Ok(rows) => committed += rows as i64,
            Err(error) => refusal = Some(error),
        }
    }
    let refusal = refusal.map(|error| error.to_string()).unwrap_or_default();
    drop(database);
    let log = cluster.log();
    ensure!(
        log.contains("No space left on device"),
        "after {committed} rows: {refusal}\n{}",
        cluster.log_tail(20)
    );
    println!("{committed} rows fitted");

    // A server whose log could not grow has panicked, as on ext4; one that could not grow a table still runs.
    std::fs::remove_file(&ballast)?;
    let mut database = cluster.revive()?;
    let rows: i64 = database.query_one("SELECT count(*) FROM note", &[])?.get(0);
    ensure!(
        rows == committed,
        "{rows} rows are there, {committed} were committed"
    );
    database.execute(insert, &[&committed])?;
    database.batch_execute("CHECKPOINT")?;
    drop(database);
    cluster.amcheck()?;
    cluster.stop()?;
    cluster.verify_checksums()?;
    mounted.finish()
}

/// Fills `path` with bytes that no codec can shrink, as far as there is room.
fn write_random(path: &std::path::Path, size_bytes: u64) -> Result<()> {
    let mut draw = Draw::new(5);
    let mut file = File::create(path)?;
    let mut written = 0;
    while written < size_bytes {
        let chunk: Vec<u8> = (0..16_384).flat_map(|_| draw.bits().to_le_bytes()).collect();
        file.write_all(&chunk)?;
        written += chunk.len() as u64;
    }
    file.sync_all()?;
    Ok(())
}
