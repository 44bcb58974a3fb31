//! Memory that O_DIRECT accepts: it starts on a 4096-byte boundary and is a multiple of 4096 long.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A heap buffer aligned for direct input and output. Its length is fixed.
///
/// Invariants: `pointer` is aligned to [`AlignedBuffer::ALIGNMENT_BYTES`] and valid for `length_bytes`
/// initialised bytes, which are a multiple of the alignment; it owns an allocation exactly when
/// `length_bytes` is not 0.
pub struct AlignedBuffer {
    pointer: NonNull<u8>,
    length_bytes: usize,
}

// SAFETY: the buffer owns its bytes, as a `Vec<u8>` does; nothing else points at them.
unsafe impl Send for AlignedBuffer {}
// SAFETY: a shared reference only gives shared access to plain bytes.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Alignment of the first byte, and of the length.
    pub const ALIGNMENT_BYTES: usize = 4096;

    /// A buffer of zero bytes.
    ///
    /// # Panics
    /// When the length is not a multiple of [`AlignedBuffer::ALIGNMENT_BYTES`].
    pub fn zeroed(length_bytes: usize) -> AlignedBuffer {
        assert!(
            length_bytes % Self::ALIGNMENT_BYTES == 0,
            "an aligned buffer of {length_bytes} bytes: not a multiple of {}",
            Self::ALIGNMENT_BYTES
        );
        if length_bytes == 0 {
            return AlignedBuffer {
                pointer: Self::dangling(),
                length_bytes,
            };
        }
        let layout = Self::layout(length_bytes);
        // SAFETY: the layout's size is not 0.
        let pointer = unsafe { alloc_zeroed(layout) };
        let Some(pointer) = NonNull::new(pointer) else {
            handle_alloc_error(layout);
        };
        AlignedBuffer {
            pointer,
            length_bytes,
        }
    }

    /// A buffer that starts with these bytes and is filled up with zero bytes to the next multiple of the
    /// alignment.
    pub fn copy_of(bytes: &[u8]) -> AlignedBuffer {
        let mut buffer = Self::zeroed(bytes.len().next_multiple_of(Self::ALIGNMENT_BYTES));
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    /// Whether memory starts on a boundary that direct input and output accepts.
    pub(crate) fn is_aligned(bytes: &[u8]) -> bool {
        bytes.as_ptr().addr() % Self::ALIGNMENT_BYTES == 0
    }

    fn layout(length_bytes: usize) -> Layout {
        Layout::from_size_align(length_bytes, Self::ALIGNMENT_BYTES).unwrap_or_else(|_| {
            panic!("an aligned buffer of {length_bytes} bytes is larger than the address space")
        })
    }

    fn dangling() -> NonNull<u8> {
        #[repr(align(4096))]
        struct Page;
        const { assert!(align_of::<Page>() == AlignedBuffer::ALIGNMENT_BYTES) };
        NonNull::<Page>::dangling().cast()
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.length_bytes != 0 {
            // SAFETY: allocated in `zeroed` with this layout, and owned.
            unsafe { dealloc(self.pointer.as_ptr(), Self::layout(self.length_bytes)) }
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: valid for that many initialised bytes, by the invariant.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.length_bytes) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: valid for that many initialised bytes, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.length_bytes) }
    }
}

impl Clone for AlignedBuffer {
    fn clone(&self) -> Self {
        Self::copy_of(self)
    }
}

impl Default for AlignedBuffer {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl From<&[u8]> for AlignedBuffer {
    /// As [`AlignedBuffer::copy_of`].
    fn from(bytes: &[u8]) -> Self {
        Self::copy_of(bytes)
    }
}

impl From<AlignedBuffer> for Vec<u8> {
    fn from(buffer: AlignedBuffer) -> Self {
        buffer.to_vec()
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for AlignedBuffer {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for AlignedBuffer {}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AlignedBuffer({} bytes)", self.length_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_independent() {
        for length_bytes in [0, 4096, 8192, 1 << 20] {
            let mut buffer = AlignedBuffer::zeroed(length_bytes);
            assert_eq!(buffer.len(), length_bytes);
            assert!(AlignedBuffer::is_aligned(&buffer));
            assert!(buffer.iter().all(|&byte| byte == 0));
            let copy = buffer.clone();
            buffer.fill(9);
            assert!(copy.iter().all(|&byte| byte == 0));
            assert_eq!(buffer == copy, length_bytes == 0);
        }
    }

    #[test]
    fn a_copy_is_padded_with_zeros() {
        let buffer = AlignedBuffer::from(&[1u8; 5000][..]);
        assert_eq!(buffer.len(), 8192);
        assert!(buffer[..5000].iter().all(|&byte| byte == 1));
        assert!(buffer[5000..].iter().all(|&byte| byte == 0));
        assert_eq!(Vec::from(AlignedBuffer::default()), Vec::<u8>::new());
    }

    #[test]
    #[should_panic(expected = "not a multiple")]
    fn odd_lengths_are_a_bug() {
        let _ = AlignedBuffer::zeroed(4095);
    }
}
