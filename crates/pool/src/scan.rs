//! Range scans: the tree on media with the overlays laid over it.
//!
//! The tree is read in chunks; each chunk speaks for a part of the range, and the overlays are merged in for that part
//! only. So a scan touches no more recent changes than lie between the pairs it returns, however many there are.
//! A scan sees each pair as it was at some moment during the call; it is no snapshot of the whole range.

use crate::btree::{Window, scan, scan_back};
use crate::changes::TreeChanges;
use crate::error::Result;
use crate::node::Pair;
use crate::pool::Pool;
use crate::types::TreeId;
use std::iter::Peekable;
use std::ops::Bound;

const CHUNK_PAIRS_MIN: usize = 16;
const CHUNK_PAIRS_MAX: usize = 4096;

type Entry<'a> = (&'a [u8], Option<&'a [u8]>);
type Source<'a> = Peekable<Box<dyn Iterator<Item = Entry<'a>> + 'a>>;

/// At most `window.limit` pairs from the front of the range, or from its end in descending order.
pub(crate) fn merged_scan(
    pool: &Pool,
    tree: TreeId,
    window: Window<'_>,
    backwards: bool,
) -> Result<Vec<Pair>> {
    let mut out = Vec::new();
    let (mut from, mut to) = (window.from.map(<[u8]>::to_vec), window.to.map(<[u8]>::to_vec));
    let mut want = window.limit.clamp(CHUNK_PAIRS_MIN, CHUNK_PAIRS_MAX);
    // Held throughout, so that no frozen overlay vanishes into the tree between two looks.
    let stable = pool.stable.read();
    let (store, root) = (pool.tree_store(&stable), stable.trees.get(&tree));
    while out.len() < window.limit && !is_empty(&from, &to) {
        let part = Window {
            from: borrow(&from),
            to: borrow(&to),
            limit: want,
        };
        let chunk = if backwards {
            scan_back(&store, root, part)?
        } else {
            scan(&store, root, part)?
        };
        let boundary = chunk
            .last()
            .filter(|_| chunk.len() == want)
            .map(|(key, _)| key.clone());
        let (part_from, part_to) = match &boundary {
            None => (borrow(&from), borrow(&to)),
            Some(key) if backwards => (Bound::Included(key.as_slice()), borrow(&to)),
            Some(key) => (borrow(&from), Bound::Included(key.as_slice())),
        };
        let range = Window {
            from: part_from,
            to: part_to,
            limit: window.limit,
        };
        {
            let state = pool.state.read();
            let overlays = std::iter::once(&state.active).chain(state.frozen.as_deref());
            let recent: Vec<_> = overlays.filter_map(|overlay| overlay.trees.get(&tree)).collect();
            merge(&recent, range, &chunk, backwards, &mut out);
        }
        match boundary {
            None => break,
            Some(key) if backwards => to = Bound::Excluded(key),
            Some(key) => from = Bound::Excluded(key),
        }
        want = (want * 2).min(CHUNK_PAIRS_MAX);
    }
    Ok(out)
}

/// Adds live pairs of the range to `out` until it holds `range.limit`. `recent` has the newest changes first.
pub(crate) fn merge(
    recent: &[&TreeChanges],
    range: Window<'_>,
    chunk: &[Pair],
    backwards: bool,
    out: &mut Vec<Pair>,
) {
    let mut sources: Vec<Source<'_>> = Vec::with_capacity(recent.len() + 1);
    for changes in recent {
        let walk = if backwards {
            changes.range_back(range.from, range.to)
        } else {
            changes.range(range.from, range.to)
        };
        let entries: Box<dyn Iterator<Item = Entry<'_>>> =
            Box::new(walk.map(|item| (item.key(), item.value())));
        sources.push(entries.peekable());
    }
    let on_media: Box<dyn Iterator<Item = Entry<'_>>> = Box::new(
        chunk
            .iter()
            .map(|(key, value)| (key.as_slice(), Some(value.as_slice()))),
    );
    sources.push(on_media.peekable());
    while out.len() < range.limit {
        let heads = sources
            .iter_mut()
            .filter_map(|source| source.peek().map(|(key, _)| *key));
        let Some(next) = (if backwards { heads.max() } else { heads.min() }) else {
            return;
        };
        // The first source that has the key is the newest; the others are overruled.
        let mut newest = None;
        for source in &mut sources {
            if let Some((_, value)) = source.next_if(|(key, _)| *key == next) {
                newest = newest.or(Some(value));
            }
        }
        if let Some(Some(value)) = newest {
            out.push((next.to_vec(), value.to_vec()));
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

/// Ranges that hold nothing, among them those that a sorted map refuses.
fn is_empty(from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
        _ => false,
    }
}
