//! Round trips through every codec, and frames that nobody wrote.
#![allow(clippy::unwrap_used)]

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use super::*;
use crate::error::CodecErrorKind;
use crate::{Compression, PackedRecord, ZstdLevel, checksum};

fn all_compressions() -> Vec<Compression> {
    let zstd = (1..=19).map(|level| Compression::Zstd(ZstdLevel::new(level).unwrap()));
    [Compression::None, Compression::Lz4]
        .into_iter()
        .chain(zstd)
        .collect()
}

/// Bytes between very regular (`variety` 1) and random (256).
fn bytes_of_variety(random: &mut SmallRng, length: usize, variety: u32) -> Vec<u8> {
    let words: Vec<[u8; 8]> = (0..variety).map(|_| random.random()).collect();
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        if variety >= 256 {
            bytes.extend_from_slice(&random.next_u64().to_le_bytes());
        } else {
            bytes.extend_from_slice(&words[random.random_range(0..words.len())]);
        }
    }
    bytes.truncate(length);
    bytes
}

#[track_caller]
fn assert_round_trip(raw: &[u8], compression: Compression) -> PackedRecord {
    let record = PackedRecord::pack(raw, compression);
    assert_eq!(record.raw_bytes() as usize, raw.len());
    assert_eq!(record.packed_bytes() as usize, record.frame().len());
    assert!(
        record.packed_bytes() <= packed_bytes_max(raw.len() as u32),
        "{compression}"
    );
    assert_eq!(record.checksum(), checksum(record.frame()));
    let header = header(record.frame()).unwrap();
    assert_eq!(header.raw_bytes as usize, raw.len());
    assert_eq!(header.dictionary, None);
    assert!(
        unpack(record.frame(), raw.len() as u32).unwrap() == raw,
        "{compression}, {} bytes",
        raw.len()
    );
    let again = PackedRecord::from_frame(record.frame().into()).unwrap();
    assert_eq!(again, record);
    record
}

#[test]
fn every_codec_and_level_returns_what_it_was_given() {
    let mut random = SmallRng::seed_from_u64(1);
    for compression in all_compressions() {
        for length in [
            0, 1, 2, 15, 16, 17, 127, 128, 4095, 8192, 16_383, 16_384, 65_534, 65_535, 65_536, 131_072,
        ] {
            for variety in [1, 40, 256] {
                assert_round_trip(&bytes_of_variety(&mut random, length, variety), compression);
            }
        }
    }
}

#[test]
fn the_longest_record_fits() {
    let mut random = SmallRng::seed_from_u64(2);
    for compression in ["none", "lz4", "zstd-1", "zstd-19"] {
        let compression = compression.parse().unwrap();
        for variety in [3, 256] {
            assert_round_trip(
                &bytes_of_variety(&mut random, RAW_BYTES_MAX as usize, variety),
                compression,
            );
        }
    }
}

#[test]
#[should_panic(expected = "is longer than")]
fn a_longer_record_is_a_bug_of_the_caller() {
    PackedRecord::pack(&vec![0; RAW_BYTES_MAX as usize + 1], Compression::None);
}

#[test]
fn random_records_return_whatever_the_order_of_codecs() {
    // One thread, so one context for all levels: a level must not leak into the next record.
    let mut random = SmallRng::seed_from_u64(3);
    let compressions = all_compressions();
    for _ in 0..1_500 {
        let length = random.random_range(0..20_000);
        let variety = random.random_range(1..300);
        let compression = compressions[random.random_range(0..compressions.len())];
        let raw = bytes_of_variety(&mut random, length, variety);
        let record = assert_round_trip(&raw, compression);
        assert_eq!(
            PackedRecord::pack(&raw, compression),
            record,
            "packing is deterministic"
        );
    }
}

#[test]
fn the_frame_says_its_codec_and_what_does_not_compress_stays_raw() {
    let mut random = SmallRng::seed_from_u64(4);
    let regular = bytes_of_variety(&mut random, 8192, 10);
    let noise = bytes_of_variety(&mut random, 8192, 256);
    for (name, codec) in [
        ("none", Codec::Raw),
        ("lz4", Codec::Lz4),
        ("zstd-1", Codec::Zstd),
        ("zstd-9", Codec::Zstd),
    ] {
        let compression: Compression = name.parse().unwrap();
        let packed = PackedRecord::pack(&regular, compression);
        assert_eq!(header(packed.frame()).unwrap().codec, codec, "{name}");
        assert_eq!(packed.packed_bytes() < 4096, codec != Codec::Raw, "{name}");
        let raw = PackedRecord::pack(&noise, compression);
        assert_eq!(
            header(raw.frame()).unwrap(),
            FrameHeader {
                codec: Codec::Raw,
                raw_bytes: 8192,
                header_bytes: 3,
                dictionary: None
            }
        );
        assert_eq!(&raw.frame()[3..], noise);
    }
}

#[test]
fn a_record_is_kept_compressed_from_a_sixteenth_saved_on() {
    assert!(saves_enough(1600, 1500));
    assert!(!saves_enough(1600, 1501));
    assert!(!saves_enough(1, 1));
    assert!(!saves_enough(0, 2));
    // A tenth of the page is regular: well above the line. A thirtieth: below it.
    let mut random = SmallRng::seed_from_u64(5);
    let mut page = bytes_of_variety(&mut random, 8192, 256);
    page[..819].fill(0);
    assert_eq!(
        header(PackedRecord::pack(&page, Compression::default()).frame())
            .unwrap()
            .codec,
        Codec::Zstd
    );
    page[273..819].copy_from_slice(&bytes_of_variety(&mut random, 546, 256));
    assert_eq!(
        header(PackedRecord::pack(&page, Compression::default()).frame())
            .unwrap()
            .codec,
        Codec::Raw
    );
}

#[test]
fn zstd_bodies_carry_no_magic_no_size_and_no_checksum() {
    let record = PackedRecord::pack(&[0; 8192], Compression::default());
    let header = header(record.frame()).unwrap();
    assert_eq!((header.codec, header.header_bytes), (Codec::Zstd, 3));
    let descriptor = record.frame()[header.header_bytes];
    assert_eq!(descriptor >> 6, 0, "no content size");
    assert_eq!(
        descriptor & 0b0010_0000,
        0,
        "not a single segment, which would bring a content size"
    );
    assert_eq!(descriptor & 0b0000_0100, 0, "no checksum");
    assert_eq!(descriptor & 0b0000_0011, 0, "no dictionary id");
}

#[test]
fn the_format_stays_readable() {
    // Frames written by hand from the table in the head of the module; these bytes must be readable for ever.
    let frames: [(&[u8], &[u8]); 5] = [
        (&[0x00, 0x00], b""),
        (&[0x00, 0x03, b'a', b'b', b'c'], b"abc"),
        // lz4: a literal "a", then a match of 23 at distance 1, then five literals.
        (
            &[
                0x01, 0x1d, 0x1f, b'a', 0x01, 0x00, 0x04, 0x50, b'a', b'a', b'a', b'a', b'a',
            ],
            &[b'a'; 29],
        ),
        // zstd: descriptor 0, window of 1 KiB, one last block that repeats a byte 200 times.
        (
            &[0x02, 0xc8, 0x01, 0x00, 0x00, 0x43, 0x06, 0x00, 0x7a],
            &[0x7a; 200],
        ),
        // zstd: one last block of 4 raw bytes.
        (
            &[0x02, 0x04, 0x00, 0x00, 0x21, 0x00, 0x00, 1, 2, 3, 4],
            &[1, 2, 3, 4],
        ),
    ];
    for (frame, raw) in frames {
        assert_eq!(unpack(frame, 4096).unwrap(), raw, "{frame:02x?}");
    }
    assert_eq!(checksum(b""), 0x2d06_8005_38d3_94c2);
}

#[test]
fn damaged_headers_are_told_apart() {
    use CodecErrorKind::*;
    let cases: [(&[u8], CodecErrorKind); 13] = [
        (&[], Corrupt),
        (&[0x00], Corrupt),
        (&[0x02, 0x80], Corrupt),
        (&[0x00, 0x80, 0x00], Corrupt),
        (&[0x00, 0x81, 0x80, 0x80, 0x01], Corrupt),
        (&[0x00, 0xff, 0xff, 0xff, 0xff, 0x01], Corrupt),
        (&[0x03, 0x01, 0x00], Unsupported),
        (&[0x0f, 0x01, 0x00], Unsupported),
        (&[0x10, 0x01, 0x00], Unsupported),
        (&[0x40, 0x01, 0x00], Unsupported),
        (&[0x80, 0x01], Corrupt),
        (
            &[
                0x80, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02,
            ],
            Corrupt,
        ),
        (&[0x80, 0x01, 0x85, 0x00], Corrupt),
    ];
    for (frame, kind) in cases {
        assert_eq!(header(frame).unwrap_err().kind(), kind, "{frame:02x?}");
        assert_eq!(
            unpack(frame, RAW_BYTES_MAX).unwrap_err().kind(),
            kind,
            "{frame:02x?}"
        );
    }
}

#[test]
fn a_dictionary_is_read_from_the_header_and_refused_when_unpacking() {
    let frame = [
        0x82, 0x05, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0xaa,
    ];
    let expected = FrameHeader {
        codec: Codec::Zstd,
        raw_bytes: 5,
        header_bytes: 12,
        dictionary: Some(DictionaryId(u64::MAX)),
    };
    assert_eq!(header(&frame).unwrap(), expected);
    assert_eq!(
        unpack(&frame, 4096).unwrap_err().kind(),
        CodecErrorKind::Unsupported
    );
}

#[test]
fn bodies_of_another_length_than_promised_are_corrupt() {
    let mut random = SmallRng::seed_from_u64(6);
    let raw = bytes_of_variety(&mut random, 100, 3);
    for compression in all_compressions() {
        let record = PackedRecord::pack(&raw, compression);
        for promised in [99, 101] {
            let mut frame = record.frame().to_vec();
            assert_eq!(frame[1], 100);
            frame[1] = promised;
            assert_eq!(
                unpack(&frame, 4096).unwrap_err().kind(),
                CodecErrorKind::Corrupt,
                "{compression} {promised}"
            );
        }
        let mut longer = record.frame().to_vec();
        longer.push(0x55);
        assert_eq!(
            unpack(&longer, 4096).unwrap_err().kind(),
            CodecErrorKind::Corrupt,
            "{compression}"
        );
        let shorter = &record.frame()[..record.frame().len() - 1];
        assert_eq!(
            unpack(shorter, 4096).unwrap_err().kind(),
            CodecErrorKind::Corrupt,
            "{compression}"
        );
    }
}

#[test]
fn the_limit_of_the_caller_holds_and_nothing_is_allocated_beyond_it() {
    let record = PackedRecord::pack(&[0; 8192], Compression::default());
    let mut out = Vec::new();
    assert_eq!(
        unpack_into(record.frame(), 8191, &mut out).unwrap_err().kind(),
        CodecErrorKind::TooLarge
    );
    assert_eq!(out.capacity(), 0);
    unpack_into(record.frame(), 8192, &mut out).unwrap();
    assert_eq!(out.capacity(), 8192);
    // A small body that would decode to far more than the header admits.
    let mut bomb = PackedRecord::pack(&vec![0; 1 << 20], Compression::default())
        .frame()
        .to_vec();
    bomb.splice(1..4, [0x10]);
    let mut out = Vec::new();
    assert_eq!(
        unpack_into(&bomb, RAW_BYTES_MAX, &mut out).unwrap_err().kind(),
        CodecErrorKind::Corrupt
    );
    assert!(out.capacity() <= 16);
}

#[test]
fn unpack_into_replaces_what_was_there() {
    let mut out = vec![9; 10_000];
    let allocation = out.as_ptr();
    for compression in [Compression::None, Compression::Lz4, Compression::default()] {
        for length in [0usize, 50, 9_000] {
            unpack_into(
                PackedRecord::pack(&vec![1; length], compression).frame(),
                10_000,
                &mut out,
            )
            .unwrap();
            assert_eq!(out, vec![1; length], "{compression}");
            assert_eq!(out.as_ptr(), allocation);
        }
    }
    unpack_into(&[0xff], 10_000, &mut out).unwrap_err();
    assert_eq!(out, [] as [u8; 0]);
}

#[test]
fn mutated_frames_never_panic_and_stay_within_the_limit() {
    const LIMIT: u32 = 20_000;
    let mut random = SmallRng::seed_from_u64(7);
    let compressions = all_compressions();
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..20_000 {
        let length = random.random_range(0..12_000);
        let variety = random.random_range(1..120);
        let raw = bytes_of_variety(&mut random, length, variety);
        let compression = compressions[round % 8];
        let mut frame = PackedRecord::pack(&raw, compression).frame().to_vec();
        for _ in 0..random.random_range(1..4) {
            mutate(&mut random, &mut frame);
        }
        let mut out = Vec::new();
        match unpack_into(&frame, LIMIT, &mut out) {
            Ok(()) => accepted += 1,
            Err(_) => refused += 1,
        }
        assert!(out.capacity() <= LIMIT as usize);
        let _ = PackedRecord::from_frame(frame.into());
    }
    // The test has teeth only if both happen often.
    assert!(
        accepted > 1_000 && refused > 1_000,
        "{accepted} accepted, {refused} refused"
    );
}

#[test]
fn noise_never_panics() {
    let mut random = SmallRng::seed_from_u64(8);
    for _ in 0..50_000 {
        let mut frame = vec![0; random.random_range(0..60)];
        random.fill_bytes(&mut frame);
        if let Some(first) = frame.first_mut() {
            *first &= 0x83;
        }
        if let Ok(raw) = unpack(&frame, 4096) {
            assert!(raw.len() <= 4096);
        }
    }
}

fn mutate(random: &mut SmallRng, frame: &mut Vec<u8>) {
    let position = random.random_range(0..frame.len().max(1));
    match random.random_range(0..5) {
        0 => frame.truncate(position),
        1 => frame.insert(position.min(frame.len()), random.random()),
        2 if !frame.is_empty() => frame[position] ^= 1 << random.random_range(0..8),
        3 if !frame.is_empty() => frame[position] = random.random(),
        // The header and the first bytes of the body steer the decoder: hit them more often.
        _ if !frame.is_empty() => {
            let position = random.random_range(0..frame.len().min(8));
            frame[position] = random.random();
        }
        _ => {}
    }
}
