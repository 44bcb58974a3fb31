//! What must not cost a request: each figure here is what a program pays per call.

use crate::fixture::{Fixture, say_skipped};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

const PAGE_BYTES: usize = 8192;
const PAGES: u64 = 1000;

fn database_file(fixture: &Fixture) -> File {
    let path = fixture.path("relation");
    fs::write(&path, vec![1; PAGE_BYTES * PAGES as usize]).unwrap();
    // The file that CREATE opened is released after it was closed.
    fixture.wait_for_requests("RELEASE", 1);
    OpenOptions::new().read(true).write(true).open(&path).unwrap()
}

#[test]
fn a_page_write_is_one_request_and_arrives_whole() {
    let Some(fixture) = Fixture::new() else { return };
    let file = database_file(&fixture);
    // The first write after the attributes were fetched may ask once for a capability.
    file.write_all_at(&[2; PAGE_BYTES], 0).unwrap();
    let requests = fixture.requests_of(|| {
        for page in 0..PAGES {
            file.write_all_at(&[3; PAGE_BYTES], page * PAGE_BYTES as u64)
                .unwrap();
        }
    });
    assert_eq!(requests.count("WRITE"), PAGES, "{requests:?}");
    assert_eq!(requests.count("GETXATTR"), 0, "{requests:?}");
    assert_eq!(requests.count("GETATTR"), 0, "{requests:?}");
    assert_eq!(requests.total(), PAGES, "{requests:?}");
}

#[test]
fn a_mebibyte_is_one_request() {
    let Some(fixture) = Fixture::new() else { return };
    let file = File::create(fixture.path("log")).unwrap();
    let piece = vec![5; packstone_fuse::WRITE_BYTES_MAX];
    let requests = fixture.requests_of(|| {
        for index in 0..4 {
            file.write_all_at(&piece, index * piece.len() as u64).unwrap();
        }
    });
    assert_eq!(requests.count("WRITE"), 4, "{requests:?}");
}

#[test]
fn appends_cost_one_request_each() {
    let Some(fixture) = Fixture::new() else { return };
    let file = File::create(fixture.path("log")).unwrap();
    file.write_all_at(&[0; PAGE_BYTES], 0).unwrap();
    let requests = fixture.requests_of(|| {
        for page in 1..=100 {
            file.write_all_at(&[3; PAGE_BYTES], page * PAGE_BYTES as u64)
                .unwrap();
            file.sync_data().unwrap();
        }
    });
    assert_eq!(
        (requests.count("WRITE"), requests.count("FSYNC")),
        (100, 100),
        "{requests:?}"
    );
    assert_eq!(requests.total(), 200, "{requests:?}");
}

#[test]
fn extending_a_table_asks_for_its_size_and_for_capabilities_only_with_xattrs() {
    for (extended_attributes, capability_checks) in [(true, 100), (false, 0)] {
        let adjusted = Fixture::with(|config| config.extended_attributes = extended_attributes);
        let Some(fixture) = adjusted else { return };
        let file = database_file(&fixture);
        let mut page_count = 0;
        // Asks once without, and is told never to ask again.
        file.write_all_at(&[2; PAGE_BYTES], 0).unwrap();
        let requests = fixture.requests_of(|| {
            for _ in 0..100 {
                let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).unwrap();
                page_count = end / PAGE_BYTES as u64;
                file.write_all_at(&[3; PAGE_BYTES], end).unwrap();
            }
        });
        assert_eq!(page_count, PAGES + 99);
        assert_eq!(
            (requests.count("WRITE"), requests.count("GETATTR")),
            (100, 100),
            "{requests:?}"
        );
        assert_eq!(requests.count("GETXATTR"), capability_checks, "{requests:?}");
        let set = rustix::fs::fsetxattr(&file, "user.any", b"value", rustix::fs::XattrFlags::empty());
        assert_eq!(set.is_ok(), extended_attributes, "{set:?}");
    }
}

#[test]
fn pages_just_written_or_read_are_not_fetched_again() {
    let Some(fixture) = Fixture::new() else { return };
    let file = database_file(&fixture);
    let mut page = [0; PAGE_BYTES];
    let read_all = |page: &mut [u8]| {
        for index in 0..PAGES {
            file.read_exact_at(page, index * PAGE_BYTES as u64).unwrap();
        }
    };
    let after_writing = fixture.requests_of(|| read_all(&mut page));
    assert_eq!(after_writing.count("READ"), 0, "{after_writing:?}");
    // Attributes change and are fetched anew in between; pages must survive that.
    let mixed = fixture.requests_of(|| {
        for index in 0..PAGES {
            file.write_all_at(&[4; PAGE_BYTES], index * PAGE_BYTES as u64)
                .unwrap();
            file.metadata().unwrap();
            file.read_exact_at(&mut page, (PAGES - 1 - index) * PAGE_BYTES as u64)
                .unwrap();
        }
    });
    assert_eq!(mixed.count("READ"), 0, "{mixed:?}");
    let again = fixture.requests_of(|| read_all(&mut page));
    assert_eq!(again.total(), 0, "{again:?}");
}

#[test]
fn reopening_and_closing_costs_nothing_and_keeps_the_cache() {
    let Some(fixture) = Fixture::new() else { return };
    drop(database_file(&fixture));
    let path = fixture.path("relation");
    fs::read(&path).unwrap();
    let requests = fixture.requests_of(|| {
        for _ in 0..100 {
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            file.read_exact_at(&mut [0; PAGE_BYTES], 77 * PAGE_BYTES as u64)
                .unwrap();
        }
    });
    assert_eq!(requests.total(), 0, "{requests:?}");
}

#[test]
fn repeated_stats_and_listings_stay_in_the_kernel() {
    let Some(fixture) = Fixture::new() else { return };
    fs::create_dir_all(fixture.path("base/16384")).unwrap();
    for index in 0..200 {
        fs::write(fixture.path(&format!("base/16384/{index}")), b"x").unwrap();
    }
    let walk = || {
        for entry in fs::read_dir(fixture.path("base/16384")).unwrap() {
            entry.unwrap().metadata().unwrap();
        }
    };
    walk();
    walk();
    let requests = fixture.requests_of(walk);
    assert_eq!(requests.total(), 0, "{requests:?}");
}

#[test]
fn a_cold_sequential_read_comes_in_large_pieces() {
    let Some(fixture) = Fixture::with(|config| config.threads = 4) else {
        return;
    };
    if !rustix::process::geteuid().is_root() {
        say_skipped(format_args!("needs root to raise read-ahead and to drop caches"));
        return;
    }
    let file = database_file(&fixture);
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let data_bytes = PAGES * PAGE_BYTES as u64;
    let requests = fixture.requests_of(|| {
        let mut page = vec![0; PAGE_BYTES];
        for index in 0..PAGES {
            file.read_exact_at(&mut page, index * PAGE_BYTES as u64).unwrap();
            assert!(page.iter().all(|byte| *byte == 1));
        }
    });
    let reads = requests.count("READ");
    assert!(
        reads >= data_bytes >> 20,
        "the cache was not dropped: {requests:?}"
    );
    assert!(reads <= data_bytes >> 17, "pieces below 128 KiB: {requests:?}");
}

#[test]
fn dropped_caches_are_filled_again_after_an_invalidation() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("file");
    fs::write(&path, vec![1; PAGE_BYTES]).unwrap();
    fs::read(&path).unwrap();
    let ino = packstone_fs::Ino(std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap()));
    fixture.mounted.invalidate_inode(ino).unwrap();
    fixture
        .mounted
        .invalidate_entry(packstone_fs::Ino::ROOT, b"file")
        .unwrap();
    fixture
        .mounted
        .invalidate_entry(packstone_fs::Ino::ROOT, b"never there")
        .unwrap();
    let requests = fixture.requests_of(|| assert_eq!(fs::read(&path).unwrap(), vec![1; PAGE_BYTES]));
    assert!(requests.count("LOOKUP") >= 1, "{requests:?}");
    assert!(requests.count("READ") >= 1, "{requests:?}");
}
