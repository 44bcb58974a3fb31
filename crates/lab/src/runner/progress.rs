//! Says what is happening, on standard error: one line that changes on a terminal, plain lines elsewhere.

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::plan::PlannedTurn;
use crate::probe::Probed;

/// The line. Shared by everything in a turn, on one thread.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// What stands before the words of the workload, such as `turn 3 of 14: ext4`.
    heading: RefCell<String>,
    turns: Cell<usize>,
    done: Cell<usize>,
    made: Cell<u32>,
    began: Cell<Instant>,
    last_said: RefCell<(String, Option<Instant>)>,
}

impl Progress {
    pub(super) fn new() -> Progress {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let bar = terminal.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Progress {
            bar,
            heading: RefCell::default(),
            turns: Cell::new(0),
            done: Cell::new(0),
            made: Cell::new(0),
            began: Cell::new(Instant::now()),
            last_said: RefCell::default(),
        }
    }

    /// A line that stays.
    pub(super) fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// The turns begin, `done` of which were made by an earlier run.
    pub(super) fn begin(&self, turns: usize, done: usize) {
        self.turns.set(turns);
        self.done.set(done);
        self.began.set(Instant::now());
    }

    /// The next turn begins.
    pub(super) fn turn(&self, turn: &PlannedTurn) {
        let mut heading = format!("turn {} of {}: {turn}", self.done.get() + 1, self.turns.get());
        if let Some(left) = self.left() {
            let _ = write!(heading, "; about {} left", words(left));
        }
        if self.bar.is_none() {
            eprintln!("{heading}");
        }
        *self.heading.borrow_mut() = heading;
        self.say("making the storage");
    }

    /// The turn in hand is finished.
    pub(super) fn finished(&self) {
        self.done.set(self.done.get() + 1);
        self.made.set(self.made.get() + 1);
    }

    /// What is happening just now.
    pub(super) fn say(&self, what: &str) {
        let heading = self.heading.borrow();
        match &self.bar {
            Some(bar) if heading.is_empty() => bar.set_message(what.to_owned()),
            Some(bar) => bar.set_message(format!("{heading}: {what}")),
            None => self.say_plainly(what),
        }
    }

    /// In a log, counts that go up by the second are noise: the same words with other numbers come at most every 15 s.
    fn say_plainly(&self, what: &str) {
        const PAUSE: Duration = Duration::from_secs(15);
        let words: String = what.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        let mut last = self.last_said.borrow_mut();
        let is_new = last.0 != words || last.1.is_none_or(|at| at.elapsed() >= PAUSE);
        if is_new {
            eprintln!("  {what}");
            *last = (words, Some(Instant::now()));
        }
    }

    /// All turns are made.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Time for the turns that are left, if they take as long as those made in this process.
    fn left(&self) -> Option<Duration> {
        let made = self.made.get();
        let left = u32::try_from(self.turns.get().saturating_sub(self.done.get())).ok()?;
        (made > 0).then(|| self.began.get().elapsed() / made * left)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// `3 h 20 min`, `12 min` or `40 s`.
pub(super) fn words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..90 => format!("{seconds} s"),
        90..5_400 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// What a probe found, in lines.
pub(super) fn describe_probe(arm: &str, probed: &Probed) -> String {
    let mut text = format!("probe of {arm}:");
    for figure in &probed.figures {
        let shown = match figure.unit {
            crate::figure::Unit::BytesPerSecond => format!("{:.1} MB/s", figure.value / 1e6),
            _ => format!("{:.0}/s", figure.value),
        };
        let _ = write!(text, "\n  {:<40} {shown:>14}", figure.name);
    }
    for warning in &probed.warnings {
        let _ = write!(text, "\n  WARNING: {warning}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_roughly() {
        let said = |seconds| words(Duration::from_secs(seconds));
        assert_eq!(said(40), "40 s");
        assert_eq!(said(700), "12 min");
        assert_eq!(said(12_000), "3 h 20 min");
    }

    #[test]
    fn time_left_comes_from_turns_made_here() {
        let progress = Progress::new();
        progress.begin(10, 4);
        assert_eq!(progress.left(), None);
        std::thread::sleep(Duration::from_millis(20));
        progress.finished();
        let left = progress.left().expect("an estimate");
        assert!(
            left >= Duration::from_millis(100) && left < Duration::from_secs(60),
            "{left:?}"
        );
    }
}
