//! The end of the page: what was run and where, what readers should know, and how the numbers were found.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::Run;
use crate::analysis::interval::FEWEST_TO_BOOTSTRAP;
use crate::analysis::verdict::SMALL_DIFFERENCE;
use crate::figure::Unit;
use crate::report::units::humanise;

pub(super) fn what_was_run(run: Run) -> Markup {
    let (information, machine) = (run.information, &run.information.machine);
    html! {
        section {
            h2 { "What was run" }
            div.wide { table {
                caption { "Arms" }
                thead { tr { @for column in ["Arm", "Kind", "Options"] { th scope="col" { (column) } } } }
                tbody {
                    @for arm in &information.arms {
                        tr {
                            th scope="row" { (arm.name) @if arm.name == information.control { " (control)" } }
                            td { (arm.kind) }
                            td { (arm.summary) }
                        }
                    }
                }
            } }
            h3 { "Workload" }
            pre { (information.workload.trim_end()) }
            h3 { "Machine" }
            dl {
                dt { "Kernel" } dd { (machine.kernel) }
                dt { "Processors" } dd { (machine.processors) }
                dt { "Memory" } dd { (humanise(machine.memory_bytes as f64, Unit::Bytes)) }
                dt { "Device" } dd { (information.profile) }
                @for (program, version) in &machine.program_versions {
                    dt { (program) } dd { (version) }
                }
            }
        }
    }
}

/// What the turns noted, each note once with the arms that made it.
pub(super) fn notes(run: Run) -> Markup {
    let mut notes: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for turn in run.turns {
        for note in &turn.notes {
            let (turns, arms) = notes.entry(note).or_default();
            *turns += 1;
            arms.insert(&turn.arm);
        }
    }
    html! {
        @if !notes.is_empty() {
            section {
                h2 { "Notes" }
                ul {
                    @for (note, (turns, arms)) in &notes {
                        @let arms: Vec<&str> = arms.iter().copied().collect();
                        li { (note) " (" (arms.join(", ")) "; " (turns) @if *turns == 1 { " turn)" } @else { " turns)" } }
                    }
                }
            }
        }
    }
}

pub(super) fn method(run: Run) -> Markup {
    let small = format!("{:.0} %", SMALL_DIFFERENCE * 100.0);
    let confidence = format!("{:.0} %", run.analysis.confidence * 100.0);
    html! {
        section {
            h2 { "How to read this" }
            p {
                "Every arm runs the same workload, each turn on freshly made storage. In a round the arms take turns forwards and "
                "then backwards, such as A B B A, so that what drifts with time hits them alike. Each turn is compared with the "
                "nearest turn of the control in its round: a round gives two pairs."
            }
            p {
                "A ratio is the geometric mean over the pairs. Its interval comes from drawing the pairs again at random, thousands "
                "of times, and looking how far the ratio moves (a bootstrap); were the whole run repeated often, " (confidence)
                " of such intervals would hold the true ratio. With fewer than " (FEWEST_TO_BOOTSTRAP)
                " pairs that says nothing; then the interval is Student's t, and the verdict says that there were too few rounds."
            }
            p {
                "Before the rounds the control runs twice in a row. What these two turns differ by is the noise floor: nothing "
                "smaller is called a difference."
            }
            dl {
                dt { "better, worse" }
                dd { "The interval does not hold 1, and the ratio is further from 1 than the noise floor." }
                dt { "no difference seen" }
                dd { "None was found, and the interval leaves no room for one larger than the percentage given (at most " (small) ", or the noise floor)." }
                dt { "cannot tell" }
                dd { "The interval is too wide for either: more rounds, or a quieter machine, would help." }
            }
            p {
                "With many figures a few differ by chance: of twenty without any difference, about one interval misses 1. Look "
                "for what several figures say together. And all of it holds for this workload on this machine."
            }
        }
    }
}
