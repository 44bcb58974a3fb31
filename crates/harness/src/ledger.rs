//! What clients saw committed, kept outside the pool, and the proof that a database still has it.
//!
//! Clients run transactions like pgbench's: each adds an amount to one account, one teller and one branch, and inserts an
//! entry with its client number, a sequence number and the amount. Only after `COMMIT` has returned is the transaction
//! written to the ledger. After a crash:
//!
//! - every transaction in the ledger is in the database, with its amount;
//! - a client has at most one entry more than the ledger says: the one whose `COMMIT` had not returned yet;
//! - entries have no gaps, and the sums of accounts, tellers, branches and entries are equal.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail, ensure};
use postgres::{Client, NoTls};

use crate::cluster::Cluster;
use crate::events::Draw;

const ACCOUNTS: u64 = 100_000;
const TELLERS: u64 = 100;
const BRANCHES: u64 = 10;

/// The transactions of each client whose `COMMIT` has returned.
#[derive(Debug)]
pub struct Ledger {
    /// For each client the amounts of its transactions; the sequence number is the index plus 1.
    amounts: Vec<Mutex<Vec<i64>>>,
    file: Mutex<File>,
}

impl Ledger {
    /// An empty ledger for `clients`, also written to `path` for looking into a failure.
    pub fn new(clients: usize, path: &Path) -> Result<Arc<Ledger>> {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Arc::new(Ledger {
            amounts: (0..clients).map(|_| Mutex::default()).collect(),
            file: Mutex::new(file),
        }))
    }

    /// Number of transactions of all clients.
    pub fn transactions(&self) -> usize {
        (0..self.amounts.len()).map(|client| self.of(client).len()).sum()
    }

    fn of(&self, client: usize) -> std::sync::MutexGuard<'_, Vec<i64>> {
        self.amounts[client]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn acknowledge(&self, client: usize, amount: i64) -> Result<()> {
        let mut amounts = self.of(client);
        amounts.push(amount);
        let line = format!("{client} {} {amount}\n", amounts.len());
        self.file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(line.as_bytes())?;
        Ok(())
    }

    /// Begins a new page: empties the tables, in one transaction, and the ledger. Returns how many transactions it held.
    pub fn start_over(&self, database: &mut Client) -> Result<usize> {
        database.batch_execute(
            "BEGIN; TRUNCATE entry; UPDATE account SET balance = 0 WHERE balance <> 0; UPDATE teller SET balance = 0;
             UPDATE branch SET balance = 0; COMMIT",
        )?;
        let held = self.transactions();
        for client in 0..self.amounts.len() {
            self.of(client).clear();
        }
        Ok(held)
    }

    /// Compares the database with the ledger, and takes over the entries whose `COMMIT` had been under way.
    ///
    /// Returns how many were taken over. An error names the first difference.
    pub fn verify(&self, database: &mut Client) -> Result<usize> {
        let mut found: Vec<Vec<i64>> = vec![Vec::new(); self.amounts.len()];
        for row in database.query(
            "SELECT client, sequence, amount FROM entry ORDER BY client, sequence",
            &[],
        )? {
            let (client, sequence, amount): (i32, i64, i64) = (row.get(0), row.get(1), row.get(2));
            let Some(list) = usize::try_from(client)
                .ok()
                .and_then(|client| found.get_mut(client))
            else {
                bail!("an entry of client {client}, which does not exist");
            };
            ensure!(
                sequence == list.len() as i64 + 1,
                "client {client}: entry {} is missing, {sequence} is there",
                list.len() + 1
            );
            list.push(amount);
        }
        let mut adopted = 0;
        for (client, found) in found.iter().enumerate() {
            let known = self.of(client).clone();
            ensure!(
                found.len() >= known.len(),
                "client {client}: {} transactions were committed, only {} are there",
                known.len(),
                found.len()
            );
            ensure!(
                found.len() <= known.len() + 1,
                "client {client}: {} entries, but only {} were begun",
                found.len(),
                known.len() + 1
            );
            let difference = known.iter().zip(found).position(|(known, found)| known != found);
            if let Some(index) = difference {
                bail!(
                    "client {client}: entry {} has amount {}, not {}",
                    index + 1,
                    found[index],
                    known[index]
                );
            }
            for amount in &found[known.len()..] {
                self.acknowledge(client, *amount)?;
                adopted += 1;
            }
        }
        verify_sums(database)?;
        Ok(adopted)
    }
}

/// Every transaction adds the same amount in four places, so their sums agree after any number of whole transactions.
fn verify_sums(database: &mut Client) -> Result<()> {
    let row = database.query_one(
        "SELECT (SELECT coalesce(sum(balance), 0)::bigint FROM account), (SELECT coalesce(sum(balance), 0)::bigint FROM teller),
                (SELECT coalesce(sum(balance), 0)::bigint FROM branch), (SELECT coalesce(sum(amount), 0)::bigint FROM entry)",
        &[],
    )?;
    let sums: [i64; 4] = [row.get(0), row.get(1), row.get(2), row.get(3)];
    ensure!(
        sums.iter().all(|sum| *sum == sums[0]),
        "sums of accounts, tellers, branches and entries differ: {sums:?}"
    );
    Ok(())
}

/// Makes the tables that [`Load`] works on.
pub fn create_tables(database: &mut Client) -> Result<()> {
    database.batch_execute(&format!(
        "CREATE TABLE branch (id int PRIMARY KEY, balance bigint NOT NULL, filler text) WITH (fillfactor = 60);
         CREATE TABLE teller (id int PRIMARY KEY, balance bigint NOT NULL, filler text);
         CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, filler text);
         CREATE TABLE entry (client int, sequence bigint, amount bigint NOT NULL, note text, moment timestamptz DEFAULT now(),
                             PRIMARY KEY (client, sequence));
         CREATE INDEX entry_moment ON entry (moment);
         CREATE INDEX entry_note ON entry (note) WHERE amount > 0;
         INSERT INTO branch SELECT id, 0, repeat('b', 60) FROM generate_series(1, {BRANCHES}) id;
         INSERT INTO teller SELECT id, 0, repeat('t', 60) FROM generate_series(1, {TELLERS}) id;
         INSERT INTO account SELECT id, 0, md5(id::text) || repeat('a', 50) FROM generate_series(1, {ACCOUNTS}) id;"
    ))?;
    Ok(())
}

/// Client threads that run transactions until they are stopped or the server dies.
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Load {
    /// Starts one thread for each client of `ledger`.
    pub fn start(cluster: &Cluster, ledger: &Arc<Ledger>, seed: u64) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..ledger.amounts.len())
            .map(|client| {
                let (ledger, stop, config) = (ledger.clone(), stop.clone(), cluster.config("postgres"));
                std::thread::spawn(move || {
                    let mut draw = Draw::new(seed ^ ((client as u64) << 32));
                    let mut database = config.connect(NoTls).context("a client cannot connect")?;
                    while !stop.load(Ordering::Relaxed) {
                        transaction(&mut database, &ledger, client, &mut draw)?;
                    }
                    Ok(())
                })
            })
            .collect();
        Load { stop, threads }
    }

    /// Waits for the clients of a server that was killed: all must have ended with an error or be about to.
    pub fn join_after_crash(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.threads.into_iter().map(|thread| thread.join());
        ended
            .filter_map(|result| Some(format!("{:#}", result.ok()?.err()?)))
            .collect()
    }

    /// Stops the clients after their current transaction; an error of any of them is returned.
    pub fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            match thread.join() {
                Ok(result) => result?,
                Err(_) => bail!("a client thread panicked"),
            }
        }
        Ok(())
    }
}

fn transaction(database: &mut Client, ledger: &Ledger, client: usize, draw: &mut Draw) -> Result<()> {
    let sequence = ledger.of(client).len() as i64 + 1;
    let amount = draw.below(10_000) as i64 - 4_000;
    let number = |draw: &mut Draw, limit: u64| 1 + draw.below(limit) as i32;
    let note = format!("{:016x} order of client {client}", draw.bits());
    let mut transaction = database.transaction()?;
    transaction.execute(
        "INSERT INTO entry (client, sequence, amount, note) VALUES ($1, $2, $3, $4)",
        &[&(client as i32), &sequence, &amount, &note],
    )?;
    for (table, limit) in [("account", ACCOUNTS), ("teller", TELLERS), ("branch", BRANCHES)] {
        // The same order of tables in every client, so that none waits for another in a circle.
        let update = format!("UPDATE {table} SET balance = balance + $1 WHERE id = $2");
        transaction.execute(&update, &[&amount, &number(draw, limit)])?;
    }
    transaction.commit()?;
    ledger.acknowledge(client, amount)
}
