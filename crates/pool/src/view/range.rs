//! The iterator over a range of a view, from both ends.
//!
//! Pairs are fetched in chunks that grow, so a short range costs little and a long one is read at speed.

use super::{Pinned, Scan, View};
use crate::btree::Window;
use crate::changes::TreeChanges;
use crate::error::Result;
use crate::node::Pair;
use crate::scan::{Rest, Source};
use crate::types::TreeId;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

const FETCH_PAIRS_MIN: usize = 16;
const FETCH_PAIRS_MAX: usize = 1024;

/// Pairs of a range in key order. After an error it ends.
pub struct Range<'v> {
    view: &'v View,
    tree: TreeId,
    above: Option<TreeChanges>,
    rest: Rest,
    fetch_pairs: usize,
    front: VecDeque<Pair>,
    back: VecDeque<Pair>,
    is_over: bool,
}

/// What a range reads from.
struct Then<'a> {
    view: &'a View,
    pinned: Arc<Pinned>,
    tree: TreeId,
    above: Option<&'a TreeChanges>,
}

impl Source for Then<'_> {
    fn on_media(&self, window: Window<'_>, backwards: bool) -> Result<Vec<Pair>> {
        let mut scan = Scan {
            window,
            backwards,
            found: Vec::new(),
        };
        self.view.on_media(&self.pinned, self.tree, &mut scan)?;
        Ok(scan.found)
    }

    fn recent(&self, merge: &mut dyn FnMut(&[&TreeChanges])) {
        let recent: Vec<_> = self
            .above
            .into_iter()
            .chain(self.pinned.changes(self.tree))
            .collect();
        merge(&recent);
    }
}

impl<'v> Range<'v> {
    pub(super) fn new(
        view: &'v View,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        above: Option<TreeChanges>,
    ) -> Range<'v> {
        Range {
            view,
            tree,
            above,
            rest: Rest::new(from, to, FETCH_PAIRS_MIN),
            fetch_pairs: FETCH_PAIRS_MIN,
            front: VecDeque::new(),
            back: VecDeque::new(),
            is_over: false,
        }
    }

    /// Fills the buffer of one end, unless nothing is left between the two.
    fn fetch(&mut self, backwards: bool) -> Result<()> {
        let source = Then {
            view: self.view,
            pinned: self.view.pinned()?,
            tree: self.tree,
            above: self.above.as_ref(),
        };
        let mut found = Vec::new();
        while found.is_empty() && !self.rest.is_empty() {
            self.rest.read(&source, self.fetch_pairs, backwards, &mut found)?;
        }
        self.fetch_pairs = (self.fetch_pairs * 2).min(FETCH_PAIRS_MAX);
        if backwards {
            self.back = found.into();
        } else {
            self.front = found.into();
        }
        Ok(())
    }

    fn step(&mut self, backwards: bool) -> Option<Result<Pair>> {
        if self.is_over {
            return None;
        }
        let near_is_empty = if backwards {
            self.back.is_empty()
        } else {
            self.front.is_empty()
        };
        if near_is_empty && let Err(error) = self.fetch(backwards) {
            self.is_over = true;
            return Some(Err(error));
        }
        // When all has been fetched, what is left waits at the other end.
        let pair = if backwards {
            self.back.pop_front().or_else(|| self.front.pop_back())
        } else {
            self.front.pop_front().or_else(|| self.back.pop_back())
        };
        pair.map(Ok)
    }
}

impl Iterator for Range<'_> {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Result<Pair>> {
        self.step(false)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Result<Pair>> {
        self.step(true)
    }
}
