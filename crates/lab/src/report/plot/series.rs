//! A number over time within a phase, such as the throughput of each second: a line for each turn.

use maud::{Markup, html};

use super::{AXIS_HEIGHT, MARGIN, WIDTH, arm_class, horizontal_axis, path, svg, vertical_axis};
use crate::analysis::{Analysis, median};
use crate::figure::{Series, TurnResult, Unit};
use crate::report::scale::{Scale, limits};

const HEIGHT: f64 = 200.0;
const LEFT: f64 = 74.0;

/// More points than this are drawn as means of neighbours: they would lie closer than the eye can tell.
const MOST_POINTS: usize = 300;

/// One number over time in all turns.
pub struct OverTime<'a> {
    /// Phase it belongs to.
    pub phase: &'a str,
    /// What it is.
    pub name: &'a str,
    /// What is counted.
    pub unit: Unit,
    /// Place of the arm and the turn's series, for turns of rounds.
    pub turns: Vec<(usize, &'a Series)>,
}

/// All series of the run, in the order of their first turn.
pub fn collect<'a>(analysis: &Analysis, turns: &'a [TurnResult]) -> Vec<OverTime<'a>> {
    let mut all: Vec<OverTime> = Vec::new();
    for turn in turns.iter().filter(|turn| turn.round.is_some()) {
        let Some(arm) = analysis.arms.iter().position(|arm| *arm == turn.arm) else {
            continue;
        };
        for series in turn.series.iter().filter(|series| !series.points.is_empty()) {
            let same = |known: &&mut OverTime| known.phase == series.phase && known.name == series.name;
            match all.iter_mut().find(same) {
                Some(known) => known.turns.push((arm, series)),
                None => all.push(OverTime {
                    phase: &series.phase,
                    name: &series.name,
                    unit: series.unit,
                    turns: vec![(arm, series)],
                }),
            }
        }
    }
    all
}

impl OverTime<'_> {
    /// Least, median and greatest of all points of an arm.
    pub fn spread(&self, arm: usize) -> Option<[f64; 3]> {
        let of_arm = self.turns.iter().filter(|turn| turn.0 == arm);
        let mut values: Vec<f64> = of_arm
            .flat_map(|turn| turn.1.points.iter().map(|point| point.1))
            .collect();
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        Some([*values.first()?, median(&values)?, *values.last()?])
    }

    /// The plot; nothing when there is no number.
    pub fn plot(&self) -> Option<Markup> {
        let points = || self.turns.iter().flat_map(|turn| &turn.1.points);
        let (from, to) = limits(points().map(|point| point.0))?;
        let (low, high) = limits(points().map(|point| point.1))?;
        let x = Scale::linear(from.min(0.0), to, LEFT + 2.0, WIDTH - 16.0);
        let y = Scale::linear(low.min(0.0), high.max(0.0) * 1.02, HEIGHT, MARGIN + 8.0);
        let content = html! {
            (horizontal_axis(&x, MARGIN, HEIGHT, Unit::Seconds))
            (vertical_axis(&y, LEFT, self.unit))
            @for (arm, series) in &self.turns {
                @let line = path(thinned(&series.points).into_iter().map(|point| (x.place(point.0), y.place(point.1))));
                polyline class={ "turn " (arm_class(*arm)) } points=(line) {}
            }
        };
        let title = format!("{}, {}: over time, a line for each turn", self.phase, self.name);
        Some(svg(HEIGHT + AXIS_HEIGHT, &title, content))
    }
}

fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let finite: Vec<(f64, f64)> = points
        .iter()
        .copied()
        .filter(|point| point.0.is_finite() && point.1.is_finite())
        .collect();
    let together = finite.len().div_ceil(MOST_POINTS).max(1);
    finite
        .chunks(together)
        .map(|chunk| {
            let count = chunk.len() as f64;
            let sum = chunk
                .iter()
                .fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
            (sum.0 / count, sum.1 / count)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_series_are_thinned_to_means() {
        let points: Vec<(f64, f64)> = (0..900)
            .map(|index| (f64::from(index), f64::from(index % 3)))
            .collect();
        let thin = thinned(&points);
        assert_eq!((thin.len(), thin[0], thin[299]), (300, (1.0, 1.0), (898.0, 1.0)));
        assert_eq!(thinned(&points[..300]).len(), 300);
        assert_eq!(thinned(&[(0.0, f64::NAN), (1.0, 2.0)]), [(1.0, 2.0)]);
    }
}
