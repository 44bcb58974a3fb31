//! The top of the page: what the run is, what came out, and the ratios at a glance.

use maud::{Markup, html};

use super::{Run, shown_phase};
use crate::analysis::{Comparison, FigureAnalysis, verdict};
use crate::report::plot::forest::{self, Line, verdict_class};
use crate::report::units::{date, humanise};

pub(super) fn heading(run: Run) -> Markup {
    let (information, analysis) = (run.information, run.analysis);
    html! {
        header {
            h1 { (information.experiment_name) }
            p.facts {
                (date(information.started_unix_seconds)) " · "
                (analysis.rounds_complete) " of " (analysis.rounds_planned) " rounds · "
                (run.turns.len()) " turns · control: " strong { (analysis.control) }
            }
            @for paragraph in information.description.split("\n\n").filter(|text| !text.trim().is_empty()) {
                p { (paragraph.trim()) }
            }
            @for note in &analysis.notes {
                p.warning { (note) }
            }
        }
    }
}

/// For each arm the key figures with their verdicts, in words.
pub(super) fn verdicts(run: Run) -> Markup {
    let others = others(run);
    html! {
        section {
            h2 { "What came out" }
            @if others.is_empty() {
                p { "There is nothing to compare the control with." }
            }
            @for arm in &others {
                h3 { (arm) " against " (run.analysis.control) }
                (table(run, arm, |figure| figure.key, "key figures"))
            }
        }
    }
}

/// The ratios of every arm: key figures in sight, all of them on demand.
pub(super) fn forests(run: Run) -> Markup {
    html! {
        @let others = others(run);
        @if !others.is_empty() {
            section {
                h2 { "Ratios to the control" }
                p {
                    "A dot is the ratio, the line through it the interval in which the true ratio lies with "
                    (format!("{:.0}", run.analysis.confidence * 100.0))
                    " % confidence. A difference is an interval that does not touch 1 around a dot outside the grey band, which is "
                    "what the control differed from itself."
                }
                div.plots {
                    @for arm in &others { (forest(run, arm)) }
                }
            }
        }
    }
}

fn forest(run: Run, arm: &str) -> Markup {
    let key = lines(run, arm, |figure| figure.key);
    let rest = lines(run, arm, |figure| !figure.key);
    let control = &run.analysis.control;
    html! {
        figure {
            figcaption { (arm) ", ratio to " (control) }
            @match forest::plot(&key, arm, control) {
                Some(plot) => (plot),
                None => p { "No key figure has a ratio." },
            }
            @if let Some(plot) = forest::plot(&rest, arm, control) {
                details {
                    summary { "All other figures" }
                    (plot)
                }
            }
            details {
                summary { "Numbers" }
                (table(run, arm, |_| true, "all figures"))
            }
        }
    }
}

fn others<'a>(run: Run<'a>) -> Vec<&'a String> {
    run.analysis
        .arms
        .iter()
        .filter(|arm| **arm != run.analysis.control)
        .collect()
}

fn comparison<'a>(figure: &'a FigureAnalysis, arm: &str) -> Option<&'a Comparison> {
    figure
        .arms
        .iter()
        .find(|column| column.arm == arm)?
        .comparison
        .as_ref()
}

fn lines<'a>(run: Run<'a>, arm: &str, of: impl Fn(&FigureAnalysis) -> bool) -> Vec<Line<'a>> {
    run.analysis
        .figures
        .iter()
        .filter(|figure| of(figure))
        .filter_map(|figure| {
            let name = format!("{}: {}", shown_phase(&figure.phase), figure.name);
            Some(Line {
                name,
                figure,
                comparison: comparison(figure, arm)?,
            })
        })
        .collect()
}

fn table(run: Run, arm: &str, of: impl Fn(&FigureAnalysis) -> bool, what: &str) -> Markup {
    let control = &run.analysis.control;
    let median = |figure: &FigureAnalysis, arm: &str| {
        let column = figure.arms.iter().find(|column| column.arm == arm);
        column
            .and_then(|column| column.median)
            .map_or_else(|| "-".to_owned(), |value| humanise(value, figure.unit))
    };
    let shown: Vec<&FigureAnalysis> = run.analysis.figures.iter().filter(|figure| of(figure)).collect();
    html! {
        div.wide {
            table.summary {
                caption { (arm) " against " (control) ": " (what) ", medians, and what they come to" }
                thead {
                    tr {
                        th scope="col" { "Figure" }
                        th.number scope="col" { (control) }
                        th.number scope="col" { (arm) }
                        th scope="col" { "Verdict" }
                        th.number scope="col" { "Noise floor" }
                    }
                }
                tbody {
                    @for (index, figure) in shown.iter().enumerate() {
                        @if index == 0 || shown[index - 1].phase != figure.phase {
                            tr.group { th colspan="5" scope="colgroup" { (shown_phase(&figure.phase)) } }
                        }
                        @if let Some(comparison) = comparison(figure, arm) {
                            tr {
                                th scope="row" { (figure.name) }
                                td.number data-label=(control) { (median(figure, control)) }
                                td.number data-label=(arm) { (median(figure, arm)) }
                                td { span class={ "verdict " (verdict_class(comparison.verdict)) } { (comparison.words) } }
                                td.number data-label="noise floor" {
                                    (figure.noise_floor_log.map_or_else(|| "-".to_owned(), verdict::percent))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
