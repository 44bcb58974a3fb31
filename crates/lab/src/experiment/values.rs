//! Values of the experiment file that can be written in more than one way.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// Bytes: a number, or a text such as `"20G"` (powers of 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::Integer(bytes) => u64::try_from(bytes).map(Size).map_err(D::Error::custom),
            toml::Value::String(text) => parse_size(&text)
                .map(Size)
                .ok_or_else(|| D::Error::custom(format!("\"{text}\" is no size: write \"20G\" or \"512M\""))),
            other => Err(D::Error::custom(format!("{other} is no size: write \"20G\""))),
        }
    }
}

/// Bytes from `512M` and the like.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'K' | 'k') => (&text[..at], 10),
        (at, 'M' | 'm') => (&text[..at], 20),
        (at, 'G' | 'g') => (&text[..at], 30),
        (at, 'T' | 't') => (&text[..at], 40),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Names with values that are passed on as text; numbers and booleans may stand without quotes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Texts(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Texts, D::Error> {
        let table = toml::Table::deserialize(deserializer)?;
        let texts = table.into_iter().map(|(name, value)| match value {
            toml::Value::String(text) => Ok((name, text)),
            toml::Value::Integer(_) | toml::Value::Float(_) => Ok((name, value.to_string())),
            // Properties and PostgreSQL's settings say on and off.
            toml::Value::Boolean(on) => Ok((name, if on { "on" } else { "off" }.to_owned())),
            _ => Err(D::Error::custom(format!(
                "{name}: write a text, a number or true or false"
            ))),
        });
        texts.collect::<Result<_, _>>().map(Texts)
    }
}

/// Arguments: a list, or one text with spaces between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words(pub Vec<String>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Words, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Line(String),
            List(Vec<String>),
        }
        Ok(Words(match Written::deserialize(deserializer)? {
            Written::Line(line) => line.split_whitespace().map(str::to_owned).collect(),
            Written::List(list) => list,
        }))
    }
}
