//! Generated directories with sizes known beforehand.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use super::report::{FamilyEstimate, Sizes, Skipped};
use super::*;

const PAGE: usize = SMALL_RECORD_BYTES;

/// Bytes that no codec shortens: splitmix64 (Steele, Lea and Flood, 2014).
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed << 32;
    let mut word = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).to_le_bytes()
    };
    let mut bytes: Vec<u8> = std::iter::repeat_with(&mut word)
        .take(length.div_ceil(8))
        .flatten()
        .collect();
    bytes.truncate(length);
    bytes
}

/// Pages whose first half is noise and whose second half is one byte: they compress to a little over a half.
fn half_noise_pages(pages: usize, seed: u64) -> Vec<u8> {
    (0..pages)
        .flat_map(|page| [noise(PAGE / 2, seed + page as u64), vec![7; PAGE / 2]].concat())
        .collect()
}

fn write(directory: &Path, path: &str, bytes: &[u8]) {
    let path = directory.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn estimate(directory: &Path, sample: SampleMode) -> Estimate {
    run(&EstimateOptions {
        directory: directory.to_owned(),
        sample,
        jobs: 2,
        json: false,
        quiet: true,
    })
    .unwrap()
}

#[track_caller]
fn family<'a>(estimate: &'a Estimate, name: &str) -> &'a FamilyEstimate {
    let names: Vec<_> = estimate.families.iter().map(|family| &family.name).collect();
    estimate
        .families
        .iter()
        .find(|family| family.name == name)
        .unwrap_or_else(|| panic!("{name} is not in {names:?}"))
}

#[test]
fn noise_takes_its_size_in_sectors_and_a_header_and_an_index_packed() {
    let directory = tempfile::tempdir().unwrap();
    // 17 pages and a short record of 5,000 bytes.
    write(directory.path(), "data.bin", &noise(17 * PAGE + 5_000, 1));
    let estimate = estimate(directory.path(), SampleMode::All);
    let found = family(&estimate, "*.bin");
    assert_eq!((found.files, found.apparent_bytes), (1, 17 * PAGE as u64 + 5_000));
    assert_eq!((found.read_bytes, found.zero_bytes), (found.apparent_bytes, 0));
    let in_sectors = 18 * PAGE as u64;
    let packed = 17 * (PAGE as u64 + 3 + INDEX_BYTES) + 5_000 + 3 + INDEX_BYTES;
    let expected = Sizes {
        lz4_8k_sectors_bytes: in_sectors,
        zstd3_8k_sectors_bytes: in_sectors,
        lz4_128k_sectors_bytes: in_sectors,
        zstd3_128k_sectors_bytes: in_sectors,
        zstd1_8k_packed_bytes: packed,
        zstd3_8k_packed_bytes: packed,
    };
    assert_eq!(found.sizes, Some(expected));
    assert_eq!((estimate.sample.mode, estimate.sample.fraction), ("all", 1.0));
    assert!(!estimate.is_postgresql);
}

#[test]
fn compressible_pages_gain_from_large_records_and_from_packing() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "data", &half_noise_pages(64, 1));
    let sizes = estimate(directory.path(), SampleMode::All).total.sizes.unwrap();
    let raw = 64 * PAGE as u64;
    // A little over one sector a page: rounding takes the whole gain away.
    assert_eq!(sizes.zstd3_8k_sectors_bytes, raw);
    assert_eq!(sizes.lz4_8k_sectors_bytes, raw);
    // Sixteen pages in one record round once: at most 17 half pages of 4 KiB.
    assert!(sizes.zstd3_128k_sectors_bytes <= 4 * 17 * 4096, "{sizes:?}");
    for packed in [sizes.zstd1_8k_packed_bytes, sizes.zstd3_8k_packed_bytes] {
        assert!((raw / 2..raw / 2 + 64 * 100).contains(&packed), "{sizes:?}");
    }
}

#[test]
fn zero_records_are_holes_and_empty_files_take_nothing() {
    let directory = tempfile::tempdir().unwrap();
    File::create(directory.path().join("empty.dat")).unwrap();
    let sparse = File::create(directory.path().join("sparse.dat")).unwrap();
    sparse.set_len(4 << 20).unwrap();
    sparse.write_all_at(&noise(PAGE, 3), 1 << 20).unwrap();
    let estimate = estimate(directory.path(), SampleMode::All);
    let total = &estimate.total;
    assert_eq!((total.files, total.apparent_bytes), (2, 4 << 20));
    assert!(total.allocated_bytes < 1 << 20);
    assert_eq!(total.zero_bytes, (4 << 20) - PAGE as u64);
    let sizes = total.sizes.unwrap();
    assert_eq!(sizes.zstd1_8k_packed_bytes, PAGE as u64 + 3 + INDEX_BYTES);
    assert_eq!(sizes.lz4_8k_sectors_bytes, PAGE as u64);
    assert!(sizes.zstd3_128k_sectors_bytes <= PAGE as u64 + SECTOR_BYTES);
}

fn write_cluster(directory: &Path) {
    write(directory, "PG_VERSION", b"15\n");
    write(directory, "global/1262", &vec![1; PAGE]);
    write(directory, "base/5/PG_VERSION", b"15\n");
    write(directory, "base/5/1259", &vec![2; 2 * PAGE]);
    write(directory, "base/5/16390", &half_noise_pages(4, 10));
    write(directory, "base/5/16390.1", &half_noise_pages(3, 20));
    write(directory, "base/5/16390_fsm", &vec![0; 3 * PAGE]);
    write(directory, "pg_wal/000000010000000000000001", &noise(PAGE, 30));
    fs::create_dir(directory.join("pg_tblspc")).unwrap();
}

#[test]
fn segments_and_forks_of_a_relation_are_one_family() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("main");
    fs::create_dir(&data).unwrap();
    write_cluster(&data);
    write(
        directory.path(),
        "tablespace/PG_15_202209061/5/16400",
        &noise(2 * PAGE, 40),
    );
    symlink(directory.path().join("tablespace"), data.join("pg_tblspc/16399")).unwrap();
    symlink(directory.path(), data.join("elsewhere")).unwrap();

    let result = estimate(&data, SampleMode::All);
    assert!(result.is_postgresql);
    let relation = family(&result, "base/5/16390");
    assert_eq!((relation.files, relation.apparent_bytes), (3, 10 * PAGE as u64));
    assert_eq!(relation.zero_bytes, 3 * PAGE as u64);
    assert_eq!(relation.sizes.unwrap().zstd3_8k_sectors_bytes, 7 * PAGE as u64);
    assert_eq!(
        family(&result, "base/5 (catalogs)").apparent_bytes,
        2 * PAGE as u64
    );
    assert_eq!(family(&result, "base/5 (other files)").apparent_bytes, 3);
    assert_eq!(
        family(&result, "pg_tblspc/16399/5/16400").apparent_bytes,
        2 * PAGE as u64
    );
    assert_eq!(family(&result, "pg_wal").files, 1);
    assert_eq!(family(&result, "global (catalogs)").files, 1);
    assert_eq!(result.skipped.symbolic_links, 1);

    // From one level up, the tablespace is reached by its own path as well, and still counts once.
    let result = estimate(directory.path(), SampleMode::All);
    assert_eq!(family(&result, "main/base/5/16390").files, 3);
    assert_eq!(result.total.files, 9);
}

#[test]
fn links_special_files_and_further_names_are_left_out() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a/one.txt", b"hello");
    fs::hard_link(
        directory.path().join("a/one.txt"),
        directory.path().join("a/two.txt"),
    )
    .unwrap();
    symlink("one.txt", directory.path().join("a/three.txt")).unwrap();
    symlink(directory.path(), directory.path().join("a/loop")).unwrap();
    let fifo = directory.path().join("a/fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let estimate = estimate(directory.path(), SampleMode::default());
    assert_eq!((estimate.total.files, estimate.total.apparent_bytes), (1, 5));
    let expected = Skipped {
        symbolic_links: 2,
        special_files: 1,
        further_names: 1,
        ..Skipped::default()
    };
    assert_eq!(estimate.skipped, expected);
    // Small: the budget covers it, so everything was read.
    assert_eq!(estimate.sample.mode, "all");
}

#[test]
fn a_sample_is_near_the_whole_and_says_what_it_read() {
    let directory = tempfile::tempdir().unwrap();
    for file in 0..8 {
        write(
            directory.path(),
            &format!("pages/{file}.dat"),
            &half_noise_pages(256, 1_000 * file),
        );
        write(
            directory.path(),
            &format!("noise/{file}.dat"),
            &noise(256 * PAGE, 10_000 * file),
        );
    }
    let all = estimate(directory.path(), SampleMode::All);
    let sampled = estimate(directory.path(), SampleMode::Budget { bytes: 4 << 20 });
    assert_eq!(sampled.sample.mode, "sample");
    assert!(sampled.sample.read_bytes <= 4 << 20, "{:?}", sampled.sample);
    assert!(sampled.sample.read_bytes >= 3 << 20, "{:?}", sampled.sample);
    assert_eq!(
        sampled.sample.fraction,
        sampled.sample.read_bytes as f64 / (32 << 20) as f64
    );
    assert_eq!(sampled.total.apparent_bytes, all.total.apparent_bytes);
    for (whole, part) in all.families.iter().zip(&sampled.families) {
        assert_eq!(whole.name, part.name);
        let (whole, part) = (
            whole.sizes.unwrap().zstd1_8k_packed_bytes,
            part.sizes.unwrap().zstd1_8k_packed_bytes,
        );
        assert!(whole.abs_diff(part) < whole / 100, "{whole} {part}");
    }
    let again = estimate(directory.path(), SampleMode::Budget { bytes: 4 << 20 });
    assert_eq!(
        serde_json::to_string(&again).unwrap(),
        serde_json::to_string(&sampled).unwrap()
    );
}

#[test]
fn very_many_families_are_put_together() {
    let directory = tempfile::tempdir().unwrap();
    let families = collect::FAMILIES_MAX + 40;
    for number in 0..families {
        write(
            directory.path(),
            &format!("d{number}/file"),
            &vec![b'x'; 1 + number],
        );
    }
    let estimate = estimate(directory.path(), SampleMode::All);
    assert_eq!(estimate.families.len(), collect::FAMILIES_MAX);
    assert_eq!(
        estimate.families[0].name,
        format!("d{}/* (no extension)", families - 1)
    );
    let other = family(&estimate, collect::OTHER_FAMILIES);
    assert_eq!((other.files, other.apparent_bytes), (41, (1..=41).sum::<u64>()));
    assert_eq!(estimate.total.files, families as u64);
    assert_eq!(estimate.total.apparent_bytes, (1..=families as u64).sum::<u64>());
    let text = table::render(&estimate);
    assert!(
        text.contains(&format!("({} smaller families)", collect::FAMILIES_MAX - 29)),
        "{text}"
    );
    assert!(text.lines().count() < 50, "{text}");
}

#[test]
fn files_that_change_between_looking_and_reading_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["gone", "shrunk", "grown", "replaced"] {
        write(directory.path(), name, &noise(40 * PAGE, 5));
    }
    let path = |name: &str| directory.path().join(name);
    let hidden = ProgressBar::hidden();
    let collected = collect::collect(directory.path(), &hidden).unwrap();
    let plan = sample::plan(&collected, SampleMode::All);
    fs::remove_file(path("gone")).unwrap();
    fs::write(path("shrunk"), noise(100, 1)).unwrap();
    fs::write(path("grown"), noise(100 * PAGE, 1)).unwrap();
    fs::remove_file(path("replaced")).unwrap();
    symlink("/dev/zero", path("replaced")).unwrap();
    let measured = measure::measure(&collected, &plan, 1, &hidden);
    assert_eq!((measured.skipped.vanished, measured.skipped.unreadable), (1, 1));
    // The plan has three chunks of 128 KiB for each file, and no more is read.
    assert_eq!(
        measured.tallies[0].read_bytes,
        100 + 3 * LARGE_RECORD_BYTES as u64
    );
}

#[test]
fn reading_leaves_no_trace() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "file", &noise(PAGE, 1));
    let path = directory.path().join("file");
    let old = rustix::fs::Timespec {
        tv_sec: 1_000_000_000,
        tv_nsec: 0,
    };
    let times = rustix::fs::Timestamps {
        last_access: old,
        last_modification: old,
    };
    rustix::fs::utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::empty()).unwrap();
    let stat = || {
        rustix::fs::stat(&path)
            .map(|stat| (stat.st_atime, stat.st_mtime, stat.st_ctime))
            .unwrap()
    };
    let before = stat();
    estimate(directory.path(), SampleMode::All);
    assert_eq!(stat(), before);
}

#[test]
fn what_is_not_a_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "file", b"x");
    for (name, words) in [
        ("missing", "cannot find the directory"),
        ("file", "is not a directory"),
    ] {
        let options = EstimateOptions {
            directory: directory.path().join(name),
            quiet: true,
            ..Default::default()
        };
        let error = run(&options).unwrap_err();
        assert!(format!("{error:#}").contains(words), "{error:#}");
    }
}

#[test]
fn the_table_has_all_families_the_total_and_what_was_skipped() {
    let directory = tempfile::tempdir().unwrap();
    write_cluster(directory.path());
    symlink("/", directory.path().join("root")).unwrap();
    let estimate = estimate(directory.path(), SampleMode::All);
    let text = table::render(&estimate);
    for words in [
        "PostgreSQL data directory",
        "everything",
        "base/5/16390",
        "\ntotal ",
        "\nratio ",
        "symbolic links, not followed: 1",
    ] {
        assert!(text.contains(words), "{words} is not in:\n{text}");
    }
    // 10 of its 17 pages are more than zeros and compress to half; the sizes in a row are those of the
    // family.
    let row = text
        .lines()
        .find(|line| line.starts_with("base/5/16390 "))
        .unwrap();
    assert!(row.contains("3  80.0 KiB"), "{row}");
    assert!(row.contains("56.0 KiB"), "{row}");
}
