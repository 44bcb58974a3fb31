//! Operations as data: what the generator makes, the executor does, and shrinking leaves out.
//!
//! Files and directories are named by the number of the operation that created them, so an operation means the same when
//! others are left out; where what it names does not exist, it does nothing.

use super::model::{Handle, Name};
use packstone_fs::{AllocateMode, FileKind, RenameMode, XattrMode};
use packstone_media::FaultKind;
use packstone_pool::{BackgroundWork, Failpoint};

/// Content to write.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    Zeros,
    /// Compresses well.
    Text(u64),
    /// Does not compress.
    Noise(u64),
}

/// Which unflushed sectors a crash keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    All,
    Nothing,
    /// Each by chance.
    Any(u64),
    /// A prefix.
    Ordered(u64),
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Create {
        slot: u8,
        parent: Handle,
        name: Name,
        kind: FileKind,
        mode: u32,
    },
    Unnamed {
        slot: u8,
        parent: Handle,
    },
    Link {
        slot: u8,
        file: Handle,
        parent: Handle,
        name: Name,
    },
    Remove {
        slot: u8,
        parent: Handle,
        name: Name,
        directory: bool,
    },
    Rename {
        slot: u8,
        from: (Handle, Name),
        to: (Handle, Name),
        mode: RenameMode,
    },
    Lookup {
        slot: u8,
        parent: Handle,
        name: Name,
    },
    List {
        slot: u8,
        client: u8,
        directory: Handle,
        limit: u16,
    },
    Write {
        slot: u8,
        file: Handle,
        offset: u64,
        length: u32,
        fill: Fill,
        kill: bool,
    },
    Read {
        slot: u8,
        file: Handle,
        offset: u64,
        length: u32,
    },
    Truncate {
        slot: u8,
        file: Handle,
        size_bytes: u64,
        kill: bool,
    },
    Allocate {
        slot: u8,
        file: Handle,
        offset: u64,
        length: u64,
        mode: AllocateMode,
    },
    Seek {
        slot: u8,
        file: Handle,
        offset: u64,
    },
    Copy {
        slot: u8,
        from: (Handle, u64),
        to: (Handle, u64),
        length: u32,
    },
    SetXattr {
        slot: u8,
        file: Handle,
        name: u8,
        length: u16,
        mode: XattrMode,
    },
    GetXattr {
        slot: u8,
        file: Handle,
        name: u8,
    },
    RemoveXattr {
        slot: u8,
        file: Handle,
        name: u8,
    },
    Chmod {
        slot: u8,
        file: Handle,
        mode: u32,
    },
    Chown {
        slot: u8,
        file: Handle,
        uid: u32,
    },
    Times {
        slot: u8,
        file: Handle,
        seconds: i64,
    },
    Open {
        slot: u8,
        file: Handle,
    },
    Release {
        slot: u8,
        file: Handle,
    },
    Forget {
        slot: u8,
        file: Handle,
    },
    Sync {
        slot: u8,
        file: Handle,
        data_only: bool,
    },
    SyncAll {
        slot: u8,
    },
    Statistics {
        slot: u8,
    },
    Property {
        slot: u8,
        name: &'static str,
        value: &'static str,
    },
    DestroyDataset {
        slot: u8,
    },
    DestroyStep {
        slot: u8,
    },
    CreateDataset {
        slot: u8,
    },
    Advance {
        milliseconds: u32,
    },
    PoolStep(BackgroundWork),
    FsStep {
        slot: u8,
    },
    Checkpoint,
    Compare {
        slot: u8,
        files: u16,
    },
    Reopen,
    Crash(Loss),
    /// The device stops in the middle of something, and the power goes.
    StopAfter {
        changes: u16,
        loss: Loss,
    },
    /// The next calls to which it applies suffer this.
    Fault {
        kind: FaultKind,
        count: u16,
    },
    /// The file system below runs full.
    FillBackingFile,
    /// The device disappears, and comes back without what was not flushed or, the power going as well, with any of it.
    Detach {
        loss: Loss,
        forgets: bool,
    },
    /// The pool dies when it comes to this joint for the `skip`th time.
    Die {
        point: Failpoint,
        skip: u8,
        loss: Loss,
    },
    /// A copy of the device is damaged and read.
    Damage {
        kind: FaultKind,
        seed: u64,
    },
    ClearFaults,
}

/// An operation with its number, which also is the handle of what it creates.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) number: u32,
    /// Whether the number is committed after it.
    pub(crate) witness: bool,
    pub(crate) operation: Operation,
}

impl Fill {
    pub(crate) fn bytes(self, length: usize) -> Vec<u8> {
        let (seed, period) = match self {
            Fill::Zeros => return vec![0; length],
            Fill::Text(seed) => (seed, 24),
            Fill::Noise(seed) => (seed, usize::MAX),
        };
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut bytes = Vec::with_capacity(length + 8);
        let words: Vec<u64> = (0..period.min(length / 8 + 1)).map(|_| next()).collect();
        let mut at = 0usize;
        while bytes.len() < length {
            // Text repeats, but no two places are the same.
            let word = match (period, at % 64) {
                (24, 0) => at as u64 ^ seed << 32 | 1,
                _ => words[at % words.len()],
            };
            bytes.extend_from_slice(&word.to_le_bytes());
            at += 1;
        }
        bytes.truncate(length);
        bytes
    }
}
