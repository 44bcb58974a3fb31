//! One engine, one order, once: load, close, open again, verify, read back.
//!
//! | step | timed | counted at the device |
//! |---|---|---|
//! | make an empty store, sync | no | no |
//! | open it, load it transaction by transaction, each durable | the engine's calls only | yes |
//! | close it, sync | yes, apart | yes |
//! | open it again, read everything in order and verify it | no | no |
//! | read everything in order | yes | no |
//! | look keys up in random order, and verify what is found | yes | no |
//!
//! So reads are warm: what an engine keeps in memory of its own, or the page cache keeps for it, was read once before.

use crate::device::{Device, allocated_bytes};
use crate::engines::{Engine, Opened};
use crate::items::{Items, Key, Order};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// What to do in each run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What is written.
    pub items: Items,
    /// Items of a transaction.
    pub per_transaction: u64,
    /// Keys looked up afterwards.
    pub gets: u64,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Engine, as on the command line.
    pub engine: Engine,
    /// Order in which keys were written.
    pub order: Order,
    /// Counts from 1.
    pub round: u32,
    /// Items written and read back.
    pub items: u64,
    /// Items of a transaction.
    pub items_per_transaction: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Durable items a second while loading.
    pub items_per_second: f64,
    /// Time from the last commit until the store was closed.
    pub close_seconds: f64,
    /// Bytes the device was given while loading and closing, by whomever; null where nobody counts them.
    pub device_written_bytes: Option<u64>,
    /// The same by the engine's own count, if it has one.
    pub own_written_bytes: Option<u64>,
    /// Blocks of its files at the end; for Packstone its segments in use, for the rest of its file is free.
    pub file_bytes: u64,
    /// Blocks of its files at the end, free ones inside included.
    pub preallocated_bytes: u64,
    /// Content as stored, if the engine says so.
    pub stored_bytes: Option<u64>,
    /// Look-ups a second, in random order, warm.
    pub gets_per_second: f64,
    /// Pairs a second, in key order, warm.
    pub scan_items_per_second: f64,
}

/// Runs it in an empty directory.
pub fn run(engine: Engine, plan: &Plan, round: u32, directory: &Path) -> Result<Outcome> {
    let items = &plan.items;
    let device = Device::below(directory)?;
    engine.create(directory, items).context("create the store")?;
    let before = device.settle()?;
    let mut opened = engine.open(directory, items).context("open the store")?;
    let loading = load(opened.as_mut(), plan).context("load the store")?;
    let closing = Instant::now();
    let account = opened.close().context("close the store")?;
    let closing = closing.elapsed();
    let after = device.settle()?;
    let preallocated_bytes = allocated_bytes(directory)?;

    let mut opened = engine.open(directory, items).context("open the store again")?;
    verify(opened.as_mut(), items)?;
    let scanning = scan(opened.as_mut(), items)?;
    let getting = get(opened.as_mut(), plan)?;
    opened.close()?;
    Ok(Outcome {
        engine,
        order: items.order,
        round,
        items: items.count,
        items_per_transaction: plan.per_transaction,
        value_bytes: items.value_bytes,
        items_per_second: rate(items.count, loading),
        close_seconds: closing.as_secs_f64(),
        device_written_bytes: before.zip(after).map(|(before, after)| after - before),
        own_written_bytes: account.own_written_bytes,
        file_bytes: account.allocated_bytes.unwrap_or(preallocated_bytes),
        preallocated_bytes,
        stored_bytes: account.stored_bytes,
        gets_per_second: rate(plan.gets, getting),
        scan_items_per_second: rate(items.count, scanning),
    })
}

fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// Time spent in the engine; making the items does not count.
fn load(opened: &mut dyn Opened, plan: &Plan) -> Result<Duration> {
    let mut spent = Duration::ZERO;
    let mut batch: Vec<(Key, Vec<u8>)> = Vec::new();
    let mut next = 0;
    while next < plan.items.count {
        let end = (next + plan.per_transaction).min(plan.items.count);
        batch.resize_with((end - next) as usize, Default::default);
        for (number, (key, value)) in (next..end).zip(&mut batch) {
            *key = plan.items.key(number);
            plan.items.fill_value(key, value);
        }
        let started = Instant::now();
        opened.put_all(&batch)?;
        spent += started.elapsed();
        next = end;
    }
    Ok(spent)
}

/// Everything is there, nothing else, and in order.
pub fn verify(opened: &mut dyn Opened, items: &Items) -> Result<()> {
    let (mut count, mut wrong, mut buffer) = (0u64, 0u64, Vec::new());
    let mut last: Vec<u8> = Vec::new();
    opened.scan(&mut |key, value| {
        let in_order = count == 0 || last.as_slice() < key;
        wrong += u64::from(!in_order || !items.is_value_of(key, value, &mut buffer));
        count += 1;
        last.clear();
        last.extend_from_slice(key);
    })?;
    ensure!(
        wrong == 0 && count == items.count,
        "the store holds {count} pairs where {} were written, {wrong} of them wrong or out of order",
        items.count
    );
    Ok(())
}

fn scan(opened: &mut dyn Opened, items: &Items) -> Result<Duration> {
    let (mut bytes, started) = (0, Instant::now());
    opened.scan(&mut |key, value| bytes += key.len() + value.len())?;
    let spent = started.elapsed();
    let expected = items.count as usize * (crate::items::KEY_BYTES + items.value_bytes);
    ensure!(
        bytes == expected,
        "a scan found {bytes} bytes where {expected} were written"
    );
    Ok(spent)
}

fn get(opened: &mut dyn Opened, plan: &Plan) -> Result<Duration> {
    let items = plan.items;
    let keys: Vec<Key> = items.sample(plan.gets).map(|number| items.key(number)).collect();
    let mut found: Vec<u8> = Vec::with_capacity(keys.len() * items.value_bytes);
    let mut missing = 0;
    let started = Instant::now();
    opened.get_all(&mut keys.iter().copied(), &mut |_, value| match value {
        Some(value) => found.extend_from_slice(value),
        None => missing += 1,
    })?;
    let spent = started.elapsed();
    ensure!(missing == 0, "{missing} of {} keys were not found", plan.gets);
    let mut expected = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        items.fill_value(key, &mut expected);
        let value = &found[at * items.value_bytes..(at + 1) * items.value_bytes];
        ensure!(
            value == expected,
            "the value of a key is not the one that was written"
        );
    }
    Ok(spent)
}
