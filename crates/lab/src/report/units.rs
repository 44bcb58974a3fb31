//! Figures as people read them: a few digits and a unit.

use humansize::{BINARY, format_size};

use crate::figure::Unit;

/// Between groups of three digits, and between a number and its unit where a line must not break.
const NO_BREAK: char = '\u{a0}';

/// A figure with its unit, such as `1.50 ms`, `12.3 MiB` or `2 104/s`; a dash for what is no number.
pub fn humanise(value: f64, unit: Unit) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    match unit {
        Unit::PerSecond => format!("{}/s", number(value)),
        Unit::Seconds => seconds(value),
        Unit::Bytes => bytes(value),
        Unit::BytesPerSecond => format!("{}/s", bytes(value)),
        Unit::Count => number(value),
        Unit::Ratio => format!("{}{NO_BREAK}%", digits(value * 100.0)),
    }
}

/// A point in time as a date and a time of day in UTC, such as `2023-11-14 22:13:20 UTC`.
pub fn date(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (year, month, day) = civil(days as i64);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Days since 1970-01-01 as year, month and day of the Gregorian calendar (Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms": `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn seconds(value: f64) -> String {
    let size = value.abs();
    let (scaled, unit) = match size {
        _ if size == 0.0 || size >= 1.0 => (value, "s"),
        _ if size >= 1e-3 => (value * 1e3, "ms"),
        _ if size >= 1e-6 => (value * 1e6, "µs"),
        _ => (value * 1e9, "ns"),
    };
    format!("{}{NO_BREAK}{unit}", digits(scaled))
}

fn bytes(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    if value.abs() < 1024.0 {
        return format!("{sign}{}{NO_BREAK}B", digits(value.abs()));
    }
    let power = (value.abs().ln() / 1024_f64.ln()).floor();
    let places = match value.abs() / 1024_f64.powf(power) {
        scaled if scaled >= 99.95 => 0,
        scaled if scaled >= 9.995 => 1,
        _ => 2,
    };
    let size = format_size(value.abs().round() as u64, BINARY.decimal_places(places));
    format!("{sign}{size}").replace(' ', "\u{a0}")
}

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{}{NO_BREAK}G", digits(value / 1e9)),
        size if size >= 1e6 => format!("{}{NO_BREAK}M", digits(value / 1e6)),
        _ => digits(value),
    }
}

/// Three digits, or all of a larger whole part, in groups.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        size if size == 0.0 || size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 => 2,
        _ => 4,
    };
    let text = format!("{value:.places$}");
    let text = match text.split_once('.') {
        Some((whole, rest)) if rest.bytes().all(|digit| digit == b'0') && value.fract() == 0.0 => {
            whole.to_owned()
        }
        _ => text,
    };
    if places == 0 { grouped(&text) } else { text }
}

fn grouped(whole: &str) -> String {
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |rest| ("-", rest));
    let mut text = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            text.push(NO_BREAK);
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_few_digits_and_a_fitting_unit() {
        let shown = |value, unit| humanise(value, unit).replace(NO_BREAK, " ");
        for (value, unit, text) in [
            (2104.3, Unit::PerSecond, "2 104/s"),
            (1_234_567.0, Unit::PerSecond, "1.23 M/s"),
            (0.0, Unit::Count, "0"),
            (3.0, Unit::Count, "3"),
            (0.25, Unit::Count, "0.25"),
            (0.000_9, Unit::Seconds, "900 µs"),
            (0.021_4, Unit::Seconds, "21.4 ms"),
            (62.04, Unit::Seconds, "62.0 s"),
            (3e-9, Unit::Seconds, "3 ns"),
            (1.3e9, Unit::Bytes, "1.21 GiB"),
            (300.0, Unit::Bytes, "300 B"),
            (2048.0, Unit::BytesPerSecond, "2 KiB/s"),
            (0.931, Unit::Ratio, "93.1 %"),
            (1.0, Unit::Ratio, "100 %"),
            (f64::NAN, Unit::Count, "-"),
            (-12_345.0, Unit::Count, "-12 345"),
        ] {
            assert_eq!(shown(value, unit), text);
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_700_000_000), "2023-11-14 22:13:20 UTC");
    }
}
