//! The changes of one tree: a sorted map from keys to new values or deletions that can be copied in an instant.
//!
//! A B+tree in memory whose nodes are shared between copies. A writer that alone has a node changes it in place; one that
//! shares it with a copy (a [`crate::View`]) makes its own first, so a copy costs as much as what is written after it.
//! Nothing is ever taken out: a deletion is an entry too, and the whole map is dropped after a checkpoint.
//!
//! A leaf keeps the first eight bytes of each key beside the pointer to the rest, so that most comparisons of a look-up
//! touch no other memory. An [`Item`] is one allocation, shared by the transaction, the overlay and all copies.

mod walk;

pub(crate) use walk::Walk;

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

/// Entries of a leaf and children of an inner node, at most.
const ENTRIES_MAX: usize = 64;

/// A key with its new value, or with the news that it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// The key, and the value behind it.
    bytes: Arc<[u8]>,
    key_bytes: u32,
    is_put: bool,
}

impl Item {
    /// `buffer` is any memory that may be used to put the two together.
    pub(crate) fn put(key: &[u8], value: &[u8], buffer: &mut Vec<u8>) -> Item {
        buffer.clear();
        buffer.extend_from_slice(key);
        buffer.extend_from_slice(value);
        Item {
            bytes: Arc::from(buffer.as_slice()),
            key_bytes: key.len() as u32,
            is_put: true,
        }
    }

    pub(crate) fn delete(key: &[u8]) -> Item {
        Item {
            bytes: Arc::from(key),
            key_bytes: key.len() as u32,
            is_put: false,
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[..self.key_bytes as usize]
    }

    /// `None`: the key is deleted.
    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.is_put.then(|| &self.bytes[self.key_bytes as usize..])
    }

    /// Bytes of key and value.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// The first bytes of a key as a number: keys that differ there compare as these numbers do.
fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(8);
    bytes[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(bytes)
}

#[derive(Clone, Debug)]
struct Entry {
    prefix: u64,
    item: Item,
}

/// The lowest key below a child, when the child came to be.
#[derive(Clone, Debug)]
struct Separator {
    prefix: u64,
    key: Arc<[u8]>,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Vec<Entry>),
    /// A child for each separator; everything below the first separator is in the first child too.
    Inner(Vec<(Separator, Arc<Node>)>),
}

/// A sorted map of changes. A clone is a snapshot: it costs nothing and never changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct TreeChanges {
    root: Option<Arc<Node>>,
}

fn compare(left: (u64, &[u8]), right: (u64, &[u8])) -> Ordering {
    left.0.cmp(&right.0).then_with(|| left.1.cmp(right.1))
}

/// Position of a key among sorted entries, or where it would be.
fn search(entries: &[Entry], prefix: u64, key: &[u8]) -> Result<usize, usize> {
    // Keys often come in order, so the last is asked first.
    if let Some(last) = entries.last()
        && compare((last.prefix, last.item.key()), (prefix, key)) == Ordering::Less
    {
        return Err(entries.len());
    }
    entries.binary_search_by(|entry| compare((entry.prefix, entry.item.key()), (prefix, key)))
}

/// The child whose range holds a key.
fn child_for(children: &[(Separator, Arc<Node>)], prefix: u64, key: &[u8]) -> usize {
    children
        .partition_point(|(separator, _)| {
            compare((separator.prefix, &separator.key), (prefix, key)) != Ordering::Greater
        })
        .saturating_sub(1)
}

/// What an insertion leaves to its caller.
struct Inserted {
    replaced: Option<Item>,
    /// A node to be put to the right of the one inserted into.
    split: Option<(Separator, Arc<Node>)>,
}

impl TreeChanges {
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Item> {
        let prefix = prefix(key);
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Inner(children) => node = &children[child_for(children, prefix, key)].1,
                Node::Leaf(entries) => {
                    let at = search(entries, prefix, key).ok()?;
                    return Some(&entries[at].item);
                }
            }
        }
    }

    /// Returns what was said of the key before.
    pub(crate) fn insert(&mut self, item: Item) -> Option<Item> {
        let entry = Entry {
            prefix: prefix(item.key()),
            item,
        };
        let root = self
            .root
            .get_or_insert_with(|| Arc::new(Node::Leaf(Vec::with_capacity(ENTRIES_MAX))));
        let inserted = insert_below(root, entry);
        if let Some(right) = inserted.split {
            let left = (root.separator(), root.clone());
            let mut children = Vec::with_capacity(ENTRIES_MAX);
            children.extend([left, right]);
            *root = Arc::new(Node::Inner(children));
        }
        inserted.replaced
    }

    /// Entries of a range in key order, or from its end.
    pub(crate) fn walk<'a>(
        &'a self,
        from: Bound<&'a [u8]>,
        to: Bound<&'a [u8]>,
        backwards: bool,
    ) -> Walk<'a> {
        if backwards {
            Walk::descending(self.root.as_deref(), from, to)
        } else {
            Walk::ascending(self.root.as_deref(), from, to)
        }
    }

    /// All entries in ascending order.
    pub(crate) fn iter(&self) -> Walk<'_> {
        self.walk(Bound::Unbounded, Bound::Unbounded, false)
    }
}

impl Node {
    /// What leads to this node from a parent.
    fn separator(&self) -> Separator {
        match self {
            Node::Leaf(entries) => entries.first().map_or_else(
                || Separator {
                    prefix: 0,
                    key: Arc::from([]),
                },
                |entry| Separator {
                    prefix: entry.prefix,
                    key: Arc::from(entry.item.key()),
                },
            ),
            Node::Inner(children) => children[0].0.clone(),
        }
    }
}

fn insert_below(node: &mut Arc<Node>, entry: Entry) -> Inserted {
    let done = |replaced| Inserted {
        replaced,
        split: None,
    };
    match Arc::make_mut(node) {
        Node::Leaf(entries) => match search(entries, entry.prefix, entry.item.key()) {
            Ok(at) => done(Some(std::mem::replace(&mut entries[at].item, entry.item))),
            Err(at) if entries.len() < ENTRIES_MAX => {
                entries.insert(at, entry);
                done(None)
            }
            Err(at) => {
                let mut right = split(entries, at);
                match at.checked_sub(entries.len()) {
                    Some(at) if at > 0 || entries.len() == ENTRIES_MAX => right.insert(at, entry),
                    _ => entries.insert(at, entry),
                }
                let right = Node::Leaf(right);
                Inserted {
                    replaced: None,
                    split: Some((right.separator(), Arc::new(right))),
                }
            }
        },
        Node::Inner(children) => {
            let at = child_for(children, entry.prefix, entry.item.key());
            let inserted = insert_below(&mut children[at].1, entry);
            let Some(new) = inserted.split else {
                return inserted;
            };
            let at = at + 1;
            if children.len() < ENTRIES_MAX {
                children.insert(at, new);
                return done(inserted.replaced);
            }
            let mut right = split(children, at);
            match at.checked_sub(children.len()) {
                Some(at) => right.insert(at, new),
                None => children.insert(at, new),
            }
            let right = Node::Inner(right);
            Inserted {
                replaced: inserted.replaced,
                split: Some((right.separator(), Arc::new(right))),
            }
        }
    }
}

/// Takes the right part off a full node: half of it, or nothing when the next entry comes last, so that what is filled in
/// order stays full.
fn split<T>(full: &mut Vec<T>, at: usize) -> Vec<T> {
    let keep = if at == full.len() {
        full.len()
    } else {
        full.len() / 2
    };
    let mut right = Vec::with_capacity(ENTRIES_MAX);
    right.extend(full.drain(keep..));
    right
}

#[cfg(test)]
mod tests;
