//! Variable-length integers and a bounds-checked reader.
//!
//! varint: little-endian groups of 7 bits, the high bit says that another byte follows; at most 10 bytes; no shorter
//! form may exist (so that one value has one encoding). Signed numbers are zigzag-mapped first.

use super::DecodeResult;
use crate::types::Timestamp;

/// Appends `value` as a varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends seconds (zigzag) and nanoseconds.
pub(crate) fn put_timestamp(out: &mut Vec<u8>, time: Timestamp) {
    put_varint(out, ((time.seconds << 1) ^ (time.seconds >> 63)) as u64);
    put_varint(out, u64::from(time.nanoseconds));
}

/// Takes values off the front of a byte string.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn byte(&mut self) -> DecodeResult<u8> {
        let (&first, rest) = self.rest.split_first().ok_or("value too short")?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn varint(&mut self) -> DecodeResult<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            let group = u64::from(byte & 0x7f);
            if shift == 63 && group > 1 {
                return Err("number above 64 bits");
            }
            value |= group << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 {
                    Err("number not in shortest form")
                } else {
                    Ok(value)
                };
            }
        }
        Err("number above 64 bits")
    }

    pub(crate) fn varint_u32(&mut self) -> DecodeResult<u32> {
        u32::try_from(self.varint()?).map_err(|_| "number above 32 bits")
    }

    pub(crate) fn timestamp(&mut self) -> DecodeResult<Timestamp> {
        let zigzag = self.varint()?;
        let seconds = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        let nanoseconds = self.varint_u32()?;
        if nanoseconds >= 1_000_000_000 {
            return Err("nanoseconds out of range");
        }
        Ok(Timestamp { seconds, nanoseconds })
    }

    /// Everything not yet taken.
    pub(crate) fn remainder(self) -> &'a [u8] {
        self.rest
    }

    /// Fails unless everything was taken.
    pub(crate) fn finish(self) -> DecodeResult<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err("bytes behind the value")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_survive() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = vec![];
            put_varint(&mut bytes, value);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.finish(), Ok(()));
        }
        for seconds in [0, -1, 1, i64::MIN, i64::MAX] {
            let time = Timestamp {
                seconds,
                nanoseconds: 999_999_999,
            };
            let mut bytes = vec![];
            put_timestamp(&mut bytes, time);
            assert_eq!(Reader::new(&bytes).timestamp(), Ok(time));
        }
    }

    #[test]
    fn overlong_short_and_wide_numbers_fail() {
        assert!(Reader::new(&[0x80, 0x00]).varint().is_err());
        assert!(Reader::new(&[0x80]).varint().is_err());
        assert!(Reader::new(&[0xff; 11]).varint().is_err());
        assert!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02])
                .varint()
                .is_err()
        );
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint_u32().is_err());
    }
}
