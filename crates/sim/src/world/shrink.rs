//! Makes a failing life short: leaves out what is not needed for the same kind of failure.
//!
//! Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002) over the list of
//! steps: pieces are left out while the life still fails in the same way, half of them first, single ones last.

use super::life::live_again;
use super::operation::Step;
use std::time::{Duration, Instant};

/// The steps that are left, within a bound on time.
pub(crate) fn shrink(seed: u64, steps: &[Step], what: &str, limit: Duration) -> Vec<Step> {
    let start = Instant::now();
    let fails = |steps: &[Step]| {
        live_again(seed, steps)
            .failure
            .filter(|(_, found)| same(&found.what, what))
            .map(|(number, _)| number)
    };
    let mut kept = steps.to_vec();
    let mut pieces = 2;
    while start.elapsed() < limit && kept.len() > 1 {
        let length = kept.len().div_ceil(pieces);
        let mut at = 0;
        let mut shorter = false;
        // From the end: what comes last before the failure is needed most often, and everything before depends on less.
        while at < kept.len() && start.elapsed() < limit {
            let end = kept.len() - at;
            let begin = end.saturating_sub(length);
            let candidate = [&kept[..begin], &kept[end..]].concat();
            match fails(&candidate) {
                Some(number) => {
                    kept = candidate
                        .into_iter()
                        .filter(|step| step.number <= number)
                        .collect();
                    shorter = true;
                }
                None => at += length,
            }
        }
        if length == 1 && !shorter {
            break;
        }
        pieces = (pieces * 2).min(kept.len()).max(2);
    }
    kept
}

/// The same kind of failure: text up to what differs from case to case.
fn same(found: &str, wanted: &str) -> bool {
    found == wanted
}

/// Numbers as ranges: `1-3,7`.
pub(crate) fn ranges(steps: &[Step]) -> String {
    let mut ranges: Vec<(u32, u32)> = vec![];
    for step in steps {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == step.number => *last = step.number,
            _ => ranges.push((step.number, step.number)),
        }
    }
    let text = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    text.collect::<Vec<_>>().join(",")
}

/// The other way round.
pub(crate) fn parse_ranges(text: &str) -> anyhow::Result<Vec<(u32, u32)>> {
    let range = |part: &str| -> anyhow::Result<(u32, u32)> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Ok((first.trim().parse()?, last.trim().parse()?))
    };
    text.split(',').map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::operation::Operation;

    #[test]
    fn ranges_are_read_as_they_are_written() {
        let step = |number| Step {
            number,
            witness: true,
            operation: Operation::Checkpoint,
        };
        let steps: Vec<Step> = [1, 2, 3, 7, 9, 10].into_iter().map(step).collect();
        assert_eq!(ranges(&steps), "1-3,7,9-10");
        assert_eq!(
            parse_ranges("1-3,7,9-10").ok(),
            Some(vec![(1, 3), (7, 7), (9, 10)])
        );
        assert!(parse_ranges("1-x").is_err());
    }
}
