//! What dies with a lossy media is what no flush covered, and nothing else.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::simulated::SimulatedMedia;

const SECTOR: usize = 4096;
const SECTORS: u64 = 64;

fn device() -> Arc<SimulatedMedia> {
    Arc::new(SimulatedMedia::new(SECTORS * SECTOR as u64))
}

fn lossy(inner: &Arc<SimulatedMedia>, write_back_seed: Option<u64>) -> LossyMedia<Arc<SimulatedMedia>> {
    let options = LossyOptions {
        write_back_seed,
        ..LossyOptions::default()
    };
    LossyMedia::new(inner.clone(), options)
}

fn write(media: &dyn Media, sector: u64, value: u8) {
    media.write(sector * SECTOR as u64, &[value; SECTOR]).unwrap();
}

fn read(media: &dyn Media, sector: u64) -> Vec<u8> {
    let mut bytes = vec![0xee; SECTOR];
    media.read(sector * SECTOR as u64, &mut bytes).unwrap();
    bytes
}

/// The sector's value, or `None` when it is a mix.
fn value(media: &dyn Media, sector: u64) -> Option<u8> {
    let bytes = read(media, sector);
    bytes.iter().all(|byte| *byte == bytes[0]).then_some(bytes[0])
}

#[test]
fn exactly_the_unflushed_sectors_are_lost() {
    let inner = device();
    let media = lossy(&inner, None);
    let three: Vec<u8> = [1, 2, 3].iter().flat_map(|value| [*value; SECTOR]).collect();
    media.write(5 * SECTOR as u64, &three).unwrap();
    media.flush().unwrap();
    write(&media, 6, 9);
    write(&media, 20, 9);
    assert_eq!(media.unflushed_bytes(), 2 * SECTOR as u64);
    // Reads see everything, also across what is cached and what is not.
    let mut seen = vec![0; 4 * SECTOR];
    media.read(4 * SECTOR as u64, &mut seen).unwrap();
    let values: Vec<u8> = seen.chunks(SECTOR).map(|sector| sector[0]).collect();
    assert_eq!(values, [0, 1, 9, 3]);
    drop(media);
    // The program is gone; the inner media itself loses nothing.
    inner.crash_losing_nothing();
    let left: Vec<_> = [5, 6, 7, 20].map(|sector| value(&*inner, sector)).into();
    assert_eq!(left, [Some(1), Some(2), Some(3), Some(0)]);
}

#[test]
fn without_the_wrapper_nothing_would_be_lost() {
    let inner = device();
    write(&*inner, 6, 9);
    inner.crash_losing_nothing();
    assert_eq!(value(&*inner, 6), Some(9));
}

#[test]
fn sectors_that_come_through_early_are_some_whole_some_torn() {
    let (mut lost, mut whole, mut torn) = (0, 0, 0);
    for seed in 0..40 {
        let inner = device();
        let media = lossy(&inner, Some(seed));
        for sector in 0..SECTORS {
            write(&media, sector, 1);
        }
        media.flush().unwrap();
        for sector in 0..SECTORS {
            write(&media, sector, 2);
            assert_eq!(value(&media, sector), Some(2), "a read sees the newest bytes");
        }
        drop(media);
        inner.crash_losing_nothing();
        for sector in 0..SECTORS {
            match value(&*inner, sector) {
                Some(1) => lost += 1,
                Some(2) => whole += 1,
                Some(other) => panic!("sector {sector} holds {other}"),
                None => {
                    torn += 1;
                    for piece in read(&*inner, sector).chunks(TEAR_BYTES) {
                        let first = piece[0];
                        assert!(first == 1 || first == 2, "a piece of something else");
                        assert!(piece.iter().all(|byte| *byte == first), "torn within a piece");
                    }
                }
            }
        }
    }
    assert!(
        lost > 500 && whole > 50 && torn > 50,
        "{lost} lost, {whole} whole, {torn} torn"
    );
}

#[test]
fn a_kill_in_the_middle_of_a_flush_leaves_old_or_new_sectors() {
    let mut kinds = std::collections::BTreeSet::new();
    for calls in 0..40 {
        let inner = device();
        let media = lossy(&inner, Some(calls));
        for sector in 0..32 {
            write(&media, 2 * sector, 1);
        }
        media.flush().unwrap();
        for sector in 0..32 {
            write(&media, 2 * sector, 2);
        }
        inner.stop_after_changes(calls);
        let flushed = media.flush().is_ok();
        drop(media);
        inner.crash_losing_nothing();
        let values: Vec<_> = (0..32).map(|sector| value(&*inner, 2 * sector)).collect();
        assert!(values.iter().flatten().all(|value| *value == 1 || *value == 2));
        assert!(!flushed || values.iter().all(|value| *value == Some(2)));
        for odd in 0..32 {
            assert_eq!(value(&*inner, 2 * odd + 1), Some(0), "never written");
        }
        kinds.insert(values);
    }
    assert!(kinds.len() > 20, "only {} different states", kinds.len());
}

#[test]
fn memory_stays_bounded_and_reads_stay_right() {
    let inner = device();
    let options = LossyOptions {
        write_back_seed: None,
        memory_bytes: 8 * SECTOR as u64,
    };
    let media = LossyMedia::new(inner.clone(), options);
    for sector in 0..SECTORS {
        write(&media, sector, sector as u8 + 1);
        assert!(media.unflushed_bytes() <= options.memory_bytes);
    }
    for sector in 0..SECTORS {
        assert_eq!(value(&media, sector), Some(sector as u8 + 1));
    }
    // What was spilled is not durable yet: the inner media was not flushed.
    inner.crash_losing_all();
    assert_eq!(value(&*inner, 0), Some(0));
}

#[test]
fn after_a_failure_no_flush_succeeds_and_reads_go_on() {
    for fails_in_flush in [true, false] {
        let inner = device();
        let media = lossy(&inner, None);
        write(&media, 3, 7);
        if fails_in_flush {
            inner.fail_next_flushes(1);
        } else {
            inner.fail_next_writes(1);
        }
        let error = media.flush().unwrap_err();
        assert_eq!(error.kind(), MediaErrorKind::Unavailable);
        inner.clear_faults();
        assert_eq!(value(&media, 3), Some(7));
        write(&media, 4, 8);
        assert!(media.flush().is_err(), "what was lost cannot be brought back");
        assert_eq!(value(&media, 4), Some(8));
    }
}

#[test]
fn requests_beyond_the_end_or_between_sectors_are_refused() {
    let media = lossy(&device(), None);
    assert!(media.write(1, &[0; SECTOR]).is_err());
    assert!(media.write(SECTORS * SECTOR as u64, &[0; SECTOR]).is_err());
    assert!(media.read(0, &mut [0; 100]).is_err());
    assert_eq!(media.unflushed_bytes(), 0);
}

#[test]
fn a_discarded_sector_does_not_come_back_from_the_cache() {
    let inner = device();
    let media = lossy(&inner, None);
    write(&media, 3, 7);
    media.discard(3 * SECTOR as u64, SECTOR as u64).unwrap();
    media.flush().unwrap();
    assert_eq!(value(&*inner, 3), Some(0));
}

/// Each thread has sectors of its own: what it wrote it reads, and after its flush the inner media has it for good,
/// whatever the other threads write, flush and let through early at that time.
#[test]
fn threads_find_their_own_writes_and_flushes_kept() {
    let inner = device();
    let options = LossyOptions {
        write_back_seed: Some(1),
        memory_bytes: 12 * SECTOR as u64,
    };
    let media = LossyMedia::new(inner.clone(), options);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (media, inner) = (&media, &inner);
            scope.spawn(move || {
                for round in 0..400_u64 {
                    let sector = thread * 16 + round % 5;
                    let byte = (round % 251) as u8;
                    write(media, sector, byte);
                    assert_eq!(value(media, sector), Some(byte));
                    if round % 3 == 0 {
                        media.flush().unwrap();
                        let durable = inner.image();
                        let start = sector as usize * SECTOR;
                        let found = &durable[start..start + SECTOR];
                        assert!(found.iter().all(|found| *found == byte), "round {round}");
                    }
                }
            });
        }
    });
}
