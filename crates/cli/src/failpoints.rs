//! Failpoints from the environment, for tests that have the daemon fail or die at a joint.
//!
//! `PACKSTONE_FAILPOINTS` holds entries `NAME=ACTION@N`, separated by commas. The N-th time the pool reaches the joint,
//! counted from 1 since it was opened, the action happens; without `@N` it happens the first time.
//!
//! | action | |
//! |---|---|
//! | `abort` | the process ends at once, as by SIGKILL |
//! | `error` | the pool takes it for a failure of the media, there and from then on |
//! | `delay-MS` | waits so many milliseconds, this time only |
//!
//! Nobody is told of this variable but who reads `docs/simulation.md`: it is of no use to users.

use crate::failure::Failure;
use packstone_pool::{Failpoint, FailpointHandler, Failpoints};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The variable.
const VARIABLE: &str = "PACKSTONE_FAILPOINTS";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Abort,
    Error,
    Delay(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    point: Failpoint,
    action: Action,
    /// How often the joint is reached until it happens.
    at: u64,
}

struct Armed {
    entries: Vec<(Entry, AtomicU64)>,
}

/// What the environment asks for; usually nothing. Counting begins anew with each call.
pub fn from_environment() -> anyhow::Result<Failpoints> {
    let Ok(text) = std::env::var(VARIABLE) else {
        return Ok(Failpoints::default());
    };
    let entries = parse(&text)?;
    tracing::warn!(
        failpoints = text,
        "{VARIABLE} is set: this process will fail on purpose"
    );
    let entries = entries.into_iter().map(|entry| (entry, AtomicU64::new(0)));
    Ok(Failpoints::new(Arc::new(Armed {
        entries: entries.collect(),
    })))
}

fn parse(text: &str) -> anyhow::Result<Vec<Entry>> {
    text.split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .map(|entry| {
            parse_entry(entry).ok_or_else(|| {
                let names: Vec<&str> = Failpoint::ALL.iter().map(|point| point.name()).collect();
                Failure::usage(format!(
                    "{VARIABLE}: '{}' is not NAME=ACTION or NAME=ACTION@N; actions: abort, error, delay-MS; names: {}",
                    entry.escape_debug(),
                    names.join(", ")
                ))
            })
        })
        .collect()
}

fn parse_entry(entry: &str) -> Option<Entry> {
    let (name, rest) = entry.split_once('=')?;
    let (action, at) = match rest.split_once('@') {
        Some((action, at)) => (action, at.parse().ok().filter(|at| *at > 0)?),
        None => (rest, 1),
    };
    let action = match action {
        "abort" => Action::Abort,
        "error" => Action::Error,
        delay => Action::Delay(Duration::from_millis(delay.strip_prefix("delay-")?.parse().ok()?)),
    };
    let point = Failpoint::from_name(name)?;
    Some(Entry { point, action, at })
}

impl FailpointHandler for Armed {
    fn reach(&self, point: Failpoint) -> Result<(), String> {
        for (entry, reached) in self.entries.iter().filter(|(entry, _)| entry.point == point) {
            if reached.fetch_add(1, Ordering::SeqCst) + 1 != entry.at {
                continue;
            }
            match entry.action {
                Action::Abort => std::process::abort(),
                Action::Error => return Err(format!("{VARIABLE} asks for it")),
                Action::Delay(time) => std::thread::sleep(time),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_understood_or_refused_with_the_names() {
        let parsed = parse("before-log-flush=abort@3, mid-clean=error,after-replay=delay-250").unwrap();
        let expected = [
            (Failpoint::BeforeLogFlush, Action::Abort, 3),
            (Failpoint::MidClean, Action::Error, 1),
            (
                Failpoint::AfterReplay,
                Action::Delay(Duration::from_millis(250)),
                1,
            ),
        ];
        assert_eq!(
            parsed,
            expected.map(|(point, action, at)| Entry { point, action, at })
        );
        assert!(parse("").unwrap().is_empty());
        for wrong in [
            "mid-clean",
            "mid-clean=stop",
            "nowhere=abort",
            "mid-clean=abort@0",
            "mid-clean=delay-x",
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains("between-nodes-and-slot"), "{error}");
        }
    }

    #[test]
    fn an_action_happens_once_at_its_count() {
        let armed = Armed {
            entries: vec![(parse("mid-clean=error@2").unwrap()[0], AtomicU64::new(0))],
        };
        let outcomes: Vec<bool> = (0..4)
            .map(|_| armed.reach(Failpoint::MidClean).is_err())
            .collect();
        assert_eq!(outcomes, [false, true, false, false]);
        assert!(armed.reach(Failpoint::AfterReplay).is_ok());
    }
}
