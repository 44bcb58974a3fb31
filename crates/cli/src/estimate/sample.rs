//! Which chunks are read.
//!
//! A chunk is one large record of a file ([`LARGE_RECORD_BYTES`], aligned in the file; the last one of a file
//! may be shorter). All chunks of a family stand in one row, by path and offset, and the sample takes them at
//! even distances: a systematic sample, which covers old and new parts of a relation alike and is the same
//! every time.

use super::collect::Collected;
use super::{LARGE_RECORD_BYTES, SampleMode};

/// Chunks that a family gets, as far as the budget allows, before the rest goes by size.
const CHUNKS_PER_FAMILY: u64 = 16;
/// Longest run of chunks in one piece of work: short enough for the threads to end together.
const CHUNKS_PER_RUN: u64 = 64;

const CHUNK_BYTES: u64 = LARGE_RECORD_BYTES as u64;

/// Neighbouring chunks of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Index in [`Collected::files`].
    pub(super) file: usize,
    pub(super) first_chunk: u64,
    pub(super) chunks: u64,
}

/// What is to be read.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) runs: Vec<Run>,
    /// About how much that is; files may change.
    pub(super) bytes: u64,
}

pub(super) fn plan(collected: &Collected, mode: SampleMode) -> Plan {
    let chunks_by_family = chunks_by_family(collected);
    let wanted = match mode {
        SampleMode::All => chunks_by_family.clone(),
        SampleMode::Budget { bytes } => share(&chunks_by_family, bytes / CHUNK_BYTES),
    };
    let mut plan = Plan::default();
    // Position of the file's first chunk in its family's row.
    let mut start = 0;
    let mut family = u32::MAX;
    for (file, found) in collected.files.iter().enumerate() {
        if found.family != family {
            (family, start) = (found.family, 0);
        }
        let chunks = found.apparent_bytes.div_ceil(CHUNK_BYTES);
        let (total, wanted) = (chunks_by_family[family as usize], wanted[family as usize]);
        if wanted == total {
            plan.add_all(file, chunks);
        } else {
            plan.add_sampled(file, start..start + chunks, total, wanted);
        }
        start += chunks;
    }
    plan.bytes = plan
        .runs
        .iter()
        .map(|run| run_bytes(run, collected.files[run.file].apparent_bytes))
        .sum();
    plan
}

fn chunks_by_family(collected: &Collected) -> Vec<u64> {
    let mut chunks = vec![0; collected.families.len()];
    for file in &collected.files {
        chunks[file.family as usize] += file.apparent_bytes.div_ceil(CHUNK_BYTES);
    }
    chunks
}

/// Chunks to take of each family: first a few of each, then by size. At least one of each that has any.
fn share(chunks: &[u64], budget: u64) -> Vec<u64> {
    let total: u64 = chunks.iter().sum();
    if total <= budget {
        return chunks.to_vec();
    }
    let each = (budget / 2 / chunks.len() as u64).clamp(1, CHUNKS_PER_FAMILY);
    let mut wanted: Vec<u64> = chunks.iter().map(|&count| count.min(each)).collect();
    let spent: u64 = wanted.iter().sum();
    // Never more than what is left of a family: the whole is larger than the budget.
    let rest = budget.saturating_sub(spent);
    for (wanted, &count) in wanted.iter_mut().zip(chunks) {
        let left = count - *wanted;
        *wanted += (u128::from(rest) * u128::from(left) / u128::from(total - spent).max(1)) as u64;
    }
    wanted
}

impl Plan {
    fn add_all(&mut self, file: usize, chunks: u64) {
        let mut first_chunk = 0;
        while first_chunk < chunks {
            let run = (chunks - first_chunk).min(CHUNKS_PER_RUN);
            self.runs.push(Run {
                file,
                first_chunk,
                chunks: run,
            });
            first_chunk += run;
        }
    }

    /// Of the positions in the middle of `wanted` equal parts of the family's row, those that fall into this
    /// file.
    fn add_sampled(&mut self, file: usize, row: std::ops::Range<u64>, total: u64, wanted: u64) {
        let position = |index: u64| {
            let (index, total, wanted) = (u128::from(index), u128::from(total), u128::from(wanted));
            ((2 * index + 1) * total / (2 * wanted)) as u64
        };
        // The first index whose position is not before this file, up to rounding; the loop settles the rest.
        let guess = u128::from(row.start) * u128::from(wanted) / u128::from(total);
        let mut index = (guess as u64).saturating_sub(1);
        while index < wanted && position(index) < row.end {
            if position(index) >= row.start {
                self.runs.push(Run {
                    file,
                    first_chunk: position(index) - row.start,
                    chunks: 1,
                });
            }
            index += 1;
        }
    }
}

fn run_bytes(run: &Run, file_bytes: u64) -> u64 {
    let start = run.first_chunk * CHUNK_BYTES;
    let end = (start + run.chunks * CHUNK_BYTES).min(file_bytes);
    end.saturating_sub(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_stay_within_the_budget_and_reach_every_family() {
        assert_eq!(share(&[10, 0, 5], 15), [10, 0, 5]);
        let wanted = share(&[100_000, 1_000, 3, 0], 2_048);
        assert_eq!(wanted[2..], [3, 0]);
        assert!((16..1_000).contains(&wanted[1]), "{wanted:?}");
        assert!(wanted.iter().sum::<u64>() <= 2_048, "{wanted:?}");
        assert!(wanted[0] > 1_900, "{wanted:?}");
        // Large families that are nearly whole leave nothing of the budget unused but rounding.
        assert!(share(&[1_000, 1_050, 20], 2_048).iter().sum::<u64>() > 2_044);
        assert_eq!(share(&[7, 7, 7], 0), [1, 1, 1]);
        assert_eq!(share(&[1, 1, 0], 1), [1, 1, 0]);
    }

    #[test]
    fn sampled_positions_are_even_whatever_the_files() {
        // One row of 1,000 chunks, cut into files in two ways: the same chunks of the row are taken.
        let positions = |file_chunks: &[u64]| {
            let mut plan = Plan::default();
            let mut start = 0;
            let mut taken = Vec::new();
            for (file, &chunks) in file_chunks.iter().enumerate() {
                plan.runs.clear();
                plan.add_sampled(file, start..start + chunks, 1_000, 7);
                taken.extend(plan.runs.iter().map(|run| start + run.first_chunk));
                start += chunks;
            }
            taken
        };
        let whole = positions(&[1_000]);
        assert_eq!(whole, [71, 214, 357, 500, 642, 785, 928]);
        assert_eq!(positions(&[1; 1_000]), whole);
        assert_eq!(positions(&[357, 1, 642]), whole);
        assert_eq!(positions(&[0, 500, 0, 500]), whole);
    }

    #[test]
    fn runs_cover_a_file_once() {
        let mut plan = Plan::default();
        plan.add_all(3, 130);
        let runs: Vec<_> = plan
            .runs
            .iter()
            .map(|run| (run.file, run.first_chunk, run.chunks))
            .collect();
        assert_eq!(runs, [(3, 0, 64), (3, 64, 64), (3, 128, 2)]);
        assert_eq!(
            run_bytes(&plan.runs[2], 129 * CHUNK_BYTES + 100),
            CHUNK_BYTES + 100
        );
        assert_eq!(run_bytes(&plan.runs[2], 5), 0);
    }
}
