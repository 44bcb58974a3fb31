//! Test suites of others through the mount: the quick subset of `packstone-harness posix`, a test for each suite.
//!
//! A case that fails on Packstone and not on the control fails the test, which names it and shows what the suite said.
//! How many cases there are is up to the kernel, and asserted nowhere but for: some.

use anyhow::{Result, ensure};
use packstone_harness::fixture;
use packstone_harness::posix::{Effort, SUITES, Suite};
use packstone_harness::scratch::Cleanup;

fn passes(name: &str) -> Result<()> {
    let suite = Suite::named(name)?;
    if !fixture::runs(&format!("suite_{name}"), suite.missing()) {
        return Ok(());
    }
    let report = suite.run(Effort::Quick, &Cleanup::new());
    // Shown when the test fails, and with --nocapture.
    report.print();
    let failures = report.failures();
    ensure!(
        failures.is_empty(),
        "{name}: these cases fail on Packstone and not on {}:\n{failures}",
        report.control
    );
    ensure!(!report.cases.is_empty(), "{name} ran no case");
    Ok(())
}

#[test]
fn pjdfstest() -> Result<()> {
    passes("pjdfstest")
}

#[test]
fn fsx() -> Result<()> {
    passes("fsx")
}

#[test]
fn holes() -> Result<()> {
    passes("holes")
}

#[test]
fn stress_ng() -> Result<()> {
    passes("stress-ng")
}

#[test]
fn fio() -> Result<()> {
    passes("fio")
}

#[test]
fn dbench() -> Result<()> {
    passes("dbench")
}

#[test]
fn checkout() -> Result<()> {
    passes("checkout")
}

#[test]
fn rsync() -> Result<()> {
    passes("rsync")
}

/// So that a new suite is not forgotten here.
#[test]
fn every_suite_has_a_test() {
    let source = include_str!("suites.rs");
    for suite in SUITES {
        assert!(
            source.contains(&format!("passes(\"{}\")", suite.name)),
            "{} has no test",
            suite.name
        );
    }
}
