//! The bytes of a simulated device: only what was written takes memory, and copies share what neither has
//! changed.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

const CHUNK_BYTES: usize = 64 * 1024;

/// The bytes of a device at one moment. Cloning is cheap: parts are copied when one of the clones changes
/// them.
#[derive(Clone, PartialEq, Eq)]
pub struct SimulatedImage {
    size_bytes: u64,
    /// Chunks that are not here are zero bytes.
    chunks: BTreeMap<u64, Arc<[u8; CHUNK_BYTES]>>,
}

impl SimulatedImage {
    pub(super) fn new(size_bytes: u64) -> SimulatedImage {
        SimulatedImage {
            size_bytes,
            chunks: BTreeMap::new(),
        }
    }

    /// Size of the device.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// All bytes of the device.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size_bytes as usize];
        self.read(0, &mut bytes);
        bytes
    }

    /// Whether all of a range lies in chunks that take memory.
    pub(super) fn is_allocated(&self, range: &Range<u64>) -> bool {
        let chunks = range.start / CHUNK_BYTES as u64..range.end.div_ceil(CHUNK_BYTES as u64);
        chunks.into_iter().all(|index| self.chunks.contains_key(&index))
    }

    /// A byte in some chunk that takes memory, as the caller draws it; `None` when there is none.
    pub(super) fn written_offset(&self, mut draw_below: impl FnMut(u64) -> u64) -> Option<u64> {
        if self.chunks.is_empty() {
            return None;
        }
        let nth = draw_below(self.chunks.len() as u64) as usize;
        let chunk = self.chunks.keys().nth(nth)?;
        let offset = chunk * CHUNK_BYTES as u64 + draw_below(CHUNK_BYTES as u64);
        (offset < self.size_bytes).then_some(offset)
    }

    pub(super) fn read(&self, offset_bytes: u64, buffer: &mut [u8]) {
        let mut done = 0;
        while done < buffer.len() {
            let (chunk_index, start, length) = piece(offset_bytes + done as u64, buffer.len() - done);
            let target = &mut buffer[done..done + length];
            match self.chunks.get(&chunk_index) {
                Some(chunk) => target.copy_from_slice(&chunk[start..start + length]),
                None => target.fill(0),
            }
            done += length;
        }
    }

    pub(super) fn write(&mut self, offset_bytes: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let (chunk_index, start, length) = piece(offset_bytes + done as u64, data.len() - done);
            let source = &data[done..done + length];
            done += length;
            if !self.chunks.contains_key(&chunk_index) && source.iter().all(|&byte| byte == 0) {
                continue;
            }
            let chunk = self
                .chunks
                .entry(chunk_index)
                .or_insert_with(|| Arc::new([0; CHUNK_BYTES]));
            Arc::make_mut(chunk)[start..start + length].copy_from_slice(source);
        }
    }
}

/// The part of a range that lies in its first chunk: the chunk, where in it, and how many bytes.
fn piece(offset_bytes: u64, length_bytes: usize) -> (u64, usize, usize) {
    let start = (offset_bytes % CHUNK_BYTES as u64) as usize;
    (
        offset_bytes / CHUNK_BYTES as u64,
        start,
        length_bytes.min(CHUNK_BYTES - start),
    )
}

impl fmt::Debug for SimulatedImage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SimulatedImage")
            .field("size_bytes", &self.size_bytes)
            .field("chunks", &self.chunks.len())
            .finish()
    }
}
