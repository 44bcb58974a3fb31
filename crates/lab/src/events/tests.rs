//! The generator gives the same well-formed rows for the same seed, with the skew that the demo's indexes rely on.

use std::collections::HashMap;

use super::*;

fn rows(seed: u64, count: usize) -> Vec<String> {
    let mut generator = Generator::new(seed);
    let mut text = String::new();
    (0..count)
        .map(|_| {
            text.clear();
            generator.write_row(&mut text);
            text.clone()
        })
        .collect()
}

#[test]
fn same_seed_same_rows() {
    assert_eq!(rows(7, 500), rows(7, 500));
    assert_ne!(rows(7, 500), rows(8, 500));
}

#[test]
fn rows_have_eight_columns_and_valid_json() {
    for (index, row) in rows(1, 5_000).iter().enumerate() {
        let columns: Vec<&str> = row.trim_end_matches('\n').split('\t').collect();
        assert_eq!(columns.len(), 8, "{row}");
        assert_eq!(columns[0], (index + 1).to_string());
        assert_eq!(columns[3].len(), 36, "{row}");
        let properties: serde_json::Value =
            serde_json::from_str(columns[7]).expect("the properties are JSON");
        assert!(
            properties.as_object().is_some_and(|object| object.len() >= 13),
            "{row}"
        );
        assert!(
            !row.contains('\\'),
            "COPY would take a backslash as an escape: {row}"
        );
    }
}

#[test]
fn kinds_are_skewed_and_all_present() {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for row in rows(1, 20_000) {
        *counts
            .entry(row.split('\t').nth(4).unwrap_or_default().to_owned())
            .or_default() += 1;
    }
    for (kind, _) in KINDS {
        assert!(
            counts.get(kind).is_some_and(|count| *count > 50),
            "{kind}: {counts:?}"
        );
    }
    assert!(counts["pageview"] > 10 * counts["purchase"]);
}

#[test]
fn timestamps_follow_the_calendar() {
    assert_eq!(timestamp(0), "1970-01-01 00:00:00.000000+00");
    assert_eq!(timestamp(FIRST_MOMENT_US), "2024-03-01 00:00:00.000000+00");
    assert_eq!(timestamp(FIRST_MOMENT_US - 1), "2024-02-29 23:59:59.999999+00");
    assert_eq!(timestamp(1_735_689_599_000_001), "2024-12-31 23:59:59.000001+00");
}
