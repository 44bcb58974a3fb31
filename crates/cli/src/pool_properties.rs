//! Properties of a whole pool: names, defaults and what values they take. Today there is one, `memory`.
//!
//! A pool keeps only what was set; defaults are filled in for people.

use crate::failure::Failure;
use crate::names::parse_size;
use packstone_pool::{MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN};
use std::collections::BTreeMap;

/// Checks names and values; the result holds the values as they are stored.
pub fn validate(changes: &BTreeMap<String, String>) -> anyhow::Result<BTreeMap<String, String>> {
    changes
        .iter()
        .map(|(name, value)| Ok((name.clone(), validate_one(name, value)?)))
        .collect()
}

fn validate_one(name: &str, value: &str) -> anyhow::Result<String> {
    match name {
        "memory" => {
            let memory_bytes = parse_size(value)?;
            if memory_bytes < MEMORY_BYTES_MIN {
                return Err(Failure::usage(format!(
                    "memory={value}: at least {}M is needed",
                    MEMORY_BYTES_MIN >> 20
                )));
            }
            Ok(format_size(memory_bytes))
        }
        _ => Err(Failure::usage(format!(
            "unknown pool property '{}'; there is: memory",
            name.escape_debug()
        ))),
    }
}

/// The shortest form that [`parse_size`] reads back exactly.
fn format_size(size_bytes: u64) -> String {
    let units = [(1_u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units.into_iter().find(|(unit, _)| size_bytes % unit == 0) {
        Some((unit, letter)) => format!("{}{letter}", size_bytes / unit),
        None => size_bytes.to_string(),
    }
}

/// What is set, with the defaults of what is not.
pub fn with_defaults(set: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = set.clone();
    all.entry("memory".to_string())
        .or_insert_with(|| format_size(MEMORY_BYTES_DEFAULT));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_a_size_with_a_floor() {
        let one = |value: &str| validate(&BTreeMap::from([("memory".to_string(), value.to_string())]));
        assert_eq!(one("1G").unwrap()["memory"], "1G");
        assert_eq!(one("1536M").unwrap()["memory"], "1536M");
        for value in ["0", "1M", "lots", "-1", "99999999T"] {
            assert!(one(value).is_err(), "{value}");
        }
        assert!(validate(&BTreeMap::from([("memroy".to_string(), "1G".to_string())])).is_err());
    }
}
