//! Numbers and tables as people read them.

use std::time::Duration;

use comfy_table::{Cell, CellAlignment, Table, TableComponent, presets};
use humansize::{BINARY, format_size};

/// Bytes with a unit: `1.5 GiB`.
pub fn bytes(count: u64) -> String {
    format_size(count, BINARY)
}

/// A ratio of two sizes: `9.7x`; a dash when nothing was stored.
pub fn ratio(logical_bytes: u64, stored_bytes: u64) -> String {
    if stored_bytes == 0 {
        return "-".to_owned();
    }
    format!("{:.1}x", logical_bytes as f64 / stored_bytes as f64)
}

/// A whole number with thin groups of three digits: `1 000 000`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

/// A duration in seconds or milliseconds, whichever reads better.
pub fn duration(time: Duration) -> String {
    if time.as_secs() >= 10 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{:.0} ms", time.as_secs_f64() * 1000.0)
    }
}

/// A table with `header`; the columns after the first `left_columns` are aligned to the right.
pub fn table(header: &[&str], left_columns: usize, rows: &[Vec<String>]) -> Table {
    let aligned = |index: usize, text: &str| {
        let side = if index < left_columns {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        };
        Cell::new(text).set_alignment(side)
    };
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for line in [
        TableComponent::HeaderLines,
        TableComponent::MiddleHeaderIntersections,
    ] {
        table.set_style(line, '─');
    }
    table.set_header(
        header
            .iter()
            .enumerate()
            .map(|(index, text)| aligned(index, text)),
    );
    for row in rows {
        table.add_row(row.iter().enumerate().map(|(index, text)| aligned(index, text)));
    }
    table
}

/// Middle of `values`; the mean of the two middle ones when their number is even; 0 for none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 0 => (sorted[length / 2 - 1] + sorted[length / 2]) / 2.0,
        length => sorted[length / 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1 234 567");
        assert_eq!(ratio(100, 0), "-");
        assert_eq!(ratio(97, 10), "9.7x");
        assert_eq!(bytes(1536), "1.50 KiB");
    }

    #[test]
    fn median_of_odd_and_even_numbers() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
