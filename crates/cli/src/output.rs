//! What commands print: facts on standard output, as text or JSON; progress and errors on standard error.
//!
//! A reader that closes the pipe early (`packstone status | head`) is no error.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::{self, Write};
use std::time::Duration;

/// Writes text to standard output.
pub fn emit(text: &str) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes one JSON value, indented, to standard output.
pub fn emit_json(value: &impl Serialize) -> anyhow::Result<()> {
    emit(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Writes JSON if asked for, else the text that `human` makes.
pub fn emit_facts<T: Serialize>(
    json: bool,
    facts: &T,
    human: impl FnOnce(&T) -> String,
) -> anyhow::Result<()> {
    match json {
        true => emit_json(facts),
        false => emit(&human(facts)),
    }
}

/// `1.5 GiB`; bytes below 10 KiB are given exactly.
pub fn format_bytes(size_bytes: u64) -> String {
    if size_bytes < 10 << 10 {
        return format!("{size_bytes} B");
    }
    let mut value = size_bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        value /= 1024.0;
        unit = next;
        if value < 1024.0 {
            break;
        }
    }
    format!("{value:.1} {unit}")
}

/// `3d 4h`, `4h 5m`, `5m 6s` or `6s`.
pub fn format_duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

/// Columns padded to their widest cell; numbers stand right, text left.
pub struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// A heading that begins with `>` makes its column stand right.
    pub fn new(headings: &[&str]) -> Table {
        let right = headings.iter().map(|heading| heading.starts_with('>')).collect();
        Table {
            rows: vec![
                headings
                    .iter()
                    .map(|heading| heading.trim_start_matches('>').to_string())
                    .collect(),
            ],
            right,
        }
    }

    /// Adds a row of as many cells as there are headings.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(
            cells.len(),
            self.right.len(),
            "a row has one cell for each heading"
        );
        self.rows.push(cells);
    }

    /// The lines, each ended by a newline.
    pub fn render(&self) -> String {
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row
                .iter()
                .enumerate()
                .map(|(column, cell)| match self.right[column] {
                    true => format!("{cell:>width$}", width = widths[column]),
                    false => format!("{cell:<width$}", width = widths[column]),
                });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// A bar on standard error for work measured in bytes; invisible when standard error is no terminal.
pub fn byte_progress(label: &str) -> ProgressBar {
    progress(
        label,
        "{prefix} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    )
}

/// The same for work measured in records.
pub fn record_progress(label: &str) -> ProgressBar {
    progress(label, "{prefix} [{bar:30}] {human_pos}/{human_len} records {eta}")
}

fn progress(label: &str, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(template);
    bar.set_style(
        style
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> "),
    );
    bar.set_prefix(label.to_string());
    bar
}

/// A spinner on standard error for work of unknown length; invisible when standard error is no terminal.
pub fn spinner(label: String) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_message(label);
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_durations_read_well() {
        assert_eq!(format_bytes(0), "0 B");
        assert_eq!(format_bytes(8192), "8192 B");
        assert_eq!(format_bytes(20 << 30), "20.0 GiB");
        assert_eq!(format_bytes(u64::MAX), "16384.0 PiB");
        assert_eq!(format_duration(59), "59s");
        assert_eq!(format_duration(3_661), "1h 1m");
        assert_eq!(format_duration(90_000), "1d 1h");
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", ">size"]);
        table.row(vec!["a".into(), "1".into()]);
        table.row(vec!["longer".into(), "12345".into()]);
        assert_eq!(table.render(), "name     size\na           1\nlonger  12345\n");
    }
}
