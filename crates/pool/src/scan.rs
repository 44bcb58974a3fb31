//! Range scans: the tree on media with the overlays laid over it.
//!
//! The tree is read in chunks; each chunk speaks for a part of the range, and the overlays are merged in for that part
//! only. So a scan touches no more recent changes than lie between the pairs it returns, however many there are.
//! A scan sees each pair as it was at some moment during the call; it is no snapshot of the whole range.

use crate::btree::{NodeStore, Root, Window, scan, scan_back};
use crate::changes::{TreeChanges, Walk};
use crate::error::Result;
use crate::node::Pair;
use crate::pool::{Pool, Stable};
use crate::types::TreeId;
use parking_lot::RwLockReadGuard;
use std::iter::Peekable;
use std::ops::Bound;

const CHUNK_PAIRS_MIN: usize = 16;
const CHUNK_PAIRS_MAX: usize = 4096;

/// The tree on media and the changes above it, at one moment or at several.
pub(crate) trait Source {
    /// At most `window.limit` pairs of the tree on media.
    fn on_media(&self, window: Window<'_>, backwards: bool) -> Result<Vec<Pair>>;
    /// Calls `merge` with the changes above it, the newest first.
    fn recent(&self, merge: &mut dyn FnMut(&[&TreeChanges]));
}

/// What is left of a range that is read in pieces, from either end.
pub(crate) struct Rest {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    chunk_pairs: usize,
}

impl Rest {
    pub(crate) fn new(from: Bound<&[u8]>, to: Bound<&[u8]>, want: usize) -> Rest {
        Rest {
            from: from.map(<[u8]>::to_vec),
            to: to.map(<[u8]>::to_vec),
            chunk_pairs: want.clamp(CHUNK_PAIRS_MIN, CHUNK_PAIRS_MAX),
        }
    }

    /// Ranges that hold nothing, among them those that a sorted map refuses.
    pub(crate) fn is_empty(&self) -> bool {
        match (&self.from, &self.to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
                from >= to
            }
            _ => false,
        }
    }

    fn end(&mut self) {
        (self.from, self.to) = (Bound::Included(Vec::new()), Bound::Excluded(Vec::new()));
    }

    /// Adds pairs of one end to `out`, until it holds `limit` or a chunk of the tree is used up, and takes them off.
    pub(crate) fn read(
        &mut self,
        source: &impl Source,
        limit: usize,
        backwards: bool,
        out: &mut Vec<Pair>,
    ) -> Result<()> {
        let wanted = limit.saturating_sub(out.len()).max(CHUNK_PAIRS_MIN);
        let part = Window {
            from: borrow(&self.from),
            to: borrow(&self.to),
            limit: self.chunk_pairs.min(wanted),
        };
        let mut chunk = source.on_media(part, backwards)?;
        let last = chunk.last().filter(|_| chunk.len() == part.limit);
        let mut boundary = last.map(|(key, _)| key.clone());
        let (from, to) = match &boundary {
            None => (borrow(&self.from), borrow(&self.to)),
            Some(key) if backwards => (Bound::Included(key.as_slice()), borrow(&self.to)),
            Some(key) => (borrow(&self.from), Bound::Included(key.as_slice())),
        };
        let range = Window { from, to, limit };
        source.recent(&mut |recent| merge(recent, range, std::mem::take(&mut chunk), backwards, out));
        if out.len() >= limit {
            boundary = out.last().map(|(key, _)| key.clone());
        }
        match boundary {
            None => self.end(),
            Some(key) if backwards => self.to = Bound::Excluded(key),
            Some(key) => self.from = Bound::Excluded(key),
        }
        self.chunk_pairs = (self.chunk_pairs * 2).min(CHUNK_PAIRS_MAX);
        Ok(())
    }
}

/// The pool as it is now.
struct Now<'a> {
    pool: &'a Pool,
    /// Held throughout, so that no frozen overlay vanishes into the tree between two looks.
    stable: RwLockReadGuard<'a, Stable>,
    tree: TreeId,
}

impl Source for Now<'_> {
    fn on_media(&self, window: Window<'_>, backwards: bool) -> Result<Vec<Pair>> {
        let store = self.pool.tree_store(&self.stable);
        scan_either(&store, self.stable.trees.get(&self.tree), window, backwards)
    }

    fn recent(&self, merge: &mut dyn FnMut(&[&TreeChanges])) {
        let state = self.pool.state.read();
        let overlays = std::iter::once(&state.active).chain(state.frozen.as_deref());
        let recent: Vec<_> = overlays
            .filter_map(|overlay| overlay.trees.get(&self.tree))
            .collect();
        merge(&recent);
    }
}

/// Pairs of the tree on media in either direction.
pub(crate) fn scan_either<S: NodeStore>(
    store: &S,
    root: Option<&Root<S::Pointer>>,
    window: Window<'_>,
    backwards: bool,
) -> Result<Vec<Pair>> {
    if backwards {
        scan_back(store, root, window)
    } else {
        scan(store, root, window)
    }
}

/// At most `window.limit` pairs from the front of the range, or from its end in descending order.
pub(crate) fn merged_scan(
    pool: &Pool,
    tree: TreeId,
    window: Window<'_>,
    backwards: bool,
) -> Result<Vec<Pair>> {
    let mut out = Vec::new();
    let mut rest = Rest::new(window.from, window.to, window.limit);
    let stable = pool.stable.read();
    let source = Now { pool, stable, tree };
    while out.len() < window.limit && !rest.is_empty() {
        rest.read(&source, window.limit, backwards, &mut out)?;
    }
    Ok(out)
}

/// Adds live pairs of the range to `out` until it holds `range.limit`. `recent` has the newest changes first.
fn merge(recent: &[&TreeChanges], range: Window<'_>, chunk: Vec<Pair>, backwards: bool, out: &mut Vec<Pair>) {
    let mut changed: Vec<Peekable<Walk<'_>>> = recent
        .iter()
        .map(|changes| changes.walk(range.from, range.to, backwards).peekable())
        .collect();
    changed.retain_mut(|walk| walk.peek().is_some());
    let mut chunk = chunk.into_iter().peekable();
    while out.len() < range.limit {
        let heads = changed
            .iter_mut()
            .filter_map(|walk| walk.peek().map(|item| item.key()));
        let Some(next) = (if backwards { heads.max() } else { heads.min() }) else {
            // Nothing recent is left: the rest is as the tree has it.
            out.extend(chunk.take(range.limit - out.len()));
            return;
        };
        let is_before = |key: &[u8]| if backwards { key > next } else { key < next };
        if let Some(pair) = chunk.next_if(|(key, _)| is_before(key)) {
            out.push(pair);
            continue;
        }
        // The first that has the key is the newest; the others are overruled.
        chunk.next_if(|(key, _)| key.as_slice() == next);
        let mut newest = None;
        for walk in &mut changed {
            if let Some(item) = walk.next_if(|item| item.key() == next) {
                newest = newest.or(Some(item));
            }
        }
        if let Some((item, value)) = newest.and_then(|item| Some((item, item.value()?))) {
            out.push((item.key().to_vec(), value.to_vec()));
        }
    }
}

fn borrow(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}
