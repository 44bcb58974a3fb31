//! Flame graphs: one of each arm, phase and process in the page, folded away; the others stay files beside it.

use std::path::{Component, Path};

use maud::{Markup, html};

use super::{Run, shown_phase};
use crate::figure::FlameGraph;

/// A larger file is named, not embedded: the page must stay one that a browser opens at once.
const LARGEST_BYTES: u64 = 4 << 20;

/// Stands before a graph in its frame. The graph's script takes the width of its element, which has none of its own here.
const FILL_FRAME: &str = "<style>body{margin:0}svg{width:100%}</style>";

pub(super) fn section(run: Run) -> Markup {
    let (shown, others) = chosen(run);
    html! {
        @if !shown.is_empty() {
            section {
                h2 { "Flame graphs" }
                p {
                    "Where processor time went: the wider a bar, the more samples had this function on their stack. The last "
                    "graph of each arm and phase is shown"
                    @if others > 0 { "; " (others) " more lie beside this page" }
                    ". Click a bar to look closer."
                }
                @for (arm, graph) in &shown {
                    details {
                        summary { (arm) ", " (shown_phase(&graph.phase)) ": " (graph.process) }
                        (embedded(run.directory, graph))
                    }
                }
            }
        }
    }
}

/// The last graph of each arm, phase and process, and how many others there are.
fn chosen<'a>(run: Run<'a>) -> (Vec<(&'a str, &'a FlameGraph)>, usize) {
    let mut shown: Vec<(&str, &FlameGraph)> = Vec::new();
    let mut others = 0;
    for turn in run.turns {
        for graph in &turn.flame_graphs {
            let same = |known: &&mut (&str, &FlameGraph)| {
                known.0 == turn.arm && known.1.phase == graph.phase && known.1.process == graph.process
            };
            match shown.iter_mut().find(same) {
                Some(known) => {
                    known.1 = graph;
                    others += 1;
                }
                None => shown.push((&turn.arm, graph)),
            }
        }
    }
    (shown, others)
}

fn embedded(directory: &Path, graph: &FlameGraph) -> Markup {
    match read(directory, &graph.file) {
        Ok(svg) => html! {
            iframe title={ "Flame graph of " (graph.process) } sandbox="allow-scripts allow-modals" loading="lazy" srcdoc=(svg) {}
        },
        Err(reason) => html! { p { "Not shown: " (graph.file) " " (reason) "." } },
    }
}

/// The SVG element of a file below the run's directory, without what may only stand at the beginning of a file.
fn read(directory: &Path, file: &str) -> Result<String, String> {
    let relative = Path::new(file);
    if !relative
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
    {
        return Err("is not a file of this run".to_owned());
    }
    let path = directory.join(relative);
    let size = std::fs::metadata(&path)
        .map_err(|error| format!("cannot be read ({error})"))?
        .len();
    if size > LARGEST_BYTES {
        return Err("is too large to stand in this page".to_owned());
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot be read ({error})"))?;
    let start = text.find("<svg").ok_or("is no SVG")?;
    Ok(format!("{FILL_FRAME}{}", &text[start..]))
}
