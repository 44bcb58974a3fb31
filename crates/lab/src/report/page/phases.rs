//! The middle of the page: what every turn yielded, phase by phase, as plots with their numbers.

use maud::{Markup, html};

use super::{Run, figure, legend, of_phase, phase_names, shown_phase};
use crate::analysis::{FigureAnalysis, verdict};
use crate::figure::{Better, Unit};
use crate::report::plot::latency::{self, TABLED};
use crate::report::plot::{bars, dots, series};
use crate::report::units::humanise;

/// Every turn of every figure.
pub(super) fn figures(run: Run) -> Markup {
    html! {
        section {
            h2 { "Every turn" }
            p { "A dot is one turn, the bar the arm's median, a ring a turn of the A/A pair." }
            (legend(&run.analysis.arms))
            @for phase in phase_names(run.analysis) {
                @let (key, rest): (Vec<_>, Vec<_>) = of_phase(run.analysis, phase).into_iter().partition(|figure| figure.key);
                h3 { (shown_phase(phase)) }
                (grid(run, &key))
                @if !rest.is_empty() {
                    details {
                        summary { (rest.len()) " more figures of this phase" }
                        (grid(run, &rest))
                    }
                }
            }
        }
    }
}

fn grid(run: Run, figures: &[&FigureAnalysis]) -> Markup {
    html! {
        div.plots {
            @for analysed in figures {
                @let better = match analysed.better {
                    Better::Higher => " (more is better)",
                    Better::Lower => " (less is better)",
                    Better::Neither => "",
                };
                @let caption = format!("{}{better}", analysed.name);
                (figure(&caption, dots::plot(run.analysis, analysed, run.turns), numbers(analysed)))
            }
        }
    }
}

fn numbers(analysed: &FigureAnalysis) -> Markup {
    let shown =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| humanise(value, analysed.unit));
    html! {
        table {
            thead { tr {
                th scope="col" { "Arm" }
                @for column in ["Turns", "Least", "Median", "Greatest", "Scatter"] { th.number scope="col" { (column) } }
            } }
            tbody {
                @for arm in &analysed.arms {
                    tr {
                        th scope="row" { (arm.arm) }
                        td.number { (arm.turns) }
                        td.number { (shown(arm.least)) }
                        td.number { (shown(arm.median)) }
                        td.number { (shown(arm.greatest)) }
                        td.number { (arm.scatter_log.map_or_else(|| "-".to_owned(), verdict::percent)) }
                    }
                }
            }
        }
    }
}

/// Latencies, where the workload has any.
pub(super) fn latencies(run: Run) -> Markup {
    let all = latency::collect(run.analysis, run.turns);
    let arms = &run.analysis.arms;
    html! {
        @if !all.is_empty() {
            section {
                h2 { "Latencies" }
                p { "The share of operations that took at most so long. Thin lines are turns, thick ones the median of an arm's turns; further left is quicker." }
                (legend(arms))
                div.plots {
                    @for latencies in &all {
                        @let from = if latencies.from_intended_start { "from the intended start" } else { "from the real start" };
                        @let caption = format!("{}: {}, {from}", shown_phase(latencies.phase), latencies.name);
                        (figure(&caption, latencies.plot(arms.len()), percentiles(latencies, arms)))
                    }
                }
            }
        }
    }
}

fn percentiles(latencies: &latency::Latencies, arms: &[String]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Arm, median of turns" }
                @for (_, name) in TABLED { th.number scope="col" { (name) } }
            } }
            tbody {
                @for (index, arm) in arms.iter().enumerate() {
                    tr {
                        th scope="row" { (arm) }
                        @for (share, _) in TABLED {
                            td.number {
                                (latencies.seconds(index, share).map_or_else(|| "-".to_owned(), |time| humanise(time, Unit::Seconds)))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Numbers over time, where the workload has any.
pub(super) fn over_time(run: Run) -> Markup {
    let all = series::collect(run.analysis, run.turns);
    html! {
        @if !all.is_empty() {
            section {
                h2 { "Over time" }
                p { "A line for each turn, from the beginning of the phase." }
                (legend(&run.analysis.arms))
                div.plots {
                    @for over_time in &all {
                        @let caption = format!("{}: {}", shown_phase(over_time.phase), over_time.name);
                        (figure(&caption, over_time.plot(), spreads(over_time, &run.analysis.arms)))
                    }
                }
            }
        }
    }
}

fn spreads(over_time: &series::OverTime, arms: &[String]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Arm, all points of all turns" }
                @for column in ["Least", "Median", "Greatest"] { th.number scope="col" { (column) } }
            } }
            tbody {
                @for (index, arm) in arms.iter().enumerate() {
                    @if let Some(spread) = over_time.spread(index) {
                        tr {
                            th scope="row" { (arm) }
                            @for value in spread { td.number { (humanise(value, over_time.unit)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Bytes at the device and stored, where they were measured.
pub(super) fn bytes(run: Run) -> Markup {
    let with_bytes: Vec<(&str, Vec<&FigureAnalysis>)> = phase_names(run.analysis)
        .into_iter()
        .map(|phase| {
            (
                phase,
                of_phase(run.analysis, phase)
                    .into_iter()
                    .filter(|figure| bars::belongs(figure))
                    .collect(),
            )
        })
        .filter(|(_, figures): &(&str, Vec<_>)| !figures.is_empty())
        .collect();
    html! {
        @if !with_bytes.is_empty() {
            section {
                h2 { "Bytes" }
                p { "Medians of each arm. Whole phases: an arm that did more work in the same time also writes more; the figures per operation say more then." }
                (legend(&run.analysis.arms))
                div.plots {
                    @for (phase, figures) in &with_bytes {
                        (figure(shown_phase(phase), bars::plot(run.analysis, phase, figures), medians(run, figures)))
                    }
                }
            }
        }
    }
}

fn medians(run: Run, figures: &[&FigureAnalysis]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Median" }
                @for arm in &run.analysis.arms { th.number scope="col" { (arm) } }
            } }
            tbody {
                @for analysed in figures {
                    tr {
                        th scope="row" { (analysed.name) }
                        @for arm in &analysed.arms {
                            td.number { (arm.median.map_or_else(|| "-".to_owned(), |value| humanise(value, analysed.unit))) }
                        }
                    }
                }
            }
        }
    }
}
