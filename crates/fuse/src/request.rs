//! Bytes from the kernel to a typed request. Pure, without allocation, every length checked.
//!
//! The kernel is trusted to mean well, not to be free of bugs or newer than this program: a request that is too short,
//! or a name without its end, is [`Malformed`] and answered with an error; it never panics. Bytes behind what an
//! operation needs are ignored, because newer kernels append.

mod operation;
mod reader;

pub(crate) use operation::{CreateFile, Operation, SetAttributesBody, XattrOperation};

use crate::abi::{Opcode, REQUEST_HEADER_BYTES};
use packstone_fs::Ino;
use reader::Reader;

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct Malformed {
    pub reason: &'static str,
}

impl Malformed {
    fn because<T>(reason: &'static str) -> Result<T, Malformed> {
        Err(Malformed { reason })
    }
}

/// The part all requests share; its layout is in `abi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub opcode_number: u32,
    /// Names the request in its reply.
    pub unique: u64,
    pub node: Ino,
    pub uid: u32,
    pub gid: u32,
}

/// A decoded request that borrows names and data from the worker's buffer.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub header: Header,
    pub operation: Operation<'a>,
}

impl Header {
    /// Splits the header from the body. `received` is exactly what one read from the device returned.
    pub(crate) fn decode(received: &[u8]) -> Result<(Header, &[u8]), Malformed> {
        let mut reader = Reader::new(received);
        let length_bytes = reader.u32()? as usize;
        let header = Header {
            opcode_number: reader.u32()?,
            unique: reader.u64()?,
            node: Ino(reader.u64()?),
            uid: reader.u32()?,
            gid: reader.u32()?,
        };
        if length_bytes != received.len() || length_bytes < REQUEST_HEADER_BYTES {
            return Malformed::because("the length in the header is not the length received");
        }
        Ok((header, &received[REQUEST_HEADER_BYTES..]))
    }

    pub(crate) fn opcode(&self) -> Option<Opcode> {
        Opcode::from_number(self.opcode_number)
    }

    /// Requests that take no reply; writing one would be an error.
    pub(crate) fn wants_reply(&self) -> bool {
        !matches!(
            self.opcode(),
            Some(Opcode::Forget | Opcode::BatchForget | Opcode::NotifyReply)
        )
    }
}

impl<'a> Request<'a> {
    /// Decodes the body that follows `header`.
    pub(crate) fn decode(header: Header, body: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let operation = match header.opcode() {
            Some(opcode) => Operation::decode(opcode, body)?,
            None => Operation::NotImplemented,
        };
        Ok(Request { header, operation })
    }
}

#[cfg(test)]
mod tests;
