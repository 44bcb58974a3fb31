//! Takes integers, names and byte runs off the front of a request body.

use super::{Body, Malformed};

pub(super) struct Reader<'a> {
    /// What is left of the run being read.
    rest: &'a [u8],
    /// The run that follows it.
    next: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(body: Body<'a>) -> Reader<'a> {
        Reader {
            rest: body.fixed,
            next: body.rest,
        }
    }

    /// Goes on to the second run where the first has ended.
    fn step_over_seam(&mut self) {
        if self.rest.is_empty() {
            self.rest = std::mem::take(&mut self.next);
        }
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        self.step_over_seam();
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Malformed::because("shorter than its operation needs"),
        }
    }

    fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], Malformed> {
        self.step_over_seam();
        match self.rest.split_first_chunk::<COUNT>() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Malformed::because("shorter than its operation needs"),
        }
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(super) fn skip(&mut self, count: usize) -> Result<(), Malformed> {
        self.bytes(count).map(|_| ())
    }

    /// Bytes up to a NUL, which is taken too.
    pub(super) fn text(&mut self) -> Result<&'a [u8], Malformed> {
        self.step_over_seam();
        match self.rest.iter().position(|byte| *byte == 0) {
            Some(end) => {
                let text = &self.rest[..end];
                self.rest = &self.rest[end + 1..];
                Ok(text)
            }
            None => Malformed::because("a name without its end"),
        }
    }

    /// A name of a directory entry or xattr: not empty.
    pub(super) fn name(&mut self) -> Result<&'a [u8], Malformed> {
        match self.text()? {
            [] => Malformed::because("an empty name"),
            name => Ok(name),
        }
    }

    /// A name that can stand in a directory.
    pub(super) fn entry_name(&mut self) -> Result<&'a [u8], Malformed> {
        let name = self.name()?;
        if name.contains(&b'/') {
            return Malformed::because("a name with a slash");
        }
        Ok(name)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty() && self.next.is_empty()
    }
}
