//! Changes of an image, one after the other as the input says.
//!
//! | kind | change | checksums |
//! |---|---|---|
//! | 0 | a few bytes of a sector that is not empty | left wrong |
//! | 1 | a sector zeroed, or its end | left wrong |
//! | 2 | two sectors swapped, or one copied over another | those inside hold |
//! | 3 | the label | put right |
//! | 4, 5 | header, directory or anything of a batch | put right |
//! | 6 | operations of a batch | put right |
//! | 7 | bytes of a node of the record table | put right up to the root |
//! | 8 | bytes of a node of a tree | put right |
//! | 9, 10 | key or value of one pair of a tree, the node staying well-formed; or borrowed from its neighbour | put right |
//! | 11 | content of a record, or its frame | put right |
//! | 12 | where a record is said to lie | put right |
//! | 13 | segment usage | put right |
//! | 14 | the checkpoint slot | put right |
//!
//! From 7 on the structures are written anew and a newer checkpoint names them (`packstone_pool::fuzzing`).

use crate::input::Input;
use packstone_media::{AlignedBuffer, Media, SimulatedMedia};
use packstone_pool::fuzzing::{Forge, Map};
use std::sync::Arc;

pub(super) const KINDS: u8 = 15;
const CHANGES_MAX: usize = 12;
const SECTOR: usize = super::SECTOR_BYTES as usize;

/// Changes to usage and slot, which are written last.
#[derive(Default)]
struct Late {
    page: Option<Vec<u8>>,
    slot: Option<Vec<u8>>,
}

pub(super) fn apply(input: &mut Input<'_>, map: &Map, media: &Arc<SimulatedMedia>) {
    let mut forge = None;
    let mut late = Late::default();
    for _ in 0..CHANGES_MAX {
        if input.is_empty() {
            break;
        }
        match input.byte() % KINDS {
            kind @ 0..3 => damage(input, kind, map, media),
            kind => {
                let forge = match &mut forge {
                    Some(forge) => forge,
                    None => match Forge::open(media.clone()) {
                        Some(opened) => forge.insert(opened),
                        None => continue,
                    },
                };
                // What cannot be forged any more, because of earlier changes, stays as it is.
                let _ = forge_one(input, kind, map, forge, &mut late);
            }
        }
    }
    if let Some(forge) = forge {
        let _ = forge.finish(
            &mut |page| replay(late.page.as_deref(), page, true),
            &mut |slot| replay(late.slot.as_deref(), slot, true),
        );
    }
    let _ = media.flush();
}

/// Makes the changes that a kept part of the input says.
fn replay(kept: Option<&[u8]>, bytes: &mut Vec<u8>, fixed_length: bool) {
    if let Some(kept) = kept {
        Input::new(kept).edit(bytes, fixed_length);
    }
}

fn damage(input: &mut Input<'_>, kind: u8, map: &Map, media: &SimulatedMedia) {
    let (first, second) = (input.below(map.sectors.len()), input.below(map.sectors.len()));
    let (first, second) = (map.sectors[first], map.sectors[second]);
    let mut buffer = AlignedBuffer::zeroed(SECTOR);
    if media.read(first, &mut buffer).is_err() {
        return;
    }
    match kind {
        0 => {
            // The front of a sector is where headers are.
            let mut bytes = buffer[..if input.byte() < 128 { 256 } else { SECTOR }].to_vec();
            input.edit(&mut bytes, true);
            buffer[..bytes.len()].copy_from_slice(&bytes);
        }
        1 => {
            let kept = if input.byte() < 128 {
                0
            } else {
                input.below(SECTOR)
            };
            buffer[kept..].fill(0);
        }
        _ => {
            let mut other = AlignedBuffer::zeroed(SECTOR);
            let _ = media.read(second, &mut other);
            if input.byte() < 128 {
                let _ = media.write(second, &buffer);
            }
            buffer = other;
        }
    }
    let _ = media.write(first, &buffer);
}

fn forge_one(input: &mut Input<'_>, kind: u8, map: &Map, forge: &mut Forge, late: &mut Late) -> Option<()> {
    match kind {
        3 => forge.label(&mut |bytes| input.edit(bytes, true)),
        4..=6 => {
            let batch = *map.batches.get(input.below(map.batches.len()))?;
            match kind {
                4 => forge.batch(batch, &mut |bytes| {
                    let mut header = bytes[..96].to_vec();
                    input.edit(&mut header, true);
                    bytes[..96].copy_from_slice(&header);
                }),
                5 => forge.batch(batch, &mut |bytes| edit_behind_records(input, bytes)),
                _ => {
                    let chunk = usize::from(input.byte());
                    forge.operations(batch, chunk, &mut |bytes| input.edit(bytes, false))
                }
            }
        }
        7 => {
            let (levels, path) = (input.byte() % 4, input.number16());
            forge.table_node(levels, &mut |count| path % count, &mut |bytes| {
                input.edit(bytes, false)
            })
        }
        8 => {
            let (tree, levels, path) = (input.below(map.tree_count()), input.byte() % 4, input.number16());
            forge.tree_node(map, tree, levels, &mut |count| path % count, &mut |bytes| {
                input.edit(bytes, false)
            })
        }
        9 | 10 => forge_pair(input, kind, map, forge),
        11 => {
            let id = *map.records.get(input.below(map.records.len()))?;
            if input.byte() < 128 {
                forge.record(id, &mut |bytes| input.edit(bytes, false))
            } else {
                forge.frame(id, &mut |bytes| input.edit(bytes, false))
            }
        }
        12 => {
            let id = *map.records.get(input.below(map.records.len()))?;
            forge.place(id, &mut |bytes| input.edit(bytes, false))
        }
        13 => {
            late.page = Some(input.bytes(12).to_vec());
            Some(())
        }
        _ => {
            late.slot = Some(input.bytes(12).to_vec());
            Some(())
        }
    }
}

/// Directory and operations lie behind the records.
fn edit_behind_records(input: &mut Input<'_>, bytes: &mut [u8]) {
    let number =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
    let start = (96 + number(56)).min(bytes.len());
    let end = (start + number(60) + number(64)).min(bytes.len());
    let mut part = bytes[start..end].to_vec();
    input.edit(&mut part, true);
    bytes[start..end].copy_from_slice(&part);
}

fn forge_pair(input: &mut Input<'_>, kind: u8, map: &Map, forge: &mut Forge) -> Option<()> {
    let tree = input.below(map.tree_count());
    let choices = [
        input.byte(),
        input.byte(),
        input.byte(),
        input.byte(),
        input.byte(),
    ];
    let mut next = choices.iter().cycle();
    let mut descent = |count: usize| {
        next.next()
            .map_or(0, |choice| usize::from(*choice) % count.max(1))
    };
    forge.pair(
        map,
        tree,
        &mut descent,
        &mut |key, value, (other_key, other_value)| {
            match (kind, input.byte() % 8) {
                (9, 0) => input.edit(key, false),
                (9, 1) => *key = other_key.to_vec(),
                (9, 2) => *value = other_value.to_vec(),
                (9, 3) if key.len() >= 8 => {
                    // Another inode, of those that exist.
                    key[..8].copy_from_slice(&u64::from(input.byte() % 48).to_be_bytes());
                }
                (9, 4) if key.len() == 17 => key[9..].copy_from_slice(&input.edge().to_be_bytes()),
                (9, 5) if value.len() > 3 => value[2] = input.byte() % 48,
                _ => input.edit(value, false),
            }
            key.truncate(1024);
            value.truncate(32 << 10);
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::{DATASET, SECTOR_BYTES, SIZE_BYTES, base, open};
    use super::*;

    type Forgery = fn(&mut Forge, &Map) -> Option<()>;

    /// Every way to forge, changing nothing.
    const FORGERIES: [(&str, Forgery); 9] = [
        ("label", |forge, _| forge.label(&mut |_| ())),
        ("batch", |forge, map| {
            forge.batch(*map.batches.last()?, &mut |_| ())
        }),
        ("operations", |forge, map| {
            let mut batches = map.batches.iter();
            batches.find_map(|batch| forge.operations(*batch, 0, &mut |_| ()))
        }),
        ("table node", |forge, _| {
            forge.table_node(3, &mut |count| count / 2, &mut |_| ())
        }),
        ("tree node", |forge, map| {
            forge.tree_node(map, 1, 3, &mut |count| count / 2, &mut |_| ())
        }),
        ("pair", |forge, map| {
            forge.pair(map, 1, &mut |count| count / 2, &mut |_, _, _| ())
        }),
        ("record", |forge, map| {
            forge.record(*map.records.get(5)?, &mut |_| ())
        }),
        ("frame", |forge, map| {
            forge.frame(*map.records.get(7)?, &mut |_| ())
        }),
        ("place", |forge, map| {
            forge.place(*map.records.get(9)?, &mut |_| ())
        }),
    ];

    fn forged(
        number: usize,
        forgery: Forgery,
        edit_slot: &mut dyn FnMut(&mut Vec<u8>),
    ) -> Arc<SimulatedMedia> {
        let base = base(number);
        let media = Arc::new(SimulatedMedia::from_snapshot(&base.image, SECTOR_BYTES));
        let mut forge = Forge::open(media.clone()).expect("the image is whole and has a free segment");
        forgery(&mut forge, &base.map).expect("can be forged");
        forge.finish(&mut |_| (), edit_slot).expect("has room");
        media.flush().expect("flushes");
        media
    }

    #[test]
    fn a_forgery_that_changes_nothing_leaves_a_sound_image() {
        for number in 0..SIZE_BYTES.len() {
            for (name, forgery) in FORGERIES {
                let media = forged(number, forgery, &mut |_| ());
                for read_only in [true, false] {
                    let pool =
                        open(&media, read_only).unwrap_or_else(|error| panic!("{number}, {name}: {error}"));
                    let report = packstone_pool::check(&pool, &mut |_, _| {}).expect("checks");
                    assert_eq!(report.problems, Vec::<String>::new(), "image {number}, {name}");
                    let files =
                        packstone_fs::check(&Arc::new(pool), DATASET, &mut |_, _| {}).expect("checks files");
                    // A record packed anew may be longer or shorter than its file says.
                    let mut problems = files.problems.iter();
                    let lie =
                        problems.find(|problem| name != "record" || !problem.contains("bytes are stored"));
                    assert_eq!(lie, None, "image {number}, {name}");
                }
            }
        }
    }

    #[test]
    fn what_is_forged_is_what_the_pool_sees() {
        for number in 0..SIZE_BYTES.len() {
            // The segment of the first cursor.
            let media = forged(number, |_, _| Some(()), &mut |slot| slot[61..65].fill(0x77));
            // An older checkpoint may stand in for it; then the pool says why.
            let said = match open(&media, true) {
                Ok(pool) => pool.notes().join("; "),
                Err(error) => error.to_string(),
            };
            assert!(said.contains("impossible places"), "image {number}: {said}");
            let forgery: Forgery = |forge, map| forge.record(*map.records.first()?, &mut |raw| raw.push(1));
            let pool = open(&forged(number, forgery, &mut |_| ()), true).expect("opens");
            let first = base(number).map.records[0];
            assert!(
                pool.read_records(&[first])
                    .is_ok_and(|found| found[0].last() == Some(&1))
            );
        }
    }
}
