//! The report: a line for every case that did not simply pass, a table of the suites, or all of it as JSON.

use serde::Serialize;

use super::case::Case;
use super::verdict::{Judged, Verdict};
use crate::render;

/// Lines of what a case said that are shown.
const LINES_SHOWN: usize = 40;

/// What one suite found.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteReport {
    /// Name of the suite.
    pub suite: String,
    /// Every case on every record size.
    pub cases: Vec<Judged>,
    /// Time on Packstone, with making and checking the pools.
    pub seconds: f64,
    /// What the control was, or that none was needed.
    pub control: String,
    /// Cases that failed on the control.
    pub control_failed: Vec<String>,
    /// Time on the control.
    pub control_seconds: f64,
}

impl SuiteReport {
    /// A report of `cases`, with what the control said.
    pub fn new(
        suite: &str,
        cases: Vec<Judged>,
        seconds: f64,
        control_name: &str,
        control: &[Case],
        control_seconds: f64,
    ) -> Self {
        let failed = control.iter().filter(|case| case.has_failed());
        SuiteReport {
            suite: suite.to_owned(),
            cases,
            seconds,
            control: control_name.to_owned(),
            control_failed: failed.map(|case| case.name.clone()).collect(),
            control_seconds,
        }
    }

    /// Number of cases with `verdict`.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.cases.iter().filter(|case| case.verdict == verdict).count()
    }

    /// Operations of all cases.
    pub fn operations(&self) -> u64 {
        self.cases.iter().map(|case| case.operations).sum()
    }

    /// What Packstone failed, as text: each case with what the suite said of it. Nothing if it failed nothing.
    pub fn failures(&self) -> String {
        let failed = self.cases.iter().filter(|case| case.verdict == Verdict::Failed);
        failed.map(describe).collect::<Vec<_>>().join("\n")
    }

    /// True when the suite ran and Packstone failed none of it.
    pub fn is_good(&self) -> bool {
        self.count(Verdict::Failed) == 0 && self.count(Verdict::Passed) > 0
    }

    /// Prints what a person watching wants to know.
    pub fn print(&self) {
        for case in self.cases.iter().filter(|case| case.verdict != Verdict::Passed) {
            println!("{}", describe(case));
        }
        for name in &self.control_failed {
            println!("  fails on the control ({}): {name}", self.control);
        }
        println!(
            "{}: {} passed, {} failed, {} excluded, {} fail on the control too, {} skipped in {:.0} s",
            self.suite,
            self.count(Verdict::Passed),
            self.count(Verdict::Failed),
            self.count(Verdict::Excluded),
            self.count(Verdict::Machine),
            self.count(Verdict::Skipped),
            self.seconds
        );
    }
}

fn describe(case: &Judged) -> String {
    let word = match case.verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "FAILED",
        Verdict::Excluded => "excluded",
        Verdict::Machine => "fails on the control too",
        Verdict::Skipped => "skipped",
    };
    let lines: Vec<&str> = case.why.trim().lines().collect();
    let shown = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n      ");
    format!(
        "  {word}: {} (records of {}): {shown}",
        case.case, case.record_size
    )
}

/// What all suites found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// In the order in which they ran.
    pub suites: Vec<SuiteReport>,
}

impl Report {
    /// True when every suite ran and Packstone failed nothing.
    pub fn is_good(&self) -> bool {
        self.suites.iter().all(SuiteReport::is_good)
    }

    /// Prints the table.
    pub fn print(&self) {
        let rows: Vec<Vec<String>> = self.suites.iter().map(row).collect();
        let header = [
            "suite",
            "control",
            "passed",
            "failed",
            "excluded",
            "machine",
            "skipped",
            "operations",
            "time",
            "control's time",
        ];
        println!("\n{}", render::table(&header, 2, &rows));
    }
}

fn row(suite: &SuiteReport) -> Vec<String> {
    let count = |verdict| suite.count(verdict).to_string();
    vec![
        suite.suite.clone(),
        suite.control.clone(),
        count(Verdict::Passed),
        count(Verdict::Failed),
        count(Verdict::Excluded),
        count(Verdict::Machine),
        count(Verdict::Skipped),
        render::count(suite.operations()),
        format!("{:.0} s", suite.seconds),
        format!("{:.0} s", suite.control_seconds),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(verdict: Verdict) -> Judged {
        Judged {
            record_size: "8K".to_owned(),
            case: "open::etxtbsy".to_owned(),
            verdict,
            why: "expected 26".to_owned(),
            operations: 2,
            seconds: 0.5,
        }
    }

    fn report(verdicts: &[Verdict]) -> SuiteReport {
        let cases = verdicts.iter().map(|verdict| judged(*verdict)).collect();
        SuiteReport::new("suite", cases, 1.0, "not needed", &[], 0.0)
    }

    #[test]
    fn only_a_failure_of_packstone_is_bad_and_nothing_run_is_not_good() {
        use Verdict::*;
        assert!(report(&[Passed, Machine, Excluded, Skipped]).is_good());
        assert!(!report(&[Passed, Failed]).is_good());
        assert!(!report(&[]).is_good());
        assert!(!report(&[Skipped]).is_good());
    }

    #[test]
    fn failures_name_the_case_and_what_was_said() {
        let text = report(&[Verdict::Passed, Verdict::Failed]).failures();
        assert!(
            text.contains("open::etxtbsy") && text.contains("expected 26"),
            "{text}"
        );
        assert!(report(&[Verdict::Machine]).failures().is_empty());
    }
}
