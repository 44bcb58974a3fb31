//! The run as one HTML page that needs nothing else: no network, no scripts of its own, plots as SVG in the page.
//!
//! From top to bottom: what came out, ratios with intervals, the phases with every turn as a dot, latencies, progress over
//! time, bytes, flame graphs, what was run and where, notes, and how to read it. Behind every plot stands a table with its
//! numbers. Flame graphs have scripts for zooming; each is shut in a frame of its own, and the page's policy forbids
//! everything that would have to be fetched.

mod about;
mod flames;
mod phases;
mod summary;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plot;
use crate::analysis::{Analysis, FigureAnalysis};
use crate::figure::TurnResult;
use crate::run_information::RunInformation;

const STYLE: &str = include_str!("page/style.css");

/// Nothing may be fetched. Scripts are allowed for the flame graphs, whose frames inherit this.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// All that a page shows.
#[derive(Clone, Copy)]
struct Run<'a> {
    information: &'a RunInformation,
    turns: &'a [TurnResult],
    analysis: &'a Analysis,
    directory: &'a Path,
}

/// Writes the page to `out`. Flame graphs are read from `run_directory`; one that cannot be read is named in the page. Fails
/// where `out` does.
pub fn write_html(
    out: &mut dyn Write,
    run_directory: &Path,
    information: &RunInformation,
    turns: &[TurnResult],
    analysis: &Analysis,
) -> Result<()> {
    let page = page(Run {
        information,
        turns,
        analysis,
        directory: run_directory,
    });
    out.write_all(page.into_string().as_bytes())
        .context("the report could not be written as HTML")
}

fn page(run: Run) -> Markup {
    let title = format!("{}: lab report", run.information.experiment_name);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (summary::heading(run))
                    (summary::verdicts(run))
                    (summary::forests(run))
                    (phases::figures(run))
                    (phases::latencies(run))
                    (phases::over_time(run))
                    (phases::bytes(run))
                    (flames::section(run))
                    (about::what_was_run(run))
                    (about::notes(run))
                    (about::method(run))
                }
            }
        }
    }
}

/// The arms with their colours.
fn legend(arms: &[String]) -> Markup {
    html! {
        ul.legend {
            @for (index, arm) in arms.iter().enumerate() {
                li { span class={ "swatch " (plot::arm_class(index)) } {} (arm) }
            }
        }
    }
}

/// A plot with its caption and the table of its numbers.
fn figure(caption: &str, plot: Option<Markup>, table: Markup) -> Markup {
    html! {
        figure {
            figcaption { (caption) }
            @if let Some(plot) = plot { (plot) }
            details {
                summary { "Numbers" }
                div.wide { (table) }
            }
        }
    }
}

/// Names of phases in the order of the figures.
fn phase_names(analysis: &Analysis) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for figure in &analysis.figures {
        if !names.contains(&figure.phase.as_str()) {
            names.push(&figure.phase);
        }
    }
    names
}

fn of_phase<'a>(analysis: &'a Analysis, phase: &str) -> Vec<&'a FigureAnalysis> {
    analysis
        .figures
        .iter()
        .filter(|figure| figure.phase == phase)
        .collect()
}

/// A phase for people.
fn shown_phase(phase: &str) -> &str {
    if phase.is_empty() { "whole turn" } else { phase }
}

#[cfg(test)]
mod tests;
