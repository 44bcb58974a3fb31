//! Lines of JSON from a file, compressed or not, as text that COPY takes.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::read::MultiGzDecoder;

/// Whether the name of a file says that it is compressed.
pub fn is_compressed(path: &Option<PathBuf>) -> bool {
    path.as_deref()
        .and_then(Path::extension)
        .is_some_and(|extension| extension == "gz")
}

/// The lines of a file that are not empty.
pub struct JsonLines {
    reader: Box<dyn BufRead>,
    path: PathBuf,
    line: String,
}

impl JsonLines {
    /// Opens `path`, to be unpacked when its name ends in `.gz`.
    pub fn open(path: &Path) -> Result<JsonLines> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let reader: Box<dyn BufRead> = if is_compressed(&Some(path.to_owned())) {
            Box::new(BufReader::with_capacity(1 << 18, MultiGzDecoder::new(file)))
        } else {
            Box::new(BufReader::with_capacity(1 << 18, file))
        };
        Ok(JsonLines {
            reader,
            path: path.to_owned(),
            line: String::new(),
        })
    }

    /// The next line, without its end.
    pub fn next_line(&mut self) -> Result<Option<&str>> {
        loop {
            self.line.clear();
            let length = self
                .reader
                .read_line(&mut self.line)
                .with_context(|| format!("cannot read lines of text from {}", self.path.display()))?;
            if length == 0 {
                return Ok(None);
            }
            if !self.line.trim().is_empty() {
                break;
            }
        }
        Ok(Some(self.line.trim_end_matches(['\n', '\r'])))
    }
}

/// False for the one thing that JSON allows and jsonb does not: a character of number 0 in a string. Also false for some
/// lines that have it behind an escaped backslash, which is harmless.
pub fn fits_jsonb(line: &str) -> bool {
    !line.contains("\\u0000")
}

/// Appends `line` to `text` as a value in the text format of COPY.
pub fn escape_for_copy(line: &str, text: &mut String) {
    for character in line.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\t' => text.push_str("\\t"),
            '\r' => text.push_str("\\r"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn compressed_lines_are_unpacked() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("lines.jsonl.gz");
        let file = File::create(&path).expect("a file");
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        encoder
            .write_all(b"{\"a\": 1}\r\n\n{\"b\": 2}")
            .expect("it is written");
        encoder.finish().expect("it is finished");
        let mut lines = JsonLines::open(&path).expect("it opens");
        assert_eq!(lines.next_line().expect("a line"), Some("{\"a\": 1}"));
        assert_eq!(lines.next_line().expect("a line"), Some("{\"b\": 2}"));
        assert_eq!(lines.next_line().expect("the end"), None);
    }
}
