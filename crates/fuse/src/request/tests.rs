//! Bodies built byte by byte, every prefix of each, and random bytes.

use super::*;
use packstone_fs::Timestamp;

/// A request as the kernel would send it.
fn request(opcode_number: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(((REQUEST_HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    bytes.extend(opcode_number.to_ne_bytes());
    bytes.extend(77u64.to_ne_bytes());
    bytes.extend(5u64.to_ne_bytes());
    for number in [1000u32, 100, 4242, 0] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes.extend(body);
    bytes
}

fn body(words: &[u64], tail: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(tail);
    bytes
}

/// Two 32-bit fields that follow each other.
fn pair(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

fn decode(bytes: &[u8]) -> Result<Request<'_>, Malformed> {
    let (header, body) = Header::decode(bytes)?;
    Request::decode(header, body)
}

#[test]
fn the_header_is_read_and_its_length_checked() {
    let bytes = request(3, &[]);
    let (header, body) = Header::decode(&bytes).expect("a whole header");
    assert_eq!(
        header,
        Header {
            opcode_number: 3,
            unique: 77,
            node: Ino(5),
            uid: 1000,
            gid: 100
        }
    );
    assert!(body.is_empty());
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(Header::decode(&longer).is_err());
    for length in 0..bytes.len() {
        assert!(Header::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn forgets_and_notification_replies_want_no_reply() {
    for (opcode_number, wants) in [
        (1, true),
        (2, false),
        (41, false),
        (42, false),
        (16, true),
        (9999, true),
    ] {
        let bytes = request(opcode_number, &[]);
        assert_eq!(
            Header::decode(&bytes).expect("a header").0.wants_reply(),
            wants,
            "{opcode_number}"
        );
    }
}

#[test]
fn a_write_carries_exactly_its_data() {
    let words = [9, 8192, pair(4, crate::abi::WRITE_KILL_SUIDGID), 0, 0];
    let bytes = request(16, &body(&words, b"pageEXTRA"));
    let operation = decode(&bytes).expect("a write").operation;
    assert_eq!(
        operation,
        Operation::Write {
            offset: 8192,
            data: b"page",
            write_flags: 4
        }
    );
}

#[test]
fn names_are_split_at_their_ends() {
    let bytes = request(45, &body(&[12, pair(1, 0)], b"old\0new\0"));
    let expected = Operation::Rename {
        name: b"old",
        new_parent: Ino(12),
        new_name: b"new",
        flags: 1,
    };
    assert_eq!(decode(&bytes).expect("a rename").operation, expected);
    for wrong in [&b"old\0new"[..], b"\0new\0", b"a/b\0new\0", b"old\0\0", b""] {
        assert!(decode(&request(45, &body(&[12, 0], wrong))).is_err(), "{wrong:?}");
    }
}

#[test]
fn times_before_1970_keep_their_sign() {
    let valid = pair(crate::abi::setattr::MTIME, 0);
    let before = (-5i64) as u64;
    let fields = [pair(0, 250), pair(0, 0o644), pair(0, 7), pair(8, 0)];
    let mut words = vec![valid, 0, 0, 0, 0, before, 0];
    words.extend(fields);
    let message = request(4, &body(&words, &[]));
    let Operation::SetAttributes(decoded) = decode(&message).expect("a setattr").operation else {
        panic!("another operation");
    };
    assert_eq!(
        decoded.modified,
        Timestamp {
            seconds: -5,
            nanoseconds: 250
        }
    );
    assert_eq!((decoded.mode, decoded.uid, decoded.gid), (0o644, 7, 8));
}

#[test]
fn batch_forget_counts_are_exact_and_bounded() {
    let bytes = request(42, &body(&[pair(2, 0), 7, 1, 8, 300], &[]));
    let decoded = decode(&bytes).expect("a batch");
    let Operation::BatchForget(items) = decoded.operation else {
        panic!("another operation")
    };
    assert_eq!(items.iter().collect::<Vec<_>>(), [(Ino(7), 1), (Ino(8), 300)]);
    assert!(decode(&request(42, &body(&[pair(3, 0), 7, 1, 8, 300], &[]))).is_err());
    assert!(decode(&request(42, &body(&[pair(u32::MAX, 0)], &[]))).is_err());
}

#[test]
fn init_flags_have_an_upper_half_only_when_it_is_sent() {
    let short = request(26, &body(&[pair(7, 31), pair(131072, 1 << 30)], &[]));
    let expected = Operation::Init {
        major: 7,
        minor: 31,
        readahead_bytes: 131072,
        flags: 1 << 30,
    };
    assert_eq!(decode(&short).expect("an init").operation, expected);
    let long = request(
        26,
        &body(&[pair(7, 45), pair(131072, 1 << 30), pair(2, 0), 0], &[]),
    );
    let expected = Operation::Init {
        major: 7,
        minor: 45,
        readahead_bytes: 131072,
        flags: 1 << 30 | 1 << 33,
    };
    assert_eq!(decode(&long).expect("an init").operation, expected);
}

#[test]
fn unknown_opcodes_are_not_malformed() {
    assert_eq!(
        decode(&request(4096, b"whatever")).expect("decodes").operation,
        Operation::NotImplemented
    );
}

#[test]
fn any_bytes_are_decoded_without_a_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut refused = 0;
    for round in 0..20_000u32 {
        let mut noise = Vec::new();
        for _ in 0..(round % 16) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Small numbers too, so that lengths and counts are sometimes plausible.
            let word = if state & 1 == 0 { state } else { state >> 58 };
            noise.extend(word.to_ne_bytes());
        }
        noise.truncate(noise.len().saturating_sub((state % 8) as usize));
        let bytes = request(round % 60, &noise);
        if let Ok(Request {
            operation: Operation::BatchForget(items),
            ..
        }) = decode(&bytes)
        {
            assert!(items.iter().count() <= noise.len() / 16);
        }
        refused += usize::from(decode(&bytes).is_err());
    }
    assert!(refused > 1_000, "the noise was too kind: {refused}");
}
