//! The interval of a mean of logarithms of ratios.
//!
//! From six pairs on it is a percentile bootstrap: the pairs are drawn again with replacement, some thousand times, and
//! the quantiles of the means are the limits. Plain percentiles are too narrow for few pairs, by `sqrt((n-1)/n)` for the
//! spread and by the normal distribution standing in for Student's t. The quantiles are therefore taken further out, at
//! `Φ(-sqrt(n/(n-1))·t)`, with `t` the quantile of Student's distribution for n-1 degrees of freedom (Hesterberg, "What
//! Teachers Should Know About the Bootstrap", The American Statistician 69, 2015: the expanded percentile interval).
//!
//! Below six pairs there are too few different draws for a bootstrap to say anything: three pairs have ten. Then the
//! interval is Student's t for the mean, which needs the logarithms to be about normal, and is never narrower than the
//! noise floor to either side. One pair has no interval.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Pairs that a bootstrap needs: three rounds of A B B A.
pub const FEWEST_TO_BOOTSTRAP: usize = 6;

/// Enough that the limits move by less than a tenth of the interval's width from seed to seed.
const DRAWS: usize = 4000;

/// Where a ratio lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower limit of the ratio.
    pub low: f64,
    /// Upper limit of the ratio.
    pub high: f64,
    /// How it was found.
    pub method: Method,
}

/// How an interval was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Expanded percentile bootstrap over the pairs.
    Bootstrap,
    /// Student's t, widened to the noise floor: too few pairs for a bootstrap.
    StudentT,
}

impl Interval {
    /// Whether the ratio may be 1.
    pub fn holds_one(&self) -> bool {
        self.low <= 1.0 && self.high >= 1.0
    }

    /// How far from 1 the ratio may be, as a logarithm.
    pub fn reach_log(&self) -> f64 {
        self.low.ln().abs().max(self.high.ln().abs())
    }
}

/// Mean, `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Standard deviation of a sample (divisor n-1), `None` for fewer than two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// The interval of the mean of `log_ratios`, as ratios; `None` below two pairs. The same `seed` gives the same interval.
pub fn of_mean(
    log_ratios: &[f64],
    noise_floor_log: Option<f64>,
    confidence: f64,
    seed: u64,
) -> Option<Interval> {
    let tail = (1.0 - confidence) / 2.0;
    let freedom = log_ratios.len().checked_sub(1).filter(|freedom| *freedom > 0)? as f64;
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(1.0 - tail);
    if log_ratios.len() < FEWEST_TO_BOOTSTRAP {
        let spread = standard_deviation(log_ratios)? / (log_ratios.len() as f64).sqrt();
        let reach = (t * spread).max(noise_floor_log.unwrap_or(0.0));
        let mean = mean(log_ratios)?;
        return Some(Interval {
            low: (mean - reach).exp(),
            high: (mean + reach).exp(),
            method: Method::StudentT,
        });
    }
    let wider = ((freedom + 1.0) / freedom).sqrt() * t;
    let tail = Normal::standard().cdf(-wider);
    let means = bootstrap_means(log_ratios, seed);
    Some(Interval {
        low: quantile(&means, tail).exp(),
        high: quantile(&means, 1.0 - tail).exp(),
        method: Method::Bootstrap,
    })
}

/// Sorted means of [`DRAWS`] samples drawn with replacement.
fn bootstrap_means(values: &[f64], seed: u64) -> Vec<f64> {
    let mut random = SmallRng::seed_from_u64(seed);
    let count = values.len();
    let mut means: Vec<f64> = (0..DRAWS)
        .map(|_| {
            (0..count)
                .map(|_| values[random.random_range(0..count)])
                .sum::<f64>()
                / count as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    means
}

/// Quantile of sorted values, between neighbours by straight line.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (place - place.floor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_interval_without_two_pairs() {
        assert_eq!(of_mean(&[], None, 0.95, 1), None);
        assert_eq!(of_mean(&[0.1], None, 0.95, 1), None);
        assert_eq!(standard_deviation(&[1.0]), None);
    }

    #[test]
    fn few_pairs_use_students_t() {
        // Mean 0, standard deviation 0.1, t for 2 degrees of freedom 4.3027: reach 4.3027 · 0.1 / sqrt(3).
        let interval = of_mean(&[-0.1, 0.0, 0.1], None, 0.95, 1).expect("three pairs");
        assert_eq!(interval.method, Method::StudentT);
        assert!((interval.high.ln() - 0.24841).abs() < 1e-4, "{interval:?}");
        assert!((interval.low.ln() + 0.24841).abs() < 1e-4, "{interval:?}");
    }

    #[test]
    fn few_pairs_that_agree_by_chance_are_not_believed_beyond_the_noise_floor() {
        let interval = of_mean(&[0.05, 0.05], Some(0.08), 0.95, 1).expect("two pairs");
        assert!(
            (interval.low.ln() + 0.03).abs() < 1e-12 && (interval.high.ln() - 0.13).abs() < 1e-12,
            "{interval:?}"
        );
    }

    #[test]
    fn the_bootstrap_repeats_for_a_seed_and_agrees_with_students_t_for_even_values() {
        let values: Vec<f64> = (0..20).map(|index| f64::from(index) / 100.0).collect();
        let interval = of_mean(&values, None, 0.95, 7).expect("many pairs");
        assert_eq!(Some(interval), of_mean(&values, None, 0.95, 7));
        assert_ne!(Some(interval), of_mean(&values, None, 0.95, 8));
        assert_eq!(interval.method, Method::Bootstrap);
        let t_reach = 2.0930 * standard_deviation(&values).expect("many") / 20.0_f64.sqrt();
        assert!(
            (interval.high.ln() - (0.095 + t_reach)).abs() < 0.2 * t_reach,
            "{interval:?} {t_reach}"
        );
        assert!(
            (interval.low.ln() - (0.095 - t_reach)).abs() < 0.2 * t_reach,
            "{interval:?} {t_reach}"
        );
    }
}
