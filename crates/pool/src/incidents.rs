//! What went wrong lately: reads that failed and bytes that failed their check, kept for `status`.
//!
//! The pool does not know files, and has no clock: whoever meets the error adds what it knows, and the time. The journal is
//! bounded; the same thing happening again is counted, not kept again.

use crate::pool::Pool;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Different incidents kept; the one that happened longest ago makes room for a new one.
pub const INCIDENTS_MAX: usize = 64;

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncidentKind {
    /// The medium failed to read or write.
    Media,
    /// Bytes were read and are not what was written.
    Damage,
}

/// Something that went wrong, once or several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// What kind of thing.
    pub kind: IncidentKind,
    /// Dataset in which it was met, if any.
    pub dataset: Option<String>,
    /// Path within the dataset, as far as it is known.
    pub path: Option<String>,
    /// Inode that was being used.
    pub ino: Option<u64>,
    /// Record of the file, counted from 0; none if it was no file data.
    pub record: Option<u64>,
    /// Where that record begins in the file, bytes.
    pub offset_bytes: Option<u64>,
    /// The member it happened on.
    pub member: String,
    /// The error in words.
    pub message: String,
    /// Times it happened.
    pub count: u64,
    /// Seconds since 1970 of the first time.
    pub first_seconds: i64,
    /// Seconds since 1970 of the last time.
    pub last_seconds: i64,
}

impl Incident {
    fn is_same(&self, other: &Incident) -> bool {
        let key = |of: &Incident| (of.kind, of.ino, of.record);
        // Without a file the words are all there is to tell two apart.
        key(self) == key(other)
            && self.dataset == other.dataset
            && (self.record.is_some() || self.message == other.message)
    }
}

/// The bounded journal.
#[derive(Default)]
pub(crate) struct Journal {
    recent: Mutex<VecDeque<Incident>>,
}

impl Pool {
    /// Notes an incident, whose `member` is filled in when it is empty.
    pub fn note_incident(&self, mut incident: Incident) {
        if incident.member.is_empty() {
            incident.member = self.geometry.member().description();
        }
        let mut recent = self.incidents.recent.lock();
        if let Some(at) = recent.iter().position(|known| known.is_same(&incident))
            && let Some(known) = recent.remove(at)
        {
            incident.count += known.count;
            incident.first_seconds = known.first_seconds;
            incident.path = incident.path.or(known.path);
        } else if recent.len() == INCIDENTS_MAX {
            recent.pop_front();
        }
        recent.push_back(incident);
    }

    /// Incidents since the pool was opened, the latest last; at most [`INCIDENTS_MAX`].
    pub fn incidents(&self) -> Vec<Incident> {
        self.incidents.recent.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::world::{create, open};
    use packstone_media::SimulatedMedia;
    use std::sync::Arc;

    #[test]
    fn the_journal_counts_what_repeats_and_is_bounded() {
        let media = Arc::new(SimulatedMedia::new(16 << 20));
        create(&media);
        let pool = open(&media).expect("opens");
        let incident = |record: u64, seconds: i64| Incident {
            kind: IncidentKind::Damage,
            dataset: Some("data".into()),
            path: (seconds == 1).then(|| "/a".into()),
            ino: Some(2),
            record: Some(record),
            offset_bytes: Some(record * 4096),
            member: String::new(),
            message: format!("at {seconds}"),
            count: 1,
            first_seconds: seconds,
            last_seconds: seconds,
        };
        pool.note_incident(incident(0, 1));
        pool.note_incident(incident(1, 2));
        pool.note_incident(incident(0, 3));
        let found = pool.incidents();
        assert_eq!(found.len(), 2);
        let last = &found[1];
        assert_eq!((last.record, last.count), (Some(0), 2));
        assert_eq!((last.first_seconds, last.last_seconds), (1, 3));
        assert_eq!(last.path.as_deref(), Some("/a"));
        assert!(!last.member.is_empty());
        for record in 0..1000 {
            pool.note_incident(incident(record, 4));
        }
        assert_eq!(pool.incidents().len(), INCIDENTS_MAX);
        assert_eq!(pool.incidents()[INCIDENTS_MAX - 1].record, Some(999));
    }
}
