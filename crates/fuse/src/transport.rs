//! How requests come from the kernel and replies go back.
//!
//! A worker owns one transport and uses it alone: it waits for a request, looks at it, writes the reply's body where the
//! transport wants it, and answers. Two transports do this:
//!
//! | module | requests come | replies go |
//! |---|---|---|
//! | `device` | by read(2) from `/dev/fuse` | by writev(2) to it |
//! | `uring` | into an entry that was handed to the kernel | with the same system call that waits for the next request |
//!
//! Notifications go by write(2) on either.

mod device;
mod entry;
mod queues;
mod uring;

pub(crate) use device::{DevFuse, DeviceLine};
pub(crate) use queues::{is_offered, online_processors, pin_to_processor, possible_processors};
pub(crate) use uring::{UringLine, refuse};

use crate::reply::ReplyBody;
use crate::request::{Body, Header};
use std::io::{self, IoSlice};

/// Outcome of waiting for a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A request with this header.
    Request(Header),
    /// Nothing this time: a signal came, the program that asked went away, or what came was not a request. Wait again.
    Nothing,
    /// The mount is gone; nothing will come any more.
    Ended,
}

/// Outcome of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Delivered,
    /// Nobody waits for it any more: what it handed over was not taken.
    Unwanted,
}

/// One worker's line to the kernel.
pub(crate) trait Transport {
    /// Waits for a request. Every request is to be ended by one call of `reply` or `dismiss`, or be left to somebody
    /// else where the transport allows it.
    fn receive(&mut self) -> io::Result<Received>;
    /// The body of the request received last, and an empty body to write the reply into.
    fn exchange(&mut self) -> (Body<'_>, &mut ReplyBody);
    /// Answers the request received last. `error` is a positive errno, and the body then without meaning, or 0.
    fn reply(&mut self, header: &Header, error: i32) -> io::Result<Sent>;
    /// Ends the request received last, one that takes no reply.
    fn dismiss(&mut self, header: &Header) -> io::Result<()>;
}

/// Takes messages that are no answer to what was received last: notifications, and answers that were put off.
pub(crate) trait Outlet {
    /// Sends one message, given in parts.
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<Sent>;
}
