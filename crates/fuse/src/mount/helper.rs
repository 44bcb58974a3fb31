//! `fusermount3`, for everybody but root.
//!
//! The helper mounts and passes the open `/dev/fuse` back as ancillary data of one byte over a socket, whose number it
//! takes from `_FUSE_COMMFD`. The socket is given to it as its standard input, so that no other child started at the
//! same moment can inherit it. It adds `nosuid,nodev` itself.

use super::{Attachment, SUBTYPE};
use crate::{Error, ErrorKind, Result};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

pub(super) fn attach(attachment: &Attachment<'_>) -> Result<OwnedFd> {
    const OPERATION: &str = "mount";
    let mut options = format!(
        "fsname={},subtype={SUBTYPE},default_permissions",
        escape(attachment.source)
    );
    if attachment.allow_other {
        options.push_str(",allow_other");
    }
    if attachment.read_only {
        options.push_str(",ro");
    }
    let system = |doing: &str, error: io::Error| Error::system(OPERATION, doing, error);
    let pair = || {
        socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
    };
    let (output, ours) = run(OPERATION, |command| {
        let (ours, theirs) = pair().map_err(|error| system("make a socket", error.into()))?;
        command
            .arg("-o")
            .arg(&options)
            .arg("--")
            .arg(attachment.mountpoint);
        command.env("_FUSE_COMMFD", "0").stdin(Stdio::from(theirs));
        Ok(ours)
    })?;
    check(OPERATION, &output)?;
    receive_descriptor(&ours)
        .map_err(|error| system("receive the descriptor from fusermount3", error))?
        .ok_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                OPERATION,
                "fusermount3 sent no descriptor",
            )
        })
}

pub(super) fn detach(mountpoint: &Path, lazy: bool) -> Result<()> {
    let (output, ()) = run("unmount", |command| {
        command.arg("-u");
        if lazy {
            command.arg("-z");
        }
        command.arg("--").arg(mountpoint).stdin(Stdio::null());
        Ok(())
    })?;
    check("unmount", &output)
}

/// Runs the first helper that is installed.
fn run<T>(operation: &'static str, prepare: impl Fn(&mut Command) -> Result<T>) -> Result<(Output, T)> {
    for helper in HELPERS {
        let mut command = Command::new(helper);
        let kept = prepare(&mut command)?;
        match command.stdout(Stdio::null()).stderr(Stdio::piped()).output() {
            Ok(output) => return Ok((output, kept)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::system(operation, &format!("run {helper}"), error)),
        }
    }
    let message = "fusermount3 is not installed (Debian package fuse3); root needs none";
    Err(Error::new(ErrorKind::Unsupported, operation, message))
}

fn check(operation: &'static str, output: &Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let kind = if text.contains("busy") {
        ErrorKind::Busy
    } else if text.contains("not permitted") || text.contains("denied") || text.contains("allowed") {
        ErrorKind::NotPermitted
    } else {
        ErrorKind::Unavailable
    };
    Err(Error::new(kind, operation, text.trim().to_string()))
}

fn receive_descriptor(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::io::retry_on_intr(|| {
        recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            return Ok(descriptors.next());
        }
    }
    Ok(None)
}

/// Commas separate options, backslashes quote.
fn escape(source: &str) -> String {
    let mut escaped = String::with_capacity(source.len());
    for character in source.chars() {
        if matches!(character, ',' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_cannot_add_options() {
        assert_eq!(escape("tank/pg"), "tank/pg");
        assert_eq!(escape(r"a,allow_other\b"), r"a\,allow_other\\b");
    }
}
