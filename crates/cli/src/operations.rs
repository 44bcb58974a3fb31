//! What can be done with an open pool: the same code runs in the daemon and in a command that opens the pool itself.
//!
//! Functions take the pool and the table of mounts (empty outside the daemon) and return facts. They never print.
//! Destroying a dataset is two steps: it is marked, which is durable, and then emptied piece by piece; an interrupted
//! destroy is taken up by the next daemon, or by asking again.

use crate::dataset_properties;
use crate::facts::{
    DatasetDestroyed, DatasetStatus, MediaWritten, MemberStatus, PoolStatus, RecentError, ratio,
};
use crate::failure::Failure;
use crate::names::{DatasetName, PoolName, parse_size};
use crate::output::format_bytes;
use crate::pool_properties;
use anyhow::Context;
use packstone_fs::{Caller, FileSystem, Ino, MountOptions};
use packstone_pool::{Dataset, DatasetState, Incident, IncidentKind, Pool, PoolState};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

/// Dataset (without the pool's name) to mountpoint.
pub type MountTable = BTreeMap<String, String>;

/// Every figure of the pool; the caller fills in what only a daemon knows.
pub fn status(pool: &Pool, name: &PoolName, mounts: &MountTable) -> anyhow::Result<PoolStatus> {
    let statistics = pool.statistics();
    let written = statistics.written;
    let total = written.data
        + written.operations
        + written.padding
        + written.nodes
        + written.cleaning
        + written.labels;
    let state = match statistics.state {
        PoolState::Open => "open",
        PoolState::ReadOnly => "read-only",
        PoolState::Closed => "closed",
    };
    Ok(PoolStatus {
        pool: name.to_string(),
        state: state.to_string(),
        stopped: statistics.stopped,
        daemon_pid: None,
        uptime_seconds: 0,
        capacity_bytes: statistics.capacity_bytes,
        allocated_bytes: statistics.allocated_bytes,
        live_bytes: statistics.live_bytes,
        free_bytes: statistics.free_bytes,
        available_bytes: statistics.available_bytes,
        logical_bytes: statistics.logical_bytes,
        stored_bytes: statistics.stored_bytes,
        index_bytes: statistics.index_bytes,
        compression_ratio: ratio(statistics.logical_bytes, statistics.stored_bytes),
        records: statistics.records,
        media_written_bytes: MediaWritten {
            total,
            data: written.data,
            operations: written.operations,
            padding: written.padding,
            nodes: written.nodes,
            cleaning: written.cleaning,
            labels: written.labels,
        },
        flushes: statistics.flushes,
        checkpoints: statistics.checkpoints,
        requests: BTreeMap::new(),
        memory_budget_bytes: statistics.memory_budget_bytes,
        memory_used_bytes: statistics.memory_used_bytes,
        datasets: list_datasets(pool, name, mounts)?,
        members: statistics.members.into_iter().map(member_status).collect(),
        notes: pool.notes(),
        recent_errors: pool
            .incidents()
            .into_iter()
            .map(|incident| recent_error(name, incident))
            .collect(),
    })
}

fn recent_error(name: &PoolName, incident: Incident) -> RecentError {
    RecentError {
        kind: match incident.kind {
            IncidentKind::Media => "media".to_string(),
            IncidentKind::Damage => "damage".to_string(),
        },
        dataset: incident.dataset.map(|dataset| format!("{name}/{dataset}")),
        path: incident.path,
        inode: incident.ino,
        record: incident.record,
        offset_bytes: incident.offset_bytes,
        member: incident.member,
        message: incident.message,
        count: incident.count,
        first_seconds: incident.first_seconds,
        last_seconds: incident.last_seconds,
    }
}

/// Notes for `status` that background work failed, if media or damage made it fail.
pub fn note_failed_work(pool: &Pool, work: &str, error: &anyhow::Error) {
    use packstone_pool::ErrorKind as Kind;
    let mut causes = error.chain();
    let pool_error = causes.find_map(|cause| cause.downcast_ref::<packstone_pool::Error>());
    let kind = match pool_error.map(packstone_pool::Error::kind) {
        Some(Kind::Unavailable) => IncidentKind::Media,
        Some(Kind::Damaged) => IncidentKind::Damage,
        _ => return,
    };
    let now_seconds = timestamp_now().seconds;
    pool.note_incident(Incident {
        kind,
        dataset: None,
        path: None,
        ino: None,
        record: None,
        offset_bytes: None,
        member: pool_error
            .and_then(packstone_pool::Error::member)
            .unwrap_or_default()
            .to_string(),
        message: format!("{work}: {}", crate::failure::describe(error)),
        count: 1,
        first_seconds: now_seconds,
        last_seconds: now_seconds,
    });
}

fn member_status(member: packstone_pool::MemberStatistics) -> MemberStatus {
    MemberStatus {
        path: member.path,
        state: member.state,
        read_errors: member.read_errors,
        write_errors: member.write_errors,
        checksum_errors: member.checksum_errors,
    }
}

/// Every dataset, by name.
pub fn list_datasets(
    pool: &Pool,
    name: &PoolName,
    mounts: &MountTable,
) -> anyhow::Result<Vec<DatasetStatus>> {
    let datasets = pool.datasets().context("list the datasets")?;
    Ok(datasets
        .iter()
        .map(|dataset| dataset_status(pool, name, dataset, mounts))
        .collect())
}

/// One dataset.
pub fn dataset(pool: &Pool, name: &DatasetName, mounts: &MountTable) -> anyhow::Result<DatasetStatus> {
    Ok(dataset_status(pool, &name.pool, &find(pool, name)?, mounts))
}

fn dataset_status(pool: &Pool, name: &PoolName, dataset: &Dataset, mounts: &MountTable) -> DatasetStatus {
    let usage = pool.tree_usage(dataset.tree);
    let properties = dataset_properties::with_defaults(&dataset.properties);
    DatasetStatus {
        name: format!("{name}/{}", dataset.name),
        state: match dataset.state {
            DatasetState::Active => "active".to_string(),
            DatasetState::Destroying => "destroying".to_string(),
        },
        mountpoint: mounts.get(&dataset.name).cloned(),
        transport: None,
        recordsize_bytes: properties
            .get("recordsize")
            .and_then(|size| parse_size(size).ok())
            .unwrap_or(0),
        compression: properties.get("compression").cloned().unwrap_or_default(),
        logical_bytes: usage.logical_bytes,
        stored_bytes: usage.stored_bytes,
        compression_ratio: ratio(usage.logical_bytes, usage.stored_bytes),
        properties,
    }
}

fn find(pool: &Pool, name: &DatasetName) -> anyhow::Result<Dataset> {
    pool.dataset(&name.dataset).map_err(|error| match error.kind() {
        packstone_pool::ErrorKind::NotFound => Failure::not_found(format!(
            "there is no dataset {name}; 'packstone dataset list {}' shows what there is",
            name.pool
        )),
        _ => error.into(),
    })
}

/// The dataset, if it can be mounted or changed.
pub fn find_active(pool: &Pool, name: &DatasetName) -> anyhow::Result<Dataset> {
    let dataset = find(pool, name)?;
    match dataset.state {
        DatasetState::Active => Ok(dataset),
        DatasetState::Destroying => Err(Failure::busy(format!("{name} is being destroyed"))),
    }
}

/// Makes an empty dataset; the properties are as the user typed them.
pub fn create_dataset(
    pool: &Pool,
    name: &DatasetName,
    properties: &BTreeMap<String, String>,
) -> anyhow::Result<DatasetStatus> {
    let properties = dataset_properties::validate(properties)?;
    match pool.dataset(&name.dataset) {
        Ok(_) => return Err(Failure::refused(format!("{name} exists already"))),
        Err(error) if error.kind() == packstone_pool::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let dataset = pool
        .create_dataset(&name.dataset, properties)
        .with_context(|| format!("create {name}"))?;
    pool.sync(pool.last_commit())
        .with_context(|| format!("make {name} durable"))?;
    Ok(dataset_status(pool, &name.pool, &dataset, &MountTable::new()))
}

/// Changes some properties of a dataset and leaves the others alone.
pub fn set_dataset_properties(
    pool: &Pool,
    name: &DatasetName,
    changes: &BTreeMap<String, String>,
    mounts: &MountTable,
) -> anyhow::Result<DatasetStatus> {
    let changes = dataset_properties::validate(changes)?;
    let mut properties = find_active(pool, name)?.properties;
    properties.extend(changes);
    pool.set_dataset_properties(&name.dataset, properties)
        .with_context(|| format!("set properties of {name}"))?;
    pool.sync(pool.last_commit())
        .with_context(|| format!("make the properties of {name} durable"))?;
    dataset(pool, name, mounts)
}

/// Pool-wide properties with their defaults.
pub fn pool_properties(pool: &Pool) -> anyhow::Result<BTreeMap<String, String>> {
    Ok(pool_properties::with_defaults(&pool.properties()?))
}

/// Changes some properties of the pool and leaves the others alone.
pub fn set_pool_properties(
    pool: &Pool,
    changes: &BTreeMap<String, String>,
) -> anyhow::Result<BTreeMap<String, String>> {
    let changes = pool_properties::validate(changes)?;
    let mut properties = pool.properties()?;
    properties.extend(changes);
    pool.set_properties(properties)
        .context("set properties of the pool")?;
    pool.sync(pool.last_commit())
        .context("make the properties of the pool durable")?;
    pool_properties(pool)
}

/// Marks a dataset for destruction once nothing speaks against it. Its records are still there: see [`destroy_step`].
pub fn begin_destroy(
    pool: &Arc<Pool>,
    name: &DatasetName,
    force: bool,
    mounts: &MountTable,
) -> anyhow::Result<DatasetDestroyed> {
    let dataset = find(pool, name)?;
    if let Some(mountpoint) = mounts.get(&name.dataset) {
        return Err(Failure::busy(format!(
            "{name} is mounted on {mountpoint}; run 'packstone unmount {mountpoint}' first"
        )));
    }
    let logical_bytes = pool.tree_usage(dataset.tree).logical_bytes;
    let destroyed = DatasetDestroyed {
        dataset: name.to_string(),
        logical_bytes,
        complete: false,
    };
    if dataset.state == DatasetState::Destroying {
        return Ok(destroyed);
    }
    if !force && holds_files(pool, &dataset) {
        return Err(Failure::refused(format!(
            "{name} is not empty: {} of files would be lost; add --force to destroy them",
            format_bytes(logical_bytes)
        )));
    }
    pool.mark_dataset_destroying(&name.dataset)
        .with_context(|| format!("mark {name} for destruction"))?;
    pool.sync(pool.last_commit())
        .with_context(|| format!("mark {name} for destruction"))?;
    Ok(destroyed)
}

/// Frees a piece of what a marked dataset held and forgets it when nothing is left; true while more waits.
pub fn destroy_step(pool: &Pool, dataset: &str) -> anyhow::Result<bool> {
    packstone_fs::destroy_step(pool, dataset).with_context(|| format!("empty dataset '{dataset}'"))
}

/// Whether there is more than an empty root directory. A file system that cannot be opened counts as holding files.
fn holds_files(pool: &Arc<Pool>, dataset: &Dataset) -> bool {
    match pool.scan(dataset.tree, Bound::Unbounded, Bound::Unbounded, 1) {
        Ok(pairs) if pairs.is_empty() => return false,
        Ok(_) => {}
        Err(_) => return true,
    }
    let options = MountOptions { read_only: true };
    let opened = FileSystem::open(pool.clone(), &dataset.name, options, &caller_now());
    // `.` and `..` are always there.
    match opened.and_then(|file_system| file_system.read_directory(Ino::ROOT, 0, 3)) {
        Ok(entries) => entries.len() > 2,
        Err(_) => true,
    }
}

/// This process as the one who asks, now.
pub fn caller_now() -> Caller {
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        umask: 0o022,
        now: timestamp_now(),
    }
}

/// The wall clock; a clock before 1970 counts as 1970.
pub fn timestamp_now() -> packstone_fs::Timestamp {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    packstone_fs::Timestamp {
        seconds: since.as_secs() as i64,
        nanoseconds: since.subsec_nanos(),
    }
}
