//! What a suite reports: cases, and how each of them ended.

use std::time::{Duration, Instant};

use anyhow::Result;

/// How a case ended in one place, before anybody has judged it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it wanted and found nothing wrong.
    Passed,
    /// It found something wrong; what it said.
    Failed(String),
    /// It could not run; why.
    Skipped(String),
}

/// One thing that a suite tried.
#[derive(Clone, Debug)]
pub struct Case {
    /// Says what was tried. The same in every place, so that places can be compared.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Operations it made, if the suite counts them; a case of a suite of single checks is one.
    pub operations: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl Case {
    /// A case that ended as `outcome`, one operation.
    pub fn new(name: impl Into<String>, outcome: Outcome) -> Case {
        Case {
            name: name.into(),
            outcome,
            operations: 1,
            elapsed: Duration::ZERO,
        }
    }

    /// Runs `work`, which returns the number of its operations; an error is a failed case.
    pub fn measured(name: impl Into<String>, work: impl FnOnce() -> Result<u64>) -> Case {
        let start = Instant::now();
        let (outcome, operations) = match work() {
            Ok(operations) => (Outcome::Passed, operations),
            Err(error) => (Outcome::Failed(format!("{error:#}")), 0),
        };
        Case {
            name: name.into(),
            outcome,
            operations,
            elapsed: start.elapsed(),
        }
    }

    /// True when it found something wrong.
    pub fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_makes_a_failed_case_that_says_why() {
        let case = Case::measured("a case", || anyhow::bail!("wrong bytes"));
        assert_eq!(case.outcome, Outcome::Failed("wrong bytes".to_owned()));
        assert!(case.has_failed());
        let case = Case::measured("a case", || Ok(7));
        assert_eq!((case.outcome, case.operations), (Outcome::Passed, 7));
    }
}
