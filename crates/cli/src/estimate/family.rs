//! Which files belong together, and what the group is called.
//!
//! In a PostgreSQL data directory a family is one relation: its segments (`16384.1`) and forks (`16384_fsm`,
//! `_vm`, `_init`) are one, the system catalogs of a database are one, and so is every other directory
//! (`pg_wal`). A relation is known by its file number only; the server, which could tell its name, is not
//! asked.
//!
//! Elsewhere a family is the first directories below the root and the extension.

use std::ffi::OsStr;
use std::path::Path;

/// Relations with lower file numbers are catalogs made by initdb (PostgreSQL's `FirstNormalObjectId`).
const FIRST_USER_RELATION: u32 = 16_384;
/// Directories that a family's name keeps in ordinary trees.
const GENERIC_DEPTH: usize = 2;
/// Longer endings are parts of names, not extensions.
const EXTENSION_BYTES_MAX: usize = 10;

/// What is known about a directory from where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// An ordinary directory, by its components below the root.
    Ordinary {
        /// At most [`GENERIC_DEPTH`] of them.
        components: Vec<String>,
    },
    /// Part of a PostgreSQL data directory.
    Postgres {
        /// Where that lies below the root; empty when it is the root.
        prefix: String,
        /// Components below the data directory.
        components: Vec<String>,
    },
}

impl Place {
    /// The root of what is estimated, before it is looked at.
    pub(super) fn root() -> Place {
        Place::Ordinary {
            components: Vec::new(),
        }
    }

    /// The same place once its entries show that it is a PostgreSQL data directory.
    pub(super) fn into_postgres_root(self) -> Place {
        match self {
            Place::Ordinary { components } => {
                let prefix = components
                    .iter()
                    .map(|component| format!("{component}/"))
                    .collect();
                Place::Postgres {
                    prefix,
                    components: Vec::new(),
                }
            }
            postgres => postgres,
        }
    }

    /// A directory in this one.
    pub(super) fn child(&self, name: &OsStr) -> Place {
        let mut child = self.clone();
        let name = name.to_string_lossy().into_owned();
        match &mut child {
            Place::Ordinary { components } if components.len() >= GENERIC_DEPTH => {}
            Place::Ordinary { components } | Place::Postgres { components, .. } => components.push(name),
        }
        child
    }

    /// Whether this is the directory of tablespaces, whose symbolic links are followed.
    pub(super) fn is_tablespaces(&self) -> bool {
        matches!(self, Place::Postgres { components, .. } if *components == ["pg_tblspc"])
    }

    /// The name of the family that a file in this directory belongs to.
    pub(super) fn family(&self, file_name: &OsStr) -> String {
        match self {
            Place::Ordinary { components } => {
                let directory: String = components
                    .iter()
                    .map(|component| format!("{component}/"))
                    .collect();
                match extension(file_name) {
                    Some(extension) => format!("{directory}*.{extension}"),
                    None => format!("{directory}* (no extension)"),
                }
            }
            Place::Postgres { prefix, components } => {
                format!(
                    "{prefix}{}",
                    postgres_family(components, &file_name.to_string_lossy())
                )
            }
        }
    }
}

/// Whether the entries of a directory are those of a PostgreSQL data directory.
pub(super) fn is_postgres_root<'a>(names: impl Iterator<Item = &'a OsStr>) -> bool {
    let mut found = [false; 3];
    for name in names {
        for (wanted, found) in ["PG_VERSION", "base", "global"].iter().zip(&mut found) {
            *found |= name == *wanted;
        }
    }
    found == [true; 3]
}

fn extension(file_name: &OsStr) -> Option<String> {
    let extension = Path::new(file_name).extension()?.to_str()?;
    let is_extension = extension.len() <= EXTENSION_BYTES_MAX
        && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
        // `log.1` and `16384.2` are numbered pieces, not file types.
        && extension.bytes().any(|byte| byte.is_ascii_alphabetic());
    is_extension.then(|| extension.to_ascii_lowercase())
}

fn postgres_family(components: &[String], file_name: &str) -> String {
    let components: Vec<&str> = components.iter().map(String::as_str).collect();
    match components[..] {
        [] => "(top-level files)".to_owned(),
        ["global"] => relation_family("global", file_name),
        ["base", database] => relation_family(&format!("base/{database}"), file_name),
        ["pg_tblspc", tablespace, _version, database] => {
            relation_family(&format!("pg_tblspc/{tablespace}/{database}"), file_name)
        }
        [top, ..] => top.to_owned(),
    }
}

fn relation_family(database: &str, file_name: &str) -> String {
    match relation(file_name) {
        Some(Relation::Permanent(number)) if number < FIRST_USER_RELATION => format!("{database} (catalogs)"),
        Some(Relation::Permanent(number)) => format!("{database}/{number}"),
        Some(Relation::Temporary) => format!("{database} (temporary)"),
        None => format!("{database} (other files)"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Permanent(u32),
    Temporary,
}

/// Reads `NUMBER[_fsm|_vm|_init][.SEGMENT]`, and `tBACKEND_NUMBER...` for temporary relations.
fn relation(file_name: &str) -> Option<Relation> {
    let (name, segment) = match file_name.split_once('.') {
        Some((name, segment)) => (name, Some(segment)),
        None => (file_name, None),
    };
    if let Some(segment) = segment {
        number(segment)?;
    }
    let name = ["_fsm", "_vm", "_init"]
        .iter()
        .find_map(|fork| name.strip_suffix(fork))
        .unwrap_or(name);
    if let Some((backend, relation)) = name.strip_prefix('t').and_then(|rest| rest.split_once('_')) {
        return number(backend).and(number(relation)).map(|_| Relation::Temporary);
    }
    number(name).map(Relation::Permanent)
}

fn number(digits: &str) -> Option<u32> {
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())
        .flatten()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn place(root: Place, path: &str) -> Place {
        path.split('/')
            .filter(|name| !name.is_empty())
            .fold(root, |place, name| place.child(OsStr::new(name)))
    }

    #[test]
    fn relations_are_known_by_their_number() {
        let permanent = |number| Some(Relation::Permanent(number));
        for name in [
            "16384",
            "16384.1",
            "16384.12",
            "16384_fsm",
            "16384_vm",
            "16384_init",
            "16384_vm.1",
        ] {
            assert_eq!(relation(name), permanent(16_384), "{name}");
        }
        assert_eq!(relation("t3_16390"), Some(Relation::Temporary));
        assert_eq!(relation("t3_16390_fsm"), Some(Relation::Temporary));
        for name in [
            "",
            "PG_VERSION",
            "pg_filenode.map",
            "16384.",
            "16384.x",
            "16384_old",
            "x16384",
            "t_1",
            "t3_",
            ".1",
            "99999999999",
        ] {
            assert_eq!(relation(name), None, "{name}");
        }
    }

    #[test]
    fn files_of_a_data_directory_have_their_families() {
        let root = Place::root().into_postgres_root();
        for (directory, file, family) in [
            ("", "PG_VERSION", "(top-level files)"),
            ("base/5", "16390.2", "base/5/16390"),
            ("base/5", "16390_vm", "base/5/16390"),
            ("base/5", "1259", "base/5 (catalogs)"),
            ("base/5", "t4_20000", "base/5 (temporary)"),
            ("base/5", "pg_filenode.map", "base/5 (other files)"),
            ("base/pgsql_tmp", "pgsql_tmp12.0", "base/pgsql_tmp (other files)"),
            ("global", "1262", "global (catalogs)"),
            (
                "pg_tblspc/16400/PG_15_202209061/5",
                "16500.1",
                "pg_tblspc/16400/5/16500",
            ),
            ("pg_wal", "000000010000000000000001", "pg_wal"),
            ("pg_wal/archive_status", "x.done", "pg_wal"),
            ("pg_logical/snapshots", "0-1.snap", "pg_logical"),
        ] {
            assert_eq!(
                place(root.clone(), directory).family(OsStr::new(file)),
                family,
                "{directory}/{file}"
            );
        }
        assert!(place(root.clone(), "pg_tblspc").is_tablespaces());
        assert!(!place(root, "base").is_tablespaces());
        assert!(!place(Place::root(), "pg_tblspc").is_tablespaces());
    }

    #[test]
    fn a_data_directory_inside_a_tree_keeps_where_it_is() {
        let root = place(Place::root(), "15/main").into_postgres_root();
        assert_eq!(
            place(root, "base/5").family(OsStr::new("16390")),
            "15/main/base/5/16390"
        );
    }

    #[test]
    fn other_files_go_by_directory_and_extension() {
        for (directory, file, family) in [
            ("", "notes.TXT", "*.txt"),
            ("a/b/c/d", "x.rs", "a/b/*.rs"),
            ("a", "Makefile", "a/* (no extension)"),
            ("a", ".hidden", "a/* (no extension)"),
            ("a", "log.1", "a/* (no extension)"),
            ("cur", "1438.M20P1.host:2,S", "cur/* (no extension)"),
        ] {
            assert_eq!(place(Place::root(), directory).family(OsStr::new(file)), family);
        }
    }

    #[test]
    fn a_data_directory_is_recognised_by_three_entries() {
        let is_root = |names: &[&str]| is_postgres_root(names.iter().map(|name| OsStr::new(*name)));
        assert!(is_root(&["base", "x", "global", "PG_VERSION"]));
        assert!(!is_root(&["base", "global"]));
        assert!(!is_root(&["PG_VERSION", "16384"]));
        assert!(!is_root(&[]));
    }
}
