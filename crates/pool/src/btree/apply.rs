//! Applying a sorted run of changes to a tree in one pass.
//!
//! Every node on the way to a change is visited once, whatever the number of changes below it; a node is rewritten only
//! if its pairs change. Nodes that shrink below [`NODE_BYTES_MIN`] are merged with a neighbour under the same parent,
//! nodes that outgrow [`NODE_BYTES_MAX`] are split: evenly, or (when pairs came only at the end, as in the record table)
//! so that the left part stays full.

use super::{Bounds, NodeStore, Root, child_pointer, load_level, load_within};
use crate::error::{Error, Result};
use crate::node::{NODE_BYTES_MAX, NODE_BYTES_MIN, Node, pair_bytes};
use std::borrow::Cow;

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'c> {
    Put(&'c [u8]),
    Delete,
    /// Nothing, but the leaf that holds the key and its ancestors are to be written anew (they lie where room is wanted).
    Touch,
}

/// A [`NodeStore`] that can write.
pub(crate) trait NodeSink: NodeStore {
    /// Writes a node. `previous` is where its former version lies, which is given up by this call; a store may write the
    /// node under the same pointer.
    fn write(&mut self, node: Node, previous: Option<Self::Pointer>) -> Result<Self::Pointer>;
    /// The node is no longer part of the tree.
    fn release(&mut self, pointer: Self::Pointer) -> Result<()>;
}

/// A subtree on the way up: as it was, or a new node not written yet (a neighbour may still be merged into it).
enum Piece<P> {
    Kept(P),
    New { node: Node, previous: Option<P> },
}

/// A piece with the lowest key that leads to it.
struct Placed<P> {
    key: Vec<u8>,
    piece: Piece<P>,
}

/// Applies `changes`, sorted by key without repeats, and returns the new top.
pub(crate) fn apply<S: NodeSink>(
    sink: &mut S,
    root: Option<Root<S::Pointer>>,
    changes: &[(&[u8], Change<'_>)],
) -> Result<Option<Root<S::Pointer>>> {
    assert!(
        changes.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "changes must be sorted by key"
    );
    let (mut level, mut pieces) = match root {
        Some(root) if changes.is_empty() => return Ok(Some(root)),
        Some(root) => (
            root.level,
            rebuild(sink, (root.pointer, root.level), Bounds::default(), changes)?,
        ),
        None => (0, place(merge_leaf(&Node::new(0), changes), None)),
    };
    while pieces.len() > 1 {
        level += 1;
        pieces = place(inner_pairs(sink, pieces, level)?, None);
    }
    let Some(top) = pieces.pop() else { return Ok(None) };
    collapse(sink, top.piece, level).map(Some)
}

/// Writes the top node, or goes down while it has a single child.
fn collapse<S: NodeSink>(sink: &mut S, top: Piece<S::Pointer>, mut level: u8) -> Result<Root<S::Pointer>> {
    let (mut node, mut previous) = match top {
        Piece::Kept(pointer) => return Ok(Root { pointer, level }),
        Piece::New { node, previous } => (node, previous),
    };
    loop {
        if level == 0 || node.len() > 1 {
            let pointer = sink.write(node, previous)?;
            return Ok(Root { pointer, level });
        }
        let child = child_pointer::<S>(&node, 0)?;
        if let Some(previous) = previous {
            sink.release(previous)?;
        }
        level -= 1;
        node = Node::clone(&*load_level(sink, &child, level)?);
        if level == 0 || node.len() > 1 {
            return Ok(Root {
                pointer: child,
                level,
            });
        }
        previous = Some(child);
    }
}

fn rebuild<S: NodeSink>(
    sink: &mut S,
    (pointer, level): (S::Pointer, u8),
    bounds: Bounds<'_>,
    changes: &[(&[u8], Change<'_>)],
) -> Result<Vec<Placed<S::Pointer>>> {
    let node = load_within(sink, &pointer, level, bounds)?;
    let lowest = if node.is_empty() {
        Vec::new()
    } else {
        node.key(0).to_vec()
    };
    let touched = changes.iter().any(|(_, change)| *change == Change::Touch);
    let pairs = if level == 0 {
        merge_leaf(&node, changes)
    } else {
        let children = rebuild_children(sink, &node, level, bounds, changes)?;
        let children = merge_small(sink, children, level - 1)?;
        inner_pairs(sink, children, level)?
    };
    if !touched && pairs.len() == node.len() && pairs.same_as(&node) {
        return Ok(vec![Placed {
            key: lowest,
            piece: Piece::Kept(pointer),
        }]);
    }
    if pairs.is_empty() {
        sink.release(pointer)?;
        return Ok(Vec::new());
    }
    let mut placed = place(pairs, Some(pointer));
    // The old lowest key still leads here, and keeping it keeps the parent as it is.
    if lowest < placed[0].key {
        placed[0].key = lowest;
    }
    Ok(placed)
}

fn rebuild_children<S: NodeSink>(
    sink: &mut S,
    node: &Node,
    level: u8,
    bounds: Bounds<'_>,
    changes: &[(&[u8], Change<'_>)],
) -> Result<Vec<Placed<S::Pointer>>> {
    let mut children = Vec::with_capacity(node.len() + 1);
    let mut rest = changes;
    for at in 0..node.len() {
        let count = if at + 1 < node.len() {
            rest.partition_point(|(key, _)| *key < node.key(at + 1))
        } else {
            rest.len()
        };
        let (mine, others) = rest.split_at(count);
        rest = others;
        let pointer = child_pointer::<S>(node, at)?;
        if mine.is_empty() {
            children.push(Placed {
                key: node.key(at).to_vec(),
                piece: Piece::Kept(pointer),
            });
            continue;
        }
        let mut pieces = rebuild(sink, (pointer, level - 1), bounds.of_child(node, at), mine)?;
        if let Some(first) = pieces.first_mut()
            && node.key(at) < first.key.as_slice()
        {
            first.key = node.key(at).to_vec();
        }
        children.extend(pieces);
    }
    Ok(children)
}

/// Merges small new nodes into a neighbour.
fn merge_small<S: NodeSink>(
    sink: &mut S,
    children: Vec<Placed<S::Pointer>>,
    level: u8,
) -> Result<Vec<Placed<S::Pointer>>> {
    let mut out: Vec<Placed<S::Pointer>> = Vec::with_capacity(children.len());
    for next in children {
        match out.pop() {
            None => out.push(next),
            Some(last) if !is_small(&last.piece) && !is_small(&next.piece) => out.extend([last, next]),
            Some(last) => out.extend(merge_pair(sink, last, next, level)?),
        }
    }
    Ok(out)
}

fn is_small<P>(piece: &Piece<P>) -> bool {
    matches!(piece, Piece::New { node, .. } if node.encoded_bytes() < NODE_BYTES_MIN)
}

fn merge_pair<S: NodeSink>(
    sink: &mut S,
    left: Placed<S::Pointer>,
    right: Placed<S::Pointer>,
    level: u8,
) -> Result<Vec<Placed<S::Pointer>>> {
    let (left_node, right_node) = (
        piece_node(sink, &left.piece, level)?,
        piece_node(sink, &right.piece, level)?,
    );
    // Some room is left, or the next insertion would split it again.
    if left_node.encoded_bytes() + right_node.encoded_bytes() > NODE_BYTES_MAX * 3 / 4 {
        return Ok(vec![left, right]);
    }
    let mut node = left_node;
    for at in 0..right_node.len() {
        // An inner node's first key may be lower than the key that leads to it, never higher.
        let key = if level > 0 && at == 0 {
            right.key.as_slice()
        } else {
            right_node.key(at)
        };
        if at == 0 && node.key(node.len() - 1) >= key || at == 1 && key <= right.key.as_slice() {
            return Err(Error::damaged(
                "write tree node",
                "the keys of two neighbours overlap",
            ));
        }
        node.push(key, right_node.value(at));
    }
    if let Some(pointer) = former(right.piece) {
        sink.release(pointer)?;
    }
    Ok(vec![Placed {
        key: left.key,
        piece: Piece::New {
            node,
            previous: former(left.piece),
        },
    }])
}

fn former<P>(piece: Piece<P>) -> Option<P> {
    match piece {
        Piece::Kept(pointer) => Some(pointer),
        Piece::New { previous, .. } => previous,
    }
}

fn piece_node<S: NodeSink>(sink: &S, piece: &Piece<S::Pointer>, level: u8) -> Result<Node> {
    Ok(match piece {
        Piece::Kept(pointer) => Node::clone(&*load_level(sink, pointer, level)?),
        Piece::New { node, .. } => node.clone(),
    })
}

/// A pair of a former node or of a change, or one that was just made.
type PairToBe<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// Pairs of a node to be, before it is known how many nodes they need.
struct Pairs<'a> {
    level: u8,
    pairs: Vec<PairToBe<'a>>,
    appended: bool,
}

impl Pairs<'_> {
    fn len(&self) -> usize {
        self.pairs.len()
    }

    fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    fn same_as(&self, node: &Node) -> bool {
        self.pairs
            .iter()
            .enumerate()
            .all(|(at, (key, value))| node.key(at) == &**key && node.value(at) == &**value)
    }

    /// Length of the node they would make together.
    fn encoded_bytes(&self) -> usize {
        let mut previous: &[u8] = &[];
        self.pairs.iter().fold(0, |sum, (key, value)| {
            let bytes = pair_bytes(previous, key, value);
            previous = key;
            sum + bytes
        })
    }
}

/// The pairs of a leaf with the changes worked in: a merge of two sorted runs.
fn merge_leaf<'a>(node: &'a Node, changes: &[(&'a [u8], Change<'a>)]) -> Pairs<'a> {
    let appended = match (node.len(), changes.first()) {
        (0, _) | (_, None) => true,
        (count, Some((key, _))) => *key > node.key(count - 1),
    };
    let mut pairs = Vec::with_capacity(node.len() + changes.len());
    let pair = |key: &'a [u8], value: &'a [u8]| (Cow::Borrowed(key), Cow::Borrowed(value));
    let mut old = 0;
    for (key, change) in changes {
        while old < node.len() && node.key(old) < *key {
            pairs.push(pair(node.key(old), node.value(old)));
            old += 1;
        }
        let found = old < node.len() && node.key(old) == *key;
        match change {
            Change::Touch => continue,
            Change::Put(value) => pairs.push(pair(key, value)),
            Change::Delete => {}
        }
        old += usize::from(found);
    }
    pairs.extend((old..node.len()).map(|at| pair(node.key(at), node.value(at))));
    Pairs {
        level: 0,
        pairs,
        appended,
    }
}

/// Writes new children and lists the pairs of their parent.
fn inner_pairs<S: NodeSink>(
    sink: &mut S,
    children: Vec<Placed<S::Pointer>>,
    level: u8,
) -> Result<Pairs<'static>> {
    let mut pairs = Vec::with_capacity(children.len());
    let mut last_is_new = false;
    for child in children {
        last_is_new = matches!(child.piece, Piece::New { previous: None, .. });
        let pointer = match child.piece {
            Piece::Kept(pointer) => pointer,
            Piece::New { node, previous } => sink.write(node, previous)?,
        };
        pairs.push((Cow::Owned(child.key), Cow::Owned(S::encode_pointer(&pointer))));
    }
    Ok(Pairs {
        level,
        pairs,
        appended: last_is_new,
    })
}

/// Cuts pairs into as many nodes as they need; the first takes over the former node's place.
fn place<P>(pairs: Pairs<'_>, previous: Option<P>) -> Vec<Placed<P>> {
    if pairs.is_empty() {
        return Vec::new();
    }
    let total = pairs.encoded_bytes();
    let target = if total <= NODE_BYTES_MAX || pairs.appended {
        NODE_BYTES_MAX
    } else {
        total / total.div_ceil(NODE_BYTES_MAX) + 1
    };
    let mut nodes = Vec::with_capacity(total / target + 1);
    let mut node = Node::with_capacity(pairs.level, total.min(NODE_BYTES_MAX));
    for (key, value) in &pairs.pairs {
        // A node that all of them fit into is not cut, even where counting whole keys says so.
        let is_full = !node.is_empty() && node.encoded_bytes() + key.len() + value.len() + 4 > target;
        if is_full && total > NODE_BYTES_MAX {
            let next = Node::with_capacity(pairs.level, NODE_BYTES_MAX);
            nodes.push(std::mem::replace(&mut node, next));
        }
        node.push(key, value);
    }
    nodes.push(node);
    let mut previous = previous;
    nodes
        .into_iter()
        .map(|node| Placed {
            key: node.key(0).to_vec(),
            piece: Piece::New {
                node,
                previous: previous.take(),
            },
        })
        .collect()
}
