//! The two ways requests come, by the names that people see.

use std::fmt;
use std::str::FromStr;

/// How requests are to come from the kernel. As text: `auto`, `device`, `io_uring`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// io_uring where the kernel offers it (Linux 6.14 and later with `fuse.enable_uring`), else the device.
    #[default]
    Auto,
    /// `/dev/fuse`, which every kernel has.
    Device,
    /// io_uring or nothing: mounting fails where it cannot be had.
    IoUring,
}

/// How the requests of a mount come. As text: `device`, `io_uring`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportInUse {
    /// `/dev/fuse`.
    Device,
    /// io_uring; forgotten inodes and interrupts still come by the device.
    IoUring,
}

/// A text that is none of a [`TransportChoice`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no transport; give auto, device or io_uring")]
pub struct UnknownTransport(String);

impl FromStr for TransportChoice {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<TransportChoice, UnknownTransport> {
        match text {
            "auto" => Ok(TransportChoice::Auto),
            "device" => Ok(TransportChoice::Device),
            "io_uring" => Ok(TransportChoice::IoUring),
            _ => Err(UnknownTransport(text.into())),
        }
    }
}

impl fmt::Display for TransportInUse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            TransportInUse::Device => "device",
            TransportInUse::IoUring => "io_uring",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_have_names() {
        assert_eq!("auto".parse(), Ok(TransportChoice::Auto));
        for (name, choice, used) in [
            ("device", TransportChoice::Device, TransportInUse::Device),
            ("io_uring", TransportChoice::IoUring, TransportInUse::IoUring),
        ] {
            assert_eq!(name.parse(), Ok(choice));
            assert_eq!(used.to_string(), name);
        }
        let error = "uring".parse::<TransportChoice>().expect_err("not a name");
        assert!(error.to_string().contains("io_uring"), "{error}");
    }
}
