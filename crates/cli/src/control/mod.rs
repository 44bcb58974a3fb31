//! The control socket of a daemon: HTTP/1.1 with JSON over `tank.sock`.
//!
//! Only the owner of the state directory (mode 0700) reaches the socket (mode 0600), and the server asks the kernel who
//! connected and hangs up on anybody but its own user and root. Endpoints are listed in `docs/cli.md`; why HTTP, and why
//! these libraries, in `docs/decisions/0002-control-socket.md`.

pub mod client;
pub mod server;

use crate::failure::FailureKind;
use serde::{Deserialize, Serialize};

/// Largest request body that the server reads and largest reply that the client does.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;
/// A pool with very many datasets has a long status.
pub const REPLY_BYTES_MAX: usize = 64 << 20;

/// The body of every reply that is not a success.
#[derive(Debug, Serialize, Deserialize)]
pub struct ErrorReply {
    /// What went wrong.
    pub error: ErrorBody,
}

/// What went wrong, for programs and for people.
#[derive(Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Decides the exit code of the command that asked.
    pub code: FailureKind,
    /// For people.
    pub message: String,
}
