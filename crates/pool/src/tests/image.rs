//! The checked-in image: what format version 1 looked like when it was written must be readable for ever.
//!
//! `PACKSTONE_WRITE_IMAGE=1 cargo test -p packstone-pool image` writes it anew; that is right only together with a new
//! format version and a second image.

use super::world::{create, open};
use crate::*;
use packstone_media::{Media, SimulatedMedia};
use std::ops::Bound;
use std::sync::Arc;

const IMAGE: &[u8] = include_bytes!("../../testdata/format-1.zst");
const IMAGE_BYTES: u64 = 8 << 20;
const RECORDS: u64 = 400;

/// Content of a record; must not depend on a library, which may change its mind.
fn page(number: u64) -> Vec<u8> {
    (0..1000u64)
        .map(|at| {
            (number
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(at as u32 / 16)
                >> (at % 5)) as u8
        })
        .collect()
}

fn key(number: u64) -> Vec<u8> {
    format!("record/{number:06}").into_bytes()
}

/// A pool with a checkpoint, a log behind it, freed records and two datasets; not closed.
fn write_image() -> Vec<u8> {
    let media = Arc::new(SimulatedMedia::new(IMAGE_BYTES));
    create(&media);
    let pool = open(&media).expect("opens");
    let tree = pool
        .create_dataset("old", Properties::from([("recordsize".into(), "8K".into())]))
        .expect("creates")
        .tree;
    pool.create_dataset("empty", Properties::new()).expect("creates");
    let mut ids = Vec::new();
    for number in 0..RECORDS {
        let compression = if number % 3 == 0 {
            Compression::Lz4
        } else {
            Compression::default()
        };
        let mut transaction = pool.begin();
        let stream = if number % 2 == 0 {
            Stream::Data
        } else {
            Stream::ShortLived
        };
        let id = transaction.store(tree, stream, PackedRecord::pack(&page(number), compression));
        transaction.put(tree, &key(number), &id.0.to_le_bytes());
        if number % 5 == 4 {
            transaction.free(tree, ids[number as usize - 4]);
            transaction.delete(tree, &key(number - 4));
        }
        ids.push(id);
        pool.commit(transaction).expect("commits");
        if number == RECORDS / 2 {
            pool.checkpoint_now().expect("checkpoints");
        }
    }
    pool.sync(pool.last_commit()).expect("syncs");
    media.image()
}

#[test]
fn the_image_of_format_1_is_readable() {
    if std::env::var_os("PACKSTONE_WRITE_IMAGE").is_some() {
        let packed = zstd::bulk::compress(&write_image(), 19).expect("packs");
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/format-1.zst"),
            packed,
        )
        .expect("writes the image");
        return;
    }
    let image = zstd::bulk::decompress(IMAGE, IMAGE_BYTES as usize).expect("the image unpacks");
    let media = Arc::new(SimulatedMedia::from_image(&image, 4096));
    assert_eq!(read_label(media.as_ref()).expect("has a label").format_version, 1);
    for read_only in [true, false] {
        let options = OpenOptions {
            read_only,
            memory_bytes: None,
            ..OpenOptions::default()
        };
        let pool = Pool::open(vec![media.clone() as Arc<dyn Media>], &options).expect("opens");
        let dataset = pool.dataset("old").expect("finds");
        assert_eq!(dataset.properties["recordsize"], "8K");
        assert_eq!(pool.datasets().expect("lists").len(), 2);
        let pairs = pool
            .scan(dataset.tree, Bound::Unbounded, Bound::Unbounded, usize::MAX)
            .expect("scans");
        let kept: Vec<u64> = (0..RECORDS).filter(|number| number % 5 != 0).collect();
        assert_eq!(pairs.len(), kept.len());
        for (number, (found, id)) in kept.iter().zip(pairs) {
            assert_eq!(found, key(*number));
            let id = RecordId(u64::from_le_bytes(id.try_into().expect("eight bytes")));
            assert_eq!(pool.read_records(&[id]).expect("reads")[0][..], page(*number));
        }
        let report = check(&pool, &mut |_, _| {}).expect("checks");
        assert_eq!(report.problems, Vec::<String>::new());
    }
}
