//! The facts that commands print and that the daemon sends: one set of types for `--json`, for the control socket and
//! for the tables, so that the three never differ.
//!
//! Field names are a promise to scripts (`docs/cli.md`): add, never rename.

use crate::output::{Table, format_bytes, format_duration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `packstone status tank --json`, `GET /status`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Name of the pool.
    pub pool: String,
    /// `open` (a daemon has it), `read-only` (a write or flush failed), `closing`, or `closed` (no daemon).
    pub state: String,
    /// Why the pool takes no writes, when it has stopped.
    pub stopped: Option<String>,
    /// Process id of the daemon.
    pub daemon_pid: Option<u32>,
    /// Seconds since the daemon opened the pool; 0 when none has.
    pub uptime_seconds: u64,
    /// Room for segments.
    pub capacity_bytes: u64,
    /// Segments not free.
    pub allocated_bytes: u64,
    /// Bytes in segments that something still needs.
    pub live_bytes: u64,
    /// Segments that are free.
    pub free_bytes: u64,
    /// What can still be written.
    pub available_bytes: u64,
    /// Records before compression.
    pub logical_bytes: u64,
    /// Packed records and their index.
    pub stored_bytes: u64,
    /// Of `stored_bytes`: tree nodes and record table.
    pub index_bytes: u64,
    /// `logical_bytes / stored_bytes`; 1 for an empty pool.
    pub compression_ratio: f64,
    /// Live records.
    pub records: u64,
    /// Written since the pool was opened, by purpose.
    pub media_written_bytes: MediaWritten,
    /// Media flushes since the pool was opened.
    pub flushes: u64,
    /// Checkpoints since the pool was opened.
    pub checkpoints: u64,
    /// What the kernel asked of the mounts there are now, by the protocol's names: `WRITE`, `FSYNC` and so on.
    #[serde(default)]
    pub requests: BTreeMap<String, u64>,
    /// The `memory` property in force.
    pub memory_budget_bytes: u64,
    /// What caches and buffers use of it.
    pub memory_used_bytes: u64,
    /// Every dataset, by name.
    pub datasets: Vec<DatasetStatus>,
    /// Every member, in order.
    pub members: Vec<MemberStatus>,
    /// What opening found out of the ordinary: damaged checkpoints, a log that could not be read.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What failed since the pool was opened, the latest last; different things only, and not more than the last 64.
    #[serde(default)]
    pub recent_errors: Vec<RecentError>,
}

/// A read or write that failed, or bytes that failed their check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentError {
    /// `media` (the medium failed) or `damage` (the bytes are not what was written).
    pub kind: String,
    /// `tank/pg`; none when it was met by the pool's own work.
    pub dataset: Option<String>,
    /// Path within the dataset, as far as it is known.
    pub path: Option<String>,
    /// Inode.
    pub inode: Option<u64>,
    /// Record of the file, counted from 0; none if it was no file data.
    pub record: Option<u64>,
    /// Where that record begins in the file.
    pub offset_bytes: Option<u64>,
    /// File or block device.
    pub member: String,
    /// The error in words.
    pub message: String,
    /// Times it happened.
    pub count: u64,
    /// Seconds since 1970.
    pub first_seconds: i64,
    /// Seconds since 1970.
    pub last_seconds: i64,
}

impl RecentError {
    fn render(&self, now_seconds: i64) -> String {
        let mut place = self.dataset.clone().unwrap_or_else(|| "pool".to_string());
        match (&self.path, self.inode) {
            (Some(path), _) => place += &format!(":{path}"),
            (None, Some(inode)) => place += &format!(": inode {inode}"),
            (None, None) => {}
        }
        if let (Some(record), Some(offset_bytes)) = (self.record, self.offset_bytes) {
            place += &format!(", record {record} at offset {offset_bytes}");
        }
        let times = match self.count {
            1 => "once".to_string(),
            count => format!("{count} times"),
        };
        let ago = format_duration(u64::try_from(now_seconds - self.last_seconds).unwrap_or(0));
        format!("{} {place} ({times}, {ago} ago): {}", self.kind, self.message)
    }
}

/// Bytes written to media by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaWritten {
    /// The sum of the others.
    pub total: u64,
    /// Packed records of files.
    pub data: u64,
    /// Tree changes in the log, with batch headers.
    pub operations: u64,
    /// Zeros that fill a batch to whole sectors.
    pub padding: u64,
    /// Tree nodes written by checkpoints.
    pub nodes: u64,
    /// Records moved by the cleaner.
    pub cleaning: u64,
    /// Labels and checkpoint slots.
    pub labels: u64,
}

/// One dataset of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DatasetStatus {
    /// `tank/pg`
    pub name: String,
    /// `active`, or `destroying` while its files are being freed.
    pub state: String,
    /// Where it is mounted.
    pub mountpoint: Option<String>,
    /// How the kernel's requests reach the daemon, where it is mounted: `device` or `io_uring`.
    #[serde(default)]
    pub transport: Option<String>,
    /// Size of a record before compression.
    pub recordsize_bytes: u64,
    /// As in the property: `zstd-1`, `lz4`, `none`.
    pub compression: String,
    /// Records before compression.
    pub logical_bytes: u64,
    /// Packed records and their index.
    pub stored_bytes: u64,
    /// `logical_bytes / stored_bytes`; 1 for an empty dataset.
    pub compression_ratio: f64,
    /// Every property, those left at their default too.
    pub properties: BTreeMap<String, String>,
}

/// One member of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemberStatus {
    /// File or block device.
    pub path: String,
    /// As the pool sees it.
    pub state: String,
    /// Reads that failed since the pool was opened.
    pub read_errors: u64,
    /// Writes or flushes that failed since the pool was opened.
    pub write_errors: u64,
    /// Bytes that failed their checksum since the pool was opened.
    pub checksum_errors: u64,
}

/// One mount, as `GET /mounts` and `packstone mount --json` give it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountStatus {
    /// `tank/pg`
    pub dataset: String,
    /// Absolute path.
    pub mountpoint: String,
    /// No writing through this mount.
    pub read_only: bool,
    /// Process id of the daemon.
    pub daemon_pid: u32,
    /// How the kernel's requests reach it: `device` or `io_uring`.
    #[serde(default)]
    pub transport: String,
}

/// What became of a dataset that was to be destroyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetDestroyed {
    /// `tank/pg`
    pub dataset: String,
    /// Records it held, before compression.
    pub logical_bytes: u64,
    /// False while the daemon still frees its records in the background.
    pub complete: bool,
}

/// What became of a mount that was to be taken away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmounted {
    /// `tank/pg`
    pub dataset: String,
    /// Where it was.
    pub mountpoint: String,
    /// Open files kept it busy: it is gone from the tree, and served until the last of them is closed.
    pub lazy: bool,
    /// It was the last mount: the daemon closes the pool and exits.
    pub closing: bool,
}

/// `logical / stored`, with 1 for nothing.
pub fn ratio(logical_bytes: u64, stored_bytes: u64) -> f64 {
    match (logical_bytes, stored_bytes) {
        (0, _) | (_, 0) => 1.0,
        _ => (logical_bytes as f64 / stored_bytes as f64 * 1000.0).round() / 1000.0,
    }
}

impl PoolStatus {
    /// The compact form for people.
    pub fn render(&self) -> String {
        let mut lines = Vec::new();
        let daemon = match self.daemon_pid {
            Some(process_id) => format!(
                " (process {process_id}, up {})",
                format_duration(self.uptime_seconds)
            ),
            None => " (no daemon runs)".to_string(),
        };
        lines.push(format!("pool        {}: {}{daemon}", self.pool, self.state));
        lines.push(format!(
            "space       {} of {} allocated, {} live, {} can be written",
            format_bytes(self.allocated_bytes),
            format_bytes(self.capacity_bytes),
            format_bytes(self.live_bytes),
            format_bytes(self.available_bytes)
        ));
        lines.push(format!(
            "compressed  {} stored as {}, ratio {:.2}",
            format_bytes(self.logical_bytes),
            format_bytes(self.stored_bytes),
            self.compression_ratio
        ));
        let written = &self.media_written_bytes;
        lines.push(format!(
            "written     {}: data {}, operations {}, padding {}, nodes {}, cleaning {}",
            format_bytes(written.total),
            format_bytes(written.data),
            format_bytes(written.operations),
            format_bytes(written.padding),
            format_bytes(written.nodes),
            format_bytes(written.cleaning)
        ));
        lines.push(format!(
            "memory      {} of {} used",
            format_bytes(self.memory_used_bytes),
            format_bytes(self.memory_budget_bytes)
        ));
        for member in &self.members {
            lines.push(format!(
                "member      {}: {}, errors: {} read, {} write, {} checksum",
                member.path, member.state, member.read_errors, member.write_errors, member.checksum_errors
            ));
        }
        for note in &self.notes {
            lines.push(format!("ATTENTION   {note}"));
        }
        let now_seconds = crate::operations::timestamp_now().seconds;
        for error in &self.recent_errors {
            lines.push(format!("error       {}", error.render(now_seconds)));
        }
        if self.state == "read-only" {
            lines.push(format!(
                "ATTENTION   the pool takes no more writes: {}",
                self.stopped.as_deref().unwrap_or("see the log")
            ));
            lines.push(
                "            Unmount, mend the medium, run 'packstone check', mount again.".to_string(),
            );
        }
        let mut text = lines.join("\n") + "\n";
        if !self.datasets.is_empty() {
            text.push('\n');
            text.push_str(&render_datasets(&self.datasets));
        }
        text
    }
}

/// The table of `dataset list`, also the end of `status`.
pub fn render_datasets(datasets: &[DatasetStatus]) -> String {
    let mut table = Table::new(&[
        "dataset",
        ">logical",
        ">stored",
        ">ratio",
        ">recordsize",
        "compression",
        "mountpoint",
    ]);
    for dataset in datasets {
        let place = match (&dataset.mountpoint, dataset.state.as_str()) {
            (Some(mountpoint), _) => match &dataset.transport {
                Some(transport) => format!("{mountpoint} ({transport})"),
                None => mountpoint.clone(),
            },
            (None, "active") => "-".to_string(),
            (None, state) => format!("({state})"),
        };
        table.row(vec![
            dataset.name.clone(),
            format_bytes(dataset.logical_bytes),
            format_bytes(dataset.stored_bytes),
            format!("{:.2}", dataset.compression_ratio),
            format_size_property(dataset.recordsize_bytes),
            dataset.compression.clone(),
            place,
        ]);
    }
    table.render()
}

/// `8K` rather than `8192 B`, as the property is typed.
fn format_size_property(size_bytes: u64) -> String {
    match size_bytes {
        size if size != 0 && size % (1 << 20) == 0 => format!("{}M", size >> 20),
        size if size != 0 && size % (1 << 10) == 0 => format!("{}K", size >> 10),
        size => size.to_string(),
    }
}
