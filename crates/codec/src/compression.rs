//! How records are to be compressed: the value of the `compression` property.
//!
//! This is a wish for records to come; what a stored record really uses is in its frame (`Codec`), for a
//! record that does not compress stays raw.

use std::fmt;
use std::str::FromStr;

use crate::error::{CodecError, Result};

/// A zstd compression level, 1 (fast) to 19 (small).
///
/// Levels above 19 exist but cost memory out of proportion for records of at most 1 MiB; negative levels lose
/// to lz4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZstdLevel(u8);

impl ZstdLevel {
    /// The fastest level, and the one of [`Compression::default`].
    pub const MIN: ZstdLevel = ZstdLevel(1);
    /// The smallest output.
    pub const MAX: ZstdLevel = ZstdLevel(19);
    /// What a bare `zstd` means; zstd's own default.
    pub const STANDARD: ZstdLevel = ZstdLevel(3);

    /// The level of that number; an error of kind `InvalidInput` outside 1 to 19.
    pub fn new(level: u8) -> Result<ZstdLevel> {
        if (Self::MIN.0..=Self::MAX.0).contains(&level) {
            Ok(ZstdLevel(level))
        } else {
            Err(CodecError::invalid_input(format!(
                "there is no zstd level {level}: levels are 1 to 19"
            )))
        }
    }

    /// The level as a number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// How records are to be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Records are kept as they are.
    None,
    /// lz4 block format: fastest, least gain.
    Lz4,
    /// zstd at a level.
    Zstd(ZstdLevel),
}

impl Default for Compression {
    /// zstd-1: about the size of level 3 on database pages, in less time.
    fn default() -> Self {
        Compression::Zstd(ZstdLevel::MIN)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compression::None => formatter.write_str("none"),
            Compression::Lz4 => formatter.write_str("lz4"),
            Compression::Zstd(level) => write!(formatter, "zstd-{}", level.get()),
        }
    }
}

impl FromStr for Compression {
    type Err = CodecError;

    /// Reads `none`, `lz4`, `zstd` (which is `zstd-3`) or `zstd-1` to `zstd-19`; exactly these, in lower
    /// case.
    fn from_str(text: &str) -> Result<Compression> {
        match text {
            "none" => return Ok(Compression::None),
            "lz4" => return Ok(Compression::Lz4),
            "zstd" => return Ok(Compression::Zstd(ZstdLevel::STANDARD)),
            _ => {}
        }
        let level = text
            .strip_prefix("zstd-")
            // Only the canonical spelling: u8's parser would also take "+3" and "03".
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0'))
            .and_then(|digits| digits.parse::<u8>().ok())
            .and_then(|level| ZstdLevel::new(level).ok());
        level.map(Compression::Zstd).ok_or_else(|| {
            CodecError::invalid_input(format!(
                "unknown compression \"{}\": use none, lz4, zstd (the same as zstd-3) or zstd-1 to zstd-19",
                text.escape_debug()
            ))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::CodecErrorKind;

    #[test]
    fn every_spelling_that_is_printed_is_read_back() {
        let zstd = (1..=19).map(|level| Compression::Zstd(ZstdLevel::new(level).unwrap()));
        for compression in [Compression::None, Compression::Lz4].into_iter().chain(zstd) {
            assert_eq!(
                compression.to_string().parse::<Compression>().unwrap(),
                compression
            );
        }
        assert_eq!("zstd".parse::<Compression>().unwrap().to_string(), "zstd-3");
        assert_eq!(Compression::default().to_string(), "zstd-1");
    }

    #[test]
    fn other_texts_are_refused_with_the_choices() {
        for text in [
            "", "ZSTD", "zstd-", "zstd-0", "zstd-20", "zstd-300", "zstd-03", "zstd-+3", "zstd--1", "gzip",
            " lz4", "lz4-1",
        ] {
            let error = text.parse::<Compression>().unwrap_err();
            assert_eq!(error.kind(), CodecErrorKind::InvalidInput, "{text}");
            assert!(error.to_string().contains("zstd-1 to zstd-19"), "{error}");
            assert!(error.to_string().contains(&format!("\"{text}\"")), "{error}");
        }
        assert!(ZstdLevel::new(0).is_err());
        assert!(ZstdLevel::new(20).is_err());
    }
}
