//! Control groups of both versions: finding a hierarchy, joining a group, and coming back.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Which interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// A mounted hierarchy with the controller that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) version: Version,
    root: PathBuf,
    /// Controller that groups below the root must be given (version 2).
    controller: &'static str,
    /// Group of this process, relative to the root.
    own: PathBuf,
}

impl Hierarchy {
    /// The hierarchy that has the controller: called `old` in version 1, `new` in version 2.
    pub(super) fn find(old: &'static str, new: &'static str) -> Option<Hierarchy> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        Hierarchy::find_in(&mounts, &own, old, new, |root| {
            std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default()
        })
    }

    fn find_in(
        mounts: &str,
        own: &str,
        old: &'static str,
        new: &'static str,
        controllers_of: impl Fn(&Path) -> String,
    ) -> Option<Hierarchy> {
        for mount in mounts.lines().filter_map(parse_mount) {
            let found = match mount.kind {
                "cgroup" if mount.options.split(',').any(|option| option == old) => Hierarchy {
                    version: Version::One,
                    root: mount.at.into(),
                    controller: old,
                    own: own_group(own, |names| names.split(',').any(|name| name == old))?,
                },
                "cgroup2" => Hierarchy {
                    version: Version::Two,
                    root: mount.at.into(),
                    controller: new,
                    own: own_group(own, str::is_empty)?,
                },
                _ => continue,
            };
            let has = found.version == Version::One
                || controllers_of(&found.root)
                    .split_whitespace()
                    .any(|name| name == new);
            if has {
                return Some(found);
            }
        }
        None
    }

    /// Where it is mounted, which is the directory of its root group.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Brings this process into the root group.
    pub(super) fn enter_root(self) -> Result<Group> {
        let group = Group {
            path: self.root.clone(),
            is_new: false,
            hierarchy: self,
        };
        if group.hierarchy.own != Path::new("") {
            group.join()?;
        }
        Ok(group)
    }

    /// Makes the group `name` and brings this process into it: in version 1 below the group it is in, so that limits
    /// from above stay; in version 2 below the root, because groups that hold processes can have no groups with
    /// controllers below them.
    pub(super) fn enter_new(self, name: &str) -> Result<Group> {
        let parent = match self.version {
            Version::One => self.root.join(&self.own),
            Version::Two => {
                let file = self.root.join("cgroup.subtree_control");
                let controllers = format!("+{} +memory", self.controller);
                std::fs::write(&file, controllers).with_context(|| {
                    format!(
                        "cannot give out the controller {} in {}",
                        self.controller,
                        file.display()
                    )
                })?;
                self.root.clone()
            }
        };
        let path = parent.join(name);
        std::fs::create_dir(&path)
            .with_context(|| format!("cannot make the control group {}", path.display()))?;
        let group = Group {
            path,
            is_new: true,
            hierarchy: self,
        };
        group.join()?;
        Ok(group)
    }
}

/// A group that this process is in; it goes back to where it was when this is dropped.
pub(super) struct Group {
    path: PathBuf,
    is_new: bool,
    hierarchy: Hierarchy,
}

impl Group {
    pub(super) fn version(&self) -> Version {
        self.hierarchy.version
    }

    /// Writes `text` into the group's file `name`.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        let file = self.path.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write \"{text}\" to {}", file.display()))
    }

    fn join(&self) -> Result<()> {
        self.write("cgroup.procs", &std::process::id().to_string())
    }

    fn leave(&self) -> Result<()> {
        if self.is_new || self.hierarchy.own != Path::new("") {
            let own = self.hierarchy.root.join(&self.hierarchy.own).join("cgroup.procs");
            std::fs::write(&own, std::process::id().to_string())
                .with_context(|| format!("cannot write {}", own.display()))?;
        }
        if self.is_new {
            std::fs::remove_dir(&self.path)
                .with_context(|| format!("cannot remove the control group {}", self.path.display()))?;
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = self.leave() {
            eprintln!("{error:#}");
        }
    }
}

struct Mount<'a> {
    at: &'a str,
    kind: &'a str,
    options: &'a str,
}

/// A line of `/proc/self/mountinfo`: optional fields end with a lone dash.
fn parse_mount(line: &str) -> Option<Mount<'_>> {
    let (head, tail) = line.split_once(" - ")?;
    let mut tail = tail.split(' ');
    let kind = tail.next()?;
    let _source = tail.next()?;
    Some(Mount {
        at: head.split(' ').nth(4)?,
        kind,
        options: tail.next()?,
    })
}

/// This process's group in the hierarchy whose controllers `wanted` accepts, without the leading slash.
fn own_group(own: &str, wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        wanted(controllers).then(|| path.trim_start_matches('/').into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "\
30 25 0:27 / /sys/fs/cgroup/blkio rw,relatime shared:9 - cgroup cgroup rw,blkio
31 25 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 25 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const OWN: &str = "7:blkio:/\n4:memory:/some/group\n0::/user.slice/one\n";

    #[test]
    fn version_one_is_found_beside_an_empty_version_two() {
        let blkio = Hierarchy::find_in(BOTH, OWN, "blkio", "io", |_| String::new()).expect("a hierarchy");
        assert_eq!((blkio.version, blkio.own), (Version::One, PathBuf::new()));
        let memory = Hierarchy::find_in(BOTH, OWN, "memory", "memory", |_| String::new()).expect("one");
        assert_eq!(memory.own, Path::new("some/group"));
        assert_eq!(memory.root, Path::new("/sys/fs/cgroup/memory"));
    }

    #[test]
    fn version_two_counts_only_with_the_controller() {
        let mounts = "32 25 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let own = "0::/user.slice/one\n";
        let with = |controllers: &'static str| {
            Hierarchy::find_in(mounts, own, "blkio", "io", move |_| controllers.to_owned())
        };
        assert_eq!(with("cpu memory"), None);
        let found = with("cpu io memory").expect("a hierarchy");
        assert_eq!(
            (found.version, found.own),
            (Version::Two, PathBuf::from("user.slice/one"))
        );
    }

    /// On plain files in place of the kernel's: which files are written, and that it all goes back.
    #[test]
    fn version_two_group_is_made_joined_and_left() {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(root.path().join("was/here")).expect("directories");
        let hierarchy = Hierarchy {
            version: Version::Two,
            root: root.path().to_owned(),
            controller: "io",
            own: PathBuf::from("was/here"),
        };
        let group = hierarchy.enter_new("turn").expect("a group");
        group.write("io.max", "7:3 rbps=1").expect("a rule");
        let read = |name: &str| std::fs::read_to_string(root.path().join(name)).expect(name);
        let own = std::process::id().to_string();
        assert_eq!(read("cgroup.subtree_control"), "+io +memory");
        assert_eq!(read("turn/cgroup.procs"), own);
        assert_eq!(read("turn/io.max"), "7:3 rbps=1");
        // The kernel's files go with the directory.
        for file in ["turn/cgroup.procs", "turn/io.max"] {
            std::fs::remove_file(root.path().join(file)).expect("a file");
        }
        drop(group);
        assert_eq!(read("was/here/cgroup.procs"), own);
        assert!(!root.path().join("turn").exists());
    }
}
