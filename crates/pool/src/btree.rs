//! Copy-on-write B+trees: looking up and scanning. Changing them is in `btree/apply.rs`.
//!
//! One implementation serves two kinds of trees, told apart by what a pointer is ([`NodeStore::Pointer`]): dataset trees
//! point to nodes by record id, so that a node can move or be rewritten without its parent noticing; the record table
//! points by location, for it is what resolves record ids.
//!
//! Invariants: all leaves have level 0 and a child's level is one less than its parent's, checked at every step, so that
//! no damaged pointer can lead into a loop. The keys of a node lie between the key that leads to it and the next one
//! of its parent, checked wherever more than one path is followed, so that a node to which many pointers lead is met once.

mod apply;

pub(crate) use apply::{Change, NodeSink, apply};

use crate::encoding::Malformed;
use crate::error::{Error, Result};
use crate::node::{LEVELS_MAX, Node, Pair};
use std::ops::Bound;
use std::sync::Arc;

/// Where nodes come from.
pub(crate) trait NodeStore {
    /// Names a node.
    type Pointer: Clone + std::fmt::Debug;
    fn decode_pointer(value: &[u8]) -> std::result::Result<Self::Pointer, Malformed>;
    fn encode_pointer(pointer: &Self::Pointer) -> Vec<u8>;
    fn load(&self, pointer: &Self::Pointer) -> Result<Arc<Node>>;
}

/// The top of a tree that has at least one pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Root<P> {
    pub pointer: P,
    pub level: u8,
}

/// Loads a node and checks that it is where it claims to be.
pub(crate) fn load_level<S: NodeStore>(store: &S, pointer: &S::Pointer, level: u8) -> Result<Arc<Node>> {
    let node = store.load(pointer)?;
    if node.level() != level || level > LEVELS_MAX {
        return Err(Error::damaged(
            "read tree node",
            format!(
                "node {pointer:?} has level {} where {level} was due",
                node.level()
            ),
        ));
    }
    Ok(node)
}

/// Keys that may lie below a pointer: from `low` on, and below `high`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bounds<'a> {
    low: Option<&'a [u8]>,
    high: Option<&'a [u8]>,
}

impl<'a> Bounds<'a> {
    /// Bounds of a child. The first key of a node counts as lower than anything.
    pub(crate) fn of_child(self, node: &'a Node, at: usize) -> Bounds<'a> {
        Bounds {
            low: if at == 0 { self.low } else { Some(node.key(at)) },
            high: if at + 1 < node.len() {
                Some(node.key(at + 1))
            } else {
                self.high
            },
        }
    }

    fn hold(self, node: &Node) -> bool {
        node.is_empty()
            || (self.low.is_none_or(|low| low <= node.key(0))
                && self.high.is_none_or(|high| node.key(node.len() - 1) < high))
    }
}

/// Loads a node and checks that it and its keys are where they claim to be.
pub(crate) fn load_within<S: NodeStore>(
    store: &S,
    pointer: &S::Pointer,
    level: u8,
    bounds: Bounds<'_>,
) -> Result<Arc<Node>> {
    let node = load_level(store, pointer, level)?;
    if !bounds.hold(&node) {
        return Err(Error::damaged(
            "read tree node",
            format!("node {pointer:?} holds keys that belong elsewhere"),
        ));
    }
    Ok(node)
}

pub(crate) fn child_pointer<S: NodeStore>(node: &Node, at: usize) -> Result<S::Pointer> {
    S::decode_pointer(node.value(at)).map_err(|m| Error::malformed("read tree node", "a child pointer", m))
}

/// The value of `key`.
pub(crate) fn lookup<S: NodeStore>(
    store: &S,
    root: Option<&Root<S::Pointer>>,
    key: &[u8],
) -> Result<Option<Vec<u8>>> {
    let Some(root) = root else { return Ok(None) };
    let (mut pointer, mut level) = (root.pointer.clone(), root.level);
    loop {
        let node = load_level(store, &pointer, level)?;
        if level == 0 {
            return Ok(node.search(key).ok().map(|at| node.value(at).to_vec()));
        }
        pointer = child_pointer::<S>(&node, node.child_for(key))?;
        level -= 1;
    }
}

/// A range of keys, with a bound on how many pairs are wanted.
#[derive(Clone, Copy)]
pub(crate) struct Window<'a> {
    pub from: Bound<&'a [u8]>,
    pub to: Bound<&'a [u8]>,
    pub limit: usize,
}

fn above(key: &[u8], from: Bound<&[u8]>) -> bool {
    match from {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    }
}

fn below(key: &[u8], to: Bound<&[u8]>) -> bool {
    match to {
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
        Bound::Unbounded => true,
    }
}

/// At most `window.limit` pairs in ascending order.
pub(crate) fn scan<S: NodeStore>(
    store: &S,
    root: Option<&Root<S::Pointer>>,
    window: Window<'_>,
) -> Result<Vec<Pair>> {
    let mut out = Vec::new();
    if let Some(root) = root {
        scan_below(
            store,
            (&root.pointer, root.level),
            Bounds::default(),
            window,
            &mut out,
        )?;
    }
    Ok(out)
}

/// Returns false once nothing further can be in the window.
fn scan_below<S: NodeStore>(
    store: &S,
    (pointer, level): (&S::Pointer, u8),
    bounds: Bounds<'_>,
    window: Window<'_>,
    out: &mut Vec<Pair>,
) -> Result<bool> {
    let node = load_within(store, pointer, level, bounds)?;
    let first = match window.from {
        Bound::Unbounded => 0,
        Bound::Included(key) | Bound::Excluded(key) if level > 0 => node.child_for(key),
        Bound::Included(key) | Bound::Excluded(key) => node.search(key).unwrap_or_else(|at| at),
    };
    for at in first..node.len() {
        if out.len() >= window.limit || (!below(node.key(at), window.to) && (level == 0 || at > 0)) {
            return Ok(false);
        }
        if level > 0 {
            let child = child_pointer::<S>(&node, at)?;
            let bounds = bounds.of_child(&node, at);
            if !scan_below(store, (&child, level - 1), bounds, window, out)? {
                return Ok(false);
            }
        } else if above(node.key(at), window.from) {
            out.push((node.key(at).to_vec(), node.value(at).to_vec()));
        }
    }
    Ok(true)
}

/// At most `window.limit` pairs in descending order, from the end of the window.
pub(crate) fn scan_back<S: NodeStore>(
    store: &S,
    root: Option<&Root<S::Pointer>>,
    window: Window<'_>,
) -> Result<Vec<Pair>> {
    let mut out = Vec::new();
    if let Some(root) = root {
        scan_back_below(
            store,
            (&root.pointer, root.level),
            Bounds::default(),
            window,
            &mut out,
        )?;
    }
    Ok(out)
}

fn scan_back_below<S: NodeStore>(
    store: &S,
    (pointer, level): (&S::Pointer, u8),
    bounds: Bounds<'_>,
    window: Window<'_>,
    out: &mut Vec<Pair>,
) -> Result<bool> {
    let node = load_within(store, pointer, level, bounds)?;
    let end = match window.to {
        Bound::Unbounded => node.len(),
        Bound::Included(key) | Bound::Excluded(key) if level > 0 => (node.child_for(key) + 1).min(node.len()),
        Bound::Included(key) | Bound::Excluded(key) => node.search(key).map_or_else(|at| at, |at| at + 1),
    };
    for at in (0..end).rev() {
        if out.len() >= window.limit {
            return Ok(false);
        }
        if level > 0 {
            let child = child_pointer::<S>(&node, at)?;
            let bounds = bounds.of_child(&node, at);
            if !scan_back_below(store, (&child, level - 1), bounds, window, out)? {
                return Ok(false);
            }
        } else if !above(node.key(at), window.from) {
            return Ok(false);
        } else if below(node.key(at), window.to) {
            out.push((node.key(at).to_vec(), node.value(at).to_vec()));
        }
    }
    Ok(true)
}

/// Calls `visit` for every node of the tree, parents first, with its pointer.
pub(crate) fn walk<S: NodeStore>(
    store: &S,
    root: Option<&Root<S::Pointer>>,
    visit: &mut dyn FnMut(&S::Pointer, &Node) -> Result<()>,
) -> Result<()> {
    root.map_or(Ok(()), |root| {
        walk_below(store, &root.pointer, root.level, Bounds::default(), visit)
    })
}

fn walk_below<S: NodeStore>(
    store: &S,
    pointer: &S::Pointer,
    level: u8,
    bounds: Bounds<'_>,
    visit: &mut dyn FnMut(&S::Pointer, &Node) -> Result<()>,
) -> Result<()> {
    let node = load_within(store, pointer, level, bounds)?;
    visit(pointer, &node)?;
    for at in 0..if level > 0 { node.len() } else { 0 } {
        let child = child_pointer::<S>(&node, at)?;
        walk_below(store, &child, level - 1, bounds.of_child(&node, at), visit)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
