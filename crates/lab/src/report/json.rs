//! The run as JSON: everything that the other reports show, and more.
//!
//! One object:
//!
//! | key | holds |
//! |---|---|
//! | `format` | `"packstone lab report"` |
//! | `version` | 1; raised when a key changes its meaning or goes |
//! | `run` | [`RunInformation`]: experiment, arms, machine, profile, workload, rounds, start |
//! | `turns` | array of [`TurnResult`]: arm, round (`null` for the A/A pair), position, figures, distributions, series, flame graphs, notes |
//! | `analysis` | [`Analysis`]: for each figure and arm the median, and the ratio to the control with interval and verdict |
//!
//! Keys are the names of the fields of these types; enumerations are small letters with `_`. Times are seconds, sizes bytes.
//! Numbers that JSON does not have (infinity, not a number) are `null`.

use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::analysis::Analysis;
use crate::figure::TurnResult;
use crate::run_information::RunInformation;

#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    version: u32,
    run: &'a RunInformation,
    turns: &'a [TurnResult],
    analysis: &'a Analysis,
}

/// Writes the run to `out` as JSON; the keys are described in `docs/lab-report.md`. Fails where `out` does.
pub fn write_json(
    out: &mut dyn Write,
    information: &RunInformation,
    turns: &[TurnResult],
    analysis: &Analysis,
) -> Result<()> {
    let document = Document {
        format: "packstone lab report",
        version: 1,
        run: information,
        turns,
        analysis,
    };
    serde_json::to_writer_pretty(&mut *out, &document).context("the report could not be written as JSON")?;
    writeln!(out).context("the report could not be written as JSON")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::analysis::analyse;
    use crate::sample::run;

    #[test]
    fn everything_can_be_read_back() {
        let (information, mut turns) = run(&[("ext4", 1.0), ("packstone", 1.4)], 3);
        turns[5].figures[0].value = f64::NAN;
        let analysis = analyse(&information, &turns);
        let mut out = Vec::new();
        write_json(&mut out, &information, &turns, &analysis).expect("memory");
        let value: Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(
            (value["format"].as_str(), value["version"].as_u64()),
            (Some("packstone lab report"), Some(1))
        );
        assert_eq!(
            serde_json::from_value::<RunInformation>(value["run"].clone()).expect("run"),
            information
        );
        assert_eq!(
            serde_json::from_value::<Vec<TurnResult>>(value["turns"].clone()).ok(),
            None,
            "null is no number"
        );
        assert!(value["turns"][5]["figures"][0]["value"].is_null());
        assert!(value["turns"][0]["round"].is_null() && value["turns"][2]["round"] == 0);
        let throughput = &value["analysis"]["figures"][2];
        assert_eq!(
            (throughput["name"].as_str(), throughput["unit"].as_str()),
            (Some("throughput"), Some("per_second"))
        );
        assert_eq!(throughput["arms"][1]["comparison"]["verdict"], "better");
        assert_eq!(
            throughput["arms"][1]["comparison"]["interval"]["method"],
            "bootstrap"
        );
        turns[5].figures[0].value = 1.0;
        let mut out = Vec::new();
        write_json(&mut out, &information, &turns, &analysis).expect("memory");
        let value: Value = serde_json::from_slice(&out).expect("JSON");
        let read = serde_json::from_value::<Vec<TurnResult>>(value["turns"].clone()).expect("turns");
        assert_eq!(read.len(), turns.len());
        assert!(
            (read[7].figures[2].value - turns[7].figures[2].value).abs() < 1e-9,
            "but for the last digit"
        );
        assert_eq!(read[7].series[0].points.len(), turns[7].series[0].points.len());
    }
}
