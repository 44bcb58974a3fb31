//! What pgbench prints and notes, as numbers.

use anyhow::{Context, Result};

/// What pgbench says of a run at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Transactions in a second, connecting left out.
    pub each_second: f64,
    /// Transactions in the run.
    pub transactions: u64,
    /// Transactions that failed.
    pub failed: u64,
}

/// Reads the summary on standard output.
pub fn summary(text: &str) -> Result<Summary> {
    find_summary(text).with_context(|| format!("cannot understand what pgbench says: {text}"))
}

fn find_summary(text: &str) -> Option<Summary> {
    let number = |start: &str| -> Option<&str> {
        let rest = text.lines().find_map(|line| line.strip_prefix(start))?;
        rest.split_whitespace().next()
    };
    Some(Summary {
        each_second: number("tps = ")?.parse().ok()?,
        transactions: number("number of transactions actually processed: ")?
            .parse()
            .ok()?,
        // Older versions do not count them.
        failed: number("number of failed transactions: ").map_or(Some(0), |number| number.parse().ok())?,
    })
}

/// The steps of `pgbench -i` with their seconds, from its last line:
/// `done in 0.45 s (drop tables 0.00 s, create tables 0.01 s, client-side generate 0.23 s, vacuum 0.08 s, primary keys 0.13 s).`
pub fn load_steps(text: &str) -> Option<Vec<(String, f64)>> {
    let line = text.lines().rev().find(|line| line.starts_with("done in "))?;
    let (whole, steps) = line.strip_prefix("done in ")?.split_once(" s (")?;
    let mut found = vec![("load seconds".to_owned(), whole.parse().ok()?)];
    for step in steps.trim_end_matches([')', '.']).split(", ") {
        let (name, seconds) = step.strip_suffix(" s")?.rsplit_once(' ')?;
        let name = match name {
            "client-side generate" | "server-side generate" => "COPY seconds".to_owned(),
            // Take no time worth telling.
            "drop tables" | "create tables" => continue,
            other => format!("{other} seconds"),
        };
        found.push((name, seconds.parse().ok()?));
    }
    Some(found)
}

/// Seconds since the start and transactions a second, from the lines that `-P` prints on standard error:
/// `progress: 1.0 s, 5911.0 tps, lat 1.312 ms stddev 0.500, 0 failed`
pub fn progress(text: &str) -> Vec<(f64, f64)> {
    let point = |line: &str| -> Option<(f64, f64)> {
        let (seconds, rest) = line.strip_prefix("progress: ")?.split_once(" s, ")?;
        let (rate, _) = rest.split_once(" tps")?;
        Some((seconds.parse().ok()?, rate.parse().ok()?))
    };
    text.lines().filter_map(point).collect()
}

/// The time of a transaction in a line of pgbench's log; nothing for one that was skipped or failed.
///
/// The third field is in microseconds and counts from the intended start where there is a rate.
pub fn logged_seconds(line: &str) -> Option<f64> {
    let microseconds: f64 = line.split(' ').nth(2)?.parse().ok()?;
    Some(microseconds / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_found_in_what_pgbench_prints() {
        let text = "scaling factor: 50\nnumber of transactions actually processed: 121951\n\
                    number of failed transactions: 3 (0.002%)\nlatency average = 1.312 ms\n\
                    initial connection time = 5.000 ms\ntps = 6097.560976 (without initial connection time)\n";
        let wanted = Summary {
            each_second: 6097.560976,
            transactions: 121_951,
            failed: 3,
        };
        assert_eq!(summary(text).ok(), Some(wanted));
        assert!(summary("pgbench: error").is_err());
    }

    #[test]
    fn steps_of_a_load_are_told_apart() {
        let text = "creating primary keys...\ndone in 0.45 s (drop tables 0.00 s, create tables 0.01 s, \
                    client-side generate 0.23 s, vacuum 0.08 s, primary keys 0.13 s).\n";
        let steps = load_steps(text).expect("steps");
        let wanted = [
            ("load seconds", 0.45),
            ("COPY seconds", 0.23),
            ("vacuum seconds", 0.08),
            ("primary keys seconds", 0.13),
        ];
        assert_eq!(steps, wanted.map(|(name, seconds)| (name.to_owned(), seconds)));
        assert!(load_steps("done in a while").is_none());
    }

    #[test]
    fn progress_and_log_lines_become_numbers() {
        let text = "pgbench (15.9)\nprogress: 1.0 s, 5911.0 tps, lat 1.312 ms stddev 0.500, 0 failed\n\
                    progress: 2.0 s, 6001.5 tps, lat 1.300 ms stddev 0.400, 0 failed\n";
        assert_eq!(progress(text), [(1.0, 5911.0), (2.0, 6001.5)]);
        assert_eq!(logged_seconds("0 199 2241 0 1175850568 995598"), Some(0.002241));
        assert_eq!(logged_seconds("0 199 skipped 0 1175850568 995598"), None);
    }
}
