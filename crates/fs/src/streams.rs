//! Expected lifetime of a file's records, chosen by names known to hold short-lived data.
//!
//! A file or directory takes the class of the directory it is created in; a directory with one of the names below
//! starts the class `ShortLived` for everything created beneath it. Renaming changes nothing: the class is a hint to
//! lay data that dies together side by side, and wrong hints cost cleaning, not correctness.

use crate::types::FileKind;
use packstone_pool::Stream;

/// Directories of PostgreSQL whose content is overwritten or deleted soon.
///
/// | name | holds |
/// |---|---|
/// | `pg_wal`, `pg_xlog` | write-ahead log, recycled after each checkpoint |
/// | `pgsql_tmp` (also below `base`) | sorts and hashes that spill, gone with the query |
/// | `pg_stat_tmp` | statistics rewritten every second |
/// | `pg_subtrans`, `pg_notify` | pages truncated at each start and checkpoint |
const SHORT_LIVED: [&[u8]; 6] = [
    b"pg_wal",
    b"pg_xlog",
    b"pgsql_tmp",
    b"pg_stat_tmp",
    b"pg_subtrans",
    b"pg_notify",
];

/// Class of something created as `name` in a directory of class `parent`.
pub(crate) fn stream_of(parent: Stream, name: &[u8], kind: FileKind) -> Stream {
    let starts = kind == FileKind::Directory && SHORT_LIVED.contains(&name);
    if starts { Stream::ShortLived } else { parent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_start_a_class_and_children_inherit_it() {
        assert_eq!(
            stream_of(Stream::Data, b"pg_wal", FileKind::Directory),
            Stream::ShortLived
        );
        assert_eq!(
            stream_of(Stream::Data, b"pg_wal", FileKind::Regular),
            Stream::Data
        );
        assert_eq!(
            stream_of(Stream::Data, b"base", FileKind::Directory),
            Stream::Data
        );
        assert_eq!(
            stream_of(Stream::ShortLived, b"000000010000000000000001", FileKind::Regular),
            Stream::ShortLived
        );
    }
}
