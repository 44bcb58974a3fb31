//! Latencies: how long the quickest half, nine tenths, 99 % and so on of the operations took.
//!
//! Times go to the right, logarithmic. Upwards goes the share of operations, each step a tenth of those left, so that the
//! slow few get as much room as the many. Thin lines are turns, the thick one is the median of an arm's turns.

use maud::{Markup, html};

use super::{AXIS_HEIGHT, MARGIN, WIDTH, arm_class, at, horizontal_axis, path, svg};
use crate::analysis::{Analysis, median};
use crate::figure::{Distribution, TurnResult, Unit};
use crate::report::scale::{Scale, limits};

const HEIGHT: f64 = 260.0;
const LEFT: f64 = 52.0;

/// Shares that have a line and a name.
const NAMED: [(f64, &str); 5] = [
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
];

/// Columns of the table behind the plot.
pub const TABLED: [(f64, &str); 5] = [
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (1.0, "longest"),
];

/// Latencies of one kind in all turns, with the arm of each.
pub struct Latencies<'a> {
    /// Phase they belong to.
    pub phase: &'a str,
    /// What took the time.
    pub name: &'a str,
    /// Whether times count from the intended start.
    pub from_intended_start: bool,
    /// Place of the arm and the turn's distribution, for turns of rounds.
    pub turns: Vec<(usize, &'a Distribution)>,
}

/// All latencies of the run, in the order of their first turn.
pub fn collect<'a>(analysis: &Analysis, turns: &'a [TurnResult]) -> Vec<Latencies<'a>> {
    let mut all: Vec<Latencies> = Vec::new();
    for turn in turns.iter().filter(|turn| turn.round.is_some()) {
        let Some(arm) = analysis.arms.iter().position(|arm| *arm == turn.arm) else {
            continue;
        };
        for distribution in turn
            .distributions
            .iter()
            .filter(|distribution| !distribution.points.is_empty())
        {
            let same =
                |known: &&mut Latencies| known.phase == distribution.phase && known.name == distribution.name;
            match all.iter_mut().find(same) {
                Some(known) => known.turns.push((arm, distribution)),
                None => all.push(Latencies {
                    phase: &distribution.phase,
                    name: &distribution.name,
                    from_intended_start: distribution.from_intended_start,
                    turns: vec![(arm, distribution)],
                }),
            }
        }
    }
    all
}

impl Latencies<'_> {
    /// Median over an arm's turns of the time within which `share` of the operations were done.
    pub fn seconds(&self, arm: usize, share: f64) -> Option<f64> {
        let of_arm = self.turns.iter().filter(|turn| turn.0 == arm);
        let mut seconds: Vec<f64> = of_arm.filter_map(|turn| reached(turn.1, share)).collect();
        seconds.sort_by(f64::total_cmp);
        median(&seconds)
    }

    /// The plot; nothing when there is no positive time. The one longest operation of a turn is in the table only: its
    /// share has no place on an axis that never reaches 100 %.
    pub fn plot(&self, arms: usize) -> Option<Markup> {
        let drawn = || {
            self.turns
                .iter()
                .flat_map(|turn| &turn.1.points)
                .filter(|point| point.1 < 1.0)
        };
        let (low, high) = limits(drawn().map(|point| point.0).filter(|seconds| *seconds > 0.0))?;
        let slowest = drawn().map(|point| point.1).fold(0.9, f64::max);
        let x = Scale::logarithmic(low, high, LEFT + 4.0, WIDTH - 16.0);
        let y = Scale::linear(0.0, rareness(slowest), HEIGHT, MARGIN + 8.0);
        let line = |points: &[(f64, f64)]| {
            let within = points.iter().filter(|point| point.1 < 1.0);
            path(within.map(|point| (x.place(point.0), y.place(rareness(point.1)))))
        };
        let content = html! {
            (horizontal_axis(&x, MARGIN, HEIGHT, Unit::Seconds))
            @for (share, name) in NAMED.iter().filter(|named| named.0 <= slowest) {
                @let height = y.place(rareness(*share));
                line.percentile x1=(at(LEFT)) x2=(at(WIDTH - MARGIN)) y1=(at(height)) y2=(at(height)) {}
                text.tick x=(at(LEFT - 5.0)) y=(at(height + 4.0)) text-anchor="end" { (name) }
            }
            @for (arm, distribution) in &self.turns {
                polyline class={ "thin " (arm_class(*arm)) } points=(line(&distribution.points)) {}
            }
            @for arm in 0..arms {
                polyline class={ "thick " (arm_class(arm)) } points=(line(&self.median_curve(arm))) {}
            }
        };
        let title = format!(
            "{}, {}: share of operations by the time they took",
            self.phase, self.name
        );
        Some(svg(HEIGHT + AXIS_HEIGHT, &title, content))
    }

    /// The median of the arm's turns at every share that any of them names, so that it bends where they do.
    fn median_curve(&self, arm: usize) -> Vec<(f64, f64)> {
        let of_arm = self.turns.iter().filter(|turn| turn.0 == arm);
        let mut shares: Vec<f64> = of_arm
            .flat_map(|turn| turn.1.points.iter().map(|point| point.1))
            .collect();
        shares.sort_by(f64::total_cmp);
        shares.dedup_by(|one, other| (rareness(*one) - rareness(*other)).abs() < 0.01);
        shares
            .into_iter()
            .filter_map(|share| Some((self.seconds(arm, share)?, share)))
            .collect()
    }
}

/// How many tenfold steps away from all: 0 for none of the operations, 1 for 90 %, 2 for 99 %.
fn rareness(share: f64) -> f64 {
    -(1.0 - share).max(1e-9).log10()
}

/// The time within which at least `share` were done.
fn reached(distribution: &Distribution, share: f64) -> Option<f64> {
    let points = &distribution.points;
    let reached = points.iter().find(|point| point.1 >= share - 1e-12);
    reached.or(points.last()).map(|point| point.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_first_time_that_reaches_it() {
        let distribution = Distribution {
            phase: String::new(),
            name: String::new(),
            from_intended_start: false,
            points: vec![(0.001, 0.5), (0.002, 0.9), (0.010, 1.0)],
        };
        let read = |share| reached(&distribution, share);
        assert_eq!(
            [read(0.1), read(0.5), read(0.6), read(1.0)],
            [Some(0.001), Some(0.001), Some(0.002), Some(0.010)]
        );
        assert!((rareness(0.99) - 2.0).abs() < 1e-9 && rareness(1.0).is_finite());
    }
}
