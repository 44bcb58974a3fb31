//! Plots as SVG elements that stand in the page itself.
//!
//! Colours are classes, which the page's style sheet sets for light and for dark; `arm0` is the control. A plot is
//! [`WIDTH`] units wide, so that its letters can be read on a phone, and says in its title what it shows. The numbers
//! behind it are in a table next to it, which the page adds.

pub mod bars;
pub mod dots;
pub mod forest;
pub mod latency;
pub mod series;

use maud::{Markup, html};

use super::scale::Scale;
use super::units::humanise;
use crate::figure::Unit;

/// Units across; a unit is about a pixel on a narrow screen.
pub const WIDTH: f64 = 480.0;

/// Height of the line of numbers below a plot.
const AXIS_HEIGHT: f64 = 22.0;

/// Room above and below what is drawn.
const MARGIN: f64 = 6.0;

/// About the width of a letter of the plots' font.
const LETTER: f64 = 6.1;

/// Colours that the style sheet has for arms.
const ARM_COLOURS: usize = 8;

/// Class of an arm's colour, by its place in [`crate::analysis::Analysis::arms`].
pub fn arm_class(index: usize) -> String {
    format!("arm{}", index % ARM_COLOURS)
}

/// The plot's frame: its size, and its title for those who cannot see it.
fn svg(height: f64, title: &str, content: Markup) -> Markup {
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {}", at(height))) role="img" aria-label=(title) {
            title { (title) }
            (content)
        }
    }
}

/// A place in the plot, in tenths of a unit.
fn at(place: f64) -> String {
    let text = format!("{place:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

/// Points of a line.
fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    points
        .map(|(x, y)| format!("{},{}", at(x), at(y)))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A name that fits into `width` units.
fn shortened(name: &str, width: f64) -> String {
    let letters = (width / LETTER) as usize;
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    name.chars()
        .take(letters.saturating_sub(1))
        .chain(['…'])
        .collect()
}

/// Lines from `top` to `bottom` at round numbers, and the numbers below; those that would touch their neighbour are left out.
fn horizontal_axis(scale: &Scale, top: f64, bottom: f64, unit: Unit) -> Markup {
    let base = tick_base(unit, scale.high());
    named_axis(scale, top, bottom, base, &|tick| humanise(tick, unit))
}

fn named_axis(scale: &Scale, top: f64, bottom: f64, base: f64, label: &dyn Fn(f64) -> String) -> Markup {
    let mut free_from = 0.0;
    let ticks: Vec<(f64, Option<String>)> = scale
        .ticks(5, base)
        .into_iter()
        .map(|tick| {
            let (x, text) = (scale.place(tick), label(tick));
            let half = text.chars().count() as f64 * LETTER / 2.0;
            let fits = x - half >= free_from && x + half <= WIDTH;
            if fits {
                free_from = x + half + LETTER;
            }
            (x, fits.then_some(text))
        })
        .collect();
    html! {
        @for (x, text) in &ticks {
            line.grid x1=(at(*x)) x2=(at(*x)) y1=(at(top)) y2=(at(bottom)) {}
            @if let Some(text) = text {
                text.tick x=(at(*x)) y=(at(bottom + 15.0)) text-anchor="middle" { (text) }
            }
        }
    }
}

/// Lines from `left` to the right edge at round numbers, and the numbers left of them.
fn vertical_axis(scale: &Scale, left: f64, unit: Unit) -> Markup {
    let base = tick_base(unit, scale.high());
    html! {
        @for tick in scale.ticks(4, base) {
            @let y = scale.place(tick);
            line.grid x1=(at(left)) x2=(at(WIDTH - MARGIN)) y1=(at(y)) y2=(at(y)) {}
            text.tick x=(at(left - 5.0)) y=(at(y + 4.0)) text-anchor="end" { (humanise(tick, unit)) }
        }
    }
}

/// What numbers near `high` are divided by before they are shown, so that ticks are round as shown.
fn tick_base(unit: Unit, high: f64) -> f64 {
    match unit {
        Unit::Bytes | Unit::BytesPerSecond if high >= 1024.0 => {
            1024_f64.powf((high.ln() / 1024_f64.ln()).floor())
        }
        _ => 1.0,
    }
}
