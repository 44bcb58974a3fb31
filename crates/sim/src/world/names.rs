//! Names of files: numbers for the world, bytes of many kinds and lengths for the file system.

pub(crate) use super::model::Name;

/// The name whose directory holds short-lived data.
const SHORT_LIVED: Name = 7;

/// The bytes of a name. Different numbers give different bytes.
pub(crate) fn bytes(name: Name) -> Vec<u8> {
    if name == SHORT_LIVED {
        return b"pg_wal".to_vec();
    }
    let mut bytes = name.to_string().into_bytes();
    match name % 11 {
        1 => bytes.extend_from_slice(b" with spaces"),
        2 => bytes.extend_from_slice(b"\xff\xfe\x80"),
        3 => bytes.resize(255, b'x'),
        4 => bytes.extend_from_slice(&[b'y'; 60]),
        _ => {}
    }
    bytes
}

/// The number of a name that was found.
pub(crate) fn parse(found: &[u8]) -> Option<Name> {
    if found == b"pg_wal" {
        return Some(SHORT_LIVED);
    }
    let digits = found.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let name = std::str::from_utf8(&found[..digits]).ok()?.parse().ok()?;
    (bytes(name) == found).then_some(name)
}
