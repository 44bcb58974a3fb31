//! Listing directories, with attributes or without.

use super::{Context, Handled};

/// Entries asked of the file system at once; a page of short names holds fewer.
const ENTRIES_MAX: usize = 1024;
/// Bytes of a listed name that make the estimate of how many entries fit; a reply that ends early only means one more
/// request.
const SHORT_NAME_BYTES: usize = 8;

impl Context<'_> {
    pub(super) fn read_directory(&mut self, after: u64, size_bytes: u32, plus: bool) -> Handled {
        let size_bytes = size_bytes as usize;
        let smallest_bytes = if plus { 152 } else { 24 } + SHORT_NAME_BYTES;
        let limit = (size_bytes / smallest_bytes).clamp(1, ENTRIES_MAX);
        for entry in self.filesystem.read_directory(self.node, after, limit)? {
            // Before the lookup: a reference must not be taken for an entry that does not fit.
            if !self.body.fits_directory_entry(&entry.name, size_bytes, plus) {
                break;
            }
            if !plus {
                self.body.directory_entry(&entry);
                continue;
            }
            let is_dot = matches!(entry.name.as_slice(), b"." | b"..");
            // An entry may be gone again, or damaged: its name is listed all the same, asking for it will tell.
            let found = match is_dot {
                true => None,
                false => self.filesystem.lookup(&self.caller, self.node, &entry.name).ok(),
            };
            if let Some(attributes) = &found {
                self.granted.push(attributes.ino);
            }
            self.body.directory_entry_plus(&entry, found.as_ref());
        }
        Ok(())
    }
}
