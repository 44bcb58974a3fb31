//! Thousands of random operations on the file system and on the model, with the outcomes compared one by one and the whole
//! state now and then. Seeds are fixed; the failing one is in the message of the panic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use packstone_fs::{
    AllocateMode, Caller, ErrorKind, FileKind, FileSystem, Ino, RenameMode, Seek, SetAttributes, Timestamp,
    XattrMode,
};
use packstone_pool::Pool;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use support::model::Model;

const NAMES: [&[u8]; 7] = [b"a", b"b", b"c", b"pg_wal", b"a longer name", b"\xff\xfe", b"z"];

struct Run {
    pool: Arc<Pool>,
    fs: FileSystem,
    model: Model,
    /// Open count of files, as the kernel would hold them.
    opens: BTreeMap<Ino, u64>,
    /// References that answers added and that were not yet forgotten.
    references: BTreeMap<Ino, u64>,
    random: SmallRng,
    seconds: i64,
    record_bytes: usize,
    file_bytes: usize,
}

impl Run {
    fn new(seed: u64, record_size: &str, record_bytes: usize, file_bytes: usize) -> Run {
        let pool = support::pool(&[("recordsize", record_size), ("compression", "lz4")]);
        let fs = support::open(&pool);
        Run {
            pool,
            fs,
            model: Model::new(),
            opens: BTreeMap::new(),
            references: BTreeMap::new(),
            random: SmallRng::seed_from_u64(seed),
            seconds: 10,
            record_bytes,
            file_bytes,
        }
    }

    fn caller(&self) -> Caller {
        support::caller(self.seconds)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())]
    }

    fn directory(&mut self) -> Ino {
        let directories = self.model.named(FileKind::Directory);
        self.pick(&directories)
    }

    fn name(&mut self) -> &'static [u8] {
        self.pick(&NAMES)
    }

    /// A file with a name, or an open one.
    fn file(&mut self) -> Option<Ino> {
        let mut files = self.model.named(FileKind::Regular);
        files.extend(self.opens.keys());
        if files.is_empty() {
            None
        } else {
            Some(self.pick(&files))
        }
    }

    fn range(&mut self) -> (usize, usize) {
        let records = self.file_bytes / self.record_bytes;
        if self.random.random_bool(0.5) {
            let first = self.random.random_range(0..records);
            let count = self.random.random_range(1..=4.min(records - first));
            return (first * self.record_bytes, count * self.record_bytes);
        }
        let offset = self.random.random_range(0..self.file_bytes);
        let length_max = if self.random.random_bool(0.5) {
            300
        } else {
            3 * self.record_bytes
        };
        (offset, self.random.random_range(1..=length_max))
    }

    fn refer(&mut self, ino: Ino) {
        *self.references.entry(ino).or_default() += 1;
    }

    /// Forgets all references of an inode that has no name and no opens: it is gone.
    fn drop_if_unheld(&mut self, ino: Ino) {
        if self.model.node(ino).links > 0 || self.opens.contains_key(&ino) {
            return;
        }
        if let Some(count) = self.references.remove(&ino) {
            self.fs.forget(ino, count);
        }
        self.model.nodes.remove(&ino);
    }

    fn operation(&mut self) {
        match self.random.random_range(0..100) {
            0..12 => self.create(),
            12..20 => self.remove(),
            20..28 => self.rename(),
            28..31 => self.link(),
            31..55 => self.write(),
            55..65 => self.read(),
            65..71 => self.truncate(),
            71..78 => self.allocate(),
            78..83 => self.seek(),
            83..88 => self.xattr(),
            88..94 => self.open_or_release(),
            94..96 => self.copy(),
            _ => self.background(),
        }
    }

    fn create(&mut self) {
        let (parent, name, caller) = (self.directory(), self.name(), self.caller());
        let kind = self.pick(&[
            FileKind::Regular,
            FileKind::Regular,
            FileKind::Directory,
            FileKind::Symlink,
            FileKind::Fifo,
        ]);
        let created = match kind {
            FileKind::Directory => self.fs.create_directory(&caller, parent, name, 0o755),
            FileKind::Symlink => self.fs.create_symlink(&caller, parent, name, b"some/where"),
            _ => self.fs.create(&caller, parent, name, kind, 0o644, 0),
        };
        let created = created.map_err(|error| error.kind());
        assert_eq!(
            created.as_ref().err(),
            self.model.can_create(parent, name).as_ref().err()
        );
        if let Ok(attributes) = created {
            let data: &[u8] = if kind == FileKind::Symlink {
                b"some/where"
            } else {
                b""
            };
            self.model.create(parent, name, attributes.ino, kind, data);
            self.refer(attributes.ino);
        }
    }

    fn remove(&mut self) {
        let (parent, name, directory) = (self.directory(), self.name(), self.random.random_bool(0.4));
        let caller = self.caller();
        let removed = match directory {
            true => self.fs.remove_directory(&caller, parent, name),
            false => self.fs.unlink(&caller, parent, name),
        };
        let expected = self.model.remove(parent, name, directory);
        assert_eq!(removed.map_err(|error| error.kind()), expected.map(|_| ()));
        if let Ok(ino) = expected {
            self.drop_if_unheld(ino);
        }
    }

    fn rename(&mut self) {
        let (parent, name, new_parent, new_name) =
            (self.directory(), self.name(), self.directory(), self.name());
        let mode = self.pick(&[
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
        ]);
        let renamed = self
            .fs
            .rename(&self.caller(), parent, name, new_parent, new_name, mode);
        let expected = self.model.rename((parent, name), (new_parent, new_name), mode);
        assert_eq!(
            renamed.map_err(|error| error.kind()),
            expected.map(|_| ()),
            "{mode:?}"
        );
        if let Ok(Some(replaced)) = expected {
            self.drop_if_unheld(replaced);
        }
    }

    fn link(&mut self) {
        let files = self.model.named(FileKind::Regular);
        if files.is_empty() {
            return;
        }
        let (ino, parent, name) = (self.pick(&files), self.directory(), self.name());
        let linked = self
            .fs
            .link(&self.caller(), ino, parent, name)
            .map_err(|error| error.kind());
        let expected = self.model.link(ino, parent, name);
        assert_eq!(linked.as_ref().err(), expected.as_ref().err());
        if linked.is_ok() {
            self.refer(ino);
        }
    }

    fn write(&mut self) {
        let Some(ino) = self.file() else { return };
        let (offset, length) = self.range();
        let zeros = self.random.random_bool(0.15);
        let mut data = vec![0; length];
        if !zeros {
            let byte = self.random.random_range(1..=255);
            data.iter_mut()
                .enumerate()
                .for_each(|(at, to)| *to = (at as u8 | 1).wrapping_mul(byte));
        }
        self.fs
            .write(&self.caller(), ino, offset as u64, &data, false)
            .unwrap();
        self.model.node_mut(ino).write(offset, &data);
        self.model.node_mut(ino).drop_capability();
    }

    fn read(&mut self) {
        let Some(ino) = self.file() else { return };
        let (offset, length) = self.range();
        let mut data = b"kept".to_vec();
        self.fs
            .read(&self.caller(), ino, offset as u64, length, &mut data)
            .unwrap();
        let expected = &self.model.node(ino).data;
        let expected = &expected[offset.min(expected.len())..(offset + length).min(expected.len())];
        assert_eq!(&data[..4], b"kept");
        assert!(
            &data[4..] == expected,
            "inode {ino}: {length} bytes at {offset} differ"
        );
    }

    fn truncate(&mut self) {
        let Some(ino) = self.file() else { return };
        let size_bytes = self.range().0;
        let change = SetAttributes {
            size_bytes: Some(size_bytes as u64),
            ..SetAttributes::default()
        };
        let attributes = self.fs.set_attributes(&self.caller(), ino, &change).unwrap();
        assert_eq!(attributes.size_bytes, size_bytes as u64);
        self.model.node_mut(ino).data.resize(size_bytes, 0);
        self.model.node_mut(ino).drop_capability();
    }

    fn allocate(&mut self) {
        let Some(ino) = self.file() else { return };
        let (offset, length) = self.range();
        let zero = AllocateMode::ZeroRange {
            keep_size: self.random.random_bool(0.5),
        };
        let mode = self.pick(&[
            AllocateMode::Allocate,
            AllocateMode::KeepSize,
            AllocateMode::PunchHole,
            zero,
        ]);
        self.fs
            .allocate(&self.caller(), ino, offset as u64, length as u64, mode)
            .unwrap();
        let node = self.model.node_mut(ino);
        node.drop_capability();
        if matches!(mode, AllocateMode::PunchHole | AllocateMode::ZeroRange { .. }) {
            node.zero(offset, length);
        }
        if matches!(
            mode,
            AllocateMode::Allocate | AllocateMode::ZeroRange { keep_size: false }
        ) {
            node.data.resize(node.data.len().max(offset + length), 0);
        }
    }

    /// What seek calls a hole must read as zeros.
    fn seek(&mut self) {
        let Some(ino) = self.file() else { return };
        let offset = self.range().0;
        let data = &self.model.node(ino).data;
        let (next_data, next_hole) = (
            self.fs.seek(ino, offset as u64, Seek::Data),
            self.fs.seek(ino, offset as u64, Seek::Hole),
        );
        if offset >= data.len() {
            assert_eq!(next_data.unwrap_err().kind(), ErrorKind::NoSuchOffset);
            assert_eq!(next_hole.unwrap_err().kind(), ErrorKind::NoSuchOffset);
            return;
        }
        let hole_end = match next_data {
            Ok(at) => at as usize,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSuchOffset);
                data.len()
            }
        };
        assert!(
            data[offset..hole_end].iter().all(|byte| *byte == 0),
            "data in a hole"
        );
        let hole = next_hole.unwrap() as usize;
        assert!(hole >= offset && hole <= data.len());
        assert_eq!(
            hole_end == offset,
            hole > offset,
            "an offset is in data or in a hole"
        );
    }

    fn xattr(&mut self) {
        let Some(ino) = self.file() else { return };
        let (name, caller) = (
            self.pick(&[&b"user.a"[..], b"user.b", b"security.capability"]),
            self.caller(),
        );
        if self.random.random_bool(0.3) {
            let removed = self
                .fs
                .remove_xattr(&caller, ino, name)
                .map_err(|error| error.kind());
            let expected = self
                .model
                .node_mut(ino)
                .xattrs
                .remove(name)
                .ok_or(ErrorKind::NoSuchAttribute);
            assert_eq!(removed, expected.map(|_| ()));
            return;
        }
        let value = vec![7; self.random.random_range(0..2000)];
        let mode = self.pick(&[XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
        let set = self
            .fs
            .set_xattr(&caller, ino, name, &value, mode)
            .map_err(|error| error.kind());
        let xattrs = &mut self.model.node_mut(ino).xattrs;
        let expected = match (xattrs.contains_key(name), mode) {
            (true, XattrMode::Create) => Err(ErrorKind::AlreadyExists),
            (false, XattrMode::Replace) => Err(ErrorKind::NoSuchAttribute),
            _ => Ok(()),
        };
        assert_eq!(set, expected);
        if set.is_ok() {
            xattrs.insert(name.to_vec(), value);
        }
    }

    fn open_or_release(&mut self) {
        let release = self.random.random_bool(0.5);
        if let (true, Some(&ino)) = (release, self.opens.keys().next()) {
            self.fs.release(ino).unwrap();
            let count = self.opens.get_mut(&ino).unwrap();
            *count -= 1;
            if *count == 0 {
                self.opens.remove(&ino);
                self.drop_if_unheld(ino);
            }
        } else if let Some(ino) = self.file() {
            self.fs.open_file(ino).unwrap();
            *self.opens.entry(ino).or_default() += 1;
        }
    }

    fn copy(&mut self) {
        let (Some(from), Some(to)) = (self.file(), self.file()) else {
            return;
        };
        let ((from_offset, length), (to_offset, _)) = (self.range(), self.range());
        if from == to && from_offset.abs_diff(to_offset) < length {
            return;
        }
        let source = self.model.node(from).data.clone();
        let part = &source[from_offset.min(source.len())..(from_offset + length).min(source.len())];
        let copied = self
            .fs
            .copy_range(
                &self.caller(),
                from,
                from_offset as u64,
                to,
                to_offset as u64,
                length as u64,
            )
            .unwrap();
        assert_eq!(copied, part.len() as u64);
        self.model.node_mut(to).write(to_offset, part);
        if copied > 0 {
            self.model.node_mut(to).drop_capability();
        }
    }

    fn background(&mut self) {
        self.seconds += self.random.random_range(0..3);
        match self.random.random_range(0..4) {
            0 => self.fs.sync_all().unwrap(),
            1 => drop(
                self.fs
                    .step(Timestamp {
                        seconds: self.seconds,
                        nanoseconds: 0,
                    })
                    .unwrap(),
            ),
            _ => {
                if let Some(ino) = self.file() {
                    let data_only = self.random.random_bool(0.5);
                    self.fs.sync_file(ino, data_only).unwrap();
                }
            }
        }
    }

    fn compare(&mut self) {
        let directories = self.model.named(FileKind::Directory);
        for ino in directories {
            self.compare_directory(ino);
        }
        let opened: Vec<Ino> = self.opens.keys().copied().collect();
        for ino in opened {
            self.compare_inode(ino);
        }
    }

    fn compare_directory(&mut self, ino: Ino) {
        let mut names = BTreeMap::new();
        let (mut after, limit) = (0, self.random.random_range(1..6));
        loop {
            let entries = self.fs.read_directory(ino, after, limit).unwrap();
            assert!(entries.len() <= limit);
            let Some(last) = entries.last() else { break };
            assert!(last.cookie > after && last.cookie < 1 << 63);
            after = last.cookie;
            for entry in entries {
                assert!(names.insert(entry.name, entry.ino).is_none());
            }
        }
        let node = self.model.node(ino).clone();
        assert_eq!(names.remove(&b"."[..]), Some(ino));
        assert_eq!(names.remove(&b".."[..]), Some(node.parent));
        assert_eq!(names, node.entries);
        for (name, child) in node.entries {
            let attributes = self.fs.lookup(&self.caller(), ino, &name).unwrap();
            assert_eq!(attributes.ino, child);
            self.compare_inode(child);
            self.fs.forget(child, 1);
        }
    }

    fn compare_inode(&mut self, ino: Ino) {
        let attributes = self.fs.attributes(ino).unwrap();
        let node = self.model.node(ino);
        assert_eq!(attributes.kind, node.kind);
        assert_eq!(attributes.nlink, self.model.link_count(ino));
        let listed = self.fs.list_xattrs(ino).unwrap();
        let expected: Vec<u8> = node
            .xattrs
            .keys()
            .flat_map(|name| [name, &b"\0"[..]].concat())
            .collect();
        let sorted = |list: &[u8]| {
            let mut names: Vec<Vec<u8>> = list.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
            names.sort();
            names
        };
        assert_eq!(sorted(&listed), sorted(&expected));
        for (name, value) in &node.xattrs {
            assert_eq!(&self.fs.get_xattr(ino, name).unwrap(), value);
        }
        match node.kind {
            FileKind::Regular => {
                assert_eq!(attributes.size_bytes, node.data.len() as u64);
                let mut data = vec![];
                self.fs
                    .read(&self.caller(), ino, 0, node.data.len() + 10, &mut data)
                    .unwrap();
                assert!(data == node.data, "inode {ino} differs");
            }
            FileKind::Directory => assert_eq!(attributes.size_bytes, node.entries.len() as u64),
            FileKind::Symlink => assert_eq!(self.fs.read_symlink(ino).unwrap(), node.data),
            _ => {}
        }
    }

    /// Clean shutdown and start: unlinked files are gone, everything else is there.
    fn reopen(&mut self) {
        let opened = std::mem::take(&mut self.opens);
        for (ino, count) in opened {
            (0..count).for_each(|_| self.fs.release(ino).unwrap());
            self.drop_if_unheld(ino);
        }
        self.fs.close().unwrap();
        self.references.clear();
        self.fs = support::open(&self.pool);
        support::settle(&self.fs, self.seconds);
        let report = support::check_clean(&self.pool);
        assert_eq!(report.orphans, 0);
    }
}

fn run(seed: u64, record_size: &str, record_bytes: usize, file_bytes: usize, operations: usize) {
    let mut run = Run::new(seed, record_size, record_bytes, file_bytes);
    for number in 0..operations {
        run.operation();
        if number % 500 == 499 {
            run.compare();
        }
        if number % 1500 == 1499 {
            run.fs.sync_all().unwrap();
            support::check_clean(&run.pool);
        }
        if number % 2000 == 1999 {
            run.reopen();
            run.compare();
        }
    }
}

/// `PACKSTONE_TEST_SEEDS=n` runs that many seeds instead of the few of every day.
fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let asked = std::env::var("PACKSTONE_TEST_SEEDS")
        .ok()
        .and_then(|count| count.parse().ok());
    usual.start..asked.map_or(usual.end, |count: u64| usual.start + count)
}

#[test]
fn small_records_follow_the_model() {
    for seed in seeds(0..6) {
        println!("seed {seed}");
        run(seed, "4K", 4096, 64 << 10, 6000);
    }
}

#[test]
fn large_records_follow_the_model() {
    for seed in seeds(100..103) {
        println!("seed {seed}");
        run(seed, "128K", 128 << 10, 1 << 20, 4000);
    }
}

/// What a crash leaves is not predicted here, but it must be sound, and orphans must go.
#[test]
fn dropping_everything_in_memory_leaves_a_sound_file_system() {
    for seed in seeds(200..206) {
        println!("seed {seed}");
        let mut run = Run::new(seed, "4K", 4096, 64 << 10);
        for _ in 0..1500 {
            run.operation();
        }
        support::check_clean(&run.pool);
        run.fs = support::open(&run.pool);
        support::settle(&run.fs, run.seconds + 10);
        let report = support::check_clean(&run.pool);
        assert_eq!(report.orphans, 0);
        for ino in run.model.named(FileKind::Regular) {
            let _ = run.fs.attributes(ino);
        }
        support::settle(&run.fs, run.seconds + 100);
        run.fs.close().unwrap();
        support::check_clean(&run.pool);
    }
}
