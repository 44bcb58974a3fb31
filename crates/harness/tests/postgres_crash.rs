//! The promise that matters most: what PostgreSQL acknowledged survives the sudden death of daemon and server.
//!
//! Clients commit transactions and note each in a ledger outside the pool once `COMMIT` has returned; another loads tables
//! in bulk, indexes and drops them. At random moments the daemon, the server or both are killed, on a lossy member, so that
//! the death of the daemon is a power cut. After a remount and PostgreSQL's own recovery everything in the ledgers must be
//! there, every index must agree with its table, and no sum may be off (`power_cuts`). The same cluster goes through
//! several such cycles (`PACKSTONE_CRASH_CYCLES`, 5 by default). `PACKSTONE_TEST_SEED` repeats the plan of the kills, though
//! not the machine's timing. `make soak` does the same for as long as one likes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use packstone_harness::cluster::Cluster;
use packstone_harness::fixture;
use packstone_harness::ledger::{self, Ledger, Load};
use packstone_harness::packstone::Member;
use packstone_harness::power_cuts::{self, Rig};
use packstone_harness::scratch::{self, Cleanup};

const CLIENTS: usize = 4;

#[test]
fn committed_transactions_survive_kills_of_daemon_and_server() -> Result<()> {
    let name = "committed_transactions_survive_kills_of_daemon_and_server";
    if !fixture::can_run_postgres(name) {
        return Ok(());
    }
    let cycles: u64 = std::env::var("PACKSTONE_CRASH_CYCLES")
        .ok()
        .map_or(Ok(5), |text| text.parse())?;
    let seed = fixture::seed();
    let member = Member::Lossy(Some(seed));
    let mut rig = Rig::new(&fixture::test_directory(), "2G", member, seed)?;
    let mut transactions = 0;
    for number in 1..=cycles {
        let cycle = rig.cycle(number % 3 == 0)?;
        transactions += cycle.transactions;
        println!(
            "cycle {number}: {:?}: {} transactions and {} bulk steps are all there, {} more were under way",
            cycle.plan.victims, cycle.transactions, cycle.bulk_steps, cycle.adopted
        );
    }
    ensure!(
        transactions as u64 > cycles * 20,
        "only {transactions} transactions: the load does not load"
    );
    rig.finish()
}

/// What happens when numbers of processes come round: the one in the lock files of a killed server is that of another
/// process of the same user, and PostgreSQL would believe that the server lives.
fn give_number_to_a_stranger(cluster: &Cluster) -> Result<std::process::Child> {
    let mut command = std::process::Command::new("sleep");
    cluster.owner().apply(&mut command);
    let stranger = command.arg("600").spawn()?;
    let locks = [
        cluster.data_directory().join("postmaster.pid"),
        cluster.run_directory().join(".s.PGSQL.5432.lock"),
    ];
    for lock in locks {
        let text = std::fs::read_to_string(&lock)?;
        let (_, rest) = text.split_once('\n').context("a lock file of one line")?;
        std::fs::write(&lock, format!("{}\n{rest}", stranger.id()))?;
    }
    Ok(stranger)
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
    let cluster = power_cuts::busy(Cluster::create(&home.join("pg"), &home.join("run"))?);
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
    let mut stranger = give_number_to_a_stranger(&cluster)?;
    let started = cluster.start();
    stranger.kill()?;
    stranger.wait()?;
    started?;
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
