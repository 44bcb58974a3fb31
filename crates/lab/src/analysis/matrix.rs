//! The turns laid out for the analysis: a row for each figure, a column for each arm, a cell for each turn of a round.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::figure::{Better, Figure, TurnResult, Unit};
use crate::run_information::RunInformation;

/// One figure of one phase.
#[derive(Clone, Debug)]
pub struct Row {
    pub phase: String,
    pub name: String,
    pub unit: Unit,
    pub better: Better,
}

/// One turn of one arm in a round, and the figure's value where the turn recorded it.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    pub round: u32,
    pub position: u32,
    pub value: Option<f64>,
}

/// A figure in all turns of one arm, by round and position.
pub type Column = Vec<Cell>;

/// All turns, each once.
pub struct Matrix<'a> {
    arms: Vec<String>,
    rows: Vec<Row>,
    turns: Vec<&'a TurnResult>,
    noise_turns: Vec<Vec<&'a TurnResult>>,
    repeated: usize,
}

impl<'a> Matrix<'a> {
    pub fn new(information: &RunInformation, turns: &'a [TurnResult]) -> Matrix<'a> {
        let mut unique: BTreeMap<(bool, u32, u32, &str), &TurnResult> = BTreeMap::new();
        for turn in turns {
            let key = (
                turn.round.is_some(),
                turn.round.unwrap_or_default(),
                turn.position,
                turn.arm.as_str(),
            );
            unique.insert(key, turn);
        }
        let kept: Vec<&TurnResult> = unique.values().copied().collect();
        let (in_rounds, outside): (Vec<_>, Vec<_>) = kept.iter().partition(|turn| turn.round.is_some());
        Matrix {
            arms: arms(information, &kept),
            rows: rows(turns),
            noise_turns: noise_pairs(&outside),
            turns: in_rounds,
            repeated: turns.len() - kept.len(),
        }
    }

    /// The control first, the others as the experiment lists them, and last any that it does not list.
    pub fn arms(&self) -> &[String] {
        &self.arms
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub fn noise_pairs(&self) -> u32 {
        self.noise_turns.len() as u32
    }

    /// Turns that a later turn of the same place replaces.
    pub fn repeated(&self) -> usize {
        self.repeated
    }

    pub fn has_turns_of(&self, arm: &str) -> bool {
        self.turns.iter().any(|turn| turn.arm == arm)
    }

    /// Rounds in which every arm had two turns.
    pub fn rounds_complete(&self) -> u32 {
        let rounds: BTreeSet<Option<u32>> = self.turns.iter().map(|turn| turn.round).collect();
        let complete = |round: &Option<u32>| {
            self.arms.iter().all(|arm| {
                self.turns
                    .iter()
                    .filter(|turn| turn.round == *round && turn.arm == *arm)
                    .count()
                    >= 2
            })
        };
        rounds.iter().filter(|round| complete(round)).count() as u32
    }

    pub fn column(&self, row: &Row, arm: &str) -> Column {
        self.turns
            .iter()
            .filter(|turn| turn.arm == arm)
            .map(|turn| Cell {
                round: turn.round.unwrap_or_default(),
                position: turn.position,
                value: value(turn, row),
            })
            .collect()
    }

    /// The largest difference within an A/A pair, as absolute logarithm of the ratio; two zeros do not differ.
    pub fn noise_floor_log(&self, row: &Row) -> Option<f64> {
        self.noise_turns
            .iter()
            .filter_map(|pair| match (value(pair[0], row)?, value(pair[1], row)?) {
                (0.0, 0.0) => Some(0.0),
                (first, second) if first > 0.0 && second > 0.0 => Some((second / first).ln().abs()),
                _ => None,
            })
            .filter(|log| log.is_finite())
            .reduce(f64::max)
    }
}

fn value(turn: &TurnResult, row: &Row) -> Option<f64> {
    let same = |figure: &&Figure| figure.phase == row.phase && figure.name == row.name;
    turn.figures.iter().rev().find(same).map(|figure| figure.value)
}

fn arms(information: &RunInformation, turns: &[&TurnResult]) -> Vec<String> {
    let listed = information.arms.iter().map(|arm| &arm.name);
    let seen = turns.iter().map(|turn| &turn.arm);
    let mut arms: Vec<String> = Vec::new();
    for name in std::iter::once(&information.control).chain(listed).chain(seen) {
        if !name.is_empty() && !arms.contains(name) {
            arms.push(name.clone());
        }
    }
    arms
}

/// In the order of the first turn that recorded them, but the figures of a phase together.
fn rows(turns: &[TurnResult]) -> Vec<Row> {
    let mut phases: Vec<&str> = Vec::new();
    let mut rows: HashMap<&str, Vec<Row>> = HashMap::new();
    for figure in turns.iter().flat_map(|turn| &turn.figures) {
        if !phases.contains(&figure.phase.as_str()) {
            phases.push(&figure.phase);
        }
        let of_phase = rows.entry(&figure.phase).or_default();
        if !of_phase.iter().any(|row| row.name == figure.name) {
            of_phase.push(Row {
                phase: figure.phase.clone(),
                name: figure.name.clone(),
                unit: figure.unit,
                better: figure.better,
            });
        }
    }
    phases
        .iter()
        .filter_map(|phase| rows.remove(phase))
        .flatten()
        .collect()
}

/// Turns outside rounds, two and two of the same arm; a third without a fourth is left out.
fn noise_pairs<'a>(outside: &[&'a TurnResult]) -> Vec<Vec<&'a TurnResult>> {
    let mut by_arm: BTreeMap<&str, Vec<&TurnResult>> = BTreeMap::new();
    for turn in outside {
        by_arm.entry(&turn.arm).or_default().push(turn);
    }
    by_arm
        .values()
        .flat_map(|turns| turns.chunks_exact(2).map(<[_]>::to_vec))
        .collect()
}
