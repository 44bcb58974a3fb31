//! What becomes of unflushed sectors in a crash.

use std::sync::Arc;

/// What crashes of a simulated device may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashModel {
    /// A sector can end as a mix of old and new bytes.
    pub tearing: bool,
    /// A later write can persist while an earlier one is lost. Without it, everything up to some sector
    /// persists and everything after it is lost.
    pub reordering: bool,
}

impl Default for CrashModel {
    fn default() -> Self {
        CrashModel {
            tearing: true,
            reordering: true,
        }
    }
}

/// What becomes of one unflushed sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The old bytes stay.
    Lost,
    /// The new bytes are there.
    Persisted,
    /// The bytes before the split are of one kind and those from it on of the other.
    Torn {
        /// Where in the sector; at most its length.
        split_bytes: u32,
        /// Whether the front is the new part.
        front_is_new: bool,
    },
}

impl Fate {
    /// The bytes of the sector afterwards; `None` when they stay as they are.
    pub(super) fn apply(self, old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        match self {
            Fate::Lost => None,
            Fate::Persisted => Some(new.to_vec()),
            Fate::Torn {
                split_bytes,
                front_is_new,
            } => {
                let split = (split_bytes as usize).min(new.len());
                let (front, back) = if front_is_new { (new, old) } else { (old, new) };
                Some([&front[..split], &back[split..]].concat())
            }
        }
    }
}

/// One unflushed sector, as shown to whoever decides its fate.
#[derive(Clone, Copy, Debug)]
pub struct SectorWrite<'a> {
    /// Position among the unflushed sectors, from 0, in the order of the writes.
    pub index: usize,
    /// The write or discard it was part of, numbered from 0 since the device was made.
    pub write: u64,
    /// Where the sector lies.
    pub offset_bytes: u64,
    /// What is durable at this point, fates of earlier writes of the same sector included.
    pub old: &'a [u8],
    /// What was written.
    pub new: &'a [u8],
}

/// An unflushed sector.
#[derive(Clone, Debug)]
pub(super) struct PendingSector {
    pub(super) offset_bytes: u64,
    pub(super) write: u64,
    pub(super) data: Arc<[u8]>,
}

/// Fates drawn from a seed.
pub(super) struct RandomFates {
    random: Random,
    model: CrashModel,
    sector_bytes: u32,
    /// Of eight sectors so many persist; drawn once per crash, so that nearly all and nearly none happen as
    /// well.
    persisting_of_8: u64,
    /// Of eight sectors that may tear so many do; also once per crash, and often none.
    tearing_of_8: u64,
    /// Without reordering: sectors before this position persist, and the one at it may tear.
    cut: usize,
    position: usize,
}

impl RandomFates {
    pub(super) fn new(
        mut random: Random,
        model: CrashModel,
        sectors: usize,
        sector_bytes: u32,
    ) -> RandomFates {
        let persisting_of_8 = random.below(9);
        let tearing_of_8 = [0, 0, 1, 4][random.below(4) as usize];
        let cut = random.below(sectors as u64 + 1) as usize;
        RandomFates {
            random,
            model,
            sector_bytes,
            persisting_of_8,
            tearing_of_8,
            cut,
            position: 0,
        }
    }

    pub(super) fn next_fate(&mut self) -> Fate {
        let position = self.position;
        self.position += 1;
        let (persists, may_tear) = if self.model.reordering {
            (self.random.below(8) < self.persisting_of_8, true)
        } else {
            (position < self.cut, position == self.cut)
        };
        if self.model.tearing && may_tear && self.random.below(8) < self.tearing_of_8 {
            return Fate::Torn {
                split_bytes: 1 + self.random.below(u64::from(self.sector_bytes) - 1) as u32,
                front_is_new: self.random.below(2) == 0,
            };
        }
        if persists { Fate::Persisted } else { Fate::Lost }
    }
}

/// A small generator of pseudo-random numbers: splitmix64 (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014). Its sequence for a seed is part of what makes a failure
/// repeatable, so it is kept here.
#[derive(Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is small enough here for the bias not to matter.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
