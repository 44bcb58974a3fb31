//! Latencies of a phase: from single times to percentiles and a curve.

use std::time::Duration;

use crate::figure::{Better, Distribution, Unit};
use crate::turn::Turn;

/// Percentiles that become figures of their own, with their names.
const FIGURES: [(&str, f64); 3] = [
    ("latency p50", 0.50),
    ("latency p95", 0.95),
    ("latency p99", 0.99),
];

/// Times of single operations.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    seconds: Vec<f64>,
}

impl Latencies {
    /// Adds an operation that took `seconds`.
    pub fn push_seconds(&mut self, seconds: f64) {
        self.seconds.push(seconds);
    }

    /// Adds an operation.
    pub fn push(&mut self, time: Duration) {
        self.push_seconds(time.as_secs_f64());
    }

    /// Adds all of `other`, such as those of another thread.
    pub fn append(&mut self, mut other: Latencies) {
        self.seconds.append(&mut other.seconds);
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.seconds.len()
    }

    /// True when there was no operation.
    pub fn is_empty(&self) -> bool {
        self.seconds.is_empty()
    }

    /// Records percentiles, mean, maximum and the curve as those of `what` in `phase`; nothing when there are none.
    ///
    /// `from_intended_start` says whether the times count from when an operation should have begun (a load at a rate) or
    /// from when it did.
    pub fn record(mut self, turn: &mut dyn Turn, phase: &str, what: &str, from_intended_start: bool) {
        self.seconds.sort_by(f64::total_cmp);
        let Some(longest) = self.seconds.last().copied() else {
            return;
        };
        let mut figure =
            |name: &str, value: f64| turn.record(phase, name, Unit::Seconds, Better::Lower, value);
        for (name, share) in FIGURES {
            figure(name, percentile(&self.seconds, share));
        }
        figure(
            "latency mean",
            self.seconds.iter().sum::<f64>() / self.seconds.len() as f64,
        );
        figure("latency max", longest);
        turn.record_distribution(Distribution {
            phase: phase.to_owned(),
            name: what.to_owned(),
            from_intended_start,
            points: curve(&self.seconds),
        });
    }
}

/// The time that `share` of the operations do not exceed (nearest rank). `sorted` is not empty.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Points of the curve: every hundredth, and finer towards the slow end, as far as there are enough operations to tell.
fn curve(sorted: &[f64]) -> Vec<(f64, f64)> {
    let mut shares: Vec<f64> = (1..=99).map(|hundredth| f64::from(hundredth) / 100.0).collect();
    let mut below_one = 0.01;
    while below_one * sorted.len() as f64 > 10.0 {
        shares.extend((1..=9).map(|tenth| 1.0 - below_one + below_one * f64::from(tenth) / 10.0));
        below_one /= 10.0;
    }
    shares.push(1.0);
    shares
        .into_iter()
        .map(|share| (percentile(sorted, share), share))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let sorted: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&sorted, 0.50), 100.0);
        assert_eq!(percentile(&sorted, 0.99), 198.0);
        assert_eq!(percentile(&sorted, 1.0), 200.0);
        assert_eq!(percentile(&[7.0], 0.01), 7.0);
    }

    #[test]
    fn curve_rises_and_is_finer_at_the_slow_end() {
        let sorted: Vec<f64> = (0..100_000).map(|number| f64::from(number) / 1e6).collect();
        let points = curve(&sorted);
        assert!(points.len() <= 200, "{}", points.len());
        assert!(
            points
                .windows(2)
                .all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1)
        );
        assert!(points.iter().any(|(_, share)| *share > 0.999 && *share < 1.0));
        assert_eq!(points.last(), Some(&(0.099_999, 1.0)));
        assert_eq!(curve(&[1.0, 2.0]).len(), 100);
    }
}
