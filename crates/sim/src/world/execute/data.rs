//! Operations on the bytes of files.
//!
//! What needs several transactions can end half done when the pool is full or the device fails. Then the file is read
//! back: each record must be as before or as it was to be, and that is what the model goes on with.

use super::{Outcome, Room};
use crate::world::file_data::Content;
use crate::world::model::Meta;
use crate::world::operation::{Fill, Operation};
use crate::world::state::{Checked, Trouble, World, fs_violation, violation};
use packstone_fs::{AllocateMode, ErrorKind, FileKind, Ino, Seek, SetAttributes};

/// Attribute that goes when the data changes.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
const READ_BYTES: u64 = 1 << 20;
/// One call copies at most this much.
const COPY_BYTES_MAX: u64 = 8 << 20;

/// The mode without what a change of the data by an unprivileged caller takes away.
fn without_privileges(mode: u32) -> u32 {
    let setgid = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    mode & !(0o4000 | setgid)
}

pub(super) fn take_privileges(meta: &mut Meta, kill: bool) {
    meta.xattrs.remove(CAPABILITY);
    if kill {
        meta.mode = without_privileges(meta.mode);
    }
}

impl World {
    fn file(&mut self, slot: u8, handle: u32) -> Checked<Option<Ino>> {
        let found = self.target(slot, handle)?;
        Ok(found.filter(|ino| self.slot(slot).model.node(*ino).kind == FileKind::Regular))
    }

    pub(super) fn on_data(&mut self, operation: &Operation) -> Checked {
        match *operation {
            Operation::Write {
                slot,
                file,
                offset,
                length,
                fill,
                kill,
            } => {
                let Some(ino) = self.file(slot, file)? else {
                    return Ok(());
                };
                self.write(slot, ino, offset, length, fill, kill)
            }
            Operation::Read {
                slot,
                file,
                offset,
                length,
            } => {
                let Some(ino) = self.file(slot, file)? else {
                    return Ok(());
                };
                self.read(slot, ino, offset, length)
            }
            Operation::Truncate {
                slot,
                file,
                size_bytes,
                kill,
            } => {
                let Some(ino) = self.file(slot, file)? else {
                    return Ok(());
                };
                self.truncate(slot, ino, size_bytes, kill)
            }
            Operation::Allocate {
                slot,
                file,
                offset,
                length,
                mode,
            } => {
                let Some(ino) = self.file(slot, file)? else {
                    return Ok(());
                };
                self.allocate(slot, ino, offset, length, mode)
            }
            Operation::Seek { slot, file, offset } => {
                let Some(ino) = self.file(slot, file)? else {
                    return Ok(());
                };
                self.seek(slot, ino, offset)
            }
            Operation::Copy {
                slot,
                from,
                to,
                length,
            } => match (self.file(slot, from.0)?, self.file(slot, to.0)?) {
                (Some(source), Some(target)) => {
                    self.copy(slot, (source, from.1), (target, to.1), u64::from(length))
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn write(&mut self, slot: u8, ino: Ino, offset: u64, length: u32, fill: Fill, kill: bool) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let data = fill.bytes(length as usize);
        let written = fs.write(&self.caller(), ino, offset, &data, kill);
        let outcome = self.judge("write", Room::Needs, written, Ok(()))?;
        let (number, now) = (self.journal.number, self.now());
        let before = self.slot(slot).model.node(ino).meta.clone();
        let (model, journal) = self.model(slot);
        model.dirty.insert(ino);
        let node = model.node_mut(ino);
        node.data.write(number, offset, &data);
        node.modified = Some(now);
        model.change_meta(journal, ino, |meta| take_privileges(meta, kill));
        self.settle(slot, ino, before, &outcome)
    }

    fn read(&mut self, slot: u8, ino: Ino, offset: u64, length: u32) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let mut bytes = b"kept".to_vec();
        let read = fs.read(&self.caller(), ino, offset, length as usize, &mut bytes);
        match self.judge("read", Room::NeedsNone, read, Ok(()))? {
            Outcome::Done(_) => {}
            _ if bytes == b"kept" => return Ok(()),
            _ => return violation("read: a failed read left bytes", ino.to_string()),
        }
        let expected = self
            .slot(slot)
            .model
            .node(ino)
            .data
            .now()
            .read(offset, u64::from(length));
        self.note(&bytes);
        if bytes[..4] != *b"kept" || bytes[4..] != expected {
            let at = bytes[4..]
                .iter()
                .zip(&expected)
                .position(|(found, right)| found != right);
            return violation(
                "read: wrong bytes",
                format!(
                    "inode {ino}, {length} bytes at {offset}, {} found; differs from {at:?} on",
                    bytes.len() - 4
                ),
            );
        }
        Ok(())
    }

    fn truncate(&mut self, slot: u8, ino: Ino, size_bytes: u64, kill: bool) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let change = SetAttributes {
            size_bytes: Some(size_bytes),
            kill_privileges: kill,
            ..SetAttributes::default()
        };
        let done = fs.set_attributes(&self.caller(), ino, &change);
        let shrinks = size_bytes <= self.slot(slot).model.node(ino).data.size_bytes();
        let room = if shrinks { Room::NeedsNone } else { Room::Needs };
        let outcome = self.judge("truncate", room, done, Ok(()))?;
        let (number, now) = (self.journal.number, self.now());
        let before = self.slot(slot).model.node(ino).meta.clone();
        let (model, journal) = self.model(slot);
        model.dirty.insert(ino);
        let node = model.node_mut(ino);
        node.data.resize(number, size_bytes);
        node.modified = Some(now);
        model.change_meta(journal, ino, |meta| take_privileges(meta, kill));
        match &outcome {
            Outcome::Done((found, ())) => {
                let (model, _) = self.model(slot);
                model.node_mut(ino).data.note_committed(number);
                self.compare_attributes(slot, found)
            }
            _ => self.settle(slot, ino, before, &outcome),
        }
    }

    fn allocate(&mut self, slot: u8, ino: Ino, offset: u64, length: u64, mode: AllocateMode) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let length = length.max(1);
        let allocated = fs.allocate(&self.caller(), ino, offset, length, mode);
        let outcome = self.judge("allocate", Room::Needs, allocated, Ok(()))?;
        let (number, now, end) = (self.journal.number, self.now(), offset + length);
        let before = self.slot(slot).model.node(ino).meta.clone();
        let (model, journal) = self.model(slot);
        model.dirty.insert(ino);
        let node = model.node_mut(ino);
        if matches!(mode, AllocateMode::PunchHole | AllocateMode::ZeroRange { .. }) {
            node.data
                .zero(number, offset, end.min(node.data.size_bytes()).max(offset));
            node.modified = None;
        }
        let extends = matches!(
            mode,
            AllocateMode::Allocate | AllocateMode::ZeroRange { keep_size: false }
        );
        if extends && end > node.data.size_bytes() {
            node.data.resize(number, end);
            node.modified = Some(now);
        }
        model.change_meta(journal, ino, |meta| take_privileges(meta, false));
        self.settle(slot, ino, before, &outcome)
    }

    fn copy(
        &mut self,
        slot: u8,
        (from, from_offset): (Ino, u64),
        (to, to_offset): (Ino, u64),
        length: u64,
    ) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let copied = fs.copy_range(&self.caller(), from, from_offset, to, to_offset, length);
        let source = self.slot(slot).model.node(from).data.now();
        let length = length
            .min(COPY_BYTES_MAX)
            .min(source.size_bytes.saturating_sub(from_offset));
        let part = source.read(from_offset, length);
        let expected = match from == to && from_offset.abs_diff(to_offset) < length {
            true => Err(ErrorKind::InvalidInput),
            false => Ok(()),
        };
        let outcome = match self.judge("copy", Room::Needs, copied, expected)? {
            Outcome::Done((copied, ())) if copied > length => {
                return violation("copy: more than there is", format!("{copied} of {length}"));
            }
            // What failed after a part was copied shows at the next call.
            Outcome::Done((copied, ())) if copied < length => Outcome::Full,
            Outcome::Refused => return Ok(()),
            other => other,
        };
        if length == 0 {
            return Ok(());
        }
        let (number, now) = (self.journal.number, self.now());
        let before = self.slot(slot).model.node(to).meta.clone();
        let (model, journal) = self.model(slot);
        model.dirty.insert(to);
        let node = model.node_mut(to);
        node.data.write(number, to_offset, &part);
        node.modified = Some(now);
        model.change_meta(journal, to, |meta| take_privileges(meta, true));
        self.settle(slot, to, before, &outcome)
    }

    /// After an operation that did not go through: finds out what it did. A device that has stopped cannot be asked, and
    /// the crash that follows finds out.
    fn settle<T>(&mut self, slot: u8, ino: Ino, before: Meta, outcome: &Outcome<T>) -> Checked {
        if matches!(outcome, Outcome::Done(_)) {
            return Ok(());
        }
        if self.trouble == Trouble::Stop {
            self.power_goes = true;
            return Ok(());
        }
        if self.trouble == Trouble::Reads {
            self.media.clear_faults();
            self.trouble = Trouble::None;
        }
        self.settle_meta(slot, ino, before)?;
        let found = self.read_content(slot, ino)?;
        let record_bytes = self.record_bytes(slot, ino)?;
        let (number, durable) = (self.journal.number, self.journal.durable);
        let node = self.model(slot).0.node_mut(ino);
        node.modified = None;
        // What did not go through is no commit that a later sync would make durable.
        node.touched = node.touched.min(durable);
        let settled = node.data.settle_last(number, &found, record_bytes);
        settled
            .or_else(|detail| violation("half done: neither old nor new", format!("inode {ino}: {detail}")))
    }

    /// Privileges go in a transaction of their own, before the data changes.
    fn settle_meta(&mut self, slot: u8, ino: Ino, before: Meta) -> Checked {
        let found = self.read_meta(slot, ino)?;
        let after = &self.slot(slot).model.node(ino).meta;
        if found != before && found != *after {
            return violation(
                "half done: attributes",
                format!("{found:?} where {before:?} or {after:?} is right"),
            );
        }
        let (model, journal) = self.model(slot);
        model.change_meta(journal, ino, |meta| *meta = found);
        Ok(())
    }

    /// What the file system says of an inode's own attributes.
    pub(crate) fn read_meta(&self, slot: u8, ino: Ino) -> Checked<Meta> {
        let Some(fs) = &self.slot(slot).fs else {
            return violation("not mounted", ino.to_string());
        };
        let attributes = fs_violation("attributes", fs.attributes(ino))?;
        let mut meta = Meta {
            mode: attributes.mode,
            uid: attributes.uid,
            xattrs: Default::default(),
        };
        let listed = fs_violation("list attributes", fs.list_xattrs(ino))?;
        for name in listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let value = fs_violation("get attribute", fs.get_xattr(ino, name))?;
            meta.xattrs.insert(name.to_vec(), value.into());
        }
        Ok(meta)
    }

    pub(crate) fn record_bytes(&self, slot: u8, ino: Ino) -> Checked<u64> {
        let Some(fs) = &self.slot(slot).fs else {
            return violation("not mounted", ino.to_string());
        };
        Ok(u64::from(
            fs_violation("attributes", fs.attributes(ino))?.block_bytes,
        ))
    }

    /// Everything that a file holds, found with seeks and reads.
    pub(crate) fn read_content(&self, slot: u8, ino: Ino) -> Checked<Content> {
        let Some(fs) = &self.slot(slot).fs else {
            return violation("not mounted", ino.to_string());
        };
        let caller = self.caller();
        let mut content = Content {
            size_bytes: fs_violation("attributes", fs.attributes(ino))?.size_bytes,
            ..Content::default()
        };
        let (mut at, mut buffer) = (0, vec![]);
        while at < content.size_bytes {
            let data = match fs.seek(ino, at, Seek::Data) {
                Err(error) if error.kind() == ErrorKind::NoSuchOffset => break,
                data => fs_violation("seek data", data)?,
            };
            let hole = fs_violation("seek hole", fs.seek(ino, data, Seek::Hole))?;
            if data < at || hole <= data {
                return violation(
                    "seek: goes back",
                    format!("from {at}: data at {data}, hole at {hole}"),
                );
            }
            at = data;
            while at < hole {
                buffer.clear();
                let length = READ_BYTES.min(hole - at);
                fs_violation("read", fs.read(&caller, ino, at, length as usize, &mut buffer))?;
                if buffer.len() as u64 != length {
                    return violation(
                        "read: short",
                        format!("inode {ino}: {} of {length} at {at}", buffer.len()),
                    );
                }
                content.put(at, &buffer);
                at += length;
            }
        }
        Ok(content)
    }

    /// What seek calls a hole must be zeros.
    fn seek(&mut self, slot: u8, ino: Ino, offset: u64) -> Checked {
        let Some(fs) = &self.slot(slot).fs else {
            return Ok(());
        };
        let size_bytes = self.slot(slot).model.node(ino).data.size_bytes();
        let (data, hole) = (fs.seek(ino, offset, Seek::Data), fs.seek(ino, offset, Seek::Hole));
        let beyond = offset >= size_bytes;
        let nothing = data
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::NoSuchOffset);
        let expected = match beyond {
            true => Err(ErrorKind::NoSuchOffset),
            false => Ok(()),
        };
        let data = match nothing && !beyond {
            true => Ok(size_bytes),
            false => data,
        };
        let Outcome::Done((data, ())) = self.judge("seek data", Room::NeedsNone, data, expected)? else {
            return Ok(());
        };
        let Outcome::Done((hole, ())) = self.judge("seek hole", Room::NeedsNone, hole, expected)? else {
            return Ok(());
        };
        self.note((data, hole));
        let sound = data >= offset && data <= size_bytes && hole >= offset && hole <= size_bytes;
        if !sound || (data == offset) != (hole > offset) {
            return violation(
                "seek: impossible",
                format!("inode {ino} from {offset}: data {data}, hole {hole}"),
            );
        }
        if !self.slot(slot).model.node(ino).data.now().is_zero(offset, data) {
            return violation(
                "seek: data in a hole",
                format!("inode {ino} from {offset}: data {data}"),
            );
        }
        Ok(())
    }
}
