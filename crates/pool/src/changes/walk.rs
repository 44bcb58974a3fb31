//! Walking over a range of changes, in either direction, without touching what lies outside of it.

use super::{Entry, Item, Node, child_for, prefix, search};
use std::ops::Bound;

/// An iterator over the items of a range; ends at the far bound.
pub(crate) struct Walk<'a> {
    /// Nodes from the root down. With each the position of what comes next: going up, that of the next entry or child;
    /// going down, how many are left in front of the one that was last visited.
    path: Vec<(&'a Node, usize)>,
    far: Bound<&'a [u8]>,
    backwards: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn ascending(root: Option<&'a Node>, from: Bound<&'a [u8]>, to: Bound<&'a [u8]>) -> Walk<'a> {
        let mut walk = Walk {
            path: Vec::new(),
            far: to,
            backwards: false,
        };
        let mut next = root;
        while let Some(node) = next {
            next = match node {
                Node::Leaf(entries) => {
                    walk.path.push((node, position(entries, from, false)));
                    None
                }
                Node::Inner(children) => {
                    let at = near_child(node, from, 0);
                    walk.path.push((node, at + 1));
                    Some(&*children[at].1)
                }
            };
        }
        walk
    }

    pub(super) fn descending(root: Option<&'a Node>, from: Bound<&'a [u8]>, to: Bound<&'a [u8]>) -> Walk<'a> {
        let mut walk = Walk {
            path: Vec::new(),
            far: from,
            backwards: true,
        };
        let mut next = root;
        while let Some(node) = next {
            next = match node {
                Node::Leaf(entries) => {
                    walk.path.push((node, position(entries, to, true)));
                    None
                }
                Node::Inner(children) => {
                    let at = near_child(node, to, children.len() - 1);
                    walk.path.push((node, at));
                    Some(&*children[at].1)
                }
            };
        }
        walk
    }

    fn is_beyond(&self, key: &[u8]) -> bool {
        match (self.far, self.backwards) {
            (Bound::Unbounded, _) => false,
            (Bound::Included(far), false) => key > far,
            (Bound::Excluded(far), false) => key >= far,
            (Bound::Included(far), true) => key < far,
            (Bound::Excluded(far), true) => key <= far,
        }
    }

    /// The next item, whether or not it lies in the range.
    fn advance(&mut self) -> Option<&'a Item> {
        loop {
            let (node, at) = self.path.last_mut()?;
            let node: &'a Node = node;
            let length = match node {
                Node::Leaf(entries) => entries.len(),
                Node::Inner(children) => children.len(),
            };
            let position = if self.backwards {
                let Some(position) = at.checked_sub(1) else {
                    self.path.pop();
                    continue;
                };
                *at = position;
                position
            } else {
                if *at == length {
                    self.path.pop();
                    continue;
                }
                *at += 1;
                *at - 1
            };
            match node {
                Node::Leaf(entries) => return Some(&entries[position].item),
                Node::Inner(children) => {
                    let child: &'a Node = &children[position].1;
                    let start = match child {
                        _ if !self.backwards => 0,
                        Node::Leaf(entries) => entries.len(),
                        Node::Inner(children) => children.len(),
                    };
                    self.path.push((child, start));
                }
            }
        }
    }
}

/// Where a walk begins in a leaf: the first entry inside the bound, or (from the end) how many entries are inside.
fn position(entries: &[Entry], near: Bound<&[u8]>, from_end: bool) -> usize {
    let find = |key: &[u8]| search(entries, prefix(key), key);
    match (near, from_end) {
        (Bound::Unbounded, false) => 0,
        (Bound::Unbounded, true) => entries.len(),
        (Bound::Included(key), false) | (Bound::Excluded(key), true) => find(key).unwrap_or_else(|at| at),
        (Bound::Excluded(key), false) | (Bound::Included(key), true) => {
            find(key).map_or_else(|at| at, |at| at + 1)
        }
    }
}

fn near_child(node: &Node, near: Bound<&[u8]>, unbounded: usize) -> usize {
    match (node, near) {
        (Node::Inner(children), Bound::Included(key) | Bound::Excluded(key)) => {
            child_for(children, prefix(key), key)
        }
        _ => unbounded,
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = &'a Item;

    fn next(&mut self) -> Option<&'a Item> {
        let item = self.advance()?;
        if self.is_beyond(item.key()) {
            self.path.clear();
            return None;
        }
        Some(item)
    }
}
