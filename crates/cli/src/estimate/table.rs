//! The result for people.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use super::report::{Estimate, FamilyEstimate, Sizes, Skipped};

/// Families that get a row of their own; the rest is summed up in one.
const ROWS_MAX: usize = 30;
/// Longer names lose their middle.
const NAME_CHARACTERS_MAX: usize = 44;

const HEADINGS: [[&str; 2]; 10] = [
    ["", "family"],
    ["", "files"],
    ["", "size"],
    ["on disk", "now"],
    ["lz4 8K", "sectors"],
    ["zstd-3 8K", "sectors"],
    ["lz4 128K", "sectors"],
    ["zstd-3 128K", "sectors"],
    ["zstd-1 8K", "packed"],
    ["zstd-3 8K", "packed"],
];

type Row = [String; HEADINGS.len()];

/// Prints the estimate on standard output.
pub fn print_table(estimate: &Estimate) -> io::Result<()> {
    io::stdout().lock().write_all(render(estimate).as_bytes())
}

/// The table and the sentences around it.
pub(super) fn render(estimate: &Estimate) -> String {
    let mut text = String::new();
    let kind = if estimate.is_postgresql {
        ", with a PostgreSQL data directory"
    } else {
        ""
    };
    let _ = writeln!(
        text,
        "{}{kind}: {}\n",
        estimate.directory,
        sample_sentence(estimate)
    );
    let mut rows: Vec<Row> = HEADINGS_ROWS.iter().map(|line| headings(*line)).collect();
    let shown = if estimate.families.len() > ROWS_MAX {
        ROWS_MAX - 1
    } else {
        estimate.families.len()
    };
    rows.extend(estimate.families[..shown].iter().map(row));
    if shown < estimate.families.len() {
        let rest = &estimate.families[shown..];
        let mut sum = FamilyEstimate {
            name: format!("({} smaller families)", rest.len()),
            ..Default::default()
        };
        rest.iter().for_each(|family| sum.add(family));
        rows.push(row(&sum));
    }
    let rule_before = rows.len();
    rows.push(row(&estimate.total));
    rows.push(ratio_row(estimate));
    write_rows(&mut text, &rows, &[HEADINGS_ROWS.len(), rule_before]);
    text.push_str(
        "\nsectors: compressed records rounded up to 4 KiB, as ZFS and btrfs store them.\n\
         packed:  compressed records end to end plus 24 bytes of index each, as Packstone stores them.\n\
         ratio:   size over what it takes. Records of zero bytes take nothing. Trees and snapshots are left out.\n",
    );
    for sentence in skipped_sentences(estimate) {
        let _ = writeln!(text, "{sentence}");
    }
    text
}

const HEADINGS_ROWS: [usize; 2] = [0, 1];

fn headings(line: usize) -> Row {
    HEADINGS.map(|heading| heading[line].to_owned())
}

fn sample_sentence(estimate: &Estimate) -> String {
    let sample = &estimate.sample;
    match sample.mode {
        "all" => format!("{} read, everything", bytes(sample.read_bytes)),
        _ => format!(
            "{} of {} read, a sample of {:.1} %; --all reads everything",
            bytes(sample.read_bytes),
            bytes(estimate.total.apparent_bytes),
            sample.fraction * 100.0
        ),
    }
}

fn row(family: &FamilyEstimate) -> Row {
    let sizes = columns(family.sizes.as_ref()).map(|size| size.map_or("?".to_owned(), bytes));
    let [a, b, c, d, e, f] = sizes;
    let name = shorten(&family.name);
    [
        name,
        family.files.to_string(),
        bytes(family.apparent_bytes),
        bytes(family.allocated_bytes),
        a,
        b,
        c,
        d,
        e,
        f,
    ]
}

/// Ratios of what is known: families that could not be read are left out of both sides.
fn ratio_row(estimate: &Estimate) -> Row {
    let known_bytes: u64 = estimate
        .families
        .iter()
        .filter(|family| family.sizes.is_some())
        .map(|family| family.apparent_bytes)
        .sum();
    let ratio = |size: u64| match size {
        0 => String::new(),
        _ => format!("{:.2}", known_bytes as f64 / size as f64),
    };
    let on_disk = match estimate.total.allocated_bytes {
        0 => String::new(),
        allocated_bytes => format!(
            "{:.2}",
            estimate.total.apparent_bytes as f64 / allocated_bytes as f64
        ),
    };
    let [a, b, c, d, e, f] =
        columns(estimate.total.sizes.as_ref()).map(|size| size.map_or(String::new(), ratio));
    [
        "ratio".to_owned(),
        String::new(),
        String::new(),
        on_disk,
        a,
        b,
        c,
        d,
        e,
        f,
    ]
}

fn columns(sizes: Option<&Sizes>) -> [Option<u64>; 6] {
    let column = |size: fn(&Sizes) -> u64| sizes.map(size);
    [
        column(|sizes| sizes.lz4_8k_sectors_bytes),
        column(|sizes| sizes.zstd3_8k_sectors_bytes),
        column(|sizes| sizes.lz4_128k_sectors_bytes),
        column(|sizes| sizes.zstd3_128k_sectors_bytes),
        column(|sizes| sizes.zstd1_8k_packed_bytes),
        column(|sizes| sizes.zstd3_8k_packed_bytes),
    ]
}

/// The first column to the left, the others to the right; a rule above each row in `rules`.
fn write_rows(text: &mut String, rows: &[Row], rules: &[usize]) {
    let mut widths = [0; HEADINGS.len()];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for (index, row) in rows.iter().enumerate() {
        if rules.contains(&index) {
            let _ = writeln!(
                text,
                "{}",
                "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1))
            );
        }
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            let _ = write!(line, "  {cell:>width$}");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn skipped_sentences(estimate: &Estimate) -> Vec<String> {
    // Destructured, so that a new count cannot be forgotten here.
    let Skipped {
        symbolic_links,
        special_files,
        other_file_systems,
        further_names,
        unreadable,
        vanished,
    } = estimate.skipped;
    let sentences = [
        (
            unreadable,
            "could not be read, and are left out or guessed from the rest of their family",
        ),
        (vanished, "vanished while being read"),
        (
            other_file_systems,
            "other file systems mounted below, not entered",
        ),
        (symbolic_links, "symbolic links, not followed"),
        (special_files, "devices, sockets or FIFOs, left out"),
        (further_names, "further names of files, which count once"),
    ];
    let met = sentences.into_iter().filter(|(count, _)| *count > 0);
    met.map(|(count, what)| format!("{what}: {count}")).collect()
}

/// Keeps the beginning and the end of a long name, and nothing that could upset a terminal.
fn shorten(name: &str) -> String {
    let characters: Vec<char> = name
        .chars()
        .map(|one| if one.is_control() { '?' } else { one })
        .collect();
    if characters.len() <= NAME_CHARACTERS_MAX {
        return characters.into_iter().collect();
    }
    let tail = NAME_CHARACTERS_MAX / 2;
    let head = NAME_CHARACTERS_MAX - tail - 1;
    let (head, tail) = (&characters[..head], &characters[characters.len() - tail..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

/// A number of bytes in three significant digits and binary units.
fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // From 999.5 on, three digits would round to a thousand.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (10_239, "10.0 KiB"),
            (1_023_000, "999 KiB"),
            (1_023_999, "0.98 MiB"),
            (8_192 << 20, "8.00 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn long_names_keep_both_ends_and_no_control_characters() {
        assert_eq!(shorten("a\nb\u{1b}[1m"), "a?b?[1m");
        let name = format!("start{}end", "é".repeat(100));
        let short = shorten(&name);
        assert_eq!(short.chars().count(), NAME_CHARACTERS_MAX);
        assert!(
            short.starts_with("start") && short.ends_with("end") && short.contains('…'),
            "{short}"
        );
    }
}
