//! Reads made together give what reads made one by one give, however many, long or wrong they are.
#![allow(clippy::unwrap_used)]

use crate::{Access, AlignedBuffer, CreateMode, FileMedia, Media, MediaErrorKind, ReadRequest};
use std::path::Path;

const SECTOR: usize = 4096;
const SECTORS: usize = 2048;

/// A file each sector of which is filled with its number.
fn numbered(path: &Path) -> FileMedia {
    let media = FileMedia::create(path, (SECTORS * SECTOR) as u64, CreateMode::New).unwrap();
    let mut all = AlignedBuffer::zeroed(SECTORS * SECTOR);
    for (number, sector) in all.chunks_mut(SECTOR).enumerate() {
        sector
            .chunks_mut(4)
            .for_each(|word| word.copy_from_slice(&(number as u32).to_le_bytes()));
    }
    media.write(0, &all).unwrap();
    media
}

fn holds_sectors_from(first: usize, bytes: &[u8]) -> bool {
    bytes
        .chunks(4)
        .enumerate()
        .all(|(at, word)| word == ((first + at * 4 / SECTOR) as u32).to_le_bytes())
}

fn requests<'a>(places: &[usize], buffers: &'a mut [AlignedBuffer]) -> Vec<ReadRequest<'a>> {
    let with_place = places.iter().zip(buffers);
    with_place
        .map(|(first, buffer)| ReadRequest {
            offset_bytes: (first * SECTOR) as u64,
            buffer,
        })
        .collect()
}

#[test]
fn many_reads_at_once_fill_each_buffer_with_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let media = numbered(&directory.path().join("numbered"));
    // More than a ring holds, in an order that is not the file's, of one to seven sectors, some of them twice.
    let places: Vec<usize> = (0..500).map(|at| at * 1237 % (SECTORS - 8)).collect();
    let mut buffers: Vec<AlignedBuffer> = (0..places.len())
        .map(|at| AlignedBuffer::zeroed((at % 7 + 1) * SECTOR))
        .collect();
    for _ in 0..3 {
        buffers.iter_mut().for_each(|buffer| buffer.fill(0xff));
        media.read_many(&mut requests(&places, &mut buffers)).unwrap();
        for (first, buffer) in places.iter().zip(&buffers) {
            assert!(holds_sectors_from(*first, buffer), "sector {first}");
        }
    }
    assert_eq!(media.counters().reads, 1500);
}

#[test]
fn one_wrong_read_among_many_is_told_as_it_is_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbered");
    let media = numbered(&path);
    let mut buffers: Vec<AlignedBuffer> = (0..3).map(|_| AlignedBuffer::zeroed(2 * SECTOR)).collect();
    let beyond = media
        .read_many(&mut requests(&[0, SECTORS - 1, 4], &mut buffers))
        .unwrap_err();
    assert_eq!(beyond.kind(), MediaErrorKind::InvalidInput, "{beyond}");
    // Cut short behind our back: the read that is past the new end gets fewer bytes than it asked for.
    drop(media);
    let media = FileMedia::open(&path, Access::ReadOnly).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len((100 * SECTOR) as u64).unwrap();
    let short = media
        .read_many(&mut requests(&[0, 99, 4], &mut buffers))
        .unwrap_err();
    assert_eq!(short.kind(), MediaErrorKind::Unavailable, "{short}");
    assert!(holds_sectors_from(0, &buffers[0]));
}

#[test]
fn memory_of_any_alignment_will_do() {
    let directory = tempfile::tempdir().unwrap();
    let media = numbered(&directory.path().join("numbered"));
    let mut unaligned = vec![0; 2 * SECTOR + 1];
    let (left, right) = unaligned[1..].split_at_mut(SECTOR);
    let request = |first: usize, buffer| ReadRequest {
        offset_bytes: (first * SECTOR) as u64,
        buffer,
    };
    media
        .read_many(&mut [request(7, left), request(3, right)])
        .unwrap();
    assert!(holds_sectors_from(7, &unaligned[1..=SECTOR]) && holds_sectors_from(3, &unaligned[SECTOR + 1..]));
}
