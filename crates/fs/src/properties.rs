//! Dataset properties: which exist, what they may be, and their defaults.
//!
//! | name | values | default | meaning |
//! |---|---|---|---|
//! | `recordsize` | 4K to 1M, power of two | 8K | record size of files first written from now on |
//! | `compression` | none, lz4, zstd (the same as zstd-3), zstd-1 to zstd-19 | zstd-1 | codec of records written from now on; files known to be short-lived take lz4 in place of zstd |
//! | `atime` | on, off, relatime | relatime | whether reads update the time of last access |
//!
//! The pool stores properties as given; only what was set is stored, so a default may change with the program.

use crate::error::{error, fail};
use crate::layout::inode::RECORD_BYTES_LOG2;
use crate::types::{ErrorKind, Result};
use packstone_pool::Compression;
use std::collections::BTreeMap;

const OPERATION: &str = "dataset property";
const NAMES: [&str; 3] = ["recordsize", "compression", "atime"];

/// When reads update the time of last access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessTime {
    /// At every read that reaches the file system.
    On,
    /// Never.
    Off,
    /// When it is not behind the last change, or a day old.
    Relative,
}

/// What applies to a dataset, defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetProperties {
    /// Record size of files first written from now on.
    pub record_bytes: u32,
    /// Codec of records written from now on.
    pub compression: Compression,
    /// When reads update the time of last access.
    pub access_time: AccessTime,
}

impl Default for DatasetProperties {
    fn default() -> DatasetProperties {
        DatasetProperties {
            record_bytes: 8192,
            compression: Compression::default(),
            access_time: AccessTime::Relative,
        }
    }
}

impl DatasetProperties {
    /// Names of all properties, for help and error texts.
    pub const NAMES: &'static [&'static str] = &NAMES;

    /// Reads a stored or requested map. `InvalidInput` names the property and what it may be.
    pub fn parse(map: &BTreeMap<String, String>) -> Result<DatasetProperties> {
        let mut properties = DatasetProperties::default();
        for (name, value) in map {
            properties.set(name, value)?;
        }
        Ok(properties)
    }

    /// Sets one property from text. `InvalidInput` names the property and what it may be.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "recordsize" => self.record_bytes = parse_record_size(value)?,
            "compression" => self.compression = parse_compression(value)?,
            "atime" => self.access_time = parse_access_time(value)?,
            _ => {
                let message = format!("there is no property '{name}'; there are: {}", NAMES.join(", "));
                return fail(ErrorKind::InvalidInput, OPERATION, message);
            }
        }
        Ok(())
    }

    /// The value in effect as text, or `None` for a name that does not exist.
    pub fn get(&self, name: &str) -> Option<String> {
        Some(match name {
            "recordsize" if self.record_bytes >= 1 << 20 => format!("{}M", self.record_bytes >> 20),
            "recordsize" => format!("{}K", self.record_bytes >> 10),
            "compression" => self.compression.to_string(),
            "atime" => match self.access_time {
                AccessTime::On => "on".into(),
                AccessTime::Off => "off".into(),
                AccessTime::Relative => "relatime".into(),
            },
            _ => return None,
        })
    }

    pub(crate) fn record_bytes_log2(&self) -> u8 {
        self.record_bytes.trailing_zeros() as u8
    }
}

fn parse_record_size(value: &str) -> Result<u32> {
    let upper = value.to_ascii_uppercase();
    let (digits, shift) = match upper.strip_suffix('K') {
        Some(digits) => (digits, 10),
        None => match upper.strip_suffix('M') {
            Some(digits) => (digits, 20),
            None => (upper.as_str(), 0),
        },
    };
    let plain = !digits.is_empty() && digits.len() <= 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let bytes = if plain {
        digits.parse::<u64>().unwrap_or(0) << shift
    } else {
        0
    };
    let fits = bytes.is_power_of_two() && RECORD_BYTES_LOG2.contains(&(bytes.trailing_zeros() as u8));
    if !fits {
        let message = format!("recordsize '{value}' is not a power of two from 4K to 1M, such as 8K or 128K");
        return fail(ErrorKind::InvalidInput, OPERATION, message);
    }
    Ok(bytes as u32)
}

fn parse_compression(value: &str) -> Result<Compression> {
    value.parse().map_err(|_| {
        let message = format!(
            "compression '{value}' is not one of none, lz4, zstd (the same as zstd-3), zstd-1 to zstd-19"
        );
        error(ErrorKind::InvalidInput, OPERATION, message)
    })
}

fn parse_access_time(value: &str) -> Result<AccessTime> {
    match value {
        "on" => Ok(AccessTime::On),
        "off" => Ok(AccessTime::Off),
        "relatime" => Ok(AccessTime::Relative),
        _ => fail(
            ErrorKind::InvalidInput,
            OPERATION,
            format!("atime '{value}' is not one of on, off, relatime"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, value: &str) -> Result<DatasetProperties> {
        DatasetProperties::parse(&BTreeMap::from([(name.into(), value.into())]))
    }

    #[test]
    fn values_survive() {
        let cases = [
            ("recordsize", "4K"),
            ("recordsize", "8K"),
            ("recordsize", "128K"),
            ("recordsize", "1M"),
            ("compression", "none"),
            ("compression", "lz4"),
            ("compression", "zstd-1"),
            ("compression", "zstd-19"),
            ("atime", "on"),
            ("atime", "off"),
            ("atime", "relatime"),
        ];
        for (name, value) in cases {
            assert_eq!(parse(name, value).unwrap().get(name).as_deref(), Some(value));
        }
        assert_eq!(parse("recordsize", "16384").unwrap().record_bytes, 16384);
        assert_eq!(parse("recordsize", "64k").unwrap().record_bytes, 65536);
    }

    #[test]
    fn bad_values_say_what_there_is() {
        for value in [
            "",
            "K",
            "2K",
            "12K",
            "2M",
            "-8K",
            "+8K",
            "8KB",
            "0",
            "99999999999M",
            "8 K",
        ] {
            let error = parse("recordsize", value).unwrap_err();
            assert!(error.message.contains("4K to 1M"), "{value}: {error}");
        }
        for value in ["", "zstd-", "zstd-0", "zstd-20", "zstd-1x", "gzip"] {
            assert!(
                parse("compression", value)
                    .unwrap_err()
                    .message
                    .contains("zstd-19"),
                "{value}"
            );
        }
        assert!(parse("atime", "yes").unwrap_err().message.contains("relatime"));
        let unknown = parse("recordsise", "8K").unwrap_err();
        assert_eq!(unknown.kind, ErrorKind::InvalidInput);
        assert!(
            unknown.message.contains("recordsise")
                && unknown.message.contains("recordsize, compression, atime")
        );
    }
}
