//! Damage behind the back of the pool: bits that rot, sectors lost, writes that never happened or went elsewhere.
//!
//! The world is closed and opened, so that the device holds what the model says and nothing else. Then a copy of the
//! device is damaged and read: every answer must be right or an error, and where one was an error, `check` must find
//! something. The world itself goes on unharmed.
//!
//! Left out: damage to both copies of the newest checkpoint slot, and loss of the end of the log after it was
//! acknowledged. Both are found by chance only (docs/durability.md); so label areas are spared, and after writes that
//! went astray a checkpoint is written before the copy is opened again.

use super::file_data::{CHUNK_BYTES, Content};
use super::names;
use super::operation::Fill;
use super::state::{Checked, World, violation};
use packstone_fs::{ErrorKind, FileKind, FileSystem, Ino, MountOptions};
use packstone_media::{AlignedBuffer, FaultKind, Media, SectorDamage, SimulatedMedia};
use packstone_pool::{BackgroundWork, LABEL_AREA_BYTES, OpenOptions, Pool};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;

const SECTOR_BYTES: u64 = 4096;
/// Key that says that the last checkpoint of a copy is the one that was read.
const MARKER: &[u8] = b"marker";

/// What each file of each dataset must hold.
type Expected = Vec<BTreeMap<Ino, Content>>;

/// The copy, opened.
struct Copy {
    pool: Arc<Pool>,
    files: Vec<Option<FileSystem>>,
    errors: u64,
}

impl World {
    pub(crate) fn damage(&mut self, kind: FaultKind, seed: u64) -> Checked {
        self.reopen()?;
        let device = Arc::new(self.media.fork());
        let mut random = SmallRng::seed_from_u64(seed);
        let mut expected: Expected = vec![];
        for slot in &self.slots {
            let regular = slot
                .model
                .nodes
                .iter()
                .filter(|(_, node)| node.kind == FileKind::Regular);
            expected.push(
                regular
                    .map(|(ino, node)| (*ino, node.data.now().clone()))
                    .collect(),
            );
        }
        let astray = matches!(kind, FaultKind::PhantomWrite | FaultKind::MisdirectedWrite);
        if astray {
            if !self.write_astray(&device, kind, &mut random, &mut expected)? {
                return Ok(());
            }
        } else {
            self.rot(&device, kind, &mut random);
        }
        let Some(mut copy) = self.open_copy(&device)? else {
            self.count_fault("damaged copies refused");
            return Ok(());
        };
        // Without the marker an older checkpoint was all that could be read, as documented.
        if astray && !matches!(copy.pool.get(self.witness, MARKER), Ok(Some(_))) {
            return Ok(());
        }
        for (slot, contents) in expected.iter().enumerate() {
            self.read_copy(&mut copy, slot, contents)?;
        }
        self.note(copy.errors);
        let problems = match packstone_pool::check(&copy.pool, &mut |_, _| {}) {
            Ok(report) => report.problems.len(),
            Err(_) => 1,
        };
        if copy.errors > 0 && problems == 0 {
            return violation(
                "damage: check finds nothing",
                format!("{} reads failed", copy.errors),
            );
        }
        self.count_fault(if copy.errors > 0 {
            "damaged copies read with errors"
        } else {
            "damaged copies read"
        });
        Ok(())
    }

    /// Damages a few sectors that hold something.
    fn rot(&self, device: &SimulatedMedia, kind: FaultKind, random: &mut SmallRng) {
        let sectors = (self.profile.member_bytes - 2 * LABEL_AREA_BYTES) / SECTOR_BYTES;
        let mut buffer = AlignedBuffer::zeroed(SECTOR_BYTES as usize);
        let mut left = random.random_range(1..6);
        for _ in 0..200 {
            let offset = LABEL_AREA_BYTES + random.random_range(0..sectors) * SECTOR_BYTES;
            let read = device.read(offset, &mut buffer);
            if read.is_err() || buffer.iter().all(|byte| *byte == 0) {
                continue;
            }
            match kind {
                FaultKind::ZeroedSector => device.damage_sector(offset, SectorDamage::Zeroed),
                FaultKind::GarbageSector => {
                    device.damage_sector(offset, SectorDamage::Garbage(random.random()))
                }
                _ => device.corrupt(
                    offset + random.random_range(0..SECTOR_BYTES),
                    1 << random.random_range(0..8),
                ),
            }
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }

    /// Overwrites some of the files while one write of the device goes astray. False when that ended in an error, after
    /// which nothing is promised but the error.
    fn write_astray(
        &self,
        device: &Arc<SimulatedMedia>,
        kind: FaultKind,
        random: &mut SmallRng,
        expected: &mut Expected,
    ) -> Checked<bool> {
        let Some(copy) = self.open_copy(device)? else {
            return violation("damage: a whole copy does not open", "");
        };
        device.inject_after(kind, random.random_range(0..8));
        for (fs, contents) in copy.files.iter().zip(expected.iter_mut()) {
            let Some(fs) = fs else { continue };
            for (ino, content) in contents.iter_mut().take(8) {
                let offset = random.random_range(0..content.size_bytes.clamp(1, 1 << 20)) / 4096 * 4096;
                let data = Fill::Noise(random.random()).bytes(random.random_range(1..20_000));
                if fs.write(&self.caller(), *ino, offset, &data, false).is_err() {
                    return Ok(false);
                }
                content.put(offset, &data);
                content.size_bytes = content.size_bytes.max(offset + data.len() as u64);
            }
            if fs.sync_all().is_err() {
                return Ok(false);
            }
        }
        let mut marker = copy.pool.begin();
        marker.put(self.witness, MARKER, &[]);
        let written = copy.pool.commit(marker).and_then(|_| copy.pool.checkpoint_now());
        let cleaned = written.and_then(|()| copy.pool.step(BackgroundWork::Clean, self.time_ms));
        let ended = cleaned.and_then(|_| copy.pool.checkpoint_now());
        drop(copy);
        device.clear_faults();
        device.crash_losing_nothing();
        Ok(ended.is_ok())
    }

    /// `None` when it refuses because of damage.
    fn open_copy(&self, device: &Arc<SimulatedMedia>) -> Checked<Option<Copy>> {
        let member: Arc<dyn Media> = device.clone();
        let options = OpenOptions {
            memory_bytes: Some(16 << 20),
            ..OpenOptions::default()
        };
        let pool = match Pool::open(vec![member], &options) {
            Ok(pool) => Arc::new(pool),
            Err(error) if error.kind() == packstone_pool::ErrorKind::Damaged => return Ok(None),
            Err(error) => return violation("damage: open fails otherwise", error.to_string()),
        };
        let mut copy = Copy {
            pool,
            files: vec![],
            errors: 0,
        };
        for slot in &self.slots {
            if slot.fs.is_none() {
                copy.files.push(None);
                continue;
            }
            let options = MountOptions::default();
            match FileSystem::open_with_seed(copy.pool.clone(), &slot.name, options, &self.caller(), 42) {
                Ok(fs) => copy.files.push(Some(fs)),
                Err(error) if is_damage(error.kind()) => {
                    copy.errors += 1;
                    copy.files.push(None);
                }
                Err(error) => return violation("damage: mount fails otherwise", error.to_string()),
            }
        }
        Ok(Some(copy))
    }

    fn read_copy(&self, copy: &mut Copy, number: usize, expected: &BTreeMap<Ino, Content>) -> Checked {
        let Some(fs) = &copy.files[number] else {
            return Ok(());
        };
        let mut errors = 0;
        let mut nodes: Vec<_> = self.slots[number].model.nodes.iter().collect();
        nodes.sort_by_key(|(ino, _)| **ino);
        for (ino, node) in nodes {
            for (name, child) in &node.entries {
                match fs.lookup(&self.caller(), *ino, &names::bytes(*name)) {
                    Ok(found) if found.ino == *child => {}
                    Ok(found) => return violation("damage: a name leads elsewhere", format!("{found:?}")),
                    Err(error) if is_damage(error.kind()) => errors += 1,
                    Err(error) => return violation("damage: a name is wrong", error.to_string()),
                }
            }
            let Some(content) = expected.get(ino) else {
                continue;
            };
            match fs.attributes(*ino) {
                Ok(found) if found.size_bytes == content.size_bytes => {}
                Ok(found) => {
                    return violation(
                        "damage: a wrong size",
                        format!("{found:?}, not {}", content.size_bytes),
                    );
                }
                Err(error) if is_damage(error.kind()) => errors += 1,
                Err(error) => return violation("damage: attributes are wrong", error.to_string()),
            }
            for index in content.chunks.keys() {
                let mut bytes = vec![];
                let at = index * CHUNK_BYTES;
                match fs.read(&self.caller(), *ino, at, CHUNK_BYTES as usize, &mut bytes) {
                    Ok(()) if bytes == content.read(at, CHUNK_BYTES) => {}
                    Ok(()) => return violation("damage: wrong bytes", format!("inode {ino} at {at}")),
                    Err(error) if is_damage(error.kind()) => errors += 1,
                    Err(error) => return violation("damage: a read fails otherwise", error.to_string()),
                }
            }
        }
        copy.errors += errors;
        Ok(())
    }
}

fn is_damage(kind: ErrorKind) -> bool {
    kind == ErrorKind::Damaged
}
