//! How requests are to come from the kernel, as the environment says it: `PACKSTONE_FUSE_TRANSPORT`.
//!
//! The command that mounts reads and checks the variable and sends its choice along. So the choice is the mount's own,
//! whichever command started the daemon and whatever was in the environment then.

use crate::failure::{Failure, FailureKind};
use packstone_fuse::TransportChoice;
use std::env::VarError;

/// Names the choice: `auto`, `device` or `io_uring`.
pub const VARIABLE: &str = "PACKSTONE_FUSE_TRANSPORT";

/// What this process's environment names, checked; `None` when it names nothing.
pub fn from_environment() -> anyhow::Result<Option<String>> {
    match std::env::var(VARIABLE) {
        Err(VarError::NotPresent) => Ok(None),
        Ok(text) => parse(&text).map(|_| Some(text)),
        Err(error) => Err(usage(error)),
    }
}

/// The choice a request names, else the one this process's environment names, else the usual.
pub fn choose(requested: Option<&str>) -> anyhow::Result<TransportChoice> {
    match requested {
        Some(text) => text
            .parse()
            .map_err(|error| Failure::error(FailureKind::Usage, format!("{error}"))),
        None => from_environment()?.map_or(Ok(TransportChoice::default()), |text| parse(&text)),
    }
}

fn parse(text: &str) -> anyhow::Result<TransportChoice> {
    text.parse().map_err(usage)
}

fn usage(error: impl std::fmt::Display) -> anyhow::Error {
    Failure::error(FailureKind::Usage, format!("{VARIABLE}: {error}"))
}
