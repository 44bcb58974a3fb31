//! The run as a table for the terminal.
//!
//! Key figures unless all are asked for; a row for each, a column for each arm: the median, and below it the ratio to the
//! control with its interval and what that comes to. Under the table the verdicts of the key figures, in words.

use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, TableComponent, presets};

use super::units::{date, humanise};
use crate::analysis::verdict::{self, Verdict};
use crate::analysis::{Analysis, ArmFigure, Comparison, FigureAnalysis};
use crate::run_information::RunInformation;

/// Narrower than this a table cannot be read; it is cut at the terminal's edge instead.
const NARROWEST: u16 = 40;

/// Where the width of the output is unknown, such as in a file.
const WIDTH_ELSEWHERE: u16 = 120;

/// What the table shows, and how wide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// All figures, not only the key ones.
    pub all: bool,
    /// Columns of text; that of the terminal on standard output when `None`.
    pub width: Option<u16>,
}

/// Writes the table to `out`. Fails only where `out` does.
pub fn print_table(
    out: &mut dyn Write,
    information: &RunInformation,
    analysis: &Analysis,
    options: TableOptions,
) -> io::Result<()> {
    let width = options.width.unwrap_or_else(terminal_width).max(NARROWEST);
    writeln!(
        out,
        "{}, {}: {} of {} rounds, control {}",
        information.experiment_name,
        date(information.started_unix_seconds),
        analysis.rounds_complete,
        analysis.rounds_planned,
        analysis.control
    )?;
    let shown: Vec<&FigureAnalysis> = analysis
        .figures
        .iter()
        .filter(|figure| options.all || figure.key)
        .collect();
    for phase in phases(&shown) {
        let of_phase: Vec<&FigureAnalysis> = shown
            .iter()
            .copied()
            .filter(|figure| figure.phase == phase)
            .collect();
        writeln!(out, "\n{}", table(phase, analysis, &of_phase, width).trim_fmt())?;
    }
    verdicts(out, analysis, &shown)?;
    for note in &analysis.notes {
        writeln!(out, "Note: {note}")?;
    }
    let hidden = analysis.figures.len() - shown.len();
    if hidden > 0 {
        writeln!(out, "{hidden} more figures with --all.")?;
    }
    Ok(())
}

fn terminal_width() -> u16 {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 => size.ws_col,
        _ => WIDTH_ELSEWHERE,
    }
}

fn phases<'a>(figures: &[&'a FigureAnalysis]) -> Vec<&'a str> {
    let mut phases: Vec<&str> = Vec::new();
    for figure in figures {
        if !phases.contains(&figure.phase.as_str()) {
            phases.push(&figure.phase);
        }
    }
    phases
}

fn table(phase: &str, analysis: &Analysis, figures: &[&FigureAnalysis], width: u16) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for line in [
        TableComponent::HeaderLines,
        TableComponent::MiddleHeaderIntersections,
    ] {
        table.set_style(line, '─');
    }
    table
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width);
    let right = |text: &str| Cell::new(text).set_alignment(CellAlignment::Right);
    let title = if phase.is_empty() { "whole turn" } else { phase };
    table.set_header(std::iter::once(Cell::new(title)).chain(analysis.arms.iter().map(|arm| right(arm))));
    for figure in figures {
        let cells = figure.arms.iter().map(|arm| right(&cell(figure, arm)));
        table.add_row(std::iter::once(Cell::new(&figure.name)).chain(cells));
    }
    table
}

fn cell(figure: &FigureAnalysis, arm: &ArmFigure) -> String {
    let median = arm
        .median
        .map_or_else(|| "-".to_owned(), |median| humanise(median, figure.unit));
    match &arm.comparison {
        Some(comparison) => format!("{median}\n{}", compared(comparison)),
        None => median,
    }
}

/// Ratio, interval and a word, such as `1.40 (1.37 to 1.43) better`.
fn compared(comparison: &Comparison) -> String {
    let word = match comparison.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Differs => "differs",
        Verdict::NoDifference => "no difference",
        Verdict::CannotTell => "cannot tell",
        Verdict::NoRatio => "no ratio",
    };
    match (comparison.ratio, comparison.interval) {
        _ if comparison.verdict == Verdict::NoRatio => word.to_owned(),
        (Some(ratio), Some(interval)) => format!(
            "{} ({} to {}) {word}",
            verdict::ratio(ratio),
            verdict::ratio(interval.low),
            verdict::ratio(interval.high)
        ),
        (Some(ratio), None) => format!("{} {word}", verdict::ratio(ratio)),
        _ => word.to_owned(),
    }
}

fn verdicts(out: &mut dyn Write, analysis: &Analysis, shown: &[&FigureAnalysis]) -> io::Result<()> {
    for arm in analysis.arms.iter().filter(|arm| **arm != analysis.control) {
        writeln!(out, "\n{arm} against {}:", analysis.control)?;
        for figure in shown.iter().filter(|figure| figure.key) {
            let words = figure
                .arms
                .iter()
                .find(|column| column.arm == *arm)
                .and_then(|column| column.comparison.as_ref());
            if let Some(comparison) = words {
                writeln!(out, "  {}: {}", full_name(figure), comparison.words)?;
            }
        }
    }
    writeln!(out)
}

/// Phase and name of a figure.
pub(super) fn full_name(figure: &FigureAnalysis) -> String {
    if figure.phase.is_empty() {
        figure.name.clone()
    } else {
        format!("{}, {}", figure.phase, figure.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyse;
    use crate::figure::TurnResult;
    use crate::sample::{information, run};

    fn printed(information: &RunInformation, turns: &[TurnResult], options: TableOptions) -> String {
        let mut out = Vec::new();
        print_table(&mut out, information, &analyse(information, turns), options).expect("memory");
        String::from_utf8(out).expect("text").replace('\u{a0}', " ")
    }

    #[test]
    fn the_table_of_a_run_reads_as_kept() {
        let (information, turns) = run(&[("ext4", 1.0), ("packstone", 1.4)], 3);
        let text = printed(
            &information,
            &turns,
            TableOptions {
                all: false,
                width: Some(100),
            },
        );
        assert_eq!(text, include_str!("table.golden"), "\n{text}");
    }

    #[test]
    fn no_line_is_wider_than_asked_for() {
        let (information, turns) = run(&[("ext4", 1.0), ("packstone", 1.4), ("btrfs zstd", 0.7)], 3);
        for width in [60, 80, 120] {
            let text = printed(
                &information,
                &turns,
                TableOptions {
                    all: true,
                    width: Some(width),
                },
            );
            let tables = text
                .lines()
                .skip_while(|line| !line.contains('─'))
                .take_while(|line| !line.contains("against"));
            let widest = tables.map(|line| line.chars().count()).max().expect("lines");
            assert!(widest <= usize::from(width), "{widest} at {width}:\n{text}");
        }
    }

    #[test]
    fn all_figures_are_shown_when_asked_for() {
        let (information, turns) = run(&[("ext4", 1.0), ("packstone", 1.4)], 3);
        let (key, all) = (
            printed(
                &information,
                &turns,
                TableOptions {
                    all: false,
                    width: Some(100),
                },
            ),
            printed(
                &information,
                &turns,
                TableOptions {
                    all: true,
                    width: Some(100),
                },
            ),
        );
        assert!(
            !key.contains("cache hits") && key.contains("4 more figures with --all."),
            "{key}"
        );
        assert!(all.contains("cache hits") && !all.contains("--all"), "{all}");
        assert!(all.contains("no ratio"), "flushes are zero on one side:\n{all}");
    }

    #[test]
    fn a_run_without_turns_says_so() {
        let text = printed(
            &information(&["a", "b"], 3),
            &[],
            TableOptions {
                all: false,
                width: Some(80),
            },
        );
        assert!(
            text.contains("0 of 3 rounds") && text.contains("has no turns in any round"),
            "{text}"
        );
    }
}
