//! What kind of life a seed has: which operations it knows and how often, how large things are, how the pool is made.
//!
//! Worlds that do a little of everything rarely go far in any direction, so each seed leaves out about a third of the
//! kinds of operations and prefers others (swarm testing: Groce and others, "Swarm Testing", ISSTA 2012).

use rand::Rng;
use rand::rngs::SmallRng;

/// A kind of operation that the generator can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    Directory,
    Symlink,
    Special,
    Unnamed,
    Link,
    Unlink,
    RemoveDirectory,
    Rename,
    Lookup,
    List,
    WriteAligned,
    WriteSmall,
    WritePage,
    Append,
    Read,
    Truncate,
    Allocate,
    Seek,
    Copy,
    Xattr,
    Attributes,
    OpenRelease,
    Forget,
    Sync,
    DataSync,
    SyncAll,
    Statistics,
    Property,
    Dataset,
    Advance,
    PoolStep,
    FsStep,
    Checkpoint,
    Database,
    Replace,
    Mail,
    Storm,
}

const WEIGHTS: [(Kind, u32); 38] = [
    (Kind::Create, 40),
    (Kind::Directory, 10),
    (Kind::Symlink, 6),
    (Kind::Special, 3),
    (Kind::Unnamed, 6),
    (Kind::Link, 12),
    (Kind::Unlink, 30),
    (Kind::RemoveDirectory, 8),
    (Kind::Rename, 30),
    (Kind::Lookup, 15),
    (Kind::List, 15),
    (Kind::WriteAligned, 50),
    (Kind::WriteSmall, 50),
    (Kind::WritePage, 40),
    (Kind::Append, 40),
    (Kind::Read, 60),
    (Kind::Truncate, 15),
    (Kind::Allocate, 15),
    (Kind::Seek, 15),
    (Kind::Copy, 12),
    (Kind::Xattr, 20),
    (Kind::Attributes, 20),
    (Kind::OpenRelease, 30),
    (Kind::Forget, 15),
    (Kind::Sync, 15),
    (Kind::DataSync, 15),
    (Kind::SyncAll, 3),
    (Kind::Statistics, 5),
    (Kind::Property, 3),
    (Kind::Dataset, 2),
    (Kind::Advance, 20),
    (Kind::PoolStep, 25),
    (Kind::FsStep, 15),
    (Kind::Checkpoint, 1),
    (Kind::Database, 15),
    (Kind::Replace, 8),
    (Kind::Mail, 8),
    (Kind::Storm, 4),
];

/// What a life is about, besides chance.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flavour {
    Plain,
    /// Much that does not compress: the pool runs full.
    Full,
    /// Directories with thousands of names.
    Crowd,
}

/// What a seed draws before its life begins.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) member_bytes: u64,
    pub(crate) segment_bytes: u32,
    pub(crate) slots: u8,
    pub(crate) clients: u8,
    /// Names in use.
    pub(crate) names: u32,
    /// Where files usually end.
    pub(crate) file_bytes: u64,
    /// Longest usual write.
    pub(crate) write_bytes: u32,
    /// Chance in percent that an offset lies far behind the usual end.
    pub(crate) far_percent: u32,
    pub(crate) noise_percent: u32,
    pub(crate) zero_percent: u32,
    pub(crate) witness_percent: u32,
    pub(crate) record_size: &'static str,
    /// Record sizes in use.
    pub(crate) record_sizes: &'static [&'static str],
    pub(crate) compression: &'static str,
    /// Operations between crashes, reopenings, comparisons and faults of each kind; 0 for never.
    pub(crate) crash_interval: u32,
    pub(crate) stop_interval: u32,
    pub(crate) reopen_interval: u32,
    pub(crate) compare_interval: u32,
    pub(crate) read_fault_interval: u32,
    pub(crate) write_fault_interval: u32,
    pub(crate) damage_interval: u32,
    kinds: Vec<(Kind, u32)>,
    total: u32,
}

pub(crate) const RECORD_SIZES: [&str; 6] = ["4K", "8K", "16K", "32K", "64K", "128K"];
pub(crate) const COMPRESSIONS: [&str; 4] = ["none", "lz4", "zstd-1", "zstd-3"];

pub(crate) fn pick<T: Copy>(random: &mut SmallRng, from: &[T]) -> T {
    from[random.random_range(0..from.len())]
}

impl Profile {
    pub(crate) fn draw(random: &mut SmallRng) -> Profile {
        let segment_bytes = pick(random, &[256 << 10, 256 << 10, 512 << 10, 1 << 20]);
        let segments = pick(random, &[64u64, 64, 100, 200]);
        let weighted: Vec<(Kind, u32)> = WEIGHTS
            .iter()
            .filter_map(|(kind, weight)| {
                let factor = pick(random, &[0, 0, 0, 1, 1, 2, 3, 6]);
                // Nothing else can be done without these.
                let factor = if *kind == Kind::Create {
                    factor.max(1)
                } else {
                    factor
                };
                (factor > 0).then_some((*kind, weight * factor))
            })
            .collect();
        let mut weighted = weighted;
        let flavour = pick(
            random,
            &[
                Flavour::Plain,
                Flavour::Plain,
                Flavour::Plain,
                Flavour::Full,
                Flavour::Crowd,
            ],
        );
        if flavour == Flavour::Crowd {
            weighted.push((Kind::Create, 1500));
        }
        // Long records lose much at the ends of segments; most lives have none, so that others fill pools to the brim.
        let dense = random.random_range(0..3) > 0;
        let record_sizes = match (dense, segment_bytes) {
            (false, _) => &RECORD_SIZES[..],
            // A sixteenth of the segment at most.
            (true, 0..=0x4_0000) => &RECORD_SIZES[..3],
            (true, 0..=0x8_0000) => &RECORD_SIZES[..4],
            (true, _) => &RECORD_SIZES[..5],
        };
        let total = weighted.iter().map(|(_, weight)| weight).sum();
        let often = |random: &mut SmallRng, choices: &[u32]| pick(random, choices);
        let mut profile = Profile {
            member_bytes: segments * u64::from(segment_bytes) + (512 << 10),
            segment_bytes,
            slots: pick(random, &[1, 1, 1, 2, 3]),
            clients: random.random_range(1..=6),
            names: pick(random, &[4, 8, 20, 50, 200, 5000]),
            file_bytes: pick(random, &[16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20]),
            write_bytes: pick(random, &[300, 4096, 9000, 40_000, 300_000]),
            far_percent: pick(random, &[0, 0, 1, 5]),
            noise_percent: pick(random, &[0, 10, 50, 100]),
            zero_percent: pick(random, &[0, 5, 20]),
            witness_percent: pick(random, &[100, 100, 50, 10, 2]),
            record_size: pick(random, record_sizes),
            record_sizes,
            compression: pick(random, &["none", "lz4", "lz4", "lz4", "zstd-1"]),
            crash_interval: often(random, &[150, 400, 1000, 3000]),
            stop_interval: often(random, &[0, 300, 1000, 3000]),
            reopen_interval: often(random, &[0, 1500, 5000]),
            compare_interval: often(random, &[700, 1500, 4000]),
            read_fault_interval: often(random, &[0, 0, 1000, 4000]),
            write_fault_interval: often(random, &[0, 0, 1000, 4000]),
            damage_interval: often(random, &[0, 1500, 4000]),
            kinds: weighted,
            total,
        };
        match flavour {
            Flavour::Plain => {}
            Flavour::Full => {
                profile.file_bytes = 8 << 20;
                profile.write_bytes = 300_000;
                profile.noise_percent = 100;
                profile.zero_percent = 0;
            }
            Flavour::Crowd => profile.names = 50_000,
        }
        profile
    }

    pub(crate) fn kind(&self, random: &mut SmallRng) -> Kind {
        let mut at = random.random_range(0..self.total);
        for (kind, weight) in &self.kinds {
            if at < *weight {
                return *kind;
            }
            at -= weight;
        }
        Kind::Create
    }
}
