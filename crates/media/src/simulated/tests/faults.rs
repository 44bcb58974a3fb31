//! Each kind of fault does what its description says, once or at its rate, and is counted.

use super::*;

fn counted(media: &SimulatedMedia, kind: FaultKind) -> u64 {
    media.fault_counts().of(kind)
}

#[test]
fn a_short_read_fills_a_part_and_fails() {
    let media = device();
    write_sector(&media, 1, 7);
    media.inject(FaultKind::ShortRead, 1);
    let mut bytes = [0xee; SECTOR];
    let error = media.read(SECTOR as u64, &mut bytes).unwrap_err();
    assert_eq!(error.kind(), MediaErrorKind::Unavailable);
    let filled = bytes.iter().take_while(|&&byte| byte == 7).count();
    assert!(bytes[filled..].iter().all(|&byte| byte == 0xee));
    media.read(SECTOR as u64, &mut bytes).unwrap();
    assert_eq!(bytes, [7; SECTOR]);
    assert_eq!(counted(&media, FaultKind::ShortRead), 1);
}

#[test]
fn a_short_write_leaves_a_front_and_fails() {
    let mut lengths = std::collections::BTreeSet::new();
    let media = device();
    media.set_fault_plan(FaultPlan::new(3));
    for _ in 0..20 {
        media.write(0, &[1; 4 * SECTOR]).unwrap();
        media.inject(FaultKind::ShortWrite, 1);
        media.write(0, &[2; 4 * SECTOR]).unwrap_err();
        let mut bytes = [0; 4 * SECTOR];
        media.read(0, &mut bytes).unwrap();
        let written = bytes.iter().take_while(|&&byte| byte == 2).count();
        assert!(written < bytes.len() && bytes[written..].iter().all(|&byte| byte == 1));
        lengths.insert(written);
    }
    assert!(lengths.len() > 10 && lengths.iter().any(|length| length % SECTOR != 0));
    assert_eq!(counted(&media, FaultKind::ShortWrite), 20);
}

#[test]
fn a_phantom_write_never_happens() {
    let media = device();
    write_sector(&media, 1, 1);
    media.inject(FaultKind::PhantomWrite, 1);
    write_sector(&media, 1, 2);
    media.flush().unwrap();
    assert_sector(&media, 1, 1);
    media.crash_losing_nothing();
    assert_sector(&media, 1, 1);
    assert_eq!(counted(&media, FaultKind::PhantomWrite), 1);
}

#[test]
fn a_misdirected_write_lands_elsewhere() {
    let media = device();
    write_sector(&media, 1, 1);
    write_sector(&media, 9, 9);
    media.misdirect_next_write(9 * SECTOR as u64);
    write_sector(&media, 1, 2);
    media.flush().unwrap();
    media.crash_losing_all();
    assert_sector(&media, 1, 1);
    assert_sector(&media, 9, 2);
    let fault = media.injected_faults().pop().unwrap();
    assert_eq!(fault.kind, FaultKind::MisdirectedWrite);
    assert_eq!(fault.range, SECTOR as u64..2 * SECTOR as u64);
    assert_eq!(fault.instead_bytes, Some(9 * SECTOR as u64));
    // Without a target one is drawn, and it is never the right place.
    for _ in 0..50 {
        media.inject(FaultKind::MisdirectedWrite, 1);
        write_sector(&media, 1, 3);
        assert_sector(&media, 1, 1);
        let instead = media.injected_faults().pop().unwrap().instead_bytes.unwrap();
        assert_sector(&media, instead / SECTOR as u64, 3);
    }
}

#[test]
fn a_misdirected_read_answers_with_other_bytes() {
    let media = device();
    for sector in 0..64 {
        write_sector(&media, sector, sector as u8);
    }
    media.inject(FaultKind::MisdirectedRead, 1);
    let read = read_sector(&media, 5)[0];
    assert_ne!(read, 5);
    let instead = media.injected_faults()[0].instead_bytes.unwrap();
    assert_eq!(u64::from(read), instead / SECTOR as u64);
    assert_sector(&media, 5, 5);
}

#[test]
fn a_dropping_flush_fails_once_and_then_lies() {
    let media = device();
    write_sector(&media, 1, 1);
    media.flush().unwrap();
    write_sector(&media, 1, 2);
    media.inject(FaultKind::DroppingFlush, 1);
    media.flush().unwrap_err();
    media.flush().unwrap();
    assert_sector(&media, 1, 2);
    write_sector(&media, 2, 2);
    media.flush().unwrap();
    media.inject_after(FaultKind::DroppingFlush, 2);
    media.flush().unwrap();
    media.flush().unwrap();
    media.flush().unwrap_err();
    media.flush().unwrap();
    media.crash_losing_nothing();
    assert_sector(&media, 1, 1);
    assert_sector(&media, 2, 2);
    assert_eq!(counted(&media, FaultKind::DroppingFlush), 2);
}

#[test]
fn a_full_backing_file_takes_only_what_it_has_room_for() {
    let media = SimulatedMedia::new(1 << 20);
    media.write(0, &[1; SECTOR]).unwrap();
    media.fill_backing_file();
    media.write(SECTOR as u64, &[1; SECTOR]).unwrap();
    let error = media.write(512 << 10, &[1; SECTOR]).unwrap_err();
    assert_eq!(error.kind(), MediaErrorKind::NoSpace);
    let across = vec![1; 128 << 10];
    assert_eq!(
        media.write(0, &across).unwrap_err().kind(),
        MediaErrorKind::NoSpace
    );
    assert_sector(&media, 3, 0);
    media.clear_faults();
    media.write(512 << 10, &[1; SECTOR]).unwrap();
    media.inject(FaultKind::NoSpace, 1);
    media.write(512 << 10, &[2; SECTOR]).unwrap();
    media.write(768 << 10, &[2; SECTOR]).unwrap_err();
    assert_eq!(counted(&media, FaultKind::NoSpace), 3);
}

#[test]
fn a_device_that_has_gone_comes_back_with_or_without_its_cache() {
    for (detachment, expected) in [
        (Detachment::KeepingUnflushed, 2),
        (Detachment::LosingUnflushed, 1),
    ] {
        let media = device();
        write_sector(&media, 1, 1);
        media.flush().unwrap();
        write_sector(&media, 1, 2);
        media.detach(detachment);
        media.read(0, &mut [0; SECTOR]).unwrap_err();
        media.write(0, &[1; SECTOR]).unwrap_err();
        media.flush().unwrap_err();
        media.discard(0, SECTOR as u64).unwrap_err();
        media.clear_faults();
        let error = media.read(0, &mut [0; SECTOR]).unwrap_err();
        assert_eq!(error.io_error().unwrap().raw_os_error(), Some(libc::ENXIO));
        assert_eq!(counted(&media, FaultKind::Gone), 5);
        media.reattach();
        assert_sector(&media, 1, expected);
        assert_sector(&media, 0, 0);
        media.flush().unwrap();
    }
}

#[test]
fn whole_sectors_become_zeros_or_noise() {
    let media = device();
    (0..4).for_each(|sector| write_sector(&media, sector, 5));
    media.flush().unwrap();
    media.damage_sector(SECTOR as u64 + 100, SectorDamage::Zeroed);
    media.damage_sector(2 * SECTOR as u64, SectorDamage::Garbage(1));
    media.crash_losing_all();
    assert_sector(&media, 0, 5);
    assert_sector(&media, 1, 0);
    assert_eq!(sector_value(&media, 2), None);
    assert_sector(&media, 3, 5);
}

#[test]
fn slow_calls_say_how_long_they_took() {
    let media = device();
    media.inject(FaultKind::Slow, 2);
    write_sector(&media, 0, 1);
    let first_ms = media.take_delay_ms();
    assert!(first_ms > 0);
    assert_eq!(media.take_delay_ms(), 0);
    media.flush().unwrap();
    assert!(media.take_delay_ms() > 0);
    media.flush().unwrap();
    assert_eq!(media.take_delay_ms(), 0);
    assert_sector(&media, 0, 1);
}

/// Some life with every fault at a rate; what a caller sees and what lies there at the end.
fn life_with_faults(seed: u64) -> (FaultCounts, Vec<bool>, Vec<u8>) {
    let media = device();
    let kinds = FaultKind::ALL.into_iter().filter(|kind| {
        !matches!(
            kind,
            FaultKind::Gone | FaultKind::BadRange | FaultKind::FlushError
        )
    });
    media.set_fault_plan(kinds.fold(FaultPlan::new(seed), |plan, kind| plan.with(kind, 50_000)));
    let mut outcomes = Vec::new();
    for round in 0..1000u64 {
        outcomes.push(
            media
                .write(round * 7 % 64 * SECTOR as u64, &[round as u8; SECTOR])
                .is_ok(),
        );
        outcomes.push(
            media
                .read(round * 3 % 64 * SECTOR as u64, &mut [0; SECTOR])
                .is_ok(),
        );
        outcomes.push(media.flush().is_ok());
    }
    (media.fault_counts(), outcomes, media.image())
}

#[test]
fn a_plan_draws_every_kind_from_its_seed_at_its_rate() {
    let (counts, outcomes, image) = life_with_faults(1);
    assert_eq!((counts, outcomes.clone(), image), life_with_faults(1));
    assert_ne!(outcomes, life_with_faults(2).1);
    for (kind, count) in counts.iter() {
        // NoSpace can hit only the first write of an area, and there is only one here; slowness hits every call.
        let expected = match kind {
            FaultKind::NoSpace => 0..5,
            FaultKind::Slow => 100..200,
            FaultKind::BitRot | FaultKind::GarbageSector | FaultKind::ZeroedSector => 60..140,
            _ => 25..80,
        };
        assert!(expected.contains(&count), "{kind:?} happened {count} times");
    }
    assert!(counts.iter().count() >= 12, "{counts:?}");
    let failed = outcomes.iter().filter(|ok| !**ok).count() as u64;
    let reported = counts.iter().filter(|(kind, _)| kind.is_reported());
    assert_eq!(failed, reported.map(|(_, count)| count).sum::<u64>());
}

#[test]
fn without_a_plan_nothing_happens_and_a_crash_ends_one() {
    let media = device();
    media.set_fault_plan(FaultPlan::new(1).with(FaultKind::WriteError, 1_000_000));
    media.write(0, &[1; SECTOR]).unwrap_err();
    media.crash_losing_all();
    (0..64).for_each(|sector| write_sector(&media, sector, 1));
    assert_eq!(media.fault_counts().total(), 1);
    media.inject(FaultKind::PhantomWrite, 5);
    assert_eq!(media.fork().fault_counts().total(), 0);
    media.clear_faults();
    write_sector(&media, 0, 9);
    assert_sector(&media, 0, 9);
}
