//! The table for people: medians over the rounds.

use crate::engines::Engine;
use crate::items::Order;
use crate::measure::Outcome;
use std::fmt::Write;

/// Middle of some numbers; of an even count the mean of the middle two.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let high = *values.get(middle)?;
    Some(if values.len() % 2 == 0 {
        (values[middle - 1] + high) / 2.0
    } else {
        high
    })
}

fn mib(bytes: Option<f64>) -> String {
    bytes.map_or_else(
        || "-".to_owned(),
        |bytes| format!("{:.1}", bytes / f64::from(1 << 20)),
    )
}

/// Medians of all rounds, a line for each engine and order.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:<11} {:<10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>11} {:>11}\n",
        "order", "engine", "items/s", "device", "own", "file", "stored", "gets/s", "scan/s"
    );
    for order in [Order::Sequential, Order::Random] {
        for engine in Engine::available() {
            let mine: Vec<&Outcome> = outcomes
                .iter()
                .filter(|outcome| outcome.order == order && outcome.engine == *engine)
                .collect();
            let middle = |field: &dyn Fn(&Outcome) -> Option<f64>| {
                median(mine.iter().filter_map(|outcome| field(outcome)).collect())
            };
            let Some(rate) = middle(&|outcome| Some(outcome.items_per_second)) else {
                continue;
            };
            let bytes = |value: Option<u64>| value.map(|bytes| bytes as f64);
            let _ = writeln!(
                text,
                "{:<11} {:<10} {:>10.0} {:>9} {:>9} {:>9} {:>9} {:>11.0} {:>11.0}",
                format!("{order:?}").to_lowercase(),
                engine.name(),
                rate,
                mib(middle(&|outcome| bytes(outcome.device_written_bytes))),
                mib(middle(&|outcome| bytes(outcome.own_written_bytes))),
                mib(middle(&|outcome| Some(outcome.file_bytes as f64))),
                mib(middle(&|outcome| bytes(outcome.stored_bytes))),
                middle(&|outcome| Some(outcome.gets_per_second)).unwrap_or(0.0),
                middle(&|outcome| Some(outcome.scan_items_per_second)).unwrap_or(0.0),
            );
        }
    }
    text.push_str("device, own, file, stored: MiB\n");
    text
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
