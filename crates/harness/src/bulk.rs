//! A bulk load beside the transactions: tables that come with their indexes, grow and go, and what of it was acknowledged.
//!
//! One client makes a schema with a table of click events, fills it with `COPY`, builds btree and GIN indexes and commits;
//! later it appends rows, reindexes, vacuums or drops. Just before each `COMMIT` it notes what the table will then hold,
//! as a count and a digest that the server computed, and once `COMMIT` has returned, that it does. After a crash every
//! table is as it was acknowledged, or as the one step under way would have made it, and never anything else; and its GIN
//! index finds what a scan of the table finds.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail, ensure};
use postgres::{Client, GenericClient, NoTls};

use crate::cluster::Cluster;
use crate::events::{self, Draw, Generator};

/// More tables than this are not kept.
const TABLES_MAX: usize = 3;
/// Rows of one `COPY`, at least and at most.
const ROWS: std::ops::Range<u64> = 200..1_500;

/// Rows of a table and a digest over them all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    rows: i64,
    digest: i64,
}

/// What the bulk client saw committed.
#[derive(Debug, Default)]
pub struct BulkLedger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    steps: u64,
    tables: BTreeMap<u64, Content>,
    /// The table that is being changed, and what it holds if the change succeeds; `None` when it is dropped.
    under_way: Option<(u64, Option<Content>)>,
}

impl BulkLedger {
    /// Steps whose end was acknowledged.
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, table: u64, target: Option<Content>) {
        self.lock().under_way = Some((table, target));
    }

    fn acknowledge(&self) {
        let mut state = self.lock();
        if let Some((table, target)) = state.under_way.take() {
            state.set(table, target);
            state.steps += 1;
        }
    }

    /// Compares the database with what was acknowledged and takes over the step that was under way, if it is there.
    pub fn verify(&self, database: &mut Client) -> Result<()> {
        let mut found = BTreeMap::new();
        for row in database.query(
            "SELECT nspname::text FROM pg_namespace WHERE nspname LIKE 'bulk\\_%'",
            &[],
        )? {
            let name: String = row.get(0);
            let number: u64 = name
                .trim_start_matches("bulk_")
                .parse()
                .with_context(|| format!("a schema called {name}"))?;
            verify_gin(database, number)?;
            found.insert(number, content(database, number)?);
        }
        let mut state = self.lock();
        let under_way = state.under_way.take();
        let numbers: Vec<u64> = found.keys().chain(state.tables.keys()).copied().collect();
        for number in numbers {
            let (known, there) = (state.tables.get(&number), found.get(&number));
            let expected_next = under_way.as_ref().filter(|(table, _)| *table == number);
            let is_next = expected_next.is_some_and(|(_, target)| target.as_ref() == there);
            ensure!(
                known == there || is_next,
                "bulk table {number}: {known:?} was acknowledged, {there:?} is there, under way was {expected_next:?}"
            );
        }
        state.tables = found;
        Ok(())
    }
}

impl State {
    fn set(&mut self, table: u64, content: Option<Content>) {
        match content {
            Some(content) => self.tables.insert(table, content),
            None => self.tables.remove(&table),
        };
    }
}

/// The client thread.
pub struct BulkLoad {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl BulkLoad {
    /// Starts it.
    pub fn start(cluster: &Cluster, ledger: &Arc<BulkLedger>, seed: u64) -> BulkLoad {
        let stop = Arc::new(AtomicBool::new(false));
        let (ledger, stopped, config) = (ledger.clone(), stop.clone(), cluster.config("postgres"));
        let thread = std::thread::spawn(move || {
            let mut draw = Draw::new(seed);
            let mut generator = Generator::new(seed);
            let mut database = config.connect(NoTls).context("the bulk client cannot connect")?;
            while !stopped.load(Ordering::Relaxed) {
                step(&mut database, &ledger, &mut generator, &mut draw)?;
            }
            Ok(())
        });
        BulkLoad { stop, thread }
    }

    /// Waits for the client of a server that was killed; returns how it ended.
    pub fn join_after_crash(self) -> Result<Option<String>> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(result) => Ok(result.err().map(|error| format!("{error:#}"))),
            Err(_) => bail!("the bulk client panicked"),
        }
    }
}

fn step(
    database: &mut Client,
    ledger: &BulkLedger,
    generator: &mut Generator,
    draw: &mut Draw,
) -> Result<()> {
    let (known, next) = {
        let state = ledger.lock();
        (state.tables.keys().copied().collect::<Vec<_>>(), state.next)
    };
    let chosen = match known.len() {
        0 => None,
        length => known.get(draw.below(length as u64) as usize).copied(),
    };
    match (chosen, draw.below(6)) {
        (Some(table), 0) => vacuum(database, table, draw),
        (Some(table), 1) => append(database, ledger, table, generator, draw),
        (Some(table), 2) => drop_table(database, ledger, table),
        (Some(table), _) if known.len() >= TABLES_MAX => drop_table(database, ledger, table),
        _ => {
            ledger.lock().next += 1;
            load(database, ledger, next, generator, draw)
        }
    }
}

fn load(
    database: &mut Client,
    ledger: &BulkLedger,
    table: u64,
    generator: &mut Generator,
    draw: &mut Draw,
) -> Result<()> {
    let mut transaction = database.transaction()?;
    transaction.batch_execute(&format!(
        "CREATE SCHEMA bulk_{table}; SET LOCAL search_path = bulk_{table}"
    ))?;
    transaction.batch_execute(events::CREATE_TABLE)?;
    copy_rows(&mut transaction, generator, draw)?;
    for index in events::CREATE_INDEXES {
        transaction.batch_execute(index)?;
    }
    ledger.begin(table, Some(content(&mut transaction, table)?));
    transaction.commit()?;
    ledger.acknowledge();
    Ok(())
}

fn append(
    database: &mut Client,
    ledger: &BulkLedger,
    table: u64,
    generator: &mut Generator,
    draw: &mut Draw,
) -> Result<()> {
    let mut transaction = database.transaction()?;
    transaction.batch_execute(&format!("SET LOCAL search_path = bulk_{table}"))?;
    copy_rows(&mut transaction, generator, draw)?;
    ledger.begin(table, Some(content(&mut transaction, table)?));
    transaction.commit()?;
    ledger.acknowledge();
    Ok(())
}

fn drop_table(database: &mut Client, ledger: &BulkLedger, table: u64) -> Result<()> {
    ledger.begin(table, None);
    database.batch_execute(&format!("DROP SCHEMA bulk_{table} CASCADE"))?;
    ledger.acknowledge();
    Ok(())
}

/// Rewrites files without changing what the table says.
fn vacuum(database: &mut Client, table: u64, draw: &mut Draw) -> Result<()> {
    let statement = match draw.below(3) {
        0 => "VACUUM (FULL, ANALYZE)",
        1 => "REINDEX TABLE",
        _ => "VACUUM (FREEZE)",
    };
    Ok(database.batch_execute(&format!("{statement} bulk_{table}.event"))?)
}

fn copy_rows(client: &mut impl GenericClient, generator: &mut Generator, draw: &mut Draw) -> Result<()> {
    let mut writer = client.copy_in(events::COPY)?;
    let mut text = String::new();
    for _ in 0..ROWS.start + draw.below(ROWS.end - ROWS.start) {
        text.clear();
        generator.write_row(&mut text);
        writer.write_all(text.as_bytes())?;
    }
    writer.finish()?;
    Ok(())
}

fn content(client: &mut impl GenericClient, table: u64) -> Result<Content> {
    let question = format!(
        "SELECT count(*), coalesce(sum(hashtextextended(event::text, 0) % 1000000007), 0)::bigint FROM bulk_{table}.event"
    );
    let row = client.query_one(&question, &[])?;
    Ok(Content {
        rows: row.get(0),
        digest: row.get(1),
    })
}

/// `pg_amcheck` knows btree indexes only; GIN is compared with the table itself.
fn verify_gin(database: &mut Client, table: u64) -> Result<()> {
    let mut counts = Vec::new();
    for way in ["enable_seqscan", "enable_bitmapscan"] {
        let mut transaction = database.transaction()?;
        transaction.batch_execute(&format!("SET LOCAL {way} = off"))?;
        let question = format!(
            "SELECT count(*) FROM bulk_{table}.event WHERE properties @> '{{\"browser\": \"Safari\"}}' OR \
             properties @> '{{\"device_type\": \"Mobile\", \"country\": \"Germany\"}}'"
        );
        counts.push(transaction.query_one(&question, &[])?.get::<_, i64>(0));
    }
    ensure!(
        counts[0] == counts[1],
        "bulk table {table}: its GIN index finds {} rows, a scan finds {}",
        counts[0],
        counts[1]
    );
    Ok(())
}
