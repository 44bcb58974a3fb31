//! Names: looking up, making, linking, renaming, symlinks.
//!
//! Everything here that answers with an entry gives the kernel one reference to the inode.

use super::{Context, Handled};
use crate::abi::{OPEN_KEEP_CACHE, RENAME_EXCHANGE, RENAME_NOREPLACE};
use crate::errno::Failure;
use crate::request::CreateFile;
use packstone_fs::{Attributes, Caller, ErrorKind, FileKind, Ino, RenameMode};

const PERMISSION_BITS: u32 = 0o7777;

impl Context<'_> {
    fn entry(&mut self, attributes: Attributes) -> Handled {
        self.granted.push(attributes.ino);
        self.body.entry(&attributes);
        Ok(())
    }

    fn caller_with(&self, umask: u32) -> Caller {
        Caller { umask, ..self.caller }
    }

    pub(super) fn lookup(&mut self, name: &[u8]) -> Handled {
        match self.filesystem.lookup(&self.caller, self.node, name) {
            Ok(attributes) => self.entry(attributes),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.body.absent_entry();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn read_symlink(&mut self) -> Handled {
        let target = self.filesystem.read_symlink(self.node)?;
        self.body.bytes.extend_from_slice(&target);
        Ok(())
    }

    pub(super) fn symlink(&mut self, name: &[u8], target: &[u8]) -> Handled {
        let attributes = self
            .filesystem
            .create_symlink(&self.caller, self.node, name, target)?;
        self.entry(attributes)
    }

    pub(super) fn make_node(&mut self, name: &[u8], mode: u32, rdev: u32, umask: u32) -> Handled {
        let kind = match mode & libc::S_IFMT {
            // mknod(2): no type means a regular file
            0 | libc::S_IFREG => FileKind::Regular,
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR => FileKind::CharDevice,
            libc::S_IFBLK => FileKind::BlockDevice,
            _ => return Err(Failure::InvalidArgument),
        };
        let caller = self.caller_with(umask);
        let permissions = mode & PERMISSION_BITS;
        let attributes =
            self.filesystem
                .create(&caller, self.node, name, kind, permissions, u64::from(rdev))?;
        self.entry(attributes)
    }

    pub(super) fn make_directory(&mut self, name: &[u8], mode: u32, umask: u32) -> Handled {
        let caller = self.caller_with(umask);
        let attributes =
            self.filesystem
                .create_directory(&caller, self.node, name, mode & PERMISSION_BITS)?;
        self.entry(attributes)
    }

    pub(super) fn create(&mut self, create: CreateFile<'_>) -> Handled {
        let caller = self.caller_with(create.umask);
        let permissions = create.mode & PERMISSION_BITS;
        let attributes =
            self.filesystem
                .create(&caller, self.node, create.name, FileKind::Regular, permissions, 0)?;
        self.entry(attributes)?;
        self.body.opened(OPEN_KEEP_CACHE);
        Ok(())
    }

    pub(super) fn temporary_file(&mut self, mode: u32, umask: u32) -> Handled {
        let caller = self.caller_with(umask);
        let attributes = self
            .filesystem
            .create_unnamed(&caller, self.node, mode & PERMISSION_BITS)?;
        self.entry(attributes)?;
        self.body.opened(OPEN_KEEP_CACHE);
        Ok(())
    }

    pub(super) fn link(&mut self, ino: Ino, name: &[u8]) -> Handled {
        let attributes = self.filesystem.link(&self.caller, ino, self.node, name)?;
        self.entry(attributes)
    }

    pub(super) fn rename(&mut self, name: &[u8], new_parent: Ino, new_name: &[u8], flags: u32) -> Handled {
        let mode = match flags {
            0 => RenameMode::Replace,
            RENAME_NOREPLACE => RenameMode::NoReplace,
            RENAME_EXCHANGE => RenameMode::Exchange,
            // WHITEOUT is for layers of an overlay.
            _ => return Err(Failure::InvalidArgument),
        };
        Ok(self
            .filesystem
            .rename(&self.caller, self.node, name, new_parent, new_name, mode)?)
    }
}
