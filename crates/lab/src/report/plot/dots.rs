//! Every turn of one figure as a dot: a row for each arm, a bar at its median. The turns of the A/A pair are rings.

use maud::{Markup, html};

use super::{AXIS_HEIGHT, LETTER, MARGIN, WIDTH, arm_class, at, horizontal_axis, shortened, svg};
use crate::analysis::{Analysis, FigureAnalysis};
use crate::figure::{Figure, TurnResult};
use crate::report::scale::{Scale, limits};
use crate::report::units::humanise;

const ROW: f64 = 26.0;
const WIDEST_NAME: f64 = 150.0;

struct Dot {
    arm: usize,
    value: f64,
    ring: bool,
    /// Above or below the middle of its row, so that equal values do not hide each other.
    offset: f64,
    title: String,
}

/// The plot of `figure`; nothing when no turn has it.
pub fn plot(analysis: &Analysis, figure: &FigureAnalysis, turns: &[TurnResult]) -> Option<Markup> {
    let dots = dots(analysis, figure, turns);
    let (low, high) = limits(dots.iter().map(|dot| dot.value))?;
    let longest = analysis
        .arms
        .iter()
        .map(|arm| arm.chars().count())
        .max()
        .unwrap_or(0);
    let left = (longest as f64 * LETTER).min(WIDEST_NAME) + 12.0;
    let (start, end) = (left + 8.0, WIDTH - 12.0);
    let scale = if low > 0.0 && high / low > 20.0 {
        Scale::logarithmic(low, high, start, end)
    } else {
        Scale::linear(low, high, start, end)
    };
    let bottom = MARGIN + ROW * analysis.arms.len() as f64;
    let middle = |arm: usize| MARGIN + ROW * (arm as f64 + 0.5);
    let content = html! {
        (horizontal_axis(&scale, MARGIN, bottom, figure.unit))
        @for (index, arm) in figure.arms.iter().enumerate() {
            text x=(at(left - 4.0)) y=(at(middle(index) + 4.0)) text-anchor="end" { (shortened(&arm.arm, left - 8.0)) }
            @if let Some(median) = arm.median {
                @let x = at(scale.place(median));
                line class={ "median " (arm_class(index)) } x1=(x) x2=(x) y1=(at(middle(index) - 10.0)) y2=(at(middle(index) + 10.0)) {}
            }
        }
        @for dot in &dots {
            circle class={ @if dot.ring { "ring " } @else { "dot " } (arm_class(dot.arm)) }
                cx=(at(scale.place(dot.value))) cy=(at(middle(dot.arm) + dot.offset)) r="3.5" { title { (dot.title) } }
        }
    };
    let title = format!("{}: every turn of every arm", figure.name);
    Some(svg(bottom + AXIS_HEIGHT, &title, content))
}

fn dots(analysis: &Analysis, figure: &FigureAnalysis, turns: &[TurnResult]) -> Vec<Dot> {
    let same = |other: &&Figure| other.phase == figure.phase && other.name == figure.name;
    let mut dots = Vec::new();
    for turn in turns {
        let value = turn.figures.iter().rev().find(same).map(|figure| figure.value);
        let arm = analysis.arms.iter().position(|arm| *arm == turn.arm);
        let (Some(value), Some(arm)) = (value.filter(|value| value.is_finite()), arm) else {
            continue;
        };
        let when = match turn.round {
            Some(round) => format!("round {}, turn {}", round + 1, turn.position + 1),
            None => format!("A/A pair, turn {}", turn.position + 1),
        };
        dots.push(Dot {
            arm,
            value,
            ring: turn.round.is_none(),
            offset: [-4.0, 0.0, 4.0][turn.round.map_or(0, |round| round as usize + 1) % 3],
            title: format!("{}, {when}: {}", turn.arm, humanise(value, figure.unit)),
        });
    }
    dots
}
