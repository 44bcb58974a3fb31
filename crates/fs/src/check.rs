//! Verifies the files and directories of a dataset that is not mounted: one pass over the tree, then what can only be
//! judged when everything is known.
//!
//! | in the pass | at the end |
//! |---|---|
//! | every key and value decodes, and belongs to the kind of its inode | every name leads to an inode of its kind |
//! | every extent lies below the file's end and its record exists | every record is referenced once |
//! | stored bytes, symlink lengths, entry counts | link counts; orphan keys exactly for inodes without names |
//! | names lie in their hash bucket, each once | every directory leads to the root by one way |
//!
//! Memory: some 100 bytes for each inode and 8 for each record. Left out: the content of records, which the pool
//! verifies by checksum.

use crate::error::{fail, from_pool};
use crate::layout::{Entry, InodeRecord, Superblock, decode_extent, flags, keys};
use crate::types::{ErrorKind, FileKind, Ino, Result};
use mends::Mends;
use packstone_pool::{ErrorKind as PoolErrorKind, Pool, RecordId};
use std::collections::{HashMap, HashSet};
use std::ops::Bound;

mod links;
pub(crate) mod mends;

const OPERATION: &str = "check dataset";
/// Keys read at a time.
const KEYS_PER_SCAN: usize = 1024;
/// Problems told one by one; further ones are only counted.
const PROBLEMS_MAX: usize = 1000;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct FsCheckReport {
    /// Regular files, with or without a name.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symlinks, pipes, sockets and devices.
    pub others: u64,
    /// Inodes without a name that wait to be reclaimed.
    pub orphans: u64,
    /// Sizes of regular files together, holes included.
    pub logical_bytes: u64,
    /// Packed lengths of the records referenced.
    pub stored_bytes: u64,
    /// Records that files refer to, ascending: those that the dataset owns and that are missing here are leaked.
    pub references: Vec<RecordId>,
    /// Number of problems, also of those too many to be told.
    pub problem_count: u64,
    /// One line each.
    pub problems: Vec<String>,
    /// What of it can be mended without guessing.
    pub(crate) mends: Mends,
}

impl FsCheckReport {
    /// One line for each thing that [`crate::repair()`] would do at first; mending one thing may show another.
    pub fn repairs(&self) -> Vec<String> {
        self.mends.lines()
    }

    fn problem(&mut self, text: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }
}

/// Checks one dataset. `progress(done, total)` counts records and may be called often. Errors are those of reading the
/// tree at all; everything else is a problem in the report.
pub fn check(pool: &Pool, dataset: &str, progress: &mut dyn FnMut(u64, u64)) -> Result<FsCheckReport> {
    let found = pool.dataset(dataset).map_err(from_pool(OPERATION))?;
    if found.is_key_value() {
        // Pairs of somebody else: only the pool can say something of them.
        return Ok(FsCheckReport::default());
    }
    let mut check = Check {
        pool,
        report: FsCheckReport::default(),
        superblock: None,
        inodes: HashMap::new(),
        orphans: HashSet::new(),
        remains: HashSet::new(),
        names: vec![],
        at: None,
        bucket: (Ino(0), 0, vec![]),
    };
    let total = pool.tree_usage(found.tree).records;
    let mut last: Option<Vec<u8>> = None;
    loop {
        let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let pairs = pool
            .scan(found.tree, from, Bound::Unbounded, KEYS_PER_SCAN)
            .map_err(from_pool(OPERATION))?;
        let Some((key, _)) = pairs.last() else { break };
        if last.as_ref().is_some_and(|last| key <= last) {
            return fail(ErrorKind::Damaged, OPERATION, "keys do not ascend");
        }
        let next = key.clone();
        for (key, value) in &pairs {
            check.pair(key, value)?;
        }
        last = Some(next);
        progress(check.report.references.len() as u64, total);
    }
    check.finish_inode();
    if last.is_some() {
        check.finish();
    }
    Ok(check.report)
}

/// What is remembered of each inode to the end.
struct Summary {
    record: InodeRecord,
    links: u32,
    subdirectories: u32,
}

/// What is counted of the inode that the pass is at.
#[derive(Default)]
struct Current {
    ino: u64,
    entries: u64,
    stored_bytes: u64,
    /// Flags of extended attributes that exist.
    flags: u8,
    target: bool,
    missing_reported: bool,
}

/// A name, as it is needed at the end.
struct Name {
    directory: Ino,
    cookie: u64,
    ino: Ino,
    kind: FileKind,
}

struct Check<'p> {
    pool: &'p Pool,
    report: FsCheckReport,
    superblock: Option<Superblock>,
    inodes: HashMap<Ino, Summary>,
    orphans: HashSet<Ino>,
    /// Inodes of which something is left but no attributes that can be read.
    remains: HashSet<Ino>,
    names: Vec<Name>,
    at: Option<Current>,
    /// Directory, first cookie, and names of the bucket that the pass is at.
    bucket: (Ino, u64, Vec<Vec<u8>>),
}

impl Check<'_> {
    fn pair(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(key) = keys::parse(key) else {
            self.report
                .problem(format!("key {} is of no known kind", hex(key)));
            return Ok(());
        };
        match key {
            keys::Key::Superblock => match Superblock::decode(value) {
                Ok(superblock) => self.superblock = Some(superblock),
                Err(why) => self.report.problem(format!("superblock: {why}")),
            },
            keys::Key::Orphan(ino) => {
                self.orphans.insert(ino);
            }
            keys::Key::Inode(ino) => self.inode(ino, value),
            keys::Key::Entry(ino, cookie) => self.entry(ino, cookie, value),
            keys::Key::Extent(ino, index) => self.extent(ino, index, value)?,
            keys::Key::Xattr(ino, name) => self.xattr(ino, name, value),
            keys::Key::Symlink(ino) => self.symlink(ino, value),
        }
        Ok(())
    }

    fn inode(&mut self, ino: Ino, value: &[u8]) {
        self.enter(ino);
        let record = match InodeRecord::decode(value) {
            Ok(record) => record,
            Err(why) => {
                self.report.problem(format!("inode {ino}: {why}"));
                self.remains.insert(ino);
                return;
            }
        };
        match record.kind {
            FileKind::Regular => {
                self.report.files += 1;
                self.report.logical_bytes = self.report.logical_bytes.saturating_add(record.size_bytes);
            }
            FileKind::Directory => self.report.directories += 1,
            _ => self.report.others += 1,
        }
        if self
            .superblock
            .as_ref()
            .is_some_and(|superblock| ino >= superblock.next_ino)
        {
            self.report
                .problem(format!("inode {ino}: its number is not given out yet"));
            self.report.mends.raise_next_ino(ino);
        }
        self.inodes.insert(
            ino,
            Summary {
                record,
                links: 0,
                subdirectories: 0,
            },
        );
    }

    /// Moves on to `ino` if the pass is not there yet.
    fn enter(&mut self, ino: Ino) -> &mut Current {
        if self.at.as_ref().is_none_or(|current| current.ino != ino.0) {
            self.finish_inode();
        }
        self.at.get_or_insert_with(|| Current {
            ino: ino.0,
            ..Current::default()
        })
    }

    /// Attributes of the inode that a key belongs to, if they are there and of the kind.
    fn owner(&mut self, ino: Ino, what: &str, kind: Option<FileKind>) -> Option<InodeRecord> {
        self.enter(ino);
        match self.inodes.get(&ino) {
            Some(summary) if kind.is_none_or(|kind| kind == summary.record.kind) => Some(summary.record),
            Some(summary) => {
                let text = format!("inode {ino}: has {what} and is {:?}", summary.record.kind);
                self.report.problem(text);
                None
            }
            None => {
                self.remains.insert(ino);
                if !std::mem::replace(&mut self.enter(ino).missing_reported, true) {
                    self.report
                        .problem(format!("inode {ino}: has {what} and no attributes"));
                }
                None
            }
        }
    }

    fn entry(&mut self, ino: Ino, cookie: u64, value: &[u8]) {
        self.owner(ino, "names", Some(FileKind::Directory));
        self.enter(ino).entries += 1;
        let entry = match Entry::decode(value) {
            Ok(entry) => entry,
            Err(why) => {
                self.report
                    .problem(format!("inode {ino}, entry {cookie:#x}: {why}"));
                return;
            }
        };
        let text = String::from_utf8_lossy(&entry.name).into_owned();
        let first = self
            .superblock
            .as_ref()
            .map(|superblock| keys::bucket(superblock.hash_seed, &entry.name));
        if first.is_some_and(|first| first != cookie & !(keys::SLOTS - 1)) {
            self.report.problem(format!(
                "inode {ino}: '{text}' lies where look-ups do not find it"
            ));
        }
        let bucket = (ino, cookie & !(keys::SLOTS - 1));
        if (self.bucket.0, self.bucket.1) != bucket {
            self.bucket = (bucket.0, bucket.1, vec![]);
        }
        if self.bucket.2.contains(&entry.name) {
            self.report
                .problem(format!("inode {ino}: '{text}' is there twice"));
        }
        self.bucket.2.push(entry.name);
        self.names.push(Name {
            directory: ino,
            cookie,
            ino: entry.ino,
            kind: entry.kind,
        });
    }

    fn extent(&mut self, ino: Ino, index: u64, value: &[u8]) -> Result<()> {
        let owner = self.owner(ino, "records", Some(FileKind::Regular));
        let id = match decode_extent(value) {
            Ok(id) => id,
            Err(why) => {
                self.report.problem(format!("inode {ino}, record {index}: {why}"));
                return Ok(());
            }
        };
        self.report.references.push(id);
        if let Some(record) = owner {
            let start = record.record_bytes().and_then(|bytes| index.checked_mul(bytes));
            if start.is_none_or(|start| start >= record.size_bytes) {
                self.report.problem(format!(
                    "inode {ino}, record {index}: lies behind the end of the file"
                ));
            }
        }
        match self.pool.packed_bytes(id) {
            Ok(0) => self.report.problem(format!(
                "inode {ino}, record {index}: there is no record {}",
                id.0
            )),
            Ok(packed_bytes) => {
                self.report.stored_bytes += u64::from(packed_bytes);
                self.enter(ino).stored_bytes += u64::from(packed_bytes);
            }
            Err(failed) if failed.kind() == PoolErrorKind::Unavailable => {
                return Err(from_pool(OPERATION)(failed));
            }
            Err(failed) => self
                .report
                .problem(format!("inode {ino}, record {index} (id {}): {failed}", id.0)),
        }
        Ok(())
    }

    fn xattr(&mut self, ino: Ino, name: &[u8], value: &[u8]) {
        self.owner(ino, "extended attributes", None);
        self.enter(ino).flags |= flags::XATTRS | crate::xattrs::own_flag(name);
        let acl = name == crate::acl::ACCESS || name == crate::acl::DEFAULT;
        if acl && !matches!(crate::acl::Acl::parse(OPERATION, value), Ok(Some(_))) {
            self.report.problem(format!(
                "inode {ino}: {} is malformed",
                String::from_utf8_lossy(name)
            ));
        }
    }

    fn symlink(&mut self, ino: Ino, target: &[u8]) {
        self.enter(ino).target = true;
        if let Some(record) = self.owner(ino, "a target", Some(FileKind::Symlink))
            && record.size_bytes != target.len() as u64
        {
            self.report
                .problem(format!("inode {ino}: its target is not as long as its size says"));
            self.report.mends.change(ino, &record).size_bytes = target.len() as u64;
        }
    }

    /// Everything of the inode has been seen.
    fn finish_inode(&mut self) {
        let Some(current) = self.at.take() else { return };
        let ino = current.ino;
        let Some(summary) = self.inodes.get(&Ino(ino)) else {
            return;
        };
        let record = &summary.record;
        let mut problems = vec![];
        if record.kind == FileKind::Directory && record.size_bytes != current.entries {
            problems.push(format!(
                "inode {ino}: has {} entries and counts {}",
                current.entries, record.size_bytes
            ));
            self.report.mends.change(Ino(ino), record).size_bytes = current.entries;
        }
        // Orphans are emptied piece by piece, and nobody asks for their size.
        let exact = record.flags & flags::STORED_INEXACT == 0 && record.nlink > 0;
        if exact && record.stored_bytes != current.stored_bytes {
            let (found, said) = (current.stored_bytes, record.stored_bytes);
            problems.push(format!(
                "inode {ino}: {found} bytes are stored and it says {said}"
            ));
            self.report.mends.change(Ino(ino), record).stored_bytes = found;
        }
        if record.kind == FileKind::Symlink && !current.target {
            problems.push(format!("inode {ino}: a symlink without a target"));
        }
        let telling = flags::CAPABILITY | flags::ACCESS_ACL | flags::DEFAULT_ACL;
        let unseen = current.flags & flags::XATTRS & !record.flags;
        if (record.flags ^ current.flags) & telling != 0 || unseen != 0 {
            problems.push(format!(
                "inode {ino}: flags {:#x} do not tell of its attributes",
                record.flags
            ));
            self.report.mends.change(Ino(ino), record).flags = (record.flags & !telling) | current.flags;
        }
        for problem in problems {
            self.report.problem(problem);
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
