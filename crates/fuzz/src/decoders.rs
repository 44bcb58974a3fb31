//! Targets that hand bytes to decoders. Where one target serves several small decoders, the first byte chooses.

use packstone_codec::{Compression, PackedRecord, ZstdLevel, header, unpack, unpack_into};
use packstone_pool::fuzzing as pool;

/// Longest record a decoder of frames is allowed to make.
const RAW_BYTES_MAX: u32 = 256 << 10;

type Decoder = fn(&[u8]) -> bool;

const TABLES: [(&str, Decoder); 4] = [
    ("location", pool::location),
    ("catalog", pool::catalog),
    ("usage_page", pool::usage_page),
    ("usage_index", pool::usage_index),
];

const FILES: [(&str, Decoder); 6] = [
    ("inode", packstone_fs::fuzzing::inode),
    ("entry", packstone_fs::fuzzing::entry),
    ("extent", packstone_fs::fuzzing::extent),
    ("superblock", packstone_fs::fuzzing::superblock),
    ("key", packstone_fs::fuzzing::key),
    ("acl", packstone_fs::fuzzing::acl),
];

pub(crate) fn label(bytes: &[u8]) {
    pool::label(bytes);
}

pub(crate) fn slot(bytes: &[u8]) {
    pool::slot(bytes);
}

pub(crate) fn batch(bytes: &[u8]) {
    pool::batch(bytes);
}

pub(crate) fn node(bytes: &[u8]) {
    pool::node(bytes);
}

pub(crate) fn operations(bytes: &[u8]) {
    pool::operations(bytes);
}

pub(crate) fn tables(bytes: &[u8]) {
    choose(&TABLES, bytes);
}

pub(crate) fn files(bytes: &[u8]) {
    choose(&FILES, bytes);
}

fn choose(decoders: &[(&str, Decoder)], bytes: &[u8]) {
    if let Some((first, rest)) = bytes.split_first() {
        decoders[usize::from(*first) % decoders.len()].1(rest);
    }
}

/// A frame: header, body, and what came out packed again with another codec.
pub(crate) fn frame(bytes: &[u8]) {
    let _ = PackedRecord::from_frame(bytes.into());
    let said = header(bytes).map(|header| header.raw_bytes);
    let mut reused = vec![0xee; 700];
    let again = unpack_into(bytes, RAW_BYTES_MAX, &mut reused);
    let Ok(raw) = unpack(bytes, RAW_BYTES_MAX) else {
        assert!(
            again.is_err() && reused.is_empty(),
            "a frame unpacks once and not again"
        );
        return;
    };
    assert!(again.is_ok() && reused == raw, "two ways to unpack differ");
    assert_eq!(
        said.ok(),
        Some(raw.len() as u32),
        "the header says another length"
    );
    let compression = match bytes.last() {
        Some(last) if last % 3 == 0 => Compression::None,
        Some(last) if last % 3 == 1 => Compression::Lz4,
        _ => Compression::Zstd(ZstdLevel::STANDARD),
    };
    let packed = PackedRecord::pack(&raw, compression);
    assert!(unpack(packed.frame(), raw.len() as u32).is_ok_and(|again| again == raw));
}

/// What users type: sizes, names, assignments, properties of datasets.
pub(crate) fn typed(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    packstone_cli::fuzzing::typed(&text);
    packstone_fs::fuzzing::properties(&text);
}

/// A request over the control socket.
pub(crate) fn control(bytes: &[u8]) {
    packstone_cli::fuzzing::control_request(bytes);
}

pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut seeds = Vec::new();
    for (name, bytes) in pool::seeds() {
        seeds.push(match TABLES.iter().position(|(table, _)| *table == name) {
            Some(chosen) => ("tables", [&[chosen as u8], bytes.as_slice()].concat()),
            None => (name, bytes),
        });
    }
    for (name, bytes) in packstone_fs::fuzzing::seeds() {
        seeds.push(match FILES.iter().position(|(file, _)| *file == name) {
            Some(chosen) => ("files", [&[chosen as u8], bytes.as_slice()].concat()),
            None => ("typed", bytes),
        });
    }
    let text = "It was the best of times, it was the worst of times. ".repeat(6);
    for compression in [Compression::None, Compression::Lz4, Compression::default()] {
        seeds.push((
            "frame",
            PackedRecord::pack(text.as_bytes(), compression).frame().to_vec(),
        ));
    }
    for text in [
        "20G",
        "512MiB",
        "17",
        "tank",
        "tank/pg",
        "a=b\nmemory=1G",
        "compression=lz4\nrecordsize=16384",
    ] {
        seeds.push(("typed", text.as_bytes().to_vec()));
    }
    for text in [
        "force=true\n{\"name\":\"pg\",\"properties\":{\"recordsize\":\"8K\",\"atime\":\"off\"}}",
        "force=false\n{\"properties\":{\"memory\":\"1G\"}}",
        "\n{\"dataset\":\"pg\",\"mountpoint\":\"/mnt/pg\",\"read_only\":true,\"threads\":4}",
        "\n{\"error\":{\"code\":\"not_found\",\"message\":\"x\"}}",
    ] {
        seeds.push(("control", text.as_bytes().to_vec()));
    }
    seeds
}
