//! The end of a check: names against inodes, link counts, the shape of the directory tree, and record references.

use super::Check;
use crate::types::{FileKind, Ino};
use std::collections::HashSet;

impl Check<'_> {
    pub(super) fn finish(&mut self) {
        if self.superblock.is_none() {
            self.report.problem("there is no superblock".into());
        }
        self.count_links();
        self.compare_links();
        self.find_unreachable();
        self.report.references.sort_unstable();
        let twice: Vec<u64> = self
            .report
            .references
            .windows(2)
            .filter(|pair| pair[0] == pair[1])
            .map(|pair| pair[0].0)
            .collect();
        for id in twice {
            self.report
                .problem(format!("record {id} is referenced more than once"));
        }
    }

    fn count_links(&mut self) {
        for name in std::mem::take(&mut self.names) {
            let (directory, ino) = (name.directory, name.ino);
            let Some(summary) = self.inodes.get_mut(&ino) else {
                self.report.problem(format!(
                    "inode {directory}: names inode {ino}, which does not exist"
                ));
                // What is left of it may be of use to somebody, and the name says what it was.
                if !self.remains.contains(&ino) {
                    self.report.mends.drop_name(directory, name.cookie, ino);
                }
                continue;
            };
            summary.links += 1;
            let record = summary.record;
            if record.kind != name.kind {
                let text = format!(
                    "inode {directory}: says that inode {ino} is {:?}, it is {:?}",
                    name.kind, record.kind
                );
                self.report.problem(text);
                self.report.mends.name_kind(directory, name.cookie, record.kind);
            }
            if record.kind == FileKind::Directory {
                if record.parent != directory {
                    let text = format!(
                        "inode {ino}: lies in {directory} and says that it lies in {}",
                        record.parent
                    );
                    self.report.problem(text);
                    if summary.links == 1 && ino != Ino::ROOT {
                        self.report.mends.change(ino, &record).parent = directory;
                    }
                }
                if let Some(above) = self.inodes.get_mut(&directory) {
                    above.subdirectories += 1;
                }
            }
        }
    }

    fn compare_links(&mut self) {
        let mut problems = vec![];
        for (ino, summary) in &self.inodes {
            let record = &summary.record;
            let directory = record.kind == FileKind::Directory;
            // The root has no name, and is none the worse for it.
            let links = summary.links + u32::from(*ino == Ino::ROOT);
            let expected = match (directory, links) {
                (true, 0) => 0,
                (true, _) => 2 + summary.subdirectories,
                (false, links) => links,
            };
            if record.nlink != expected {
                problems.push(format!(
                    "inode {ino}: has link count {}, should have {expected}",
                    record.nlink
                ));
                // Without a name it gets one first.
                if links > 0 || self.orphans.contains(ino) {
                    self.report.mends.change(*ino, record).nlink = expected;
                }
            }
            if directory && links > 1 {
                problems.push(format!("inode {ino}: a directory with {links} names"));
            }
            match (links == 0, self.orphans.contains(ino)) {
                (true, true) => self.report.orphans += 1,
                (true, false) => {
                    problems.push(format!("inode {ino}: has no name, and no orphan key"));
                    self.report.mends.find(*ino, record.kind);
                }
                (false, true) => {
                    problems.push(format!("inode {ino}: has a name and an orphan key"));
                    self.report.mends.drop_orphan(*ino);
                }
                (false, false) => {}
            }
        }
        let without: Vec<Ino> = self
            .orphans
            .iter()
            .filter(|ino| !self.inodes.contains_key(ino))
            .copied()
            .collect();
        for ino in without.iter().filter(|ino| !self.remains.contains(ino)) {
            self.report.mends.drop_orphan(*ino);
        }
        problems.extend(
            without
                .iter()
                .map(|ino| format!("inode {ino}: has an orphan key and does not exist")),
        );
        problems.sort();
        for problem in problems {
            self.report.problem(problem);
        }
    }

    /// Directories from which no way leads to the root: circles, for every one has a parent.
    fn find_unreachable(&mut self) {
        if !self.inodes.contains_key(&Ino::ROOT) {
            self.report.problem("there is no root directory".into());
            return;
        }
        let mut reaching = HashSet::from([Ino::ROOT]);
        let directories: Vec<Ino> = self
            .inodes
            .iter()
            .filter(|(_, summary)| summary.record.kind == FileKind::Directory && summary.links > 0)
            .map(|(ino, _)| *ino)
            .collect();
        for start in directories {
            let mut way = HashSet::new();
            let mut at = start;
            while !reaching.contains(&at) && way.insert(at) {
                match self.inodes.get(&at) {
                    Some(summary) => at = summary.record.parent,
                    None => break,
                }
            }
            if reaching.contains(&at) {
                reaching.extend(way);
            } else {
                self.report.problem(format!(
                    "inode {start}: a directory that does not lead to the root"
                ));
            }
        }
    }
}
