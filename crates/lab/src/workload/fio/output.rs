//! What fio says in JSON, as numbers.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Percentiles that fio is asked for; it takes at most twenty.
pub const PERCENTILES: &str = "1:5:10:20:30:40:50:60:70:75:80:85:90:95:98:99:99.5:99.9:99.95:99.99";

/// Reads, writes, trims or syncs of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// `read`, `write`, `trim` or `sync`.
    pub name: &'static str,
    /// How many; of syncs 0, because they come with the others and are not work of their own.
    pub operations: u64,
    /// How many in a second; of syncs 0.
    pub each_second: f64,
    /// Bytes in a second.
    pub bytes_each_second: f64,
    /// Names and seconds: some percentiles, mean and maximum.
    pub latencies: Vec<(&'static str, f64)>,
    /// Pairs of seconds and the share of operations that took at most so long.
    pub curve: Vec<(f64, f64)>,
}

/// Reads what fio printed with `--output-format=json` for one job or group of equal jobs.
pub fn read(text: &str) -> Result<Vec<Side>> {
    // Some versions say other things first.
    let start = text.find('{').context("there is no JSON")?;
    let document: Value = serde_json::from_str(&text[start..])?;
    let job = &document["jobs"][0];
    if job.is_null() {
        bail!("there is no job");
    }
    if let Some(error) = job["error"].as_i64().filter(|error| *error != 0) {
        bail!("fio's job ended with error {error}");
    }
    let mut sides = Vec::new();
    for name in ["read", "write", "trim"] {
        let side = &job[name];
        let operations = side["total_ios"].as_u64().unwrap_or(0);
        if operations > 0 {
            sides.push(Side {
                name,
                operations,
                each_second: side["iops"].as_f64().unwrap_or(0.0),
                bytes_each_second: side["bw_bytes"].as_f64().unwrap_or(0.0),
                latencies: latencies(&side["clat_ns"]),
                curve: curve(&side["clat_ns"]),
            });
        }
    }
    let sync = &job["sync"]["lat_ns"];
    if sync["N"].as_u64().unwrap_or(0) > 0 {
        sides.push(Side {
            name: "sync",
            operations: 0,
            each_second: 0.0,
            bytes_each_second: 0.0,
            latencies: latencies(sync),
            curve: curve(sync),
        });
    }
    Ok(sides)
}

/// `times` is an object with nanoseconds by `percentile`, such as `"99.000000"`.
fn curve(times: &Value) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = times["percentile"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(percent, time)| Some((time.as_f64()? / 1e9, percent.parse::<f64>().ok()? / 100.0)))
        .collect();
    points.sort_by(|left, right| left.1.total_cmp(&right.1));
    if let Some(longest) = times["max"].as_f64().filter(|_| !points.is_empty()) {
        points.push((longest / 1e9, 1.0));
    }
    points
}

fn latencies(times: &Value) -> Vec<(&'static str, f64)> {
    let percentile = |name: &str| times["percentile"][name].as_f64();
    [
        ("latency p50", percentile("50.000000")),
        ("latency p95", percentile("95.000000")),
        ("latency p99", percentile("99.000000")),
        ("latency mean", times["mean"].as_f64()),
        ("latency max", times["max"].as_f64()),
    ]
    .into_iter()
    .filter_map(|(name, nanoseconds)| Some((name, nanoseconds? / 1e9)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"note: something
    {"jobs": [{"error": 0,
      "read": {"total_ios": 0, "iops": 0, "bw_bytes": 0, "clat_ns": {"N": 0}},
      "write": {"total_ios": 1000, "iops": 500.5, "bw_bytes": 4100096,
        "clat_ns": {"max": 9000000, "mean": 20000.5, "N": 1000,
          "percentile": {"99.000000": 80000, "50.000000": 15000, "95.000000": 40000}}},
      "sync": {"total_ios": 0, "lat_ns": {"max": 5000000, "mean": 300000, "N": 999, "percentile": {"50.000000": 250000}}}}]}"#;

    #[test]
    fn writes_and_syncs_are_found() {
        let sides = read(TEXT).expect("it is understood");
        assert_eq!(
            sides.iter().map(|side| side.name).collect::<Vec<_>>(),
            ["write", "sync"]
        );
        assert_eq!((sides[0].operations, sides[0].each_second), (1000, 500.5));
        assert_eq!(
            sides[0].curve,
            [(1.5e-5, 0.5), (4e-5, 0.95), (8e-5, 0.99), (9e-3, 1.0)]
        );
        assert_eq!(sides[0].latencies[0], ("latency p50", 1.5e-5));
        assert_eq!(sides[1].latencies.last(), Some(&("latency max", 5e-3)));
        assert_eq!(sides[1].operations, 0);
    }

    #[test]
    fn failure_is_no_result() {
        assert!(read("fio: job failed").is_err());
        assert!(read(r#"{"jobs": [{"error": 28}]}"#).is_err());
    }
}
