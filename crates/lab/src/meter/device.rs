//! Counters of a block device, as the kernel shows them in `/sys/dev/block/M:m/stat` (the kernel's
//! `Documentation/block/stat.rst`).
//!
//! They count what the kernel sent to the device, by anyone; not what the device did inside. A flush without data counts
//! as a write of nothing, and as a flush.

use anyhow::{Context, Result};

use crate::place::DeviceNumber;

/// What reached the device since it was attached, or between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub reads: u64,
    pub read_bytes: u64,
    /// Flushes without data are among them.
    pub writes: u64,
    pub written_bytes: u64,
    /// 0 on kernels before 5.5, which do not count them.
    pub flushes: u64,
}

impl Counters {
    /// Reads the counters of `device`.
    pub(crate) fn read(device: DeviceNumber) -> Result<Counters> {
        let path = device.sysfs().join("stat");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        parse(&text).with_context(|| format!("{} is not as expected: {text}", path.display()))
    }

    /// What was counted since `earlier`.
    pub(crate) fn since(self, earlier: Counters) -> Counters {
        Counters {
            reads: self.reads.saturating_sub(earlier.reads),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            writes: self.writes.saturating_sub(earlier.writes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            flushes: self.flushes.saturating_sub(earlier.flushes),
        }
    }
}

fn parse(text: &str) -> Option<Counters> {
    /// Whatever the device's own sectors are.
    const SECTOR_BYTES: u64 = 512;
    let fields: Vec<u64> = text
        .split_whitespace()
        .map(|field| field.parse().ok())
        .collect::<Option<_>>()?;
    Some(Counters {
        reads: *fields.first()?,
        read_bytes: fields.get(2)? * SECTOR_BYTES,
        writes: *fields.get(4)?,
        written_bytes: fields.get(6)? * SECTOR_BYTES,
        flushes: fields.get(15).copied().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_taken_from_new_and_old_kernels() {
        let new = "      62        1     2226       52     6251     8086   477616     3127        0     2548     4380        2        0  1048584       67     4020     1132\n";
        let counters = parse(new).expect("counters");
        assert_eq!(
            counters,
            Counters {
                reads: 62,
                read_bytes: 2226 * 512,
                writes: 6251,
                written_bytes: 477_616 * 512,
                flushes: 4020,
            }
        );
        let old = "62 1 2226 52 6251 8086 477616 3127 0 2548 4380";
        assert_eq!(parse(old).expect("counters").flushes, 0);
        assert!(parse("62 1").is_none() && parse("a b c").is_none());
    }

    #[test]
    fn differences_never_wrap() {
        let earlier = Counters {
            reads: 5,
            ..Counters::default()
        };
        assert_eq!(Counters::default().since(earlier).reads, 0);
    }
}
