//! The simulated device keeps the promises of a real one, and breaks exactly what it says it breaks.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::*;
use crate::error::MediaErrorKind;

mod faults;

const SECTOR: usize = 4096;
const SIZE_BYTES: u64 = 64 * SECTOR as u64;

fn device() -> SimulatedMedia {
    SimulatedMedia::new(SIZE_BYTES)
}

fn write_sector(media: &SimulatedMedia, sector: u64, value: u8) {
    media.write(sector * SECTOR as u64, &[value; SECTOR]).unwrap();
}

fn read_sector(media: &SimulatedMedia, sector: u64) -> Vec<u8> {
    let mut bytes = vec![0xee; SECTOR];
    media.read(sector * SECTOR as u64, &mut bytes).unwrap();
    bytes
}

#[track_caller]
fn assert_sector(media: &SimulatedMedia, sector: u64, value: u8) {
    assert_eq!(read_sector(media, sector), [value; SECTOR]);
}

/// What a sector is after a crash: `Some` when it holds one value, `None` when it is torn.
fn sector_value(media: &SimulatedMedia, sector: u64) -> Option<u8> {
    let bytes = read_sector(media, sector);
    bytes.iter().all(|&byte| byte == bytes[0]).then_some(bytes[0])
}

#[test]
fn reads_see_writes_and_a_crash_keeps_what_was_flushed() {
    let media = device();
    write_sector(&media, 1, 1);
    assert_sector(&media, 1, 1);
    assert_eq!(media.unflushed_sectors(), 1);
    assert!(media.image().iter().all(|&byte| byte == 0));
    media.flush().unwrap();
    assert_eq!(media.unflushed_sectors(), 0);
    write_sector(&media, 1, 2);
    write_sector(&media, 2, 2);
    assert_sector(&media, 1, 2);
    media.crash_losing_all();
    assert_sector(&media, 1, 1);
    assert_sector(&media, 2, 0);
    for seed in 0..50 {
        media.crash(seed);
        assert_sector(&media, 1, 1);
    }
}

#[test]
fn when_only_the_program_dies_nothing_is_lost() {
    let media = device();
    write_sector(&media, 1, 1);
    write_sector(&media, 1, 2);
    write_sector(&media, 3, 3);
    media.crash_losing_nothing();
    assert_sector(&media, 1, 2);
    assert_sector(&media, 3, 3);
    media.crash_losing_all();
    assert_sector(&media, 1, 2);
}

#[test]
fn writes_across_chunks_are_whole() {
    let media = SimulatedMedia::new(1 << 20);
    let data: Vec<u8> = (0..200 * 1024u32).map(|index| (index / 53) as u8).collect();
    media.write(60 * 1024, &data).unwrap();
    media.flush().unwrap();
    let mut read = vec![0; data.len()];
    media.read(60 * 1024, &mut read).unwrap();
    assert!(read == data);
    let image = media.image();
    assert!(image[60 * 1024..260 * 1024] == data);
    assert!(
        image[..60 * 1024]
            .iter()
            .chain(&image[260 * 1024..])
            .all(|&byte| byte == 0)
    );
    assert!(SimulatedMedia::from_image(&image, 512).image() == image);
}

#[test]
fn the_caller_decides_each_sector() {
    let media = device();
    write_sector(&media, 9, 1);
    media.flush().unwrap();
    media.write(8 * SECTOR as u64, &[2; 3 * SECTOR]).unwrap();
    write_sector(&media, 9, 3);
    let mut seen = Vec::new();
    media.crash_with(&mut |sector| {
        seen.push((
            sector.index,
            sector.write,
            sector.offset_bytes / SECTOR as u64,
            sector.old[0],
            sector.new[0],
        ));
        match sector.index {
            0 => Fate::Lost,
            1 => Fate::Persisted,
            2 => Fate::Torn {
                split_bytes: 100,
                front_is_new: true,
            },
            _ => Fate::Torn {
                split_bytes: 4000,
                front_is_new: false,
            },
        }
    });
    // The last one tears over what the second left.
    assert_eq!(
        seen,
        [
            (0, 1, 8, 0, 2),
            (1, 1, 9, 1, 2),
            (2, 1, 10, 0, 2),
            (3, 2, 9, 2, 3)
        ]
    );
    assert_sector(&media, 8, 0);
    assert_eq!(
        read_sector(&media, 10),
        [&[2; 100][..], &[0; SECTOR - 100]].concat()
    );
    assert_eq!(
        read_sector(&media, 9),
        [&[2; 4000][..], &[3; SECTOR - 4000]].concat()
    );
}

#[test]
fn random_crashes_lose_keep_tear_and_reorder() {
    let (mut all, mut none, mut torn, mut reordered, mut regressed) = (0, 0, 0, 0, 0);
    for seed in 0..400 {
        let media = device();
        for sector in 0..8 {
            write_sector(&media, sector, 1);
        }
        // The same sector once more: the later write may be lost alone.
        write_sector(&media, 0, 2);
        media.crash(seed);
        let values: Vec<_> = (0..8).map(|sector| sector_value(&media, sector)).collect();
        all += u32::from(values[1..].iter().all(|&value| value == Some(1)));
        none += u32::from(values.iter().all(|&value| value == Some(0)));
        torn += u32::from(values.contains(&None));
        let first_lost = values[1..].iter().position(|&value| value == Some(0));
        reordered += u32::from(first_lost.is_some_and(|lost| values[1 + lost..].contains(&Some(1))));
        regressed += u32::from(values[0] == Some(1));
    }
    for (name, count) in [
        ("all", all),
        ("none", none),
        ("torn", torn),
        ("reordered", reordered),
        ("regressed", regressed),
    ] {
        assert!(count > 5, "{name} happened {count} times");
        assert!(count < 395, "{name} happened {count} times");
    }
}

#[test]
fn a_seed_always_gives_the_same_crash() {
    let crashed = |seed| {
        let media = device();
        (0..20).for_each(|sector| write_sector(&media, sector, sector as u8 + 1));
        media.crash(seed);
        media.image()
    };
    assert!(crashed(7) == crashed(7));
    assert!((0..20).any(|seed| crashed(seed) != crashed(7)));
}

#[test]
fn the_crash_model_forbids_tearing_and_reordering() {
    for seed in 0..200 {
        let media = device();
        media.set_crash_model(CrashModel {
            tearing: false,
            reordering: true,
        });
        (0..8).for_each(|sector| write_sector(&media, sector, 1));
        media.crash(seed);
        assert!(
            (0..8).all(|sector| sector_value(&media, sector).is_some()),
            "seed {seed}"
        );

        media.restore(&SimulatedImage::new(SIZE_BYTES));
        media.set_crash_model(CrashModel {
            tearing: true,
            reordering: false,
        });
        (0..8).for_each(|sector| write_sector(&media, sector, 1));
        media.crash(seed);
        let values: Vec<_> = (0..8).map(|sector| sector_value(&media, sector)).collect();
        let persisted = values.iter().take_while(|&&value| value == Some(1)).count();
        let lost = values.iter().rev().take_while(|&&value| value == Some(0)).count();
        assert!(persisted + lost >= 7, "seed {seed}: {values:?}");
    }
}

#[test]
fn tears_happen_within_small_sectors_too() {
    let media = SimulatedMedia::with_sector_bytes(SIZE_BYTES, 512);
    media.write(512, &[5; 512]).unwrap();
    assert_eq!(media.unflushed_sectors(), 1);
    media.crash_with(&mut |sector| {
        assert_eq!((sector.old.len(), sector.new.len()), (512, 512));
        Fate::Torn {
            split_bytes: 9999,
            front_is_new: true,
        }
    });
    assert_eq!(
        media.image()[512..1024],
        [5; 512],
        "a split beyond the sector is its end"
    );
}

#[test]
fn snapshots_and_forks_are_independent() {
    let media = device();
    write_sector(&media, 1, 1);
    media.flush().unwrap();
    let snapshot = media.snapshot();
    write_sector(&media, 1, 2);
    let fork = media.fork();
    media.flush().unwrap();
    write_sector(&media, 2, 2);
    assert_eq!(fork.unflushed_sectors(), 1);
    assert_sector(&fork, 1, 2);
    fork.crash_losing_all();
    assert_sector(&fork, 1, 1);
    assert_sector(&media, 1, 2);
    media.restore(&snapshot);
    assert_eq!(media.unflushed_sectors(), 0);
    assert_sector(&media, 1, 1);
    assert_sector(&media, 2, 0);
    assert!(media.snapshot() == snapshot);
    assert_sector(&SimulatedMedia::from_snapshot(&snapshot, 4096), 1, 1);
}

#[test]
fn discards_read_as_zeros_and_can_be_undone_by_a_crash() {
    let media = device();
    write_sector(&media, 1, 1);
    media.flush().unwrap();
    media.discard(SECTOR as u64, SECTOR as u64).unwrap();
    assert_sector(&media, 1, 0);
    let fork = media.fork();
    fork.crash_losing_all();
    assert_sector(&fork, 1, 1);
    media.flush().unwrap();
    media.crash_losing_all();
    assert_sector(&media, 1, 0);
}

#[test]
fn corruption_changes_what_is_durable() {
    let media = device();
    write_sector(&media, 1, 0b1010);
    media.flush().unwrap();
    media.corrupt(SECTOR as u64 + 17, 0b0110);
    let mut expected = [0b1010; SECTOR];
    expected[17] = 0b1100;
    assert_eq!(read_sector(&media, 1), expected);
    media.crash_losing_all();
    assert_eq!(read_sector(&media, 1), expected);
}

#[test]
fn faults_hit_the_next_calls_and_no_others() {
    let media = device();
    media.fail_next_reads(2);
    let mut bytes = [0; SECTOR];
    for _ in 0..2 {
        let error = media.read(0, &mut bytes).unwrap_err();
        assert_eq!(error.kind(), MediaErrorKind::Unavailable);
        assert_eq!(error.io_error().unwrap().raw_os_error(), Some(libc::EIO));
    }
    media.read(0, &mut bytes).unwrap();

    media.fail_next_writes(1);
    media.write(0, &[1; 4 * SECTOR]).unwrap_err();
    assert_eq!(
        (0..4)
            .map(|sector| sector_value(&media, sector).unwrap())
            .collect::<Vec<_>>(),
        [1, 1, 0, 0]
    );
    media.write(0, &[2; SECTOR]).unwrap();
    assert_eq!(media.counters().errors(), 3);
}

#[test]
fn a_failed_flush_makes_nothing_durable_and_stays_failed_until_the_crash() {
    let media = device();
    write_sector(&media, 1, 1);
    media.fail_next_flushes(1);
    media.flush().unwrap_err();
    media.clear_faults();
    assert!(
        media
            .flush()
            .unwrap_err()
            .to_string()
            .contains("an earlier flush failed")
    );
    assert_sector(&media, 1, 1);
    media.crash_losing_all();
    assert_sector(&media, 1, 0);
    write_sector(&media, 1, 2);
    media.flush().unwrap();
}

#[test]
fn faults_in_ranges_last_until_cleared() {
    let media = device();
    media.fail_reads_in(SECTOR as u64..SECTOR as u64 + 1);
    media.fail_writes_in(2 * SECTOR as u64..4 * SECTOR as u64);
    let mut bytes = [0; 2 * SECTOR];
    media.read(0, &mut bytes).unwrap_err();
    media.read(SECTOR as u64, &mut bytes[..SECTOR]).unwrap_err();
    media.read(0, &mut bytes[..SECTOR]).unwrap();
    media.read(2 * SECTOR as u64, &mut bytes).unwrap();
    write_sector(&media, 1, 1);
    media.write(3 * SECTOR as u64, &bytes).unwrap_err();
    write_sector(&media, 4, 1);
    media.clear_faults();
    assert_sector(&media, 1, 1);
    write_sector(&media, 3, 1);
}

#[test]
fn a_stopped_device_does_nothing_more() {
    let media = device();
    write_sector(&media, 0, 1);
    assert_eq!(media.media_calls(), 1);
    media.stop_after_calls(2);
    write_sector(&media, 1, 1);
    assert_sector(&media, 1, 1);
    let mut bytes = [0; SECTOR];
    media.read(0, &mut bytes).unwrap_err();
    media.write(2 * SECTOR as u64, &[1; 4 * SECTOR]).unwrap_err();
    media.flush().unwrap_err();
    media.discard(0, SECTOR as u64).unwrap_err();
    assert_eq!((media.media_calls(), media.media_changes()), (7, 5));
    assert_eq!(media.unflushed_sectors(), 2);
    media.crash_losing_nothing();
    assert_eq!(media.media_calls(), 0);
    assert_sector(&media, 1, 1);
    assert_sector(&media, 2, 0);
}

#[test]
fn a_program_can_be_stopped_at_every_change() {
    // A tiny program that needs its order: data, flush, then the mark that says the data is there.
    let run = |media: &SimulatedMedia| -> Result<()> {
        media.write(SECTOR as u64, &[7; SECTOR])?;
        media.read(SECTOR as u64, &mut [0; SECTOR])?;
        media.flush()?;
        media.write(0, &[1; SECTOR])?;
        media.flush()
    };
    let whole = device();
    run(&whole).unwrap();
    assert_eq!(whole.media_changes(), 4);
    let mut outcomes = std::collections::BTreeSet::new();
    for changes in 0..=4 {
        for seed in 0..20 {
            let media = device();
            media.stop_after_changes(changes);
            assert_eq!(run(&media).is_ok(), changes == 4);
            media.crash(seed);
            let (mark, data) = (sector_value(&media, 0), sector_value(&media, 1));
            assert!(
                mark == Some(0) || data == Some(7),
                "the mark without the data: {mark:?} {data:?}"
            );
            outcomes.insert((mark, data));
        }
    }
    assert!(outcomes.len() >= 5, "{outcomes:?}");
}

#[test]
fn requests_off_the_sectors_are_refused() {
    let media = device();
    for (offset, length) in [
        (1, SECTOR),
        (0, 100),
        (SIZE_BYTES, SECTOR),
        (u64::MAX - 4095, SECTOR),
    ] {
        assert_eq!(
            media.write(offset, &vec![0; length]).unwrap_err().kind(),
            MediaErrorKind::InvalidInput
        );
        assert_eq!(
            media.read(offset, &mut vec![0; length]).unwrap_err().kind(),
            MediaErrorKind::InvalidInput
        );
    }
    assert_eq!(media.media_calls(), 0, "refused requests do not reach the device");
    let shared: Arc<dyn Media> = Arc::new(media);
    assert_eq!(
        (Media::size_bytes(&shared), Media::sector_bytes(&shared)),
        (SIZE_BYTES, 4096)
    );
}
