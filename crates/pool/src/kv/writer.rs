//! The one writer of a store: changes that are collected, seen by itself, and committed together.

use crate::changes::{Item, TreeChanges};
use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pool;
use crate::transaction::{KEY_BYTES_MAX, Operation, Transaction, VALUE_BYTES_MAX};
use crate::types::{CommitSequence, TreeId};
use crate::view::{Range, View};
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// When a commit is safe from a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When [`Writer::commit`] returns.
    Durable,
    /// With the next durable commit or [`super::Store::sync`].
    Buffered,
}

/// A write transaction. Nothing is seen by others, and nothing is kept, before [`Writer::commit`].
pub struct Writer<'s> {
    pool: &'s Arc<Pool>,
    transaction: Transaction,
    /// The changes so far by key; made when something is read for the first time.
    own: Option<BTreeMap<TreeId, TreeChanges>>,
    /// What was committed before, for ranges.
    view: Option<View>,
    _alone: MutexGuard<'s, ()>,
}

impl<'s> Writer<'s> {
    pub(super) fn new(pool: &'s Arc<Pool>, alone: MutexGuard<'s, ()>) -> Writer<'s> {
        Writer {
            pool,
            transaction: pool.begin(),
            own: None,
            view: None,
            _alone: alone,
        }
    }

    /// Sets a key.
    ///
    /// Errors: `InvalidInput` for a key longer than [`KEY_BYTES_MAX`] or a value longer than [`VALUE_BYTES_MAX`]; the
    /// transaction is as before.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(invalid(format!(
                "a value of {} bytes is longer than {VALUE_BYTES_MAX}: spread it over several keys",
                value.len()
            )));
        }
        self.transaction.put(tree, key, value);
        self.note_own();
        Ok(())
    }

    /// Removes a key; no error when there is none.
    ///
    /// Errors: `InvalidInput` for a key longer than [`KEY_BYTES_MAX`].
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        check_key(key)?;
        self.transaction.delete(tree, key);
        self.note_own();
        Ok(())
    }

    /// The value of a key, as this transaction has it.
    pub fn get(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let own = self.own().get(&tree).and_then(|changes| changes.get(key));
        match own {
            Some(item) => Ok(item.value().map(<[u8]>::to_vec)),
            None => self.pool.get(tree, key),
        }
    }

    /// The pairs of a range in key order, as this transaction has them now; also read from its end.
    pub fn range(&mut self, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Range<'_> {
        let own = self.own().get(&tree).cloned();
        // Nobody else commits to these trees while this writer is open, so a view of any moment since is the same.
        if self.view.as_ref().is_some_and(View::has_expired) {
            self.view = None;
        }
        let view = self.view.get_or_insert_with(|| self.pool.view());
        view.range_below(tree, from, to, own)
    }

    /// For a transaction that makes room: admitted when the store is full.
    pub fn may_use_reserve(&mut self) {
        self.transaction.may_use_reserve();
    }

    /// Makes the changes visible, all at once, and durable if asked for. An empty transaction that is durable makes
    /// everything before it durable.
    ///
    /// Errors, with nothing changed: `NoSpace` when the store is full, `ReadOnly` after an earlier failure. When the flush fails
    /// now (`Unavailable`), what was committed is visible, but whether a crash keeps it is not known, and the store takes no
    /// further commit.
    pub fn commit(self, durability: Durability) -> Result<CommitSequence> {
        let commit = if self.transaction.is_empty() {
            self.pool.last_commit()
        } else {
            self.pool.commit(self.transaction)?
        };
        if durability == Durability::Durable {
            self.pool.sync(commit)?;
        }
        // The commit stands. What fails here fails again at the next one, or is only put off.
        let _ = self.pool.shorten_log();
        Ok(commit)
    }

    fn own(&mut self) -> &BTreeMap<TreeId, TreeChanges> {
        let operations = &self.transaction.operations;
        self.own.get_or_insert_with(|| {
            let mut own: BTreeMap<TreeId, TreeChanges> = BTreeMap::new();
            for operation in operations {
                if let Operation::Change(tree, item) = operation {
                    own.entry(*tree).or_default().insert(item.clone());
                }
            }
            own
        })
    }

    /// Keeps the changes by key up to date with what was just added.
    fn note_own(&mut self) {
        if let (Some(own), Some(Operation::Change(tree, item))) =
            (&mut self.own, self.transaction.operations.last())
        {
            own.entry(*tree).or_default().insert(Item::clone(item));
        }
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(invalid(format!(
            "a key of {} bytes is longer than {KEY_BYTES_MAX}: use a hash of it",
            key.len()
        )));
    }
    Ok(())
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, "change key", message)
}
