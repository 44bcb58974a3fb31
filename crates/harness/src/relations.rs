//! What tables, indexes and whole directories take: as their files say, as they are stored, and on ext4.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use postgres::Client;

/// Extended attribute that a Packstone mount gives every file: its packed bytes as a decimal number.
pub const STORED_ATTRIBUTE: &str = "user.packstone.stored";

/// Unit in which ext4 hands out space.
const EXT4_BLOCK_BYTES: u64 = 4096;

/// Sizes of some files together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Sum of the file sizes.
    pub logical_bytes: u64,
    /// Sum of what is stored: packed bytes on a pool, allocated blocks elsewhere.
    pub stored_bytes: u64,
    /// Sum of the file sizes, each rounded up to whole blocks: what ext4 would take.
    pub ext4_bytes: u64,
    /// Number of files.
    pub files: u64,
}

impl Sizes {
    fn of(path: &Path) -> Result<Sizes> {
        let metadata = path
            .symlink_metadata()
            .with_context(|| format!("cannot look at {}", path.display()))?;
        Ok(Sizes {
            logical_bytes: metadata.len(),
            stored_bytes: stored_attribute(path).unwrap_or(metadata.blocks() * 512),
            ext4_bytes: metadata.len().next_multiple_of(EXT4_BLOCK_BYTES),
            files: 1,
        })
    }

    /// Adds `other` to these.
    pub fn add(&mut self, other: Sizes) {
        self.logical_bytes += other.logical_bytes;
        self.stored_bytes += other.stored_bytes;
        self.ext4_bytes += other.ext4_bytes;
        self.files += other.files;
    }
}

fn stored_attribute(path: &Path) -> Option<u64> {
    let mut value = [0_u8; 32];
    let length = rustix::fs::getxattr(path, STORED_ATTRIBUTE, &mut value).ok()?;
    std::str::from_utf8(&value[..length]).ok()?.trim().parse().ok()
}

/// True when files in `directory` say what is stored of them, so that sizes are exact and not in blocks.
pub fn has_stored_attribute(directory: &Path) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .any(|path| stored_attribute(&path).is_some())
}

/// Sizes of all regular files in `directory` and below. Files that vanish meanwhile are passed over.
pub fn directory_sizes(directory: &Path) -> Result<Sizes> {
    let mut sum = Sizes::default();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        let entries =
            std::fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                // A temporary file of the server may be gone by now.
                sum.add(Sizes::of(&entry.path()).unwrap_or_default());
            }
        }
    }
    Ok(sum)
}

/// A table or index and what its files take.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Its name.
    pub name: String,
    /// `heap`, `toast`, `btree`, `gin` and so on.
    pub kind: String,
    /// Sizes of its segments and forks.
    pub sizes: Sizes,
}

/// The user's tables and indexes of the database with their TOAST tables, each table before its indexes.
///
/// Empty TOAST tables are left out. The caller has run `CHECKPOINT`, else the newest pages are only in memory.
pub fn relations(database: &mut Client, data_directory: &Path) -> Result<Vec<Relation>> {
    let rows = database.query(
        "WITH own AS (
             SELECT c.oid AS table, c.oid, c.relname::text AS name, 'heap' AS kind, 0 AS rank, c.reltoastrelid
               FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
              WHERE c.relkind IN ('r', 'm') AND n.nspname = 'public'),
         parts AS (
             SELECT own.table, oid, name, kind, rank FROM own
             UNION ALL
             SELECT own.table, reltoastrelid, name || ' (toast)', 'toast', 1 FROM own WHERE reltoastrelid <> 0
             UNION ALL
             SELECT own.table, i.indexrelid, c.relname::text, a.amname::text, 2
               FROM own JOIN pg_index i ON i.indrelid = own.oid JOIN pg_class c ON c.oid = i.indexrelid
               JOIN pg_am a ON a.oid = c.relam)
         SELECT name, kind, pg_relation_filepath(oid) FROM parts
          WHERE pg_relation_filepath(oid) IS NOT NULL AND (kind <> 'toast' OR pg_relation_size(oid) > 0)
          ORDER BY parts.table, rank, name",
        &[],
    )?;
    let mut listings = HashMap::new();
    let mut relations = Vec::new();
    for row in rows {
        let (name, kind, path): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        let path = data_directory.join(path);
        let (Some(directory), Some(node)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
        else {
            continue;
        };
        if !listings.contains_key(directory) {
            listings.insert(directory.to_owned(), file_names(directory)?);
        }
        let mut sizes = Sizes::default();
        for file in listings[directory].iter().filter(|file| belongs_to(file, node)) {
            sizes.add(Sizes::of(&directory.join(file))?);
        }
        relations.push(Relation { name, kind, sizes });
    }
    Ok(relations)
}

fn file_names(directory: &Path) -> Result<Vec<String>> {
    let entries =
        std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect())
}

/// A relation with file number 123 lies in `123`, `123.1`, ... and in forks `123_fsm`, `123_vm`, `123_init`.
fn belongs_to(file: &str, node: &str) -> bool {
    file.strip_prefix(node)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || rest.starts_with('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_forks_belong_to_their_relation() {
        for file in ["123", "123.1", "123_fsm", "123_vm.1"] {
            assert!(belongs_to(file, "123"), "{file}");
        }
        for file in ["1234", "12", "1234_vm", "t3_123"] {
            assert!(!belongs_to(file, "123"), "{file}");
        }
    }

    #[test]
    fn directory_sizes_round_each_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("inside")).expect("a directory");
        std::fs::write(directory.path().join("one"), vec![1; 5000]).expect("a file");
        std::fs::write(directory.path().join("inside/two"), b"2").expect("a file");
        let sizes = directory_sizes(directory.path()).expect("the directory can be read");
        assert_eq!(
            (sizes.files, sizes.logical_bytes, sizes.ext4_bytes),
            (2, 5001, 8192 + 4096)
        );
    }
}
