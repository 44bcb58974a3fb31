//! Bytes of a phase as bars from zero, the median of each arm: what went to and from the device, and what is stored.

use maud::{Markup, html};

use super::{LETTER, MARGIN, WIDTH, arm_class, at, shortened, svg};
use crate::analysis::{Analysis, FigureAnalysis};
use crate::figure::Unit;
use crate::report::scale::{Scale, limits};
use crate::report::units::humanise;

const ROW: f64 = 18.0;
const HEADING: f64 = 20.0;
const WIDEST_NAME: f64 = 150.0;

/// Whether the figure is a number of bytes that belongs here. Quotients have other sizes and get no bar.
pub fn belongs(figure: &FigureAnalysis) -> bool {
    let name = figure.name.to_lowercase();
    let kinds = [
        "device bytes",
        "bytes stored",
        "stored bytes",
        "logical bytes",
        "file size",
    ];
    figure.unit == Unit::Bytes && !name.contains(" per ") && kinds.iter().any(|kind| name.starts_with(kind))
}

/// The plot of `figures`, all of one phase; nothing when they have no numbers.
pub fn plot(analysis: &Analysis, phase: &str, figures: &[&FigureAnalysis]) -> Option<Markup> {
    let medians = figures
        .iter()
        .flat_map(|figure| figure.arms.iter().filter_map(|arm| arm.median));
    let (_, most) = limits(medians).filter(|limits| limits.1 > 0.0)?;
    let longest = analysis
        .arms
        .iter()
        .map(|arm| arm.chars().count())
        .max()
        .unwrap_or(0);
    let left = (longest as f64 * LETTER).min(WIDEST_NAME) + 12.0;
    let scale = Scale::linear(0.0, most, left, WIDTH - 80.0);
    let group = HEADING + ROW * analysis.arms.len() as f64 + MARGIN;
    let content = html! {
        @for (index, figure) in figures.iter().enumerate() {
            @let top = group * index as f64;
            text.heading x="0" y=(at(top + 14.0)) { (shortened(&figure.name, WIDTH)) }
            @for (row, arm) in figure.arms.iter().enumerate() {
                @let y = top + HEADING + ROW * row as f64;
                text x=(at(left - 4.0)) y=(at(y + 13.0)) text-anchor="end" { (shortened(&arm.arm, left - 8.0)) }
                @if let Some(median) = arm.median {
                    @let end = scale.place(median);
                    rect class={ "bar " (arm_class(row)) } x=(at(left)) y=(at(y + 2.0)) width=(at(end - left)) height=(at(ROW - 4.0)) {}
                    text x=(at(end + 4.0)) y=(at(y + 13.0)) { (humanise(median, figure.unit)) }
                }
            }
        }
    };
    let title = format!("{phase}: bytes at the device and stored, median of each arm");
    Some(svg(group * figures.len() as f64, &title, content))
}
