//! From an effect, its interval and the noise floor to a verdict in words.
//!
//! | interval | effect against the noise floor | verdict |
//! |---|---|---|
//! | does not hold 1 | above | a difference: better, worse, or neither where the figure has no direction |
//! | does not hold 1 | not above | no difference, or cannot tell, as below |
//! | holds 1 | any | no difference if it reaches no further from 1 than 10 % or the noise floor; else cannot tell |
//!
//! "No difference seen" therefore says two things: none was found, and one of more than the percentage given would have
//! been. A wide interval that holds 1 says neither.

use serde::{Deserialize, Serialize};

use super::interval::Interval;
use super::pairing::Pairs;
use crate::figure::Better;

/// A difference that may be overlooked without harm: below it "no difference" is an honest summary.
pub const SMALL_DIFFERENCE: f64 = 0.10;

/// What a comparison comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Differs, in the direction that is better.
    Better,
    /// Differs, in the direction that is worse.
    Worse,
    /// Differs, and neither direction is better.
    Differs,
    /// No difference seen, and none of interest is likely.
    NoDifference,
    /// Too few turns, or too much noise.
    CannotTell,
    /// There is no ratio: a value is zero or missing.
    NoRatio,
}

/// What the verdict rests on.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    pub pairs: &'a Pairs,
    pub effect_log: Option<f64>,
    pub interval: Option<Interval>,
    pub few_pairs: bool,
    pub noise_floor_log: Option<f64>,
    pub better: Better,
    pub control_has_values: bool,
    pub arm_has_values: bool,
}

/// The verdict, and the words for it.
pub(super) fn reach(evidence: &Evidence) -> (Verdict, String) {
    if let Some(words) = no_ratio(evidence) {
        return (Verdict::NoRatio, words);
    }
    let pairs = evidence.pairs;
    let (Some(effect), false) = (evidence.effect_log, pairs.log_ratios.is_empty()) else {
        return (
            Verdict::NoRatio,
            "no turn of it has a partner in its round".to_owned(),
        );
    };
    let Some(interval) = evidence.interval else {
        let words = format!(
            "cannot tell: one pair only, {} times the control's",
            ratio(effect.exp())
        );
        return (Verdict::CannotTell, words);
    };
    let (verdict, words) = judge(evidence, effect, interval);
    let rounds = if evidence.few_pairs {
        "; too few rounds to be sure"
    } else {
        ""
    };
    (verdict, format!("{words}{rounds}"))
}

fn no_ratio(evidence: &Evidence) -> Option<String> {
    let pairs = evidence.pairs;
    let all = pairs.log_ratios.len() as u32 + pairs.left_out;
    match (evidence.control_has_values, evidence.arm_has_values) {
        (false, false) => Some("not measured".to_owned()),
        (false, true) => Some("no ratio: the control has no such figure".to_owned()),
        (true, false) => Some("no ratio: this arm has no such figure".to_owned()),
        _ if pairs.one_zero > 0 => Some(format!(
            "no ratio: one of the two is zero in {} of {all} pairs",
            pairs.one_zero
        )),
        _ if all > 0 && pairs.left_out == all => Some("no ratio: no pair has two numbers".to_owned()),
        _ if pairs.both_zero > 0 && pairs.both_zero == all => Some("zero in both".to_owned()),
        _ => None,
    }
}

fn judge(evidence: &Evidence, effect: f64, interval: Interval) -> (Verdict, String) {
    let floor = evidence.noise_floor_log.unwrap_or(0.0);
    let limits = format!("{} to {}", ratio(interval.low), ratio(interval.high));
    if !interval.holds_one() && effect.abs() > floor {
        let (verdict, direction) = direction(evidence.better, effect);
        return (
            verdict,
            format!(
                "{} times the control's ({limits}){direction}",
                ratio(effect.exp())
            ),
        );
    }
    let reach = interval.reach_log();
    if reach == 0.0 {
        return (
            Verdict::NoDifference,
            "no difference: the same in every pair".to_owned(),
        );
    }
    if reach <= SMALL_DIFFERENCE.ln_1p().max(floor) {
        let noise = percent(reach.max(floor));
        return (
            Verdict::NoDifference,
            format!("no difference seen: within the noise of {noise}"),
        );
    }
    let words = if interval.holds_one() {
        format!("cannot tell: interval {limits}")
    } else {
        let noise = percent(floor);
        format!(
            "cannot tell: {} times the control's ({limits}), but the control differed from itself by {noise}",
            ratio(effect.exp())
        )
    };
    (Verdict::CannotTell, words)
}

fn direction(better: Better, effect: f64) -> (Verdict, &'static str) {
    match (better, effect > 0.0) {
        (Better::Neither, _) => (Verdict::Differs, ""),
        (Better::Higher, true) | (Better::Lower, false) => (Verdict::Better, ": better"),
        (Better::Higher, false) | (Better::Lower, true) => (Verdict::Worse, ": worse"),
    }
}

/// A ratio for people: three digits where it is far from 1, and more places close to 1, where they matter.
pub fn ratio(ratio: f64) -> String {
    let places = match ratio.abs() {
        size if !size.is_finite() => return "?".to_owned(),
        size if size >= 99.5 => 0,
        size if size >= 9.95 => 1,
        size if (size - 1.0).abs() < 0.0195 => 3,
        size if size >= 1.0 => 2,
        size if size >= 0.0995 => 3,
        size if size >= 0.001 => 4,
        _ => 6,
    };
    format!("{ratio:.places$}")
}

/// A logarithm of a ratio as percent.
pub fn percent(log: f64) -> String {
    let percent = log.exp_m1() * 100.0;
    match percent {
        percent if percent >= 9.5 => format!("{percent:.0} %"),
        percent if percent >= 0.1 => format!("{percent:.1} %"),
        _ => "less than 0.1 %".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::interval::Method;
    use super::*;

    fn said(pairs: &[f64], low: f64, high: f64, floor: Option<f64>, better: Better) -> (Verdict, String) {
        let pairs = Pairs {
            log_ratios: pairs.to_vec(),
            ..Pairs::default()
        };
        reach(&Evidence {
            pairs: &pairs,
            effect_log: super::super::interval::mean(&pairs.log_ratios),
            interval: Some(Interval {
                low,
                high,
                method: Method::Bootstrap,
            }),
            few_pairs: pairs.log_ratios.len() < 6,
            noise_floor_log: floor,
            better,
            control_has_values: true,
            arm_has_values: true,
        })
    }

    #[test]
    fn a_difference_is_called_better_or_worse_by_the_figures_direction() {
        let effect = [2.3_f64.ln(); 6];
        for (better, verdict, end) in [
            (Better::Higher, Verdict::Better, ": better"),
            (Better::Lower, Verdict::Worse, ": worse"),
            (Better::Neither, Verdict::Differs, ""),
        ] {
            let words = format!("2.30 times the control's (2.10 to 2.50){end}");
            assert_eq!(said(&effect, 2.1, 2.5, Some(0.04), better), (verdict, words));
        }
    }

    #[test]
    fn an_effect_within_the_noise_floor_is_no_difference_even_where_its_interval_excludes_1() {
        let effect = [1.03_f64.ln(); 6];
        let (verdict, words) = said(&effect, 1.01, 1.05, Some(1.08_f64.ln()), Better::Higher);
        assert_eq!(
            (verdict, words.as_str()),
            (
                Verdict::NoDifference,
                "no difference seen: within the noise of 8.0 %"
            )
        );
        assert_eq!(
            said(&effect, 1.01, 1.05, Some(0.02), Better::Higher).0,
            Verdict::Better
        );
    }

    #[test]
    fn a_wide_interval_tells_nothing() {
        let (verdict, words) = said(&[0.02; 6], 0.8, 1.3, Some(0.01), Better::Higher);
        assert_eq!(
            (verdict, words.as_str()),
            (Verdict::CannotTell, "cannot tell: interval 0.800 to 1.30")
        );
        let (verdict, words) = said(
            &[1.12_f64.ln(); 6],
            1.02,
            1.25,
            Some(1.15_f64.ln()),
            Better::Higher,
        );
        assert_eq!(verdict, Verdict::CannotTell);
        assert!(
            words.ends_with("but the control differed from itself by 15 %"),
            "{words}"
        );
    }

    #[test]
    fn few_pairs_are_named() {
        let (verdict, words) = said(&[5.0_f64.ln(); 2], 4.0, 6.2, None, Better::Lower);
        assert_eq!(verdict, Verdict::Worse);
        assert!(words.ends_with(": worse; too few rounds to be sure"), "{words}");
    }

    #[test]
    fn ratios_and_percentages_have_the_places_that_matter() {
        let shown: Vec<String> = [0.000_4, 0.045, 0.182, 0.99, 1.0, 1.004, 2.345, 12.34, 250.0]
            .map(ratio)
            .to_vec();
        assert_eq!(
            shown,
            [
                "0.000400", "0.0450", "0.182", "0.990", "1.000", "1.004", "2.35", "12.3", "250"
            ]
        );
        assert_eq!(percent(0.0004), "less than 0.1 %");
        assert_eq!(percent(1.042_f64.ln()), "4.2 %");
    }
}
