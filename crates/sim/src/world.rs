//! Random lives from one seed, compared with a model that knows what was promised.
//!
//! ```text
//!   profile ──► generate ──► operation ──► execute ──► pool and files over a simulated device
//!   (what kind    (what is      (as data)      │
//!    of life)      next)                       └─► model, journal, file_data: what may be there
//!                                                        ▲
//!                      crash, reopening ──► recover ─────┘
//!   a failure ──► shrink ──► one line to live it again
//! ```
//!
//! Invariants:
//! - The same seed gives the same life: no clock, no threads in a life, no order that depends on addresses.
//! - The model never looks at what the product did to decide what it should have done. Where several outcomes are
//!   allowed (a full pool, a failing device, a crash) it checks that the outcome is one of them and goes on from it.

mod damage;
mod execute;
mod file_data;
mod generate;
mod joints;
mod journal;
mod life;
mod model;
mod names;
mod operation;
mod profile;
mod recover;
mod shrink;
mod slots;
mod state;
mod totals;

use anyhow::Context;
use life::Life;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use totals::Totals;

/// Operations of a life unless asked otherwise.
const OPERATIONS: u32 = 4000;

/// What to simulate.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// One seed
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds from A up to, not including, B
    #[arg(long, value_name = "A..B", value_parser = parse_seeds)]
    seeds: Option<Range<u64>>,
    /// Seeds from the clock on, until --seconds are over
    #[arg(long)]
    fresh: bool,
    /// Where fresh seeds begin, in place of the clock: the same machine then lives the same lives again
    #[arg(long, value_name = "SEED", requires = "fresh")]
    from: Option<u64>,
    /// Seeds of a file, one a line, before the others
    #[arg(long, value_name = "FILE")]
    pinned: Option<PathBuf>,
    /// Bound on the time of fresh seeds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Operations of each world
    #[arg(long, default_value_t = OPERATIONS)]
    operations: u32,
    /// Only these operations of the seed's life, as in 1-40,57
    #[arg(long, value_name = "RANGES", requires = "seed")]
    keep: Option<String>,
    /// Worlds at the same time
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Live each life twice and compare
    #[arg(long)]
    check_determinism: bool,
    /// End with the first failure
    #[arg(long)]
    until_failure: bool,
    /// Seconds for making a failing life short
    #[arg(long, default_value_t = 60)]
    shrink_seconds: u64,
    /// Print what each operation is
    #[arg(long)]
    trace: bool,
    /// Print the totals as one JSON object
    #[arg(long)]
    json: bool,
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let parsed = text.split_once("..").map(|(from, to)| (from.parse(), to.parse()));
    match parsed {
        Some((Ok(from), Ok(to))) if from < to => Ok(from..to),
        _ => Err("two numbers with two dots between them, as in 0..100".into()),
    }
}

/// Simulates; true when every life kept its promises.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    life::quiet_panics();
    if let (Some(seed), Some(keep)) = (options.seed, &options.keep) {
        return keep_only(options, seed, keep);
    }
    let start = Instant::now();
    let totals = Mutex::new(Totals::default());
    let mut fine = true;
    for seeds in seed_lists(options)? {
        fine &= live_all(options, seeds, &totals);
    }
    let totals = totals
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if options.json {
        println!("{}", totals.json(start.elapsed()));
    } else {
        println!("{}", totals.line(start.elapsed()));
    }
    Ok(fine)
}

/// Seeds that are lived one list after the other; the last may be endless but for the time.
fn seed_lists(options: &Options) -> anyhow::Result<Vec<Seeds>> {
    let mut lists = vec![];
    if let Some(path) = &options.pinned {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let seed = |line: &str| -> Option<anyhow::Result<u64>> {
            let number = line.split('#').next().unwrap_or_default().trim();
            (!number.is_empty()).then(|| number.parse().with_context(|| format!("'{number}' is no seed")))
        };
        lists.push(Seeds::List(
            text.lines().filter_map(seed).collect::<anyhow::Result<_>>()?,
        ));
    }
    lists.extend(options.seed.map(|seed| Seeds::List(vec![seed])));
    lists.extend(options.seeds.clone().map(|seeds| Seeds::List(seeds.collect())));
    if options.fresh || lists.is_empty() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let first = options.from.unwrap_or(now.as_secs() * 1_000_000);
        eprintln!("fresh seeds from {first} on, for {} seconds", options.seconds);
        lists.push(Seeds::Fresh(first, Duration::from_secs(options.seconds)));
    }
    Ok(lists)
}

enum Seeds {
    List(Vec<u64>),
    Fresh(u64, Duration),
}

fn live_all(options: &Options, seeds: Seeds, totals: &Mutex<Totals>) -> bool {
    let (next, fine) = (AtomicU64::new(0), AtomicBool::new(true));
    let start = Instant::now();
    let last_told = Mutex::new(start);
    let seed = || {
        let at = next.fetch_add(1, Ordering::SeqCst);
        match &seeds {
            Seeds::List(list) => list.get(at as usize).copied(),
            Seeds::Fresh(first, limit) => (start.elapsed() < *limit).then_some(first.wrapping_add(at)),
        }
    };
    let work = || {
        while let Some(seed) = seed() {
            if options.until_failure && !fine.load(Ordering::SeqCst) {
                return;
            }
            fine.fetch_and(live_one(options, seed, totals), Ordering::SeqCst);
            let (Ok(mut told), Ok(totals)) = (last_told.lock(), totals.lock()) else {
                return;
            };
            if told.elapsed() > Duration::from_secs(10) {
                *told = Instant::now();
                eprintln!("{}", totals.line(start.elapsed()));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(work);
        }
    });
    fine.into_inner()
}

fn live_one(options: &Options, seed: u64, totals: &Mutex<Totals>) -> bool {
    let life = life::live(seed, options.operations);
    if let Ok(mut totals) = totals.lock() {
        totals.add(&life);
    }
    if options.check_determinism {
        let again = life::live(seed, options.operations);
        if again.digest != life.digest {
            eprintln!(
                "seed {seed}: two lives of it differ: {:016x} and {:016x}",
                life.digest, again.digest
            );
            return false;
        }
    }
    if options.seed.is_some() {
        println!("seed {seed}: digest {:016x}", life.digest);
    }
    if options.trace {
        life.steps.iter().for_each(|step| println!("{step:?}"));
    }
    tell_failure(options, seed, &life)
}

/// Shrinks and tells a failure; true when there is none.
fn tell_failure(options: &Options, seed: u64, life: &Life) -> bool {
    let Some((number, violation)) = &life.failure else {
        return true;
    };
    eprintln!(
        "seed {seed} fails at operation {number}: {}\n  {}",
        violation.what, violation.detail
    );
    eprintln!("  {:?}", life::profile(seed));
    let limit = Duration::from_secs(options.shrink_seconds);
    let kept = shrink::shrink(seed, &life.steps, &violation.what, limit);
    if kept.len() <= 60 {
        kept.iter().for_each(|step| eprintln!("  {step:?}"));
    }
    eprintln!(
        "{} of {} operations are left. To live them again:\n  packstone-sim run --seed {seed} --operations {} --keep {}",
        kept.len(),
        life.steps.len(),
        options.operations,
        shrink::ranges(&kept)
    );
    false
}

fn keep_only(options: &Options, seed: u64, keep: &str) -> anyhow::Result<bool> {
    let ranges = shrink::parse_ranges(keep).with_context(|| format!("'{keep}' is no list of ranges"))?;
    let mut steps = life::live(seed, options.operations).steps;
    steps.retain(|step| {
        ranges
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&step.number))
    });
    if options.trace {
        steps.iter().for_each(|step| println!("{step:?}"));
    }
    let life = life::live_again(seed, &steps);
    println!(
        "seed {seed}, {} operations: digest {:016x}",
        steps.len(),
        life.digest
    );
    Ok(match &life.failure {
        None => true,
        Some((number, violation)) => {
            eprintln!(
                "fails at operation {number}: {}\n  {}",
                violation.what, violation.detail
            );
            false
        }
    })
}
