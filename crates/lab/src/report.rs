//! Reports of a run: a table for the terminal, JSON for programs, and one HTML page that needs nothing else.
//!
//! | function | for | shows |
//! |---|---|---|
//! | [`print_table`] | the terminal | medians, ratios with intervals, verdicts of the key figures |
//! | [`write_json`] | programs | everything: the run, its turns, the analysis |
//! | [`write_html`] | people | everything, with plots, and how it was found |
//!
//! All three are functions of the run and its analysis; none measures or decides anything.

mod json;
mod page;
mod plot;
mod scale;
mod table;
pub mod units;

pub use json::write_json;
pub use page::write_html;
pub use table::{TableOptions, print_table};
