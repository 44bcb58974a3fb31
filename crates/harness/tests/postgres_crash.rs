//! The promise that matters most: what PostgreSQL acknowledged survives the sudden death of daemon and server.
//!
//! Clients commit transactions and note each in a ledger outside the pool once `COMMIT` has returned. At a random moment
//! the daemon and the whole server are killed, in either order. After a remount and PostgreSQL's own recovery everything
//! in the ledger must be there, every index must agree with its table, and no sum may be off. The same cluster goes
//! through several such cycles (`PACKSTONE_CRASH_CYCLES`, 5 by default) with `full_page_writes=off`, so that every page
//! write has to be atomic. `PACKSTONE_TEST_SEED` repeats the moments of the kills, though not the machine's timing.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use packstone_harness::cluster::Cluster;
use packstone_harness::events::Draw;
use packstone_harness::fixture::{self, Mounted};
use packstone_harness::ledger::{self, Ledger, Load};
use packstone_harness::scratch::{self, Cleanup};

const CLIENTS: usize = 4;

#[test]
fn committed_transactions_survive_kills_of_daemon_and_server() -> Result<()> {
    let name = "committed_transactions_survive_kills_of_daemon_and_server";
    if !fixture::can_run_postgres(name) {
        return Ok(());
    }
    let cycles: u32 = std::env::var("PACKSTONE_CRASH_CYCLES")
        .ok()
        .map_or(Ok(5), |text| text.parse())?;
    let mut draw = Draw::new(fixture::seed());
    let (mounted, cluster) = Mounted::with_postgres("4G")?;
    let cluster = busy(cluster);
    cluster.start_with(&mounted.cleanup)?;
    let mut database = cluster.connect("postgres")?;
    for (setting, wanted) in [
        ("full_page_writes", "off"),
        ("data_checksums", "on"),
        ("fsync", "on"),
    ] {
        let value: String = database.query_one(&format!("SHOW {setting}"), &[])?.get(0);
        ensure!(
            value == wanted,
            "packstone postgres create left {setting} = {value}"
        );
    }
    ledger::create_tables(&mut database)?;
    drop(database);

    let ledger = Ledger::new(CLIENTS, &mounted.home.join("ledger"))?;
    for cycle in 1..=cycles {
        let load = Load::start(&cluster, &ledger, draw.bits());
        std::thread::sleep(Duration::from_millis(3_000 + draw.below(4_000)));
        let daemon_first = draw.below(2) == 0;
        kill_both(&mounted, &cluster, daemon_first)?;
        let ends = load.join_after_crash();
        ensure!(
            ends.len() == CLIENTS,
            "only {} of {CLIENTS} clients noticed the crash",
            ends.len()
        );

        mounted
            .recover()
            .with_context(|| format!("cycle {cycle}: remount"))?;
        cluster
            .start()
            .with_context(|| format!("cycle {cycle}: start after the crash"))?;
        let committed = ledger.transactions();
        let adopted = ledger
            .verify(&mut cluster.connect("postgres")?)
            .with_context(|| format!("cycle {cycle}, daemon killed first: {daemon_first}"))?;
        cluster
            .amcheck()
            .with_context(|| format!("cycle {cycle}: pg_amcheck"))?;
        println!(
            "cycle {cycle}: {committed} transactions in the ledger are all there, {adopted} more were under way"
        );
        ensure!(
            committed > cycle as usize * 20,
            "only {committed} transactions: the load does not load"
        );
    }

    cluster.stop()?;
    cluster.verify_checksums()?;
    mounted.finish()
}

/// Checkpoints, vacuums and segment switches happen all the time, so that kills fall into them too.
fn busy(cluster: Cluster) -> Cluster {
    cluster
        .with_setting("checkpoint_timeout", "30s")
        .with_setting("max_wal_size", "64MB")
        .with_setting("min_wal_size", "32MB")
        .with_setting("shared_buffers", "16MB")
        .with_setting("autovacuum_naptime", "2s")
        .with_setting("bgwriter_delay", "20ms")
}

fn kill_both(mounted: &Mounted, cluster: &Cluster, daemon_first: bool) -> Result<()> {
    if daemon_first {
        mounted.pool.kill_daemon()?;
        cluster.kill_hard()
    } else {
        cluster.kill_hard()?;
        mounted.pool.kill_daemon()
    }
}

/// The same server on a plain directory, killed alone. It shows that the harness finds its way through a crash, and that
/// the ledger notices when a transaction is missing, doubled or changed: without that the test above would prove nothing.
#[test]
fn ledger_notices_what_is_lost() -> Result<()> {
    let missing = packstone_harness::requirements::missing_for_postgres();
    if !fixture::runs("ledger_notices_what_is_lost", missing) {
        return Ok(());
    }
    let cleanup = Cleanup::new();
    let home = scratch::directory(&fixture::test_directory(), "packstone-test-", &cleanup)?;
    let cluster = busy(Cluster::create(&home.join("pg"), &home.join("run"))?);
    cluster.start_with(&cleanup)?;
    ledger::create_tables(&mut cluster.connect("postgres")?)?;
    let ledger = Ledger::new(CLIENTS, &home.join("ledger"))?;
    let load = Load::start(&cluster, &ledger, fixture::seed());
    std::thread::sleep(Duration::from_secs(2));
    cluster.kill_hard()?;
    ensure!(
        load.join_after_crash().len() == CLIENTS,
        "a client did not notice the crash"
    );
    cluster.start()?;
    let mut database = cluster.connect("postgres")?;
    ledger.verify(&mut database)?;
    ensure!(
        ledger.transactions() > 50,
        "only {} transactions",
        ledger.transactions()
    );
    cluster.amcheck()?;

    let harms = [
        "DELETE FROM entry WHERE client = 1 AND sequence = (SELECT max(sequence) FROM entry WHERE client = 1)",
        "DELETE FROM entry WHERE client = 0 AND sequence = 3",
        "UPDATE entry SET amount = amount + 1 WHERE client = 2 AND sequence = 2",
        "INSERT INTO entry SELECT 3, max(sequence) + n, 0 FROM entry, generate_series(1, 2) n WHERE client = 3 GROUP BY n",
        "UPDATE account SET balance = balance + 1 WHERE id = 7",
        "UPDATE branch SET balance = balance - 1 WHERE id = 2",
    ];
    for harm in harms {
        // Each harm is undone again, so that each is noticed for itself.
        database.batch_execute("BEGIN")?;
        let changed = database.execute(harm, &[])?;
        ensure!(changed > 0, "no row changed: {harm}");
        ensure!(ledger.verify(&mut database).is_err(), "not noticed: {harm}");
        database.batch_execute("ROLLBACK")?;
    }
    ledger.verify(&mut database)?;
    drop(database);
    cluster.stop()?;
    cluster.verify_checksums()
}
