//! The journal: one finished turn a line, each made durable before the next turn begins.
//!
//! A run that was killed may leave a torn last line. It is ignored, and cut off before anything is appended. A line that
//! cannot be read anywhere else is damage and no accident: that is an error.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::FlockOperation;

use crate::figure::TurnResult;

/// The file, open for appending, and locked against a second run.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
}

impl Journal {
    /// Opens or creates the journal, and returns the turns that are in it.
    pub(super) fn open(path: &Path) -> Result<(Journal, Vec<TurnResult>)> {
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(
                "{} is being written by another run: wait for it to end",
                path.display()
            );
        }
        let (turns, whole_bytes) = read_lines(path)?;
        // Only what a kill left behind is cut off.
        file.set_len(whole_bytes as u64)
            .with_context(|| format!("cannot cut {}", path.display()))?;
        Ok((Journal { file }, turns))
    }

    /// Adds a finished turn.
    pub(super) fn append(&mut self, turn: &TurnResult) -> Result<()> {
        let mut line = serde_json::to_vec(turn)?;
        line.push(b'\n');
        self.file.write_all(&line).context("cannot write the journal")?;
        self.file.sync_data().context("cannot write the journal")
    }
}

/// The turns of a journal, whether or not somebody is writing it.
pub(super) fn read(path: &Path) -> Result<Vec<TurnResult>> {
    Ok(read_lines(path)?.0)
}

/// The turns, and the length of all whole lines.
fn read_lines(path: &Path) -> Result<(Vec<TurnResult>, usize)> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut turns = Vec::new();
    let mut whole_bytes = 0;
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let is_last = whole_bytes + line.len() == text.len();
        match serde_json::from_slice(line) {
            // Without its end a line may be torn where it can still be read, such as within a number.
            Ok(turn) if line.ends_with(b"\n") => turns.push(turn),
            _ if is_last => break,
            Ok(_) => break,
            Err(error) => {
                return Err(error).with_context(|| format!("{}, line {}", path.display(), number + 1));
            }
        }
        whole_bytes += line.len();
    }
    Ok((turns, whole_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Better, Figure, Unit};

    fn turn(position: u32) -> TurnResult {
        TurnResult {
            arm: "ext4".to_owned(),
            round: Some(0),
            position,
            figures: vec![Figure {
                phase: "run".to_owned(),
                name: "time".to_owned(),
                unit: Unit::Seconds,
                better: Better::Lower,
                value: 1.25,
            }],
            ..TurnResult::default()
        }
    }

    #[test]
    fn torn_last_line_is_cut_wherever_it_is_torn() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("journal.jsonl");
        let (mut journal, turns) = Journal::open(&path).expect("a journal");
        assert!(turns.is_empty());
        journal.append(&turn(0)).expect("a line");
        journal.append(&turn(1)).expect("a line");
        drop(journal);
        let whole = std::fs::read(&path).expect("the journal");
        let first = whole.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
        for cut in first..whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("a torn journal");
            let (mut journal, turns) = Journal::open(&path).expect("a journal");
            assert_eq!(turns, [turn(0)], "cut at {cut}");
            journal.append(&turn(2)).expect("a line");
            drop(journal);
            assert_eq!(read(&path).expect("turns"), [turn(0), turn(2)], "cut at {cut}");
        }
    }

    #[test]
    fn damage_in_the_middle_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("journal.jsonl");
        let line = serde_json::to_string(&turn(0)).expect("a line");
        std::fs::write(&path, format!("{line}\nrubbish\n{line}\n")).expect("a journal");
        let error = Journal::open(&path).expect_err("damage");
        assert!(format!("{error:#}").contains("line 2"), "{error:#}");
    }

    #[test]
    fn a_second_writer_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("journal.jsonl");
        let (_journal, _) = Journal::open(&path).expect("a journal");
        assert!(Journal::open(&path).is_err());
        assert!(read(&path).expect("turns").is_empty());
    }
}
