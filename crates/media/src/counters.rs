//! What passed through a media since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

/// Operations and bytes since the media was opened; failed ones count as errors only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaCounters {
    /// Successful reads.
    pub reads: u64,
    /// Successful writes.
    pub writes: u64,
    /// Successful flushes.
    pub flushes: u64,
    /// Successful discards, also those that the media cannot act on.
    pub discards: u64,
    /// Bytes of successful reads.
    pub read_bytes: u64,
    /// Bytes of successful writes.
    pub written_bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes, flushes and discards that failed.
    pub write_errors: u64,
}

impl MediaCounters {
    /// Operations that failed.
    pub fn errors(&self) -> u64 {
        self.read_errors + self.write_errors
    }
}

/// The counters while they are counted. Each is exact; a reading of all of them is not one moment.
#[derive(Debug, Default)]
pub(crate) struct LiveCounters {
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
}

impl LiveCounters {
    pub(crate) fn read<T, E>(&self, length_bytes: usize, result: Result<T, E>) -> Result<T, E> {
        self.count(&self.reads, Some((&self.read_bytes, length_bytes)), result)
    }

    pub(crate) fn write<T, E>(&self, length_bytes: usize, result: Result<T, E>) -> Result<T, E> {
        self.count(&self.writes, Some((&self.written_bytes, length_bytes)), result)
    }

    pub(crate) fn flush<T, E>(&self, result: Result<T, E>) -> Result<T, E> {
        self.count(&self.flushes, None, result)
    }

    pub(crate) fn discard<T, E>(&self, result: Result<T, E>) -> Result<T, E> {
        self.count(&self.discards, None, result)
    }

    pub(crate) fn reading(&self) -> MediaCounters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MediaCounters {
            reads: load(&self.reads),
            writes: load(&self.writes),
            flushes: load(&self.flushes),
            discards: load(&self.discards),
            read_bytes: load(&self.read_bytes),
            written_bytes: load(&self.written_bytes),
            read_errors: load(&self.read_errors),
            write_errors: load(&self.write_errors),
        }
    }

    fn count<T, E>(
        &self,
        operations: &AtomicU64,
        bytes: Option<(&AtomicU64, usize)>,
        result: Result<T, E>,
    ) -> Result<T, E> {
        if result.is_err() {
            let errors = if std::ptr::eq(operations, &self.reads) {
                &self.read_errors
            } else {
                &self.write_errors
            };
            errors.fetch_add(1, Ordering::Relaxed);
            return result;
        }
        operations.fetch_add(1, Ordering::Relaxed);
        if let Some((counter, length_bytes)) = bytes {
            counter.fetch_add(length_bytes as u64, Ordering::Relaxed);
        }
        result
    }
}
