//! What a run costs besides time: bytes that reach the device, and processor time of server and daemon.
//!
//! The device's counter is of the whole disk: anything else that writes to it meanwhile is counted too. It counts what
//! the kernel sent to the device, not what the device did inside.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::arm::Arm;
use crate::process;

/// Costs of an interval. What could not be known is missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    /// Bytes written to the disk that holds the arm, by anyone.
    pub device_written_bytes: Option<u64>,
    /// Bytes that the pool says it wrote to its members.
    pub pool_written_bytes: Option<u64>,
    /// Processor time of the server and its children.
    pub server_cpu_seconds: f64,
    /// Processor time of the pool's daemon.
    pub daemon_cpu_seconds: Option<f64>,
}

/// Readings at the start of an interval. Server and daemon must be the same processes at its end.
pub struct Meter {
    start: Costs,
}

impl Meter {
    /// Begins an interval.
    pub fn start(arm: &Arm) -> Result<Meter> {
        Ok(Meter { start: read(arm)? })
    }

    /// Ends the interval.
    pub fn stop(self, arm: &Arm) -> Result<Costs> {
        let (start, end) = (self.start, read(arm)?);
        let bytes = |end: Option<u64>, start: Option<u64>| Some(end?.saturating_sub(start?));
        Ok(Costs {
            device_written_bytes: bytes(end.device_written_bytes, start.device_written_bytes),
            pool_written_bytes: bytes(end.pool_written_bytes, start.pool_written_bytes),
            server_cpu_seconds: end.server_cpu_seconds - start.server_cpu_seconds,
            daemon_cpu_seconds: end
                .daemon_cpu_seconds
                .zip(start.daemon_cpu_seconds)
                .map(|(end, start)| end - start),
        })
    }
}

fn read(arm: &Arm) -> Result<Costs> {
    Ok(Costs {
        device_written_bytes: device_written_bytes(arm.disk_directory()),
        pool_written_bytes: arm.status()?.map(|status| status.media_written_bytes.total_bytes),
        server_cpu_seconds: arm.cluster().pids().into_iter().map(process::cpu_seconds).sum(),
        daemon_cpu_seconds: arm.daemon_pid().map(process::cpu_seconds),
    })
}

/// Bytes written so far to the block device under `directory`.
fn device_written_bytes(directory: &Path) -> Option<u64> {
    // The kernel counts in sectors of 512 bytes whatever the device's own are.
    const SECTOR_BYTES: u64 = 512;
    const WRITTEN_SECTORS_FIELD: usize = 6;
    let device = directory.metadata().ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let statistics = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let sectors: u64 = statistics
        .split_whitespace()
        .nth(WRITTEN_SECTORS_FIELD)?
        .parse()
        .ok()?;
    Some(sectors * SECTOR_BYTES)
}
