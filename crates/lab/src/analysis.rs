//! What the turns of a run say: medians, ratios to the control with their intervals, and a verdict in words.
//!
//! Method, for each figure of each phase:
//! 1. Turns are paired with the control's turns of the same round ([`pairing`]); each pair gives the logarithm of a ratio.
//! 2. The mean of these logarithms is the effect, so the ratio shown is a geometric mean. A bootstrap over the pairs gives
//!    its interval; with few pairs Student's t does, and the words say that there were too few ([`interval`]).
//! 3. The A/A pair, two turns of the control one after the other, is the noise floor. An effect that is smaller is not
//!    called a difference, whatever its interval ([`verdict`]).
//!
//! Turns of a round enter medians and ratios, those of the A/A pair only the noise floor. Nothing is drawn from turns that
//! are not there: an interrupted run is analysed as far as it went, and a note says how far.
//!
//! Leaves out: corrections for many comparisons. With 95 % intervals one figure in twenty without any difference would
//! show one, were it not for the noise floor; the report says so.

pub mod interval;
mod matrix;
pub mod pairing;
pub mod verdict;

use serde::{Deserialize, Serialize};

use crate::figure::{Better, TurnResult, Unit};
use crate::run_information::RunInformation;
use interval::Interval;
use matrix::{Column, Matrix, Row};
use verdict::Verdict;

/// Chance with which an interval holds the true ratio.
pub const CONFIDENCE: f64 = 0.95;

/// What a run says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// The arm that the others are compared with.
    pub control: String,
    /// All arms, the control first, then as the experiment lists them.
    pub arms: Vec<String>,
    /// Chance with which an interval holds the true ratio, [`CONFIDENCE`].
    pub confidence: f64,
    /// Rounds that were asked for.
    pub rounds_planned: u32,
    /// Rounds in which every arm had two turns.
    pub rounds_complete: u32,
    /// A/A pairs that set the noise floor.
    pub noise_pairs: u32,
    /// All figures, in the order in which the turns recorded them.
    pub figures: Vec<FigureAnalysis>,
    /// What a reader should know of the run as a whole.
    pub notes: Vec<String>,
}

/// One figure of one phase in all arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureAnalysis {
    /// Phase as in [`crate::figure::Figure::phase`].
    pub phase: String,
    /// What it is.
    pub name: String,
    /// What is counted.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// Whether it is among those that a reader looks at first.
    pub key: bool,
    /// By how much the two turns of the A/A pair differed: the absolute logarithm of their ratio, the largest one where
    /// there are several pairs. `None` without such a pair, or when a value was not above zero.
    pub noise_floor_log: Option<f64>,
    /// All arms, in the order of [`Analysis::arms`].
    pub arms: Vec<ArmFigure>,
}

/// One figure in one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmFigure {
    /// Name of the arm.
    pub arm: String,
    /// Turns that recorded a finite value.
    pub turns: u32,
    /// Median of these turns.
    pub median: Option<f64>,
    /// Least of these turns.
    pub least: Option<f64>,
    /// Greatest of these turns.
    pub greatest: Option<f64>,
    /// Standard deviation of the logarithms of the turns' values; 0.02 is about 2 %. Needs two values above zero.
    pub scatter_log: Option<f64>,
    /// How it compares with the control; `None` for the control itself.
    pub comparison: Option<Comparison>,
}

/// One figure of one arm against the control's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Pairs that gave a ratio.
    pub pairs: u32,
    /// Pairs that gave none, because a value was missing, zero or not a number.
    pub pairs_left_out: u32,
    /// Arm over control, geometric mean of the pairs.
    pub ratio: Option<f64>,
    /// Where the true ratio lies, with [`Analysis::confidence`].
    pub interval: Option<Interval>,
    /// Whether there were fewer pairs than a bootstrap needs.
    pub few_pairs: bool,
    /// What it comes to.
    pub verdict: Verdict,
    /// The verdict for people, such as `2.30 times the control's (2.10 to 2.52): better`.
    pub words: String,
}

/// Analyses the turns of a run, finished or not. The same run always gives the same result.
pub fn analyse(information: &RunInformation, turns: &[TurnResult]) -> Analysis {
    let matrix = Matrix::new(information, turns);
    let rounds_complete = matrix.rounds_complete();
    let mut figures: Vec<FigureAnalysis> = matrix
        .rows()
        .iter()
        .map(|row| analyse_figure(information, &matrix, row))
        .collect();
    mark_key_figures(&mut figures);
    Analysis {
        control: information.control.clone(),
        arms: matrix.arms().to_vec(),
        confidence: CONFIDENCE,
        rounds_planned: information.rounds,
        rounds_complete,
        noise_pairs: matrix.noise_pairs(),
        figures,
        notes: notes(information, &matrix, rounds_complete),
    }
}

fn analyse_figure(information: &RunInformation, matrix: &Matrix, row: &Row) -> FigureAnalysis {
    let noise_floor_log = matrix.noise_floor_log(row);
    let control = matrix.column(row, &information.control);
    let arms = matrix
        .arms()
        .iter()
        .map(|arm| {
            let column = matrix.column(row, arm);
            let comparison = (*arm != information.control).then(|| {
                let seed = seed(information, row, arm);
                compare(&control, &column, row.better, noise_floor_log, seed)
            });
            describe(arm, &column, comparison)
        })
        .collect();
    FigureAnalysis {
        phase: row.phase.clone(),
        name: row.name.clone(),
        unit: row.unit,
        better: row.better,
        key: false,
        noise_floor_log,
        arms,
    }
}

fn describe(arm: &str, column: &Column, comparison: Option<Comparison>) -> ArmFigure {
    let mut values: Vec<f64> = column
        .iter()
        .filter_map(|cell| cell.value)
        .filter(|value| value.is_finite())
        .collect();
    values.sort_by(f64::total_cmp);
    let logs: Vec<f64> = values
        .iter()
        .filter(|value| **value > 0.0)
        .map(|value| value.ln())
        .collect();
    ArmFigure {
        arm: arm.to_owned(),
        turns: values.len() as u32,
        median: median(&values),
        least: values.first().copied(),
        greatest: values.last().copied(),
        scatter_log: interval::standard_deviation(&logs),
        comparison,
    }
}

/// Median of sorted values.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

fn compare(
    control: &Column,
    arm: &Column,
    better: Better,
    noise_floor_log: Option<f64>,
    seed: u64,
) -> Comparison {
    let pairs = pairing::pair(control, arm);
    let (effect, interval) = (
        interval::mean(&pairs.log_ratios),
        interval::of_mean(&pairs.log_ratios, noise_floor_log, CONFIDENCE, seed),
    );
    let few_pairs = pairs.log_ratios.len() < interval::FEWEST_TO_BOOTSTRAP;
    let (verdict, words) = verdict::reach(&verdict::Evidence {
        pairs: &pairs,
        effect_log: effect,
        interval,
        few_pairs,
        noise_floor_log,
        better,
        control_has_values: control.iter().any(|cell| cell.value.is_some()),
        arm_has_values: arm.iter().any(|cell| cell.value.is_some()),
    });
    Comparison {
        pairs: pairs.log_ratios.len() as u32,
        pairs_left_out: pairs.left_out,
        ratio: effect.map(f64::exp),
        interval,
        few_pairs,
        verdict,
        words,
    }
}

/// The same for the same run, figure and arm, and otherwise unrelated.
fn seed(information: &RunInformation, row: &Row, arm: &str) -> u64 {
    let text = format!(
        "{}\0{}\0{}\0{}\0{arm}",
        information.experiment_name, information.started_unix_seconds, row.phase, row.name
    );
    xxhash_rust::xxh3::xxh3_64(text.as_bytes())
}

/// Names that a reader looks at first, in small letters; more words may follow.
const KEY_NAMES: [&str; 8] = [
    "throughput",
    "time",
    "statement seconds",
    "latency p99",
    "stored bytes",
    "bytes stored",
    "file size",
    "bytes written to the device",
];

/// Totals of the meters that say more when divided by the operations; the quotient is key where there is one.
const KEY_TOTALS: [&str; 3] = [
    "device bytes written",
    "cpu seconds of server and daemon",
    "cpu seconds of the machine",
];

/// What the devices can do, measured once for each arm and not in every turn: for looking up, not for comparing.
const PROBE_PHASE: &str = "probe";

fn mark_key_figures(figures: &mut [FigureAnalysis]) {
    let names: Vec<(String, String)> = figures
        .iter()
        .map(|figure| (figure.phase.clone(), figure.name.to_lowercase()))
        .collect();
    let quotient_of = |total: &str, name: &str| name.starts_with(&format!("{total} per "));
    for (index, (phase, name)) in names.iter().enumerate() {
        let in_phase =
            |of: &dyn Fn(&str) -> bool| names.iter().any(|other| other.0 == *phase && of(&other.1));
        let named = |key: &&str| {
            let rest = name.strip_prefix(*key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ',']))
                && !quotient_of(key, name)
        };
        let metered = |total: &&str| {
            quotient_of(total, name) || (name == *total && !in_phase(&|other| quotient_of(total, other)))
        };
        // Time is set beforehand, or says the same as throughput, where there is throughput.
        let redundant = name == "time" && in_phase(&|other| other == "throughput");
        let key = (KEY_NAMES.iter().any(named) && !redundant) || KEY_TOTALS.iter().any(metered);
        figures[index].key = key && phase != PROBE_PHASE;
    }
    // A phase whose names are all unknown here shows everything rather than nothing; but a probe is no result.
    let bare: Vec<bool> = names
        .iter()
        .map(|(phase, _)| {
            phase != PROBE_PHASE && !figures.iter().any(|figure| figure.phase == *phase && figure.key)
        })
        .collect();
    for (figure, bare) in figures.iter_mut().zip(bare) {
        figure.key |= bare;
    }
}

fn notes(information: &RunInformation, matrix: &Matrix, rounds_complete: u32) -> Vec<String> {
    let mut notes = Vec::new();
    if !matrix.has_turns_of(&information.control) {
        notes.push(format!(
            "the control \"{}\" has no turns in any round: nothing is compared",
            information.control
        ));
    } else if matrix.arms().len() == 1 {
        notes.push("there is one arm only: nothing is compared".to_owned());
    }
    if rounds_complete < information.rounds {
        notes.push(format!(
            "the run was interrupted: {rounds_complete} of {} rounds are complete",
            information.rounds
        ));
    }
    if matrix.noise_pairs() == 0 {
        notes.push("there is no A/A pair: the noise floor is unknown, and only intervals decide".to_owned());
    }
    if matrix.repeated() > 0 {
        notes.push(format!(
            "turns run again, of which the later ones count: {}",
            matrix.repeated()
        ));
    }
    notes
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
