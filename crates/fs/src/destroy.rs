//! Emptying a dataset that is being destroyed, in bounded transactions.
//!
//! The state `Destroying` is durable before the first step, so that a crash leaves a dataset that can only be destroyed
//! further. Keys go from the front: the superblock first, so not even a program that ignored the state could mount it.

use crate::error::{fail, from_pool};
use crate::layout::{decode_extent, keys};
use crate::staged::FreedOnce;
use crate::types::{ErrorKind, Result};
use packstone_pool::{DatasetState, ErrorKind as PoolErrorKind, Failpoint, Pool};
use std::ops::Bound;

/// Keys removed in one step.
const KEYS_PER_STEP: usize = 1024;

/// Frees the records and removes the keys of a bounded part of a dataset in state `Destroying`; when none is left, removes
/// the dataset. True while more waits. `Busy` for a dataset that is not being destroyed.
pub fn destroy_step(pool: &Pool, dataset: &str) -> Result<bool> {
    const OPERATION: &str = "destroy dataset";
    let found = pool.dataset(dataset).map_err(from_pool(OPERATION))?;
    if found.state != DatasetState::Destroying {
        return fail(
            ErrorKind::Busy,
            OPERATION,
            format!("'{dataset}' is in use; it must be marked for destruction first"),
        );
    }
    let pairs = pool
        .scan(found.tree, Bound::Unbounded, Bound::Unbounded, KEYS_PER_STEP)
        .map_err(from_pool(OPERATION))?;
    if pairs.is_empty() {
        pool.remove_dataset(dataset).map_err(from_pool(OPERATION))?;
        return Ok(false);
    }
    let mut transaction = pool.begin();
    transaction.may_use_reserve();
    let mut freed = FreedOnce::default();
    for (key, value) in &pairs {
        // Pairs of a key-value tree may look like anything, and own no records.
        if !found.is_key_value()
            && let Some(keys::Key::Extent(ino, index)) = keys::parse(key)
        {
            let record = decode_extent(value).ok();
            match record.map(|id| (id, pool.packed_bytes(id))) {
                Some((id, Ok(1..))) if freed.is_first(id) => transaction.free(found.tree, id),
                Some((_, Err(failed))) if failed.kind() != PoolErrorKind::NotFound => {
                    return Err(from_pool(OPERATION)(failed));
                }
                // Destroying must end also where something is damaged; `check` finds what is left over.
                _ => tracing::error!(ino = ino.0, index, "a record of a destroyed dataset is missing"),
            }
        }
        transaction.delete(found.tree, key);
    }
    pool.commit(transaction).map_err(from_pool(OPERATION))?;
    pool.reach(Failpoint::BetweenPieces)
        .map_err(from_pool(OPERATION))?;
    Ok(true)
}
