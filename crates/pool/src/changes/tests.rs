//! Changes against a sorted map, with copies that must not change.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn random_key(rng: &mut SmallRng) -> Vec<u8> {
    // Of all lengths around the prefix, with zeros, and often alike in the first eight bytes.
    let length = rng.random_range(0..12);
    (0..length).map(|_| rng.random_range(0..3)).collect()
}

fn pairs<'a>(walk: impl Iterator<Item = &'a Item>) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    walk.map(|item| (item.key().to_vec(), item.value().map(<[u8]>::to_vec)))
        .collect()
}

fn bound(rng: &mut SmallRng, key: &[u8]) -> Bound<Vec<u8>> {
    match rng.random_range(0..3) {
        0 => Bound::Included(key.to_vec()),
        1 => Bound::Excluded(key.to_vec()),
        _ => Bound::Unbounded,
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn compare_ranges(rng: &mut SmallRng, changes: &TreeChanges, model: &Model) {
    let (mut low, mut high) = (random_key(rng), random_key(rng));
    if low >= high {
        std::mem::swap(&mut low, &mut high);
        high.push(0);
    }
    let (from, to) = (bound(rng, &low), bound(rng, &high));
    let mut expected: Vec<_> = model
        .range((from.clone(), to.clone()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    assert_eq!(
        pairs(changes.walk(as_slice(&from), as_slice(&to), false)),
        expected,
        "{from:?} {to:?}"
    );
    expected.reverse();
    assert_eq!(
        pairs(changes.walk(as_slice(&from), as_slice(&to), true)),
        expected,
        "{from:?} {to:?}"
    );
}

#[test]
fn changes_agree_with_a_sorted_map_and_copies_stay_as_they_were() {
    for seed in 0..6 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut changes, mut model) = (TreeChanges::default(), Model::new());
        let mut copies: Vec<(TreeChanges, Model)> = Vec::new();
        let mut buffer = Vec::new();
        for step in 0..6_000 {
            let key = random_key(&mut rng);
            let value = rng
                .random_ratio(3, 4)
                .then(|| vec![rng.random(); rng.random_range(0..20)]);
            let item = match &value {
                Some(value) => Item::put(&key, value, &mut buffer),
                None => Item::delete(&key),
            };
            let replaced = changes.insert(item).map(|item| item.value().map(<[u8]>::to_vec));
            assert_eq!(replaced, model.insert(key, value));
            let probe = random_key(&mut rng);
            let found = changes.get(&probe).map(|item| item.value().map(<[u8]>::to_vec));
            assert_eq!(found.as_ref(), model.get(&probe));
            if step % 100 == 0 {
                compare_ranges(&mut rng, &changes, &model);
            }
            if rng.random_ratio(1, 500) {
                copies.push((changes.clone(), model.clone()));
            }
        }
        copies.push((changes, model));
        for (changes, model) in copies {
            assert_eq!(
                pairs(changes.iter()),
                model.clone().into_iter().collect::<Vec<_>>()
            );
            compare_ranges(&mut rng, &changes, &model);
        }
    }
}

#[test]
fn what_comes_in_order_fills_its_leaves() {
    let mut changes = TreeChanges::default();
    for number in 0..10_000u64 {
        changes.insert(Item::delete(&number.to_be_bytes()));
    }
    let mut leaves = 0;
    let mut open = vec![changes.root.as_deref().expect("has a root")];
    while let Some(node) = open.pop() {
        match node {
            Node::Leaf(_) => leaves += 1,
            Node::Inner(children) => open.extend(children.iter().map(|(_, child)| &**child)),
        }
    }
    assert_eq!(leaves, 10_000usize.div_ceil(ENTRIES_MAX));
}
