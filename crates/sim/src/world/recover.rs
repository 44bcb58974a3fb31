//! After the pool was opened again: finds out which of the allowed states is there, and goes on with it.
//!
//! The witness tells which operations are in, up to a few; names, attributes and the catalog must be exactly as they were
//! after one of those. Each file must be as it was after one of its own changes, from the last one that was promised on,
//! or in the middle of one, record by record.

use super::file_data::FileData;
use super::model::{Meta, Model, entry_hash, inode_hash};
use super::names;
use super::slots::{Catalog, Slot, slot_sum};
use super::state::{Checked, World, fs_violation, pool_violation, violation};
use packstone_fs::{FileKind, Ino};
use packstone_pool::{DatasetState, check};
use std::collections::BTreeMap;

/// Names asked for at a time.
const ENTRIES: usize = 500;
/// Above this much on the device not every crash is followed by a full check.
const CHECKED_CHUNKS: u64 = 2_000;

/// What was found of an inode.
struct Found {
    kind: FileKind,
    meta: Meta,
    target: Vec<u8>,
}

/// Everything reachable in a dataset.
#[derive(Default)]
struct Walk {
    sum: u64,
    inodes: BTreeMap<Ino, Found>,
    /// By directory and name, for messages.
    entries: BTreeMap<(Ino, names::Name), Ino>,
}

impl World {
    /// Compares what is there with what may be, and makes it the state to go on from.
    pub(crate) fn recover(&mut self) -> Checked {
        self.listings.iter_mut().for_each(|listing| *listing = None);
        let witness = self.read_witness()?;
        let candidates = self.journal.candidates(witness);
        let (oldest, newest) =
            candidates.or_else(|detail| violation("recovered: durable operations lost", detail))?;
        let walks = self.walk_all()?;
        let sums = walks.iter().zip(&self.slots).map(|((catalog, walk), slot)| {
            slot_sum(&slot.name, catalog, walk.as_ref().map_or(0, |walk| walk.sum))
        });
        let found = sums.fold(0u64, u64::wrapping_add);
        while self.journal.undo_after(&mut self.slots, newest) {
            self.counts.lost += 1;
        }
        while self
            .slots
            .iter()
            .fold(0u64, |sum, slot| sum.wrapping_add(slot.sum()))
            != found
        {
            if !self.journal.undo_after(&mut self.slots, oldest) {
                let pairs = walks.iter().zip(&self.slots);
                let detail: Vec<String> = pairs
                    .map(|((catalog, walk), slot)| differences(catalog, walk.as_ref(), slot))
                    .collect();
                let detail = detail.concat();
                let detail = format!("after no operation from {oldest} to {newest}; at the first: {detail}");
                return violation("recovered: names that never were", detail);
            }
            self.counts.lost += 1;
        }
        self.note((witness, found));
        for (number, (catalog, walk)) in walks.into_iter().enumerate() {
            let slot = &mut self.slots[number];
            slot.catalog = catalog;
            match walk {
                Some(walk) => self.take_over(number as u8, walk, witness, newest)?,
                None => slot.model = Model::new(number as u8),
            }
        }
        self.journal.restart(witness);
        if self.content_chunks() < CHECKED_CHUNKS || self.journal.number % 4 == 0 {
            self.check()?;
        }
        Ok(())
    }

    /// Mounts and walks what the catalog holds.
    fn walk_all(&mut self) -> Checked<Vec<(Catalog, Option<Walk>)>> {
        let datasets = pool_violation("datasets", self.pool().datasets())?;
        let mut walks = vec![];
        for number in 0..self.slots.len() as u8 {
            let name = &self.slot(number).name;
            let catalog = match datasets.iter().find(|dataset| dataset.name == *name) {
                None => Catalog::Absent,
                Some(dataset) if dataset.state == DatasetState::Destroying => Catalog::Destroying,
                Some(dataset) => Catalog::Active(dataset.properties.clone()),
            };
            self.slot_mut(number).held.clear();
            let walk = match catalog {
                Catalog::Active(_) if self.mount(number)? => Some(self.walk(number)?),
                _ => None,
            };
            walks.push((catalog, walk));
        }
        Ok(walks)
    }

    fn walk(&self, number: u8) -> Checked<Walk> {
        let Some(fs) = &self.slot(number).fs else {
            return violation("not mounted", number.to_string());
        };
        let mut walk = Walk::default();
        let root = self.found(number, Ino::ROOT, FileKind::Directory)?;
        walk.sum = inode_hash(Ino::ROOT, root.kind, &root.meta, &root.target);
        walk.inodes.insert(Ino::ROOT, root);
        let mut directories = vec![(Ino::ROOT, Ino::ROOT)];
        while let Some((directory, parent)) = directories.pop() {
            let mut after = 0;
            loop {
                let entries = fs_violation("list", fs.read_directory(directory, after, ENTRIES))?;
                let Some(last) = entries.last() else { break };
                after = last.cookie;
                for entry in entries {
                    match &entry.name[..] {
                        b"." if entry.ino == directory => continue,
                        b".." if entry.ino == parent => continue,
                        _ => {}
                    }
                    let Some(name) = names::parse(&entry.name) else {
                        return violation("list: a name from nowhere", format!("{entry:?}"));
                    };
                    if walk.entries.insert((directory, name), entry.ino).is_some() {
                        return violation("list: a name twice", format!("{entry:?}"));
                    }
                    walk.sum = walk.sum.wrapping_add(entry_hash(directory, name, entry.ino));
                    if walk.inodes.contains_key(&entry.ino) {
                        continue;
                    }
                    let found = self.found(number, entry.ino, entry.kind)?;
                    let hash = inode_hash(entry.ino, found.kind, &found.meta, &found.target);
                    walk.sum = walk.sum.wrapping_add(hash);
                    walk.inodes.insert(entry.ino, found);
                    if entry.kind == FileKind::Directory {
                        directories.push((entry.ino, directory));
                    }
                }
            }
        }
        Ok(walk)
    }

    fn found(&self, number: u8, ino: Ino, kind: FileKind) -> Checked<Found> {
        let meta = self.read_meta(number, ino)?;
        let target = match (&self.slot(number).fs, kind) {
            (Some(fs), FileKind::Symlink) => fs_violation("read symlink", fs.read_symlink(ino))?,
            _ => vec![],
        };
        Ok(Found { kind, meta, target })
    }

    /// The walked dataset is the model from now on.
    fn take_over(&mut self, number: u8, walk: Walk, witness: u64, newest: u64) -> Checked {
        let operation = self.journal.number;
        let mut old = std::mem::replace(&mut self.slot_mut(number).model, Model::new(number));
        self.slot_mut(number).model.nodes.clear();
        self.slot_mut(number).model.directories.clear();
        for (ino, found) in walk.inodes {
            let Some(mut node) = old.nodes.remove(&ino) else {
                return violation("recovered: an inode from nowhere", ino.to_string());
            };
            if found.kind == FileKind::Regular {
                let content = self.read_content(number, ino)?;
                let record_bytes = self.record_bytes(number, ino)?;
                node.data
                    .find(&content, record_bytes, witness, newest)
                    .or_else(|detail| {
                        violation("recovered: wrong bytes", format!("inode {ino}: {detail}"))
                    })?;
                node.data = FileData::durable(content, operation);
            }
            node.modified = None;
            node.touched = 0;
            self.slot_mut(number).model.insert(ino, node);
        }
        self.slot_mut(number).model.sum = walk.sum;
        self.compare_all_attributes(number)
    }

    fn compare_all_attributes(&self, number: u8) -> Checked {
        let slot = self.slot(number);
        let Some(fs) = &slot.fs else { return Ok(()) };
        let mut inodes: Vec<Ino> = slot.model.nodes.keys().copied().collect();
        inodes.sort();
        for ino in inodes {
            let attributes = fs_violation("attributes", fs.attributes(ino))?;
            self.compare_attributes(number, &attributes)?;
        }
        Ok(())
    }

    /// Compares a mounted dataset with the model: all names and attributes, and the content of some files.
    pub(crate) fn compare(&mut self, number: u8, files: usize) -> Checked {
        if self
            .slots
            .get(usize::from(number))
            .is_none_or(|slot| slot.fs.is_none())
        {
            return Ok(());
        }
        let walk = self.walk(number)?;
        if walk.sum != self.slot(number).model.sum {
            let slot = self.slot(number);
            let detail = differences(&slot.catalog, Some(&walk), slot);
            return violation("compare: names or attributes differ", detail);
        }
        self.compare_all_attributes(number)?;
        let regular: Vec<Ino> = walk
            .inodes
            .iter()
            .filter(|(_, found)| found.kind == FileKind::Regular)
            .map(|(ino, _)| *ino)
            .collect();
        let first = if regular.is_empty() {
            0
        } else {
            self.journal.number as usize % regular.len()
        };
        for ino in regular.iter().cycle().skip(first).take(files.min(regular.len())) {
            let content = self.read_content(number, *ino)?;
            if content != *self.slot(number).model.node(*ino).data.now() {
                return violation("compare: wrong bytes", format!("inode {ino}"));
            }
        }
        self.note(walk.sum);
        Ok(())
    }

    /// The pool's books and those of every dataset; nothing may be waiting in memory.
    pub(crate) fn check(&self) -> Checked {
        let pool = self.pool();
        let report = pool_violation("check", check(pool, &mut |_, _| {}))?;
        if let Some(problem) = report.problems.first() {
            return violation(
                "check: the pool",
                format!("{} problems: {problem}", report.problems.len()),
            );
        }
        for slot in &self.slots {
            let (Catalog::Active(_), Some(_)) = (&slot.catalog, &slot.fs) else {
                continue;
            };
            let report = fs_violation("check", packstone_fs::check(pool, &slot.name, &mut |_, _| {}))?;
            if let Some(problem) = report.problems.first() {
                return violation(
                    "check: files",
                    format!("{} problems: {problem}", report.problems.len()),
                );
            }
            let tree = pool_violation("dataset", pool.dataset(&slot.name))?.tree;
            let (referenced, kept) = (report.references.len() as u64, pool.tree_usage(tree).records);
            if referenced != kept {
                return violation(
                    "check: leaked records",
                    format!("{}: {referenced} are referenced, {kept} are kept", slot.name),
                );
            }
        }
        Ok(())
    }
}

/// What the model has and the walk does not, and the other way round.
fn differences(catalog: &Catalog, walk: Option<&Walk>, slot: &Slot) -> String {
    let mut found = vec![];
    if *catalog != slot.catalog {
        found.push(format!("{}: {catalog:?} where {:?} was", slot.name, slot.catalog));
    }
    let Some(walk) = walk else { return found.concat() };
    let mut expected = BTreeMap::new();
    for (ino, node) in slot.model.nodes.iter().filter(|(_, node)| node.links > 0) {
        expected.extend(node.entries.iter().map(|(name, child)| ((*ino, *name), *child)));
        match walk.inodes.get(ino) {
            Some(found) if found.meta == node.meta => {}
            Some(other) => found.push(format!(
                "{ino}: mode {:o}, attributes {:?} where mode {:o}, attributes {:?} were",
                other.meta.mode,
                other
                    .meta
                    .xattrs
                    .values()
                    .map(|value| value.len())
                    .collect::<Vec<_>>(),
                node.meta.mode,
                node.meta
                    .xattrs
                    .values()
                    .map(|value| value.len())
                    .collect::<Vec<_>>(),
            )),
            None => found.push(format!("{ino} is missing")),
        }
    }
    for (key, ino) in &walk.entries {
        if expected.remove(key) != Some(*ino) {
            found.push(format!("{key:?} leads to {ino}"));
        }
    }
    found.extend(expected.keys().map(|key| format!("{key:?} is missing")));
    found.sort();
    found.truncate(12);
    found.join("; ")
}
