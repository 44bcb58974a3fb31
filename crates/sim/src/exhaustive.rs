//! Short scripts, crashed at every change of the device with every subset of the sectors that were not flushed.
//!
//! ```text
//!   script ──run once──► recorder: the device before each change, and every state that was committed
//!                            │
//!               each point × each variant (which unflushed sectors survive) ──► crashed device
//!                            │                                                      │
//!                            └── images that were seen already are not opened ──────┴──► verify
//! ```
//!
//! The same script, round and count by chance give the same states, whatever the number of threads. Each round draws other
//! sizes and contents. Left out: several writers at once, whose order is not repeatable.

mod life;
mod observe;
mod recorder;
mod scripts;
mod variants;
mod verify;

use anyhow::{Context, Result, ensure};
use recorder::Recorded;
use scripts::Script;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use variants::{Variants, crashed};
use verify::{Depth, verify};

/// Failures after which it is of no use to go on.
const FAILURES_MAX: usize = 20;
/// Rounds in one of which the scripts that take long are run.
const LONG_SCRIPTS_ONE_IN: u64 = 8;
/// Points of one script tried in one round.
const POINTS_MAX: usize = 400;
/// One in so many states gets the full check; one in so many a crash during its recovery.
const FULL_ONE_IN: u64 = 16;
const RECOVERY_ONE_IN: u64 = 128;

/// What to explore.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Only this script; `--list` names them
    #[arg(long)]
    pub script: Option<String>,
    /// Only this round of each script, instead of one after the other
    #[arg(long)]
    pub round: Option<u64>,
    /// Only this crash point
    #[arg(long, requires = "script")]
    pub point: Option<usize>,
    /// Only this variant of what survives
    #[arg(long, requires = "point")]
    pub subset: Option<u64>,
    /// End after the round of a script in which so many states are reached
    #[arg(long, default_value_t = 1_000_000)]
    pub states: u64,
    /// Start nothing more after so many seconds
    #[arg(long)]
    pub seconds: Option<u64>,
    /// Variants by chance at points with more than 8 unflushed sectors
    #[arg(long, default_value_t = 200)]
    pub by_chance: u64,
    /// Scripts explored at the same time
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Print the summary as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the names of all scripts and end
    #[arg(long)]
    pub list: bool,
}

impl Default for Options {
    /// As on the command line.
    fn default() -> Options {
        Options {
            script: None,
            round: None,
            point: None,
            subset: None,
            states: 1_000_000,
            seconds: None,
            by_chance: 200,
            threads: 1,
            json: false,
            list: false,
        }
    }
}

/// Names of all scripts.
pub fn script_names() -> Vec<&'static str> {
    scripts::all().iter().map(|script| script.name).collect()
}

/// Explores; true when every state kept its promises.
pub fn run(options: &Options) -> Result<bool> {
    let scripts: Vec<Script> = scripts::all()
        .into_iter()
        .filter(|script| options.script.as_deref().is_none_or(|name| name == script.name))
        .collect();
    if options.list {
        scripts.iter().for_each(|script| println!("{}", script.name));
        return Ok(true);
    }
    ensure!(!scripts.is_empty(), "there is no such script; --list names them");
    let exploration = Exploration::new(options, scripts);
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| exploration.work());
        }
    });
    Ok(exploration.summarise())
}

/// What all threads share.
struct Exploration<'a> {
    options: &'a Options,
    scripts: Vec<Script>,
    started: Instant,
    next_unit: AtomicU64,
    ended: AtomicBool,
    totals: Mutex<Totals>,
    /// Of all scripts, while they are explored.
    states: AtomicU64,
}

/// Sums for the summary.
#[derive(Default)]
struct Totals {
    runs: u64,
    points: u64,
    states: u64,
    images: u64,
    recovery_states: u64,
    failures: Vec<String>,
    by_script: std::collections::BTreeMap<&'static str, u64>,
}

/// Sums of one script in one round.
#[derive(Default)]
struct Counts {
    states: u64,
    images: u64,
    recovery_states: u64,
}

impl Exploration<'_> {
    fn new(options: &Options, scripts: Vec<Script>) -> Exploration<'_> {
        Exploration {
            options,
            scripts,
            started: Instant::now(),
            next_unit: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            totals: Mutex::default(),
            states: AtomicU64::new(0),
        }
    }

    /// One round of one script after the other, until the budget is used up.
    fn work(&self) {
        loop {
            let unit = self.next_unit.fetch_add(1, Ordering::SeqCst);
            let count = self.scripts.len() as u64;
            let round = self.options.round.unwrap_or(unit / count);
            let is_asked_once = self.options.round.is_some() || self.options.point.is_some();
            if self.is_over() || (is_asked_once && unit >= count) {
                return;
            }
            let script = &self.scripts[(unit % count) as usize];
            if script.by_chance_of_8 < 8 && round % LONG_SCRIPTS_ONE_IN != 0 && !is_asked_once {
                continue;
            }
            let began = Instant::now();
            let points = self.explore(script, round).unwrap_or_else(|error| {
                self.fail(format!(
                    "{} round {round}: the script itself failed: {error:#}",
                    script.name
                ));
                0
            });
            eprintln!(
                "{:>5} s  {:<22} round {round:<3} {points:>4} points in {:>6.1} s, {:>9} states in all",
                self.started.elapsed().as_secs(),
                script.name,
                began.elapsed().as_secs_f64(),
                self.states.load(Ordering::SeqCst)
            );
        }
    }

    fn is_over(&self) -> bool {
        let limit = self.options.seconds.map(Duration::from_secs);
        self.ended.load(Ordering::SeqCst)
            || self.states.load(Ordering::SeqCst) >= self.options.states
            || limit.is_some_and(|limit| self.started.elapsed() >= limit)
    }

    /// Tries every point of one script; answers how many.
    fn explore(&self, script: &Script, round: u64) -> Result<u64> {
        let recorded = record(script, round)?;
        let mut counts = Counts::default();
        let mut seen = HashMap::new();
        let mut flushes = 0;
        let mut points = 0;
        // Making room in a full pool takes thousands of changes: then each round tries others of them.
        let stride = recorded.points.len().div_ceil(POINTS_MAX).max(1);
        let numbers = (round as usize % stride..recorded.points.len()).step_by(stride);
        let numbers: Vec<usize> = match self.options.point {
            Some(only) => vec![only],
            None => numbers.collect(),
        };
        for number in numbers {
            ensure!(
                number < recorded.points.len(),
                "it has {} points",
                recorded.points.len()
            );
            if self.is_over() && self.options.point.is_none() {
                break;
            }
            if recorded.points[number].flushes != flushes {
                flushes = recorded.points[number].flushes;
                seen.clear();
            }
            self.crash_at(script, round, &recorded, number, &mut seen, &mut counts);
            points += 1;
        }
        let mut totals = self
            .totals
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        totals.runs += 1;
        totals.points += points;
        totals.states += counts.states;
        totals.images += counts.images;
        totals.recovery_states += counts.recovery_states;
        *totals.by_script.entry(script.name).or_default() += counts.states + counts.recovery_states;
        Ok(points)
    }

    /// Every variant of one point. `seen`: images of what is durable now, and the state each holds.
    fn crash_at(
        &self,
        script: &Script,
        round: u64,
        recorded: &Recorded,
        number: usize,
        seen: &mut HashMap<u64, usize>,
        counts: &mut Counts,
    ) {
        let point = &recorded.points[number];
        let variants = Variants::of(&point.device, round << 32 | number as u64);
        for variant in 0..variants.count(self.options.by_chance * script.by_chance_of_8 / 8) {
            let asked_for = self.options.subset == Some(variant);
            if self.options.subset.is_some() && !asked_for {
                continue;
            }
            counts.states += 1;
            self.states.fetch_add(1, Ordering::SeqCst);
            let fates = variants.fates(variant);
            let key = variants.image_key(&fates);
            if let Some(state) = seen.get(&key)
                && (point.acknowledged..=point.newest).contains(state)
            {
                continue;
            }
            counts.images += 1;
            let is_first = variant == 0 || asked_for;
            let depth = Depth {
                full: is_first || key % FULL_ONE_IN == 0,
                recovery: (is_first && (number % 4 == 0 || asked_for)) || key % RECOVERY_ONE_IN == 0,
            };
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let device = crashed(&point.device, &fates);
                verify(device, point, &recorded.states, script.content, depth)
            }));
            match outcome {
                Ok(Ok(verified)) => {
                    seen.insert(key, verified.state);
                    counts.recovery_states += verified.recovery_states;
                    self.states.fetch_add(verified.recovery_states, Ordering::SeqCst);
                }
                Ok(Err(error)) => {
                    self.fail(repeat_line(script, round, number, variant, &format!("{error:#}")))
                }
                Err(_) => self.fail(repeat_line(script, round, number, variant, "panic, see above")),
            }
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    fn fail(&self, line: String) {
        eprintln!("FAILED {line}");
        let mut totals = self
            .totals
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        totals.failures.push(line);
        if totals.failures.len() >= FAILURES_MAX {
            self.ended.store(true, Ordering::SeqCst);
        }
    }

    /// Prints the last line; true when nothing failed.
    fn summarise(self) -> bool {
        let totals = self
            .totals
            .into_inner()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let states = totals.states + totals.recovery_states;
        let seconds = self.started.elapsed().as_secs_f64();
        if self.options.json {
            let summary = serde_json::json!({
                "scripts": self.scripts.len(),
                "runs": totals.runs,
                "points": totals.points,
                "states": states,
                "recovery_states": totals.recovery_states,
                "distinct_images": totals.images,
                "failures": totals.failures,
                "states_by_script": totals.by_script,
                "seconds": seconds,
            });
            println!("{summary}");
        } else {
            println!(
                "{} scripts in {} runs, {} crash points, {states} crash states ({} of them during recovery), {} distinct \
                 images opened, {} failures, {seconds:.0} s",
                self.scripts.len(),
                totals.runs,
                totals.points,
                totals.recovery_states,
                totals.images + totals.recovery_states,
                totals.failures.len()
            );
        }
        totals.failures.is_empty()
    }
}

/// Runs a script once.
fn record(script: &Script, round: u64) -> Result<Recorded> {
    let empty = life::create(script.size_bytes)?;
    let mut life = life::Life::open(&empty, script.content, 2 * round)?;
    (script.prepare)(&mut life).context("preparing")?;
    life.unmount()?;
    life.pool.close()?;
    let prepared = life.device.clone();
    drop(life);
    let mut life = life::Life::open(&prepared, script.content, 2 * round + 1)?;
    life.record();
    (script.run)(&mut life).context("running")?;
    let (device, trace) = (life.device.clone(), life.trace.clone());
    trace.observe();
    Ok(trace.finish(&device))
}

fn repeat_line(script: &Script, round: u64, point: usize, variant: u64, why: &str) -> String {
    format!(
        "packstone-sim exhaustive --script {} --round {round} --point {point} --subset {variant}: {why}",
        script.name
    )
}
