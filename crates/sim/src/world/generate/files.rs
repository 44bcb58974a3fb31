//! Operations on one file.

use super::Generator;
use crate::world::model::Handle;
use crate::world::operation::Operation;
use crate::world::profile::{COMPRESSIONS, Kind, pick};
use crate::world::slots::Slot;
use packstone_fs::{AllocateMode, Ino, XattrMode};
use rand::Rng;

impl Generator {
    pub(super) fn on_file(&mut self, kind: Kind, slot: u8, at: &Slot) -> Option<Operation> {
        let (ino, file) = self.busy_file(at)?;
        let size_bytes = at.model.node(ino).data.size_bytes();
        let offset = self.offset(size_bytes);
        Some(match kind {
            Kind::WriteAligned | Kind::WriteSmall | Kind::WritePage | Kind::Append => {
                self.write(kind, slot, file, offset, size_bytes)
            }
            Kind::Read => {
                let length = self.length().max(pick(&mut self.random, &[1, 8192, 100_000]));
                Operation::Read {
                    slot,
                    file,
                    offset,
                    length,
                }
            }
            Kind::Truncate => {
                let size_bytes = pick(&mut self.random, &[0, offset, offset, offset / 4096 * 4096]);
                let kill = self.percent(30);
                Operation::Truncate {
                    slot,
                    file,
                    size_bytes,
                    kill,
                }
            }
            Kind::Allocate => {
                let keep_size = self.percent(50);
                let modes = [
                    AllocateMode::Allocate,
                    AllocateMode::KeepSize,
                    AllocateMode::PunchHole,
                    AllocateMode::PunchHole,
                    AllocateMode::ZeroRange { keep_size },
                ];
                let mode = pick(&mut self.random, &modes);
                let length = u64::from(self.length()) * pick(&mut self.random, &[1, 1, 4, 100]);
                Operation::Allocate {
                    slot,
                    file,
                    offset,
                    length,
                    mode,
                }
            }
            Kind::Seek => Operation::Seek {
                slot,
                file,
                offset: offset.min(size_bytes),
            },
            Kind::Copy => {
                let (_, to) = self.busy_file(at)?;
                let to_offset = self.offset(self.profile.file_bytes / 2);
                let length = self.length().saturating_mul(pick(&mut self.random, &[1, 1, 8]));
                Operation::Copy {
                    slot,
                    from: (file, offset),
                    to: (to, to_offset),
                    length,
                }
            }
            Kind::Xattr => {
                let (name, length) = (self.random.random_range(0..4), self.random.random_range(0..2000));
                let length = if self.percent(3) { 60_000 } else { length };
                let mode = pick(
                    &mut self.random,
                    &[XattrMode::Set, XattrMode::Create, XattrMode::Replace],
                );
                match self.random.random_range(0..10) {
                    0..3 => Operation::RemoveXattr { slot, file, name },
                    3..5 => Operation::GetXattr { slot, file, name },
                    _ => Operation::SetXattr {
                        slot,
                        file,
                        name,
                        length,
                        mode,
                    },
                }
            }
            Kind::Attributes => match self.random.random_range(0..3) {
                0 => {
                    let mode = pick(&mut self.random, &[0o644, 0o4755, 0o2755, 0o1777, 0]);
                    Operation::Chmod { slot, file, mode }
                }
                1 => Operation::Chown {
                    slot,
                    file,
                    uid: self.random.random_range(0..3),
                },
                _ => Operation::Times {
                    slot,
                    file,
                    seconds: self.random.random_range(-10..1_000_000),
                },
            },
            Kind::OpenRelease if self.percent(50) => {
                let held = at
                    .held
                    .iter()
                    .filter(|(_, held)| held.opens > 0)
                    .map(|(ino, _)| *ino);
                let held: Vec<Ino> = held.collect();
                if held.is_empty() {
                    return None;
                }
                let file = at.model.node(pick(&mut self.random, &held)).handle;
                Operation::Release { slot, file }
            }
            Kind::OpenRelease => Operation::Open { slot, file },
            Kind::Forget => {
                let from = self.random.random();
                let held = at
                    .held
                    .range(Ino(from)..)
                    .next()
                    .or_else(|| at.held.iter().next());
                Operation::Forget {
                    slot,
                    file: at.model.node(*held?.0).handle,
                }
            }
            Kind::Sync | Kind::DataSync => {
                let file = if self.percent(20) {
                    self.directory(at)
                } else {
                    file
                };
                Operation::Sync {
                    slot,
                    file,
                    data_only: kind == Kind::DataSync,
                }
            }
            Kind::SyncAll => Operation::SyncAll { slot },
            Kind::FsStep => Operation::FsStep { slot },
            Kind::Property => match self.percent(50) {
                true => Operation::Property {
                    slot,
                    name: "recordsize",
                    value: pick(&mut self.random, self.profile.record_sizes),
                },
                false => Operation::Property {
                    slot,
                    name: "compression",
                    value: pick(&mut self.random, &COMPRESSIONS),
                },
            },
            _ => Operation::Statistics { slot },
        })
    }

    fn write(&mut self, kind: Kind, slot: u8, file: Handle, offset: u64, size_bytes: u64) -> Operation {
        let (fill, kill) = (self.fill(), self.percent(30));
        let length = self.length();
        let most = self.profile.write_bytes;
        let (offset, length) = match kind {
            Kind::WriteAligned => {
                let unit = pick(&mut self.random, &[8192, 4096, 16384, 131_072]);
                let count = (most / unit).clamp(1, 64);
                let unit = u64::from(unit);
                (
                    offset / unit * unit,
                    self.random.random_range(1..=count) * unit as u32,
                )
            }
            // A page of a mapping that is written back.
            Kind::WritePage if size_bytes > 0 => {
                let page = self.random.random_range(0..size_bytes) / 4096 * 4096;
                (page, (size_bytes - page).min(4096) as u32)
            }
            Kind::Append if size_bytes < 4 * self.profile.file_bytes => (size_bytes, length),
            _ => (offset, length),
        };
        Operation::Write {
            slot,
            file,
            offset,
            length,
            fill,
            kill,
        }
    }
}
