//! Other people's test suites, run through the real mount, with an ordinary file system as the control.
//!
//! ```text
//! run ──► for each suite and record size:  place (a pool, mounted) ──► suite ──► cases ──► `packstone check`
//!                                          control (ext4)          ──► suite ──► cases
//!         verdict: what failed on Packstone alone ──► report
//! ```
//!
//! One file a suite. A suite is a function from a [`Place`] to [`Case`]s and does not know what it runs on, but for what
//! would harm the machine. With [`Effort::Quick`] the control runs only if something failed, because it is needed only
//! then.
//!
//! Leaves out: xfstests, which needs a kernel file system's `mkfs` and `mount` programs.

mod case;
mod checkout;
mod dbench;
mod fio;
mod fsx;
mod holes;
mod motley;
mod pjdfstest;
mod place;
mod report;
mod rsync;
mod stress;
mod tool;
mod tree;
mod verdict;

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;

use crate::requirements;
use crate::scratch::Cleanup;
pub use case::{Case, Outcome};
pub use place::Place;
pub use report::{Report, SuiteReport};
pub use verdict::{EXCLUSIONS, Exclusion, Judged, Verdict};

/// What `packstone-harness posix` takes.
#[derive(Args, Clone, Debug, Default)]
pub struct Options {
    /// Only this suite; may be repeated
    #[arg(long)]
    pub suite: Vec<String>,
    /// The subset that continuous integration runs
    #[arg(long)]
    pub quick: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// How much of a suite to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// What fits into continuous integration.
    Quick,
    /// As much as means something; some minutes a suite.
    Full,
}

impl Effort {
    /// One of two amounts.
    pub fn choose<T>(self, quick: T, full: T) -> T {
        match self {
            Effort::Quick => quick,
            Effort::Full => full,
        }
    }
}

/// A test suite.
pub struct Suite {
    /// Short name, as `--suite` takes it.
    pub name: &'static str,
    /// Programs it needs.
    pub programs: &'static [&'static str],
    /// Record sizes of the datasets it runs on: quick, full.
    pub record_sizes: [&'static [&'static str]; 2],
    /// Runs it. An error means that the suite itself could not be run.
    pub run: fn(&Place, Effort) -> Result<Vec<Case>>,
}

/// All suites.
pub const SUITES: &[Suite] = &[
    pjdfstest::SUITE,
    fsx::SUITE,
    holes::SUITE,
    stress::SUITE,
    fio::SUITE,
    dbench::SUITE,
    checkout::SUITE,
    rsync::SUITE,
];

impl Suite {
    /// The suite called `name`.
    pub fn named(name: &str) -> Result<&'static Suite> {
        let found = SUITES.iter().find(|suite| suite.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
            anyhow::anyhow!("there is no suite '{name}'; there are {}", names.join(", "))
        })
    }

    /// Why it cannot run here, if that is so.
    pub fn missing(&self) -> Option<String> {
        requirements::missing_for_mounts().or_else(|| {
            let absent = self.programs.iter().find(|program| tool::find(program).is_none());
            absent.map(|program| format!("{program} is not installed (scripts/setup.sh --suites)"))
        })
    }

    /// Runs it on Packstone and, where that is called for, on the control. `interrupted` undoes everything early.
    pub fn run(&self, effort: Effort, interrupted: &Cleanup) -> SuiteReport {
        let start = Instant::now();
        let sizes = self.record_sizes[effort.choose(0, 1)];
        let mut cases: Vec<(&str, Case)> = Vec::new();
        for record_size in sizes {
            let found = self
                .run_in(
                    Place::packstone(effort.choose("2G", "8G"), record_size, interrupted),
                    effort,
                )
                .1;
            cases.extend(found.into_iter().map(|case| (*record_size, case)));
        }
        let seconds = start.elapsed().as_secs_f64();
        let wanted = effort == Effort::Full
            || cases
                .iter()
                .any(|(_, case)| verdict::asks_for_control(self.name, case));
        let control_start = Instant::now();
        let (control_name, control) = match wanted {
            true => self.run_in(Place::control(interrupted), effort),
            false => ("not needed", Vec::new()),
        };
        let judged = cases
            .iter()
            .map(|(record_size, case)| verdict::judge(self.name, record_size, case, &control))
            .collect();
        let control_seconds = if wanted {
            control_start.elapsed().as_secs_f64()
        } else {
            0.0
        };
        SuiteReport::new(
            self.name,
            judged,
            seconds,
            control_name,
            &control,
            control_seconds,
        )
    }

    /// The name of the place, and the suite's cases there with two of our own: that the suite could be run, and that the
    /// place was whole afterwards.
    fn run_in(&self, place: Result<Place>, effort: Effort) -> (&'static str, Vec<Case>) {
        let failure =
            |what: &str, error: anyhow::Error| Case::new(what, Outcome::Failed(format!("{error:#}")));
        let place = match place {
            Ok(place) => place,
            Err(error) => return ("nothing", vec![failure("setting up", error)]),
        };
        let name = place.describe();
        let mut cases =
            (self.run)(&place, effort).unwrap_or_else(|error| vec![failure("running the suite", error)]);
        if place.is_packstone() {
            cases.push(Case::measured("packstone check afterwards", || {
                place.finish().map(|()| 1)
            }));
        } else if let Err(error) = place.finish() {
            // Nothing of Packstone is in doubt, but whoever reads the report should know.
            eprintln!("the control could not be taken down: {error:#}");
        }
        (name, cases)
    }
}

/// Runs the suites that `options` name; true when Packstone failed none of their cases.
pub fn run(options: &Options) -> Result<bool> {
    let suites: Vec<&Suite> = match options.suite.as_slice() {
        [] => SUITES.iter().collect(),
        names => names
            .iter()
            .map(|name| Suite::named(name))
            .collect::<Result<_>>()?,
    };
    let missing: Vec<String> = suites.iter().filter_map(|suite| suite.missing()).collect();
    if let Some(reason) = missing.first() {
        bail!("{reason}");
    }
    let effort = if options.quick {
        Effort::Quick
    } else {
        Effort::Full
    };
    let interrupted = Cleanup::new();
    interrupted.on_signals()?;
    let mut report = Report::default();
    for suite in suites {
        let done = suite.run(effort, &interrupted);
        if !options.json {
            done.print();
        }
        report.suites.push(done);
    }
    interrupted.run();
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print();
    }
    Ok(report.is_good())
}
