//! Ratios to the control with their intervals, one below the other on one axis: what differs is what does not touch 1.
//!
//! The grey band around 1 is the figure's noise floor. An interval that leaves the plot ends in an arrow.

use maud::{Markup, html};

use super::{AXIS_HEIGHT, LETTER, MARGIN, WIDTH, at, named_axis, shortened, svg};
use crate::analysis::verdict::{self, Verdict};
use crate::analysis::{Comparison, FigureAnalysis};
use crate::report::scale::{Scale, limits};

const ROW: f64 = 34.0;
const START: f64 = 14.0;
const END: f64 = WIDTH - 14.0;

/// Ratios beyond these are drawn at the edge, so that one of them does not press all others together.
const FARTHEST: f64 = 50.0;

/// One line of the plot.
pub struct Line<'a> {
    /// What is compared, in words.
    pub name: String,
    /// The figure.
    pub figure: &'a FigureAnalysis,
    /// The arm's comparison with the control.
    pub comparison: &'a Comparison,
}

/// The plot of `lines`; nothing when none of them has a ratio.
pub fn plot(lines: &[Line], arm: &str, control: &str) -> Option<Markup> {
    let drawn: Vec<&Line> = lines
        .iter()
        .filter(|line| line.comparison.ratio.is_some())
        .collect();
    let all = drawn.iter().flat_map(|line| {
        let interval = line
            .comparison
            .interval
            .map(|interval| [interval.low, interval.high]);
        line.comparison
            .ratio
            .into_iter()
            .chain(interval.into_iter().flatten())
    });
    let (low, high) = limits(all)?;
    let low = (low.min(1.0) * 0.95).max(1.0 / FARTHEST);
    let high = (high.max(1.0) * 1.05).min(FARTHEST);
    let scale = Scale::logarithmic(low, high, START, END);
    let bottom = MARGIN + ROW * drawn.len() as f64;
    let content = html! {
        (named_axis(&scale, bottom, bottom, 1.0, &tick))
        @for (index, line) in drawn.iter().enumerate() {
            (row(line, &scale, MARGIN + ROW * index as f64))
        }
    };
    let title = format!("Ratios of {arm} to {control} with their intervals");
    Some(svg(bottom + AXIS_HEIGHT, &title, content))
}

fn tick(ratio: f64) -> String {
    let text = format!("{ratio:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn row(line: &Line, scale: &Scale, top: f64) -> Markup {
    let comparison = line.comparison;
    let (Some(ratio), middle) = (comparison.ratio, top + 24.0) else {
        return html! {};
    };
    let class = verdict_class(comparison.verdict);
    let said = match comparison.interval {
        Some(interval) => format!(
            "{} ({} to {})",
            verdict::ratio(ratio),
            verdict::ratio(interval.low),
            verdict::ratio(interval.high)
        ),
        None => verdict::ratio(ratio),
    };
    let room = END - START - (said.chars().count() + 4) as f64 * LETTER;
    html! {
        g {
            title { (line.name) ": " (comparison.words) }
            @for tick in scale.ticks(5, 1.0) {
                @let x = at(scale.place(tick));
                line.grid x1=(x) x2=(x) y1=(at(middle - 7.0)) y2=(at(middle + 7.0)) {}
            }
            @let one = at(scale.place(1.0));
            line.one x1=(one) x2=(one) y1=(at(middle - 8.0)) y2=(at(middle + 8.0)) {}
            @if let Some(floor) = line.figure.noise_floor_log {
                @let (from, to) = (scale.place((-floor).exp()), scale.place(floor.exp()));
                rect.noise x=(at(from)) y=(at(middle - 6.0)) width=(at(to - from)) height="12" {}
            }
            text x=(at(START)) y=(at(top + 12.0)) { (shortened(&line.name, room)) }
            text x=(at(END)) y=(at(top + 12.0)) text-anchor="end" { (said) }
            @if let Some(interval) = comparison.interval {
                @let (from, to) = (scale.place(interval.low), scale.place(interval.high));
                line class={ "interval " (class) } x1=(at(from)) x2=(at(to)) y1=(at(middle)) y2=(at(middle)) {}
                (end(from, middle, interval.low < 1.0 / FARTHEST, -1.0, class))
                (end(to, middle, interval.high > FARTHEST, 1.0, class))
            }
            circle class={ "ratio " (class) } cx=(at(scale.place(ratio))) cy=(at(middle)) r="4.5" {}
        }
    }
}

/// The end of an interval: a short bar, or an arrow where it goes on outside the plot.
fn end(x: f64, y: f64, outside: bool, direction: f64, class: &str) -> Markup {
    let bend = if outside { x - 5.0 * direction } else { x };
    let points = super::path([(bend, y - 4.0), (x, y), (bend, y + 4.0)].into_iter());
    html! { polyline class={ "interval " (class) } points=(points) {} }
}

/// Class of a verdict's colour.
pub fn verdict_class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Differs => "differs",
        Verdict::NoDifference => "same",
        Verdict::CannotTell | Verdict::NoRatio => "unknown",
    }
}
