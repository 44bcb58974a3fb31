//! From numbers to places on a plot, and the round numbers that an axis names.

/// A straight or logarithmic axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
    logarithmic: bool,
}

impl Scale {
    /// Places `low` at `start` and `high` at `end`. Limits that are equal or no numbers are moved apart.
    pub fn linear(low: f64, high: f64, start: f64, end: f64) -> Scale {
        let (low, high) = if low.is_finite() && high.is_finite() {
            (low, high)
        } else {
            (0.0, 1.0)
        };
        let (low, high) = if high > low {
            (low, high)
        } else {
            let margin = if low == 0.0 { 1.0 } else { low.abs() * 0.05 };
            (low - margin, low + margin)
        };
        Scale {
            low,
            high,
            start,
            end,
            logarithmic: false,
        }
    }

    /// Like [`Scale::linear`] in the logarithms of the numbers; limits that are not above zero give a straight axis.
    pub fn logarithmic(low: f64, high: f64, start: f64, end: f64) -> Scale {
        if !(low > 0.0 && high.is_finite()) {
            return Scale::linear(low, high, start, end);
        }
        let (low, high) = if high > low {
            (low, high)
        } else {
            (low / 1.05, low * 1.05)
        };
        Scale {
            low,
            high,
            start,
            end,
            logarithmic: true,
        }
    }

    /// The upper limit.
    pub fn high(&self) -> f64 {
        self.high
    }

    /// Where `value` lies; what lies outside the limits is held at the nearer one.
    pub fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.start + share.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// About `count` round numbers within the limits, rising; round when divided by `base`, such as 1024.
    pub fn ticks(&self, count: usize, base: f64) -> Vec<f64> {
        let decades = if self.logarithmic {
            (self.high / self.low).log10()
        } else {
            0.0
        };
        if decades < 1.0 {
            return even_ticks(self.low / base, self.high / base, count)
                .iter()
                .map(|tick| tick * base)
                .collect();
        }
        let all = decades * 3.0 <= count as f64 + 2.0;
        let steps: &[f64] = if all { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = ((decades / count as f64).ceil() as i32).max(1);
        let (first, last) = (
            (self.low / base).log10().floor() as i32,
            (self.high / base).log10().ceil() as i32,
        );
        (first..=last)
            .filter(|power| power.rem_euclid(every) == 0)
            .flat_map(|power| steps.iter().map(move |step| base * step * 10_f64.powi(power)))
            .filter(|tick| (self.low * 0.999..=self.high * 1.001).contains(tick))
            .collect()
    }
}

fn even_ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let rough = (high - low) / count.max(1) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0]
        .iter()
        .map(|step| step * power)
        .find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(power * 10.0);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|index| index as f64 * step).collect()
}

/// Least and greatest of the finite numbers.
pub fn limits(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .into_iter()
        .filter(|value| value.is_finite())
        .fold(None, |limits, value| {
            let (low, high) = limits.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_placed_at_the_ends_and_nothing_beyond() {
        let straight = Scale::linear(10.0, 20.0, 100.0, 200.0);
        assert_eq!(
            [5.0, 10.0, 15.0, 20.0, 99.0].map(|value| straight.place(value)),
            [100.0, 100.0, 150.0, 200.0, 200.0]
        );
        let logarithmic = Scale::logarithmic(0.1, 10.0, 0.0, 100.0);
        assert!((logarithmic.place(1.0) - 50.0).abs() < 1e-9);
        assert_eq!(logarithmic.place(0.0), 0.0);
    }

    #[test]
    fn one_number_or_none_still_makes_an_axis() {
        assert_eq!(Scale::linear(3.0, 3.0, 0.0, 100.0).place(3.0), 50.0);
        assert_eq!(Scale::linear(0.0, 0.0, 0.0, 100.0).place(0.0), 50.0);
        assert!((Scale::logarithmic(2.0, 2.0, 0.0, 100.0).place(2.0) - 50.0).abs() < 1e-9);
        assert!(Scale::logarithmic(0.0, f64::NAN, 0.0, 1.0).place(1.0).is_finite());
    }

    #[test]
    fn ticks_are_round_and_within_the_limits() {
        assert_eq!(
            Scale::linear(0.0, 1.0, 0.0, 1.0).ticks(5, 1.0),
            [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
        );
        assert_eq!(
            Scale::linear(1480.0, 2110.0, 0.0, 1.0).ticks(4, 1.0),
            [1600.0, 1800.0, 2000.0]
        );
        let bytes = Scale::linear(0.0, 4000.0, 0.0, 1.0).ticks(4, 1024.0);
        assert_eq!(bytes, [0.0, 1024.0, 2048.0, 3072.0]);
        assert_eq!(
            Scale::logarithmic(0.001, 0.3, 0.0, 1.0).ticks(10, 1.0),
            [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2]
        );
        assert_eq!(Scale::logarithmic(1e-6, 10.0, 0.0, 1.0).ticks(4, 1.0).len(), 4);
        assert_eq!(
            Scale::logarithmic(0.8, 1.3, 0.0, 1.0).ticks(4, 1.0),
            [0.8, 1.0, 1.2000000000000002]
        );
    }

    #[test]
    fn limits_pass_over_what_is_no_number() {
        assert_eq!(limits([2.0, f64::NAN, -1.0, f64::INFINITY]), Some((-1.0, 2.0)));
        assert_eq!(limits([f64::NAN]), None);
    }
}
