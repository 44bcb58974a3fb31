//! Mending a dataset that is not mounted: what [`crate::check()`] found and nobody has to guess about.
//!
//! | found | done |
//! |---|---|
//! | link, entry and byte counts, flags and parents that disagree with what is there | counted again |
//! | a name of an inode of which nothing exists | removed |
//! | an inode without a name that was not deleted | named in `/lost+found` |
//! | an orphan key of an inode that has a name, or none at all | removed |
//! | inodes that wait to be reclaimed | reclaimed |
//!
//! Everything else is left to people, and so are files with damaged records: [`name_damage`] lists them, reads of them go on
//! failing. Each step is a transaction, so a crash in between leaves a dataset that can be repaired again.

use crate::check::mends::{Mends, NameMend};
use crate::check::{FsCheckReport, check};
use crate::error::{damaged, from_pool};
use crate::filesystem::{FileSystem, MountOptions};
use crate::layout::{Entry, Superblock, decode_extent, keys};
use crate::types::{Caller, ErrorKind, FileKind, Ino, Result};
use packstone_pool::{Pool, RecordId, Transaction, TreeId};
use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

const OPERATION: &str = "repair dataset";
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Changes in one transaction.
const CHANGES_PER_COMMIT: usize = 500;
/// Rounds of check and repair: each mends what the one before made visible.
const ROUNDS_MAX: usize = 6;
/// Keys read at a time.
const KEYS_PER_SCAN: usize = 1024;

/// A part of a file whose bytes are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// Path within the dataset; only the number where no name leads to the file.
    pub path: String,
    /// The file.
    pub ino: Ino,
    /// First byte.
    pub start_bytes: u64,
    /// One past the last byte.
    pub end_bytes: u64,
}

/// Repairs a dataset of a pool that is open for writing and returns a line for each thing done. `caller` owns what has to be
/// created.
pub fn repair(pool: &Arc<Pool>, dataset: &str, caller: &Caller) -> Result<Vec<String>> {
    let tree = pool.dataset(dataset).map_err(from_pool(OPERATION))?.tree;
    let mut done = vec![];
    for _ in 0..ROUNDS_MAX {
        let report = check(pool, dataset, &mut |_, _| {})?;
        if report.mends.is_empty() {
            reclaim_orphans(pool, dataset, caller, &report, &mut done)?;
            break;
        }
        done.extend(report.mends.lines());
        Repair {
            pool,
            dataset,
            tree,
            caller,
        }
        .apply(&report.mends)?;
    }
    Ok(done)
}

fn reclaim_orphans(
    pool: &Arc<Pool>,
    dataset: &str,
    caller: &Caller,
    report: &FsCheckReport,
    done: &mut Vec<String>,
) -> Result<()> {
    if report.orphans == 0 {
        return Ok(());
    }
    let file_system = FileSystem::open(pool.clone(), dataset, MountOptions::default(), caller)?;
    while file_system.step(caller.now)? {}
    file_system.close()?;
    done.push(format!("reclaim {} deleted files", report.orphans));
    Ok(())
}

struct Repair<'a> {
    pool: &'a Arc<Pool>,
    dataset: &'a str,
    tree: TreeId,
    caller: &'a Caller,
}

impl Repair<'_> {
    fn apply(&self, mends: &Mends) -> Result<()> {
        let mut changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = vec![];
        for (ino, (_, to)) in &mends.inodes {
            changes.push((keys::inode(*ino).to_vec(), Some(to.encode())));
        }
        for ((directory, cookie), mend) in &mends.names {
            let key = keys::entry(*directory, *cookie).to_vec();
            match mend {
                NameMend::Drop(_) => changes.push((key, None)),
                NameMend::Kind(kind) => {
                    if let Some(entry) = self.entry(&key)? {
                        changes.push((key, Some(Entry { kind: *kind, ..entry }.encode())));
                    }
                }
            }
        }
        for ino in &mends.orphans {
            changes.push((keys::orphan(*ino).to_vec(), None));
        }
        if let Some(highest) = mends.highest {
            let superblock = Superblock {
                next_ino: Ino(highest.0.saturating_add(1)),
                ..self.superblock()?
            };
            changes.push((keys::superblock().to_vec(), Some(superblock.encode())));
        }
        for piece in changes.chunks(CHANGES_PER_COMMIT) {
            self.commit(|transaction| {
                for (key, value) in piece {
                    match value {
                        Some(value) => transaction.put(self.tree, key, value),
                        None => transaction.delete(self.tree, key),
                    }
                }
            })?;
        }
        if mends.nameless.is_empty() {
            return Ok(());
        }
        let directory = self.lost_and_found()?;
        let mut nameless = mends.nameless.iter();
        nameless.try_for_each(|(ino, kind)| self.name(directory, *ino, *kind))
    }

    fn commit(&self, fill: impl FnOnce(&mut Transaction)) -> Result<()> {
        let mut transaction = self.pool.begin();
        transaction.may_use_reserve();
        fill(&mut transaction);
        self.pool
            .commit(transaction)
            .map(drop)
            .map_err(from_pool(OPERATION))
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.pool.get(self.tree, key).map_err(from_pool(OPERATION))
    }

    fn entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        Ok(self.get(key)?.and_then(|value| Entry::decode(&value).ok()))
    }

    fn superblock(&self) -> Result<Superblock> {
        let value = self.get(&keys::superblock())?;
        let superblock = value.and_then(|value| Superblock::decode(&value).ok());
        superblock.ok_or_else(|| damaged(OPERATION, "there is no superblock"))
    }

    /// The directory for what has no name, made if there is none.
    fn lost_and_found(&self) -> Result<Ino> {
        let options = MountOptions::default();
        let file_system = FileSystem::open(self.pool.clone(), self.dataset, options, self.caller)?;
        let found = match file_system.lookup(self.caller, Ino::ROOT, LOST_AND_FOUND) {
            Err(missing) if missing.kind == ErrorKind::NotFound => {
                file_system.create_directory(self.caller, Ino::ROOT, LOST_AND_FOUND, 0o700)
            }
            other => other,
        };
        file_system.close()?;
        Ok(found?.ino)
    }

    fn name(&self, directory: Ino, ino: Ino, kind: FileKind) -> Result<()> {
        let name = format!("inode-{ino}").into_bytes();
        let first = keys::bucket(self.superblock()?.hash_seed, &name);
        for cookie in first..first + keys::SLOTS {
            let key = keys::entry(directory, cookie);
            if self.get(&key)?.is_some() {
                continue;
            }
            let entry = Entry { kind, ino, name };
            return self.commit(|transaction| transaction.put(self.tree, &key, &entry.encode()));
        }
        Err(damaged(OPERATION, "too many names in lost+found share one hash"))
    }
}

/// Every part of a file that consists of one of `records`, or of a record that does not exist, by path.
pub fn name_damage(pool: &Pool, dataset: &str, records: &HashSet<RecordId>) -> Result<Vec<DamagedRange>> {
    let tree = pool.dataset(dataset).map_err(from_pool(OPERATION))?.tree;
    let mut names: HashMap<Ino, (Ino, String)> = HashMap::new();
    let mut sizes: HashMap<Ino, (u64, u64)> = HashMap::new();
    let mut found = vec![];
    let mut last: Option<Vec<u8>> = None;
    loop {
        let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let pairs = pool
            .scan(tree, from, Bound::Unbounded, KEYS_PER_SCAN)
            .map_err(from_pool(OPERATION))?;
        let Some((key, _)) = pairs.last() else { break };
        last = Some(key.clone());
        for (key, value) in &pairs {
            match keys::parse(key) {
                Some(keys::Key::Inode(ino)) => {
                    let record = crate::layout::InodeRecord::decode(value).ok();
                    let bytes = record.and_then(|record| Some((record.record_bytes()?, record.size_bytes)));
                    sizes.extend(bytes.map(|bytes| (ino, bytes)));
                }
                Some(keys::Key::Entry(directory, _)) => {
                    if let Ok(entry) = Entry::decode(value) {
                        let name = String::from_utf8_lossy(&entry.name).into_owned();
                        names.insert(entry.ino, (directory, name));
                    }
                }
                Some(keys::Key::Extent(ino, index)) => {
                    let lost = match decode_extent(value) {
                        Ok(id) => records.contains(&id) || !matches!(pool.packed_bytes(id), Ok(1..)),
                        Err(_) => true,
                    };
                    if lost {
                        found.push((ino, index));
                    }
                }
                _ => {}
            }
        }
    }
    let range = |(ino, index): (Ino, u64)| {
        let (record_bytes, size_bytes) = sizes.get(&ino).copied().unwrap_or((1, u64::MAX));
        let start_bytes = index.saturating_mul(record_bytes);
        DamagedRange {
            path: path_of(&names, ino),
            ino,
            start_bytes,
            end_bytes: start_bytes.saturating_add(record_bytes).min(size_bytes),
        }
    };
    Ok(found.into_iter().map(range).collect())
}

fn path_of(names: &HashMap<Ino, (Ino, String)>, ino: Ino) -> String {
    let mut parts = vec![];
    let mut at = ino;
    // Damaged directories may form a circle.
    for _ in 0..1000 {
        if at == Ino::ROOT {
            break;
        }
        let Some((parent, name)) = names.get(&at) else {
            parts.push(format!("(inode {at})"));
            break;
        };
        parts.push(name.clone());
        at = *parent;
    }
    parts.reverse();
    format!("/{}", parts.join("/"))
}
