//! The result: what was measured, carried over to what was not read.
//!
//! Sizes of a family are what its sample takes times the family's bytes over the bytes read. All numbers are
//! bytes or counts; field names are part of the JSON output, so they only ever get company.

use std::io;
use std::path::Path;

use serde::Serialize;

use super::SampleMode;
use super::collect::Collected;
use super::measure::Measured;

/// What a directory takes now and would take elsewhere.
#[derive(Clone, Debug, Serialize)]
pub struct Estimate {
    /// The directory, links resolved.
    pub directory: String,
    /// Whether there is a PostgreSQL data directory in it.
    pub is_postgresql: bool,
    /// How much was read.
    pub sample: SampleReport,
    /// Largest first; the smallest are put together when there are very many.
    pub families: Vec<FamilyEstimate>,
    /// The sum of the families.
    pub total: FamilyEstimate,
    /// What was not counted.
    pub skipped: Skipped,
}

/// How much was read.
#[derive(Clone, Debug, Serialize)]
pub struct SampleReport {
    /// `all` or `sample`.
    pub mode: &'static str,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes read over bytes there; 1 when everything was read.
    pub fraction: f64,
}

/// One family of files, or all of them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FamilyEstimate {
    /// What the files have in common.
    pub name: String,
    /// How many files.
    pub files: u64,
    /// The sum of their lengths.
    pub apparent_bytes: u64,
    /// What the file system they are on has allocated for them.
    pub allocated_bytes: u64,
    /// How much of them was read.
    pub read_bytes: u64,
    /// How much of their length is in records of zero bytes, which take nothing.
    pub zero_bytes: u64,
    /// What they would take; nothing when none of their bytes could be read.
    pub sizes: Option<Sizes>,
}

/// What data takes in each way that is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// lz4, records of 8 KiB, rounded up to sectors of 4 KiB.
    pub lz4_8k_sectors_bytes: u64,
    /// zstd-3, records of 8 KiB, rounded up to sectors.
    pub zstd3_8k_sectors_bytes: u64,
    /// lz4, records of 128 KiB, rounded up to sectors.
    pub lz4_128k_sectors_bytes: u64,
    /// zstd-3, records of 128 KiB, rounded up to sectors.
    pub zstd3_128k_sectors_bytes: u64,
    /// zstd-1, records of 8 KiB, packed to the byte, with their index.
    pub zstd1_8k_packed_bytes: u64,
    /// zstd-3, records of 8 KiB, packed to the byte, with their index.
    pub zstd3_8k_packed_bytes: u64,
}

/// What was met and not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Symbolic links, which are not followed.
    pub symbolic_links: u64,
    /// Devices, sockets and FIFOs.
    pub special_files: u64,
    /// Directories on which another file system is mounted.
    pub other_file_systems: u64,
    /// Second and further names of files that are counted under their first.
    pub further_names: u64,
    /// Files and directories that this user may not read, or that failed.
    pub unreadable: u64,
    /// Files and directories that were gone when their turn came.
    pub vanished: u64,
}

impl Skipped {
    pub(super) fn count_failure(&mut self, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::NotFound => self.vanished += 1,
            _ => self.unreadable += 1,
        }
    }

    pub(super) fn add(&mut self, other: &Skipped) {
        self.symbolic_links += other.symbolic_links;
        self.special_files += other.special_files;
        self.other_file_systems += other.other_file_systems;
        self.further_names += other.further_names;
        self.unreadable += other.unreadable;
        self.vanished += other.vanished;
    }
}

impl Sizes {
    pub(super) fn add(&mut self, other: &Sizes) {
        self.combine(other, |own, other| own + other);
    }

    /// Every size times `wanted` over `measured`.
    fn scaled(&self, wanted: u64, measured: u64) -> Sizes {
        let mut sizes = *self;
        sizes.combine(self, |_, size| scale(size, wanted, measured));
        sizes
    }

    fn combine(&mut self, other: &Sizes, operation: impl Fn(u64, u64) -> u64) {
        // Destructured, so that a new field cannot be forgotten here.
        let Sizes {
            lz4_8k_sectors_bytes,
            zstd3_8k_sectors_bytes,
            lz4_128k_sectors_bytes,
            zstd3_128k_sectors_bytes,
            zstd1_8k_packed_bytes,
            zstd3_8k_packed_bytes,
        } = other;
        self.lz4_8k_sectors_bytes = operation(self.lz4_8k_sectors_bytes, *lz4_8k_sectors_bytes);
        self.zstd3_8k_sectors_bytes = operation(self.zstd3_8k_sectors_bytes, *zstd3_8k_sectors_bytes);
        self.lz4_128k_sectors_bytes = operation(self.lz4_128k_sectors_bytes, *lz4_128k_sectors_bytes);
        self.zstd3_128k_sectors_bytes = operation(self.zstd3_128k_sectors_bytes, *zstd3_128k_sectors_bytes);
        self.zstd1_8k_packed_bytes = operation(self.zstd1_8k_packed_bytes, *zstd1_8k_packed_bytes);
        self.zstd3_8k_packed_bytes = operation(self.zstd3_8k_packed_bytes, *zstd3_8k_packed_bytes);
    }
}

impl FamilyEstimate {
    /// Adds another family to this one. A family whose sizes are unknown leaves them out, and its bytes stay.
    pub(super) fn add(&mut self, other: &FamilyEstimate) {
        self.files += other.files;
        self.apparent_bytes += other.apparent_bytes;
        self.allocated_bytes += other.allocated_bytes;
        self.read_bytes += other.read_bytes;
        self.zero_bytes += other.zero_bytes;
        if let Some(sizes) = &other.sizes {
            self.sizes.get_or_insert_default().add(sizes);
        }
    }
}

fn scale(size: u64, wanted: u64, measured: u64) -> u64 {
    let rounded = (u128::from(size) * u128::from(wanted) + u128::from(measured) / 2) / u128::from(measured);
    u64::try_from(rounded).unwrap_or(u64::MAX)
}

/// Puts the report together.
pub(super) fn build(
    directory: &Path,
    mode: SampleMode,
    collected: Collected,
    measured: Measured,
) -> Estimate {
    let mut families = Vec::with_capacity(collected.families.len());
    let mut total = FamilyEstimate {
        name: "total".to_owned(),
        ..FamilyEstimate::default()
    };
    for (family, tally) in collected.families.into_iter().zip(measured.tallies) {
        let (apparent_bytes, read_bytes) = (family.apparent_bytes, tally.read_bytes);
        let is_empty = apparent_bytes == 0;
        let sizes = match read_bytes {
            0 => is_empty.then(Sizes::default),
            // Everything was read; it may have grown since it was looked at, and then what was read is the
            // truth.
            _ if read_bytes >= apparent_bytes => Some(tally.sizes),
            _ => Some(tally.sizes.scaled(apparent_bytes, read_bytes)),
        };
        let zero_bytes = match read_bytes {
            0 => 0,
            _ => scale(tally.zero_bytes, apparent_bytes.max(read_bytes), read_bytes),
        };
        let estimate = FamilyEstimate {
            name: family.name,
            files: family.files,
            apparent_bytes: apparent_bytes.max(read_bytes),
            allocated_bytes: family.allocated_bytes,
            read_bytes,
            zero_bytes,
            sizes,
        };
        total.add(&estimate);
        families.push(estimate);
    }
    let mut skipped = collected.skipped;
    skipped.add(&measured.skipped);
    let fraction = match total.apparent_bytes {
        0 => 1.0,
        apparent_bytes => total.read_bytes as f64 / apparent_bytes as f64,
    };
    let mode = match mode {
        SampleMode::All => "all",
        SampleMode::Budget { .. } if fraction >= 1.0 => "all",
        SampleMode::Budget { .. } => "sample",
    };
    Estimate {
        directory: directory.display().to_string(),
        is_postgresql: collected.has_postgres,
        sample: SampleReport {
            mode,
            read_bytes: total.read_bytes,
            fraction,
        },
        families,
        total,
        skipped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_rounds_and_does_not_overflow() {
        assert_eq!(scale(10, 3, 2), 15);
        assert_eq!(scale(1, 1, 3), 0);
        assert_eq!(scale(2, 1, 3), 1);
        assert_eq!(scale(1 << 50, 1 << 60, 1 << 50), 1 << 60);
        assert_eq!(scale(u64::MAX, u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn what_could_not_be_read_stays_unknown_and_out_of_the_sizes() {
        let known = FamilyEstimate {
            apparent_bytes: 100,
            sizes: Some(Sizes {
                lz4_8k_sectors_bytes: 40,
                ..Sizes::default()
            }),
            ..FamilyEstimate::default()
        };
        let unknown = FamilyEstimate {
            apparent_bytes: 7,
            sizes: None,
            ..FamilyEstimate::default()
        };
        let mut total = FamilyEstimate::default();
        total.add(&unknown);
        assert_eq!(total.sizes, None);
        total.add(&known);
        total.add(&unknown);
        assert_eq!(total.apparent_bytes, 114);
        assert_eq!(total.sizes, known.sizes);
    }
}
