//! What a crash may make of the sectors that are not flushed, numbered so that each can be asked for again.
//!
//! | sectors | numbers |
//! |---|---|
//! | n up to 8 | every subset kept (2^n); then 4 n in which one sector is torn and the others are kept, lost, or by chance |
//! | n above 8 | all lost; all kept; each one lost alone; each one kept alone; then by chance, as many as wanted |
//!
//! Chance comes from the seed, the point and the number.

use packstone_media::{Fate, SimulatedMedia};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Up to so many sectors every subset is tried.
pub const EVERY_SUBSET_SECTORS: usize = 8;

/// The unflushed sectors of a point.
pub struct Variants {
    /// Where each lies, with a hash of what it would become.
    sectors: Vec<(u64, u64)>,
    seed: u64,
}

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl Variants {
    /// Of the device at a point; `seed` decides what is left to chance.
    pub fn of(device: &SimulatedMedia, seed: u64) -> Variants {
        let mut sectors = Vec::new();
        device.fork().crash_with(&mut |sector| {
            // A sector that would not change is as good as lost.
            let hash = if sector.old == sector.new {
                0
            } else {
                hash_of(sector.new)
            };
            sectors.push((sector.offset_bytes, hash));
            Fate::Lost
        });
        Variants { sectors, seed }
    }

    /// How many there are, with so many by chance where not all subsets are tried.
    pub fn count(&self, by_chance: u64) -> u64 {
        let n = self.sectors.len() as u64;
        if self.sectors.len() <= EVERY_SUBSET_SECTORS {
            (1 << n) + 4 * n
        } else {
            2 + 2 * n + by_chance
        }
    }

    /// What becomes of each sector.
    pub fn fates(&self, number: u64) -> Vec<Fate> {
        let n = self.sectors.len();
        let mut random = SmallRng::seed_from_u64(self.seed.wrapping_mul(0x1_0000_01b3) ^ number);
        if n <= EVERY_SUBSET_SECTORS {
            return match number.checked_sub(1 << n) {
                None => (0..n).map(|at| kept_if(number >> at & 1 == 1)).collect(),
                Some(torn) => {
                    let (which, others) = (torn as usize % n, torn as usize / n);
                    let fate = |at| match others {
                        _ if at == which => tear(&mut random),
                        0 => Fate::Persisted,
                        1 => Fate::Lost,
                        _ => kept_if(random.random()),
                    };
                    (0..n).map(fate).collect()
                }
            };
        }
        let number = number as usize;
        let alone =
            |first: usize, kept: bool| (0..n).map(|at| kept_if((at == number - first) == kept)).collect();
        match number {
            0 => vec![Fate::Lost; n],
            1 => vec![Fate::Persisted; n],
            _ if number < 2 + n => alone(2, false),
            _ if number < 2 + 2 * n => alone(2 + n, true),
            _ => by_chance(&mut random, n),
        }
    }

    /// Tells images apart that fates make of one durable image: sectors that change, and what they become.
    pub fn image_key(&self, fates: &[Fate]) -> u64 {
        let mut changed: Vec<(u64, u64)> = Vec::with_capacity(fates.len());
        for ((offset_bytes, hash), fate) in self.sectors.iter().zip(fates) {
            let becomes = match fate {
                Fate::Lost => continue,
                Fate::Persisted => *hash,
                // What it becomes depends on what lay there, which is in the key already.
                Fate::Torn {
                    split_bytes,
                    front_is_new,
                } => {
                    let before = changed.iter().rev().find(|(at, _)| at == offset_bytes);
                    let mut hasher = DefaultHasher::new();
                    (hash, split_bytes, front_is_new, before).hash(&mut hasher);
                    hasher.finish()
                }
            };
            changed.push((*offset_bytes, becomes));
        }
        // The last write of a sector is what counts.
        changed.reverse();
        changed.sort_by_key(|(offset_bytes, _)| *offset_bytes);
        changed.dedup_by_key(|(offset_bytes, _)| *offset_bytes);
        changed.retain(|(_, hash)| *hash != 0);
        let mut hasher = DefaultHasher::new();
        changed.hash(&mut hasher);
        hasher.finish()
    }
}

/// The device after a crash with these fates.
pub fn crashed(device: &SimulatedMedia, fates: &[Fate]) -> SimulatedMedia {
    let crashed = device.fork();
    crashed.crash_with(&mut |sector| fates[sector.index]);
    crashed
}

fn kept_if(kept: bool) -> Fate {
    if kept { Fate::Persisted } else { Fate::Lost }
}

fn tear(random: &mut SmallRng) -> Fate {
    Fate::Torn {
        split_bytes: random.random_range(1..4096),
        front_is_new: random.random(),
    }
}

/// Nearly all, nearly none, and everything between; with tears in one of four.
fn by_chance(random: &mut SmallRng, sectors: usize) -> Vec<Fate> {
    let kept_of_16 = random.random_range(0..=16);
    let torn_of_16 = [0, 0, 0, 2][random.random_range(0..4)];
    (0..sectors)
        .map(|_| {
            if random.random_range(0..16) < torn_of_16 {
                tear(random)
            } else {
                kept_if(random.random_range(0..16) < kept_of_16)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use packstone_media::Media;
    use std::collections::BTreeSet;

    fn device(sectors: u64) -> SimulatedMedia {
        let device = SimulatedMedia::new(1 << 20);
        for sector in 0..sectors {
            device
                .write(sector * 4096, &[sector as u8 + 1; 4096])
                .expect("writes");
        }
        device
    }

    #[test]
    fn few_sectors_give_every_subset_and_every_image_its_own_key() {
        let device = device(5);
        let variants = Variants::of(&device, 1);
        let count = variants.count(0);
        assert_eq!(count, 32 + 20);
        let (mut keys, mut images) = (BTreeSet::new(), BTreeSet::new());
        for number in 0..count {
            let fates = variants.fates(number);
            assert_eq!(fates, variants.fates(number));
            keys.insert(variants.image_key(&fates));
            images.insert(crashed(&device, &fates).image());
        }
        assert!(images.len() >= 32 && keys.len() == images.len());
    }

    #[test]
    fn many_sectors_give_the_extremes_and_chance() {
        let device = device(20);
        let variants = Variants::of(&device, 1);
        assert_eq!(variants.count(100), 2 + 40 + 100);
        let kept = |number| {
            let fates = variants.fates(number);
            fates.iter().filter(|fate| **fate == Fate::Persisted).count()
        };
        assert_eq!((kept(0), kept(1)), (0, 20));
        assert!((2..22).all(|number| kept(number) == 19));
        assert!((22..42).all(|number| kept(number) == 1));
        let by_chance: BTreeSet<usize> = (42..142).map(kept).collect();
        assert!(by_chance.len() > 10);
    }

    #[test]
    fn rewriting_a_sector_with_the_same_bytes_gives_the_same_image() {
        let device = device(1);
        device.flush().expect("flushes");
        device.write(0, &[1; 4096]).expect("writes");
        device.write(4096, &[9; 4096]).expect("writes");
        device.write(4096, &[8; 4096]).expect("writes");
        let variants = Variants::of(&device, 1);
        let keys: BTreeSet<u64> = (0..8)
            .map(|number| variants.image_key(&variants.fates(number)))
            .collect();
        assert_eq!(keys.len(), 3);
    }
}
