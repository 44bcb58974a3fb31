//! Members as the command line sees them: paths of files and block devices, opened through `packstone_media`.

use crate::failure::Failure;
use crate::state::{LossyMember, PoolEntry};
use anyhow::Context;
use packstone_media::{Access, FileMedia, LossyMedia, LossyOptions, Media, MediaErrorKind};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a member may stay locked by a process that is just ending.
const CLOSING_PATIENCE: Duration = Duration::from_secs(5);

/// What stands at a path that shall become a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberPath {
    /// Nothing: a file can be created.
    Missing,
    /// A regular file of this size.
    File {
        /// Its length.
        size_bytes: u64,
    },
    /// A block device.
    BlockDevice,
}

/// Looks at a path; anything that can never be a member is an error.
pub fn classify(path: &Path) -> anyhow::Result<MemberPath> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match fs::symlink_metadata(path) {
                Ok(_) => Err(Failure::usage(format!(
                    "{} is a symbolic link to nothing",
                    path.display()
                ))),
                Err(_) => Ok(MemberPath::Missing),
            };
        }
        Err(error) => return Err(error).with_context(|| format!("look at {}", path.display())),
    };
    let kind = metadata.file_type();
    if kind.is_file() {
        Ok(MemberPath::File {
            size_bytes: metadata.len(),
        })
    } else if kind.is_block_device() {
        Ok(MemberPath::BlockDevice)
    } else if kind.is_dir() {
        Err(Failure::usage(format!(
            "{0} is a directory; a member is a file or a block device: write {0}/NAME.pack",
            path.display()
        )))
    } else {
        Err(Failure::usage(format!(
            "{} is neither a regular file nor a block device",
            path.display()
        )))
    }
}

/// The absolute path of something that may not exist yet; its directory must. Links are followed, so that a member is
/// registered under the name it will still have when a link has changed.
pub fn absolute_path(path: &Path) -> anyhow::Result<PathBuf> {
    if let Ok(found) = fs::canonicalize(path) {
        return Ok(found);
    }
    let Some(name) = path.file_name() else {
        return Err(Failure::usage(format!(
            "'{}' is not the path of a file",
            path.display()
        )));
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = fs::canonicalize(parent).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::not_found(format!(
            "the directory {} does not exist; create it first",
            parent.display()
        )),
        _ => anyhow::Error::new(error).context(format!("look at {}", parent.display())),
    })?;
    Ok(parent.join(name))
}

/// Opens every member of a registered pool.
pub fn open_all(entry: &PoolEntry, access: Access) -> anyhow::Result<Vec<Arc<dyn Media>>> {
    entry
        .members
        .iter()
        .map(|member| {
            let media = open(&member.path, access)?;
            match member.lossy {
                Some(lossy) => Ok(make_lossy(media, lossy)),
                None => Ok(media),
            }
        })
        .collect()
}

/// Wraps a member so that what is not flushed dies with this process. Tests kill daemons on such members; every process
/// draws its own numbers, so that one seed does not mean the same write-backs in every life of a pool.
pub fn make_lossy(media: Arc<dyn Media>, lossy: LossyMember) -> Arc<dyn Media> {
    let write_back_seed = lossy
        .write_back_seed
        .map(|seed| seed ^ (u64::from(std::process::id()) << 32));
    let options = LossyOptions {
        write_back_seed,
        ..LossyOptions::default()
    };
    tracing::warn!(
        member = media.description(),
        write_back_seed,
        "a lossy member, for tests only: what is not flushed dies with this process"
    );
    Arc::new(LossyMedia::new(media, options))
}

/// Opens one member.
pub fn open(path: &Path, access: Access) -> anyhow::Result<Arc<dyn Media>> {
    if let MemberPath::Missing = classify(path)? {
        return Err(Failure::not_found(format!(
            "member {} does not exist; if it has moved, run 'packstone import NEW-PATH'",
            path.display()
        )));
    }
    let deadline = Instant::now() + CLOSING_PATIENCE;
    loop {
        match FileMedia::open(path, access) {
            Ok(media) => return Ok(Arc::new(media)),
            Err(error) if error.kind() == MediaErrorKind::Busy && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error).with_context(|| format!("open member {}", path.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_a_file_a_device_or_nothing_yet() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("member");
        assert_eq!(classify(&path).unwrap(), MemberPath::Missing);
        fs::write(&path, b"123").unwrap();
        assert_eq!(classify(&path).unwrap(), MemberPath::File { size_bytes: 3 });
        assert!(classify(directory.path()).is_err());
        assert!(classify(Path::new("/dev/null")).is_err());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert!(classify(&link).is_err());
    }

    #[test]
    fn paths_become_absolute() {
        let directory = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(directory.path()).unwrap();
        assert_eq!(
            absolute_path(&directory.path().join("new")).unwrap(),
            root.join("new")
        );
        assert!(absolute_path(&directory.path().join("missing/new")).is_err());
    }
}
