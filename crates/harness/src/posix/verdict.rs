//! What a case means for Packstone, once the control has had its say, and the list of exclusions.
//!
//! | on Packstone | on the control | on the list | verdict |
//! |---|---|---|---|
//! | passed | | | passed |
//! | could not run | | | skipped, with the suite's reason |
//! | failed | failed | | the machine: it fails without Packstone too |
//! | failed | | yes | excluded |
//! | failed | passed, or not tried | no | **failed** |
//!
//! Only the last counts against Packstone. No verdict depends on how many cases there are: suites leave out what a
//! kernel does not have, so that their number differs from machine to machine.

use serde::Serialize;

use super::case::{Case, Outcome};

/// A case that Packstone cannot pass, and why nobody could.
pub struct Exclusion {
    /// Name of the suite.
    pub suite: &'static str,
    /// Name of the case.
    pub case: &'static str,
    /// Why; `docs/testing.md` says it at length.
    pub reason: &'static str,
}

/// Every exclusion there is. Each stands in `docs/testing.md` too, with what the kernel does.
pub const EXCLUSIONS: &[Exclusion] = &[];

/// What a case means for Packstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It found nothing wrong.
    Passed,
    /// It found a defect of Packstone.
    Failed,
    /// It cannot pass, for a reason on the list.
    Excluded,
    /// It fails on the control as well.
    Machine,
    /// It could not run.
    Skipped,
}

/// A case with its verdict, as a report shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// Record size of the dataset it ran on.
    pub record_size: String,
    /// Name of the case.
    pub case: String,
    /// What it means.
    pub verdict: Verdict,
    /// What the suite said, or why it is excluded.
    pub why: String,
    /// Operations it made.
    pub operations: u64,
    /// How long it took.
    pub seconds: f64,
}

fn exclusion(suite: &str, case: &str) -> Option<&'static Exclusion> {
    EXCLUSIONS
        .iter()
        .find(|entry| entry.suite == suite && entry.case == case)
}

/// True when only the control can tell what `case` of `suite` means.
pub fn asks_for_control(suite: &str, case: &Case) -> bool {
    case.has_failed() && exclusion(suite, &case.name).is_none()
}

/// Judges `case` of `suite`, run on a dataset of `record_size`, by what `control` says of the case of the same name.
pub fn judge(suite: &str, record_size: &str, case: &Case, control: &[Case]) -> Judged {
    let fails_there = |name: &str| {
        control
            .iter()
            .any(|other| other.name == name && other.has_failed())
    };
    let (verdict, why) = match (&case.outcome, exclusion(suite, &case.name)) {
        (Outcome::Passed, _) => (Verdict::Passed, String::new()),
        (Outcome::Skipped(reason), _) => (Verdict::Skipped, reason.clone()),
        (Outcome::Failed(said), _) if fails_there(&case.name) => (Verdict::Machine, said.clone()),
        (Outcome::Failed(_), Some(entry)) => (Verdict::Excluded, entry.reason.to_owned()),
        (Outcome::Failed(said), None) => (Verdict::Failed, said.clone()),
    };
    Judged {
        record_size: record_size.to_owned(),
        case: case.name.clone(),
        verdict,
        why,
        operations: case.operations,
        seconds: case.elapsed.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(name: &str) -> Case {
        Case::new(name, Outcome::Failed("wrong".to_owned()))
    }

    #[test]
    fn failure_counts_unless_the_control_fails_too() {
        let verdict = |control: &[Case]| judge("suite", "8K", &failed("a"), control).verdict;
        assert_eq!(verdict(&[]), Verdict::Failed);
        assert_eq!(verdict(&[failed("b")]), Verdict::Failed);
        assert_eq!(verdict(&[Case::new("a", Outcome::Passed)]), Verdict::Failed);
        assert_eq!(verdict(&[failed("b"), failed("a")]), Verdict::Machine);
    }

    #[test]
    fn what_passes_or_cannot_run_is_not_held_against_the_control() {
        let judged = judge("suite", "8K", &Case::new("a", Outcome::Passed), &[failed("a")]);
        assert_eq!(judged.verdict, Verdict::Passed);
        let skipped = Case::new("a", Outcome::Skipped("no such call".to_owned()));
        let judged = judge("suite", "8K", &skipped, &[]);
        assert_eq!(
            (judged.verdict, judged.why.as_str()),
            (Verdict::Skipped, "no such call")
        );
    }
}
