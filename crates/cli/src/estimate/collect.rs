//! Walks the directory: which regular files there are, how large they are, and to which family each belongs.
//!
//! Symbolic links are not followed, except tablespaces of PostgreSQL. Other file systems mounted below are
//! not entered. A file with several names counts once. Nothing is opened but directories.
//!
//! Memory: a few tens of bytes and the name for each file.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;

use super::family::{Place, is_postgres_root};
use super::report::Skipped;

/// Families beyond the largest so many are put together before anything is sampled.
pub(super) const FAMILIES_MAX: usize = 200;
/// The name of what is put together.
pub(super) const OTHER_FAMILIES: &str = "(all other families)";
/// Unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;
/// How often the number of files found is shown.
const FILES_PER_MESSAGE: usize = 1_000;

/// One regular file.
#[derive(Debug)]
pub(super) struct FoundFile {
    directory: u32,
    name: Box<OsStr>,
    pub(super) family: u32,
    pub(super) apparent_bytes: u64,
}

/// Files that are estimated together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Family {
    pub(super) name: String,
    pub(super) files: u64,
    pub(super) apparent_bytes: u64,
    pub(super) allocated_bytes: u64,
}

/// Everything the walk found.
#[derive(Debug, Default)]
pub(super) struct Collected {
    directories: Vec<PathBuf>,
    /// In the order of their families, then of their paths.
    pub(super) files: Vec<FoundFile>,
    pub(super) families: Vec<Family>,
    pub(super) has_postgres: bool,
    pub(super) skipped: Skipped,
}

impl Collected {
    pub(super) fn path(&self, file: &FoundFile) -> PathBuf {
        self.directories[file.directory as usize].join(&*file.name)
    }
}

/// A directory still to be read.
struct Pending {
    path: PathBuf,
    place: Place,
    device: u64,
    inode: u64,
}

struct Walk<'a> {
    collected: Collected,
    family_ids: HashMap<String, u32>,
    /// Device and inode of directories that were entered, and of files with several names. A tablespace can
    /// be reached by its link and by its own path, and counts once.
    seen: HashSet<(u64, u64)>,
    pending: Vec<Pending>,
    progress: &'a ProgressBar,
}

/// Walks a directory. Fails only when the directory itself cannot be read.
pub(super) fn collect(directory: &Path, progress: &ProgressBar) -> Result<Collected> {
    let cannot_read = || format!("cannot read the directory {}", directory.display());
    let metadata = std::fs::metadata(directory).with_context(cannot_read)?;
    ensure!(metadata.is_dir(), "{} is not a directory", directory.display());
    let mut walk = Walk {
        collected: Collected::default(),
        family_ids: HashMap::new(),
        seen: HashSet::new(),
        pending: Vec::new(),
        progress,
    };
    let root = Pending {
        path: directory.to_owned(),
        place: Place::root(),
        device: metadata.dev(),
        inode: metadata.ino(),
    };
    walk.seen.insert((root.device, root.inode));
    let entries = read_directory(directory).with_context(cannot_read)?;
    walk.enter(root, entries);
    while let Some(next) = walk.pending.pop() {
        if !walk.seen.insert((next.device, next.inode)) {
            continue;
        }
        match read_directory(&next.path) {
            Ok(entries) => walk.enter(next, entries),
            Err(error) => walk.collected.skipped.count_failure(&error),
        }
    }
    let mut collected = walk.collected;
    merge_small_families(&mut collected);
    Ok(collected)
}

/// The entries by name, so that the order does not depend on the file system. Entries that fail are left out.
fn read_directory(path: &Path) -> io::Result<Vec<(OsString, DirEntry)>> {
    let mut entries: Vec<_> = std::fs::read_dir(path)?
        .flatten()
        .map(|entry| (entry.file_name(), entry))
        .collect();
    entries.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(entries)
}

impl Walk<'_> {
    fn enter(&mut self, directory: Pending, entries: Vec<(OsString, DirEntry)>) {
        let mut place = directory.place;
        if matches!(place, Place::Ordinary { .. })
            && is_postgres_root(entries.iter().map(|(name, _)| &**name))
        {
            place = place.into_postgres_root();
            self.collected.has_postgres = true;
        }
        let directory_id = self.collected.directories.len() as u32;
        self.collected.directories.push(directory.path.clone());
        for (name, entry) in entries {
            // Not through a link: the type and the size must be of the same thing.
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => {
                    self.push_directory(
                        directory.path.join(&name),
                        place.child(&name),
                        &metadata,
                        directory.device,
                    );
                }
                Ok(metadata) if metadata.is_file() => self.push_file(directory_id, name, &place, &metadata),
                Ok(metadata) if metadata.is_symlink() && place.is_tablespaces() => {
                    self.push_tablespace(directory.path.join(&name), place.child(&name));
                }
                Ok(metadata) if metadata.is_symlink() => self.collected.skipped.symbolic_links += 1,
                Ok(_) => self.collected.skipped.special_files += 1,
                Err(error) => self.collected.skipped.count_failure(&error),
            }
        }
    }

    fn push_directory(&mut self, path: PathBuf, place: Place, metadata: &Metadata, device: u64) {
        if metadata.dev() == device {
            self.pending.push(Pending {
                path,
                place,
                device,
                inode: metadata.ino(),
            });
        } else {
            self.collected.skipped.other_file_systems += 1;
        }
    }

    /// A tablespace may be on another file system: its own is the one that is not left then.
    fn push_tablespace(&mut self, link: PathBuf, place: Place) {
        match std::fs::metadata(&link) {
            Ok(metadata) if metadata.is_dir() => {
                let (device, inode) = (metadata.dev(), metadata.ino());
                self.pending.push(Pending {
                    path: link,
                    place,
                    device,
                    inode,
                });
            }
            Ok(_) => self.collected.skipped.symbolic_links += 1,
            Err(error) => self.collected.skipped.count_failure(&error),
        }
    }

    fn push_file(&mut self, directory: u32, name: OsString, place: &Place, metadata: &Metadata) {
        if metadata.nlink() > 1 && !self.seen.insert((metadata.dev(), metadata.ino())) {
            self.collected.skipped.further_names += 1;
            return;
        }
        let family_name = place.family(&name);
        let families = &mut self.collected.families;
        let family = *self.family_ids.entry(family_name).or_insert_with_key(|name| {
            families.push(Family {
                name: name.clone(),
                ..Family::default()
            });
            families.len() as u32 - 1
        });
        let totals = &mut families[family as usize];
        totals.files += 1;
        totals.apparent_bytes += metadata.len();
        totals.allocated_bytes += metadata.blocks() * STAT_BLOCK_BYTES;
        let name = name.into_boxed_os_str();
        self.collected.files.push(FoundFile {
            directory,
            name,
            family,
            apparent_bytes: metadata.len(),
        });
        if self.collected.files.len() % FILES_PER_MESSAGE == 0 {
            self.progress
                .set_message(format!("{} files found", self.collected.files.len()));
        }
    }
}

/// Orders families by size, largest first, and puts those beyond the cap together at the end.
fn merge_small_families(collected: &mut Collected) {
    let mut order: Vec<usize> = (0..collected.families.len()).collect();
    order.sort_by(|&left, &right| {
        let (left, right) = (&collected.families[left], &collected.families[right]);
        right
            .apparent_bytes
            .cmp(&left.apparent_bytes)
            .then_with(|| left.name.cmp(&right.name))
    });
    let mut new_ids = vec![0; order.len()];
    let mut families: Vec<Family> = Vec::new();
    let is_capped = order.len() > FAMILIES_MAX;
    for (rank, old_id) in order.into_iter().enumerate() {
        let family = std::mem::take(&mut collected.families[old_id]);
        if is_capped && rank >= FAMILIES_MAX - 1 {
            if families.len() < FAMILIES_MAX {
                families.push(Family {
                    name: OTHER_FAMILIES.to_owned(),
                    ..Family::default()
                });
            }
            let other = &mut families[FAMILIES_MAX - 1];
            other.files += family.files;
            other.apparent_bytes += family.apparent_bytes;
            other.allocated_bytes += family.allocated_bytes;
        } else {
            families.push(family);
        }
        new_ids[old_id] = families.len() as u32 - 1;
    }
    collected.families = families;
    for file in &mut collected.files {
        file.family = new_ids[file.family as usize];
    }
    let directories = &collected.directories;
    collected.files.sort_by(|left, right| {
        let key = |file: &FoundFile| (file.family, &directories[file.directory as usize]);
        key(left)
            .cmp(&key(right))
            .then_with(|| left.name.cmp(&right.name))
    });
}
