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
    pub(crate) fn because<T>(reason: &'static str) -> Result<T, Malformed> {
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

/// What follows a request's header, in one run or in two: io_uring keeps the operation's fixed part apart from the rest.
/// No field lies across the seam.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Body<'a> {
    pub fixed: &'a [u8],
    pub rest: &'a [u8],
}

impl<'a> From<&'a [u8]> for Body<'a> {
    fn from(body: &'a [u8]) -> Body<'a> {
        Body {
            fixed: body,
            rest: &[],
        }
    }
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
        let (header, length_bytes) = Header::decode_alone(received)?;
        if length_bytes != received.len() || length_bytes < REQUEST_HEADER_BYTES {
            return Malformed::because("the length in the header is not the length received");
        }
        Ok((header, &received[REQUEST_HEADER_BYTES..]))
    }

    /// The header at the start of `bytes`, and the length it gives for the whole request, which is not checked.
    pub(crate) fn decode_alone(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        let mut reader = Reader::new(bytes.into());
        let length_bytes = reader.u32()? as usize;
        let header = Header {
            opcode_number: reader.u32()?,
            unique: reader.u64()?,
            node: Ino(reader.u64()?),
            uid: reader.u32()?,
            gid: reader.u32()?,
        };
        Ok((header, length_bytes))
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
    pub(crate) fn decode(header: Header, body: impl Into<Body<'a>>) -> Result<Request<'a>, Malformed> {
        let operation = match header.opcode() {
            Some(opcode) => Operation::decode(opcode, body.into())?,
            None => Operation::NotImplemented,
        };
        Ok(Request { header, operation })
    }
}

#[cfg(test)]
mod tests;
