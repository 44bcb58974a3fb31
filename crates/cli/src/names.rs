//! Names of pools and datasets, and sizes, as a user types them.
//!
//! A pool name is also a file name in the state directory and a dataset name is part of a URL on the control socket, so
//! both keep to letters, digits, `_`, `-` and `.`, begin with a letter, and are short. There are no datasets inside
//! datasets yet: `tank/a/b` is refused, so that the slash stays free for that meaning.

use crate::failure::Failure;
use std::fmt;
use std::str::FromStr;

/// Longest pool or dataset name.
pub const NAME_BYTES_MAX: usize = 48;

/// The name of a pool: `tank`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolName(String);

/// A dataset with its pool: `tank/pg`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatasetName {
    /// `tank`
    pub pool: PoolName,
    /// `pg`
    pub dataset: String,
}

impl PoolName {
    /// The name as typed.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// The full name of one of this pool's datasets.
    pub fn dataset(&self, dataset: &str) -> anyhow::Result<DatasetName> {
        check_component("dataset", dataset)?;
        Ok(DatasetName {
            pool: self.clone(),
            dataset: dataset.to_string(),
        })
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Display for DatasetName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.pool, self.dataset)
    }
}

impl FromStr for PoolName {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> anyhow::Result<PoolName> {
        check_component("pool", text)?;
        Ok(PoolName(text.to_string()))
    }
}

impl FromStr for DatasetName {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> anyhow::Result<DatasetName> {
        let Some((pool, dataset)) = text.split_once('/') else {
            return Err(Failure::usage(format!(
                "'{text}' is not a dataset name: write POOL/DATASET, for example tank/pg"
            )));
        };
        if dataset.contains('/') {
            return Err(Failure::usage(format!(
                "'{text}': a dataset inside a dataset is not supported; write POOL/DATASET"
            )));
        }
        let pool: PoolName = pool.parse()?;
        pool.dataset(dataset)
    }
}

fn check_component(what: &str, name: &str) -> anyhow::Result<()> {
    let wrong = |why: String| {
        Err(Failure::usage(format!(
            "'{}' is not a {what} name: {why}",
            name.escape_debug()
        )))
    };
    if name.is_empty() {
        return wrong("it is empty".into());
    }
    if name.len() > NAME_BYTES_MAX {
        return wrong(format!(
            "it has {} bytes, at most {NAME_BYTES_MAX} are allowed",
            name.len()
        ));
    }
    if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return wrong("it must begin with a letter".into());
    }
    let strange = name
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')));
    match strange {
        Some(c) => wrong(format!(
            "{c:?} is not allowed; use letters, digits, '_', '-' and '.'"
        )),
        None => Ok(()),
    }
}

/// Reads `20G`, `512M`, `1T`, `8K` or plain bytes; powers of 1024, with an optional `B` or `iB`.
pub fn parse_size(text: &str) -> anyhow::Result<u64> {
    let wrong = || {
        Failure::usage(format!(
            "'{}' is not a size: write bytes, or a number with K, M, G or T, for example 20G",
            text.escape_debug()
        ))
    };
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Splits `name=value`.
pub fn parse_assignment(text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_string(), value.to_string()))
        }
        _ => Err(Failure::usage(format!(
            "'{}' is not a property: write NAME=VALUE",
            text.escape_debug()
        ))),
    }
}

/// Splits many; naming one property twice is an error, for the user cannot have meant both.
pub fn parse_assignments(texts: &[String]) -> anyhow::Result<std::collections::BTreeMap<String, String>> {
    let mut map = std::collections::BTreeMap::new();
    for text in texts {
        let (name, value) = parse_assignment(text)?;
        if map.insert(name.clone(), value).is_some() {
            return Err(Failure::usage(format!("property '{name}' is given twice")));
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, size_bytes) in [
            ("0", 0),
            ("17", 17),
            ("8K", 8192),
            ("512M", 512 << 20),
            ("20G", 20 << 30),
            ("1T", 1 << 40),
            ("1GiB", 1 << 30),
            ("2mb", 2 << 20),
        ] {
            assert_eq!(parse_size(text).unwrap(), size_bytes, "{text}");
        }
        for text in [
            "",
            "G",
            "-1",
            "1.5G",
            "1 G",
            "1X",
            "99999999999999999999",
            "17179869184G",
            "1GG",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names() {
        for text in ["tank", "t", "my-pool_2.x"] {
            assert_eq!(text.parse::<PoolName>().unwrap().as_str(), text);
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for text in [
            "",
            "..",
            ".x",
            "1st",
            "a b",
            "a/b",
            "ä",
            "a\n",
            "a\0",
            "-x",
            long.as_str(),
        ] {
            assert!(text.parse::<PoolName>().is_err(), "{text:?}");
        }
        assert_eq!("tank/pg".parse::<DatasetName>().unwrap().to_string(), "tank/pg");
        for text in ["tank", "tank/", "/pg", "tank/a/b", "tank/..", "tank/pg/"] {
            assert!(text.parse::<DatasetName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn assignments() {
        assert_eq!(parse_assignment("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        for text in ["a", "=b", "a=", ""] {
            assert!(parse_assignment(text).is_err(), "{text:?}");
        }
        assert!(parse_assignments(&["a=1".into(), "a=2".into()]).is_err());
    }
}
