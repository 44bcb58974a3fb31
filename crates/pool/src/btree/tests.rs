//! Trees against a sorted map under random changes, through the packed form of every node.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashMap};

/// Nodes in memory, in packed form, so that every test also crosses the encoding.
#[derive(Default)]
struct Nodes {
    packed: HashMap<u64, Vec<u8>>,
    next: u64,
    keeps_pointers: bool,
}

impl NodeStore for Nodes {
    type Pointer = u64;
    fn decode_pointer(value: &[u8]) -> std::result::Result<u64, Malformed> {
        crate::encoding::Reader::new(value).u64()
    }
    fn encode_pointer(pointer: &u64) -> Vec<u8> {
        pointer.to_le_bytes().to_vec()
    }
    fn load(&self, pointer: &u64) -> Result<Arc<Node>> {
        let frame = self
            .packed
            .get(pointer)
            .unwrap_or_else(|| panic!("node {pointer} was released"));
        let raw = packstone_codec::unpack(frame, 1 << 20).expect("unpacks");
        Ok(Arc::new(Node::decode(&raw).expect("decodes")))
    }
}

impl NodeSink for Nodes {
    fn write(&mut self, node: Node, previous: Option<u64>) -> Result<u64> {
        let pointer = match previous {
            Some(previous) if self.keeps_pointers => previous,
            Some(previous) => {
                self.release(previous)?;
                self.next += 1;
                self.next
            }
            None => {
                self.next += 1;
                self.next
            }
        };
        self.packed.insert(pointer, node.pack().frame().to_vec());
        Ok(pointer)
    }
    fn release(&mut self, pointer: u64) -> Result<()> {
        assert!(
            self.packed.remove(&pointer).is_some(),
            "node {pointer} was released twice"
        );
        Ok(())
    }
}

/// `None` touches, `Some(None)` deletes.
fn borrow(change: &Option<Option<Vec<u8>>>) -> Change<'_> {
    match change {
        Some(Some(value)) => Change::Put(value),
        Some(None) => Change::Delete,
        None => Change::Touch,
    }
}

fn reachable(nodes: &Nodes, root: Option<&Root<u64>>) -> usize {
    let mut count = 0;
    walk(nodes, root, &mut |_, node| {
        count += 1;
        assert!(
            node.encoded_bytes() <= crate::node::NODE_BYTES_MAX + 1100,
            "{} bytes in a node",
            node.encoded_bytes()
        );
        Ok(())
    })
    .expect("walks");
    count
}

fn check_scans(
    nodes: &Nodes,
    root: Option<&Root<u64>>,
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
    rng: &mut SmallRng,
) {
    for _ in 0..20 {
        let (mut low, mut high) = (random_key(rng, 5000), random_key(rng, 5000));
        if low > high {
            std::mem::swap(&mut low, &mut high);
        }
        let limit = rng.random_range(1..400);
        let from = [
            Bound::Included(low.as_slice()),
            Bound::Excluded(low.as_slice()),
            Bound::Unbounded,
        ][rng.random_range(0..3)];
        let to = [
            Bound::Included(high.as_slice()),
            Bound::Excluded(high.as_slice()),
            Bound::Unbounded,
        ][rng.random_range(0..3)];
        if low == high {
            continue;
        }
        let window = Window { from, to, limit };
        let expected: Vec<Pair> = model
            .range::<[u8], _>((from, to))
            .take(limit)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        assert_eq!(scan(nodes, root, window).expect("scans"), expected);
        let expected: Vec<Pair> = model
            .range::<[u8], _>((from, to))
            .rev()
            .take(limit)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        assert_eq!(scan_back(nodes, root, window).expect("scans"), expected);
    }
}

fn random_key(rng: &mut SmallRng, keys: u32) -> Vec<u8> {
    format!("key/{:06}", rng.random_range(0..keys)).into_bytes()
}

fn model_run(seed: u64, keeps_pointers: bool, rounds: usize) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut nodes = Nodes {
        keeps_pointers,
        ..Nodes::default()
    };
    let mut root = None;
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for round in 0..rounds {
        let deletes = [5, 50, 95][round / 4 % 3];
        let mut changes = BTreeMap::new();
        for _ in 0..rng.random_range(1..1500) {
            let key = random_key(&mut rng, 5000);
            let change = match rng.random_range(0..100) {
                0 => None,
                roll if roll < deletes => Some(None),
                _ => {
                    let most = if rng.random_ratio(1, 50) { 1000 } else { 60 };
                    Some(Some(vec![rng.random(); rng.random_range(0..most)]))
                }
            };
            changes.insert(key, change);
        }
        for (key, change) in &changes {
            match change {
                Some(Some(value)) => drop(model.insert(key.clone(), value.clone())),
                Some(None) => drop(model.remove(key)),
                None => {}
            }
        }
        let borrowed: Vec<_> = changes
            .iter()
            .map(|(key, change)| (key.as_slice(), borrow(change)))
            .collect();
        root = apply(&mut nodes, root, &borrowed).expect("applies");
        let all = scan(
            &nodes,
            root.as_ref(),
            Window {
                from: Bound::Unbounded,
                to: Bound::Unbounded,
                limit: usize::MAX,
            },
        );
        assert_eq!(all.expect("scans"), model.clone().into_iter().collect::<Vec<_>>());
        assert_eq!(
            reachable(&nodes, root.as_ref()),
            nodes.packed.len(),
            "a node leaked"
        );
        for _ in 0..50 {
            let key = random_key(&mut rng, 5000);
            assert_eq!(
                lookup(&nodes, root.as_ref(), &key).expect("looks up"),
                model.get(&key).cloned()
            );
        }
        check_scans(&nodes, root.as_ref(), &model, &mut rng);
    }
    let everything = model
        .keys()
        .map(|key| (key.as_slice(), Change::Delete))
        .collect::<Vec<_>>();
    root = apply(&mut nodes, root, &everything).expect("applies");
    assert!(
        root.is_none() && nodes.packed.is_empty(),
        "an emptied tree keeps nothing"
    );
}

#[test]
fn random_changes_match_a_sorted_map_with_fresh_pointers() {
    for seed in 0..6 {
        model_run(seed, false, 24);
    }
}

#[test]
fn random_changes_match_a_sorted_map_with_kept_pointers() {
    for seed in 10..16 {
        model_run(seed, true, 24);
    }
}

#[test]
fn appending_fills_leaves_and_one_change_rewrites_one_path() {
    let mut nodes = Nodes {
        keeps_pointers: true,
        ..Nodes::default()
    };
    let mut root = None;
    for run in 0u64..50 {
        let keys: Vec<_> = (run * 1000..run * 1000 + 1000).map(u64::to_be_bytes).collect();
        let changes: Vec<_> = keys
            .iter()
            .map(|key| (key.as_slice(), Change::Put(&[1; 20])))
            .collect();
        root = apply(&mut nodes, root, &changes).expect("applies");
    }
    let mut filled = 0;
    walk(&nodes, root.as_ref(), &mut |_, node| {
        filled += node.encoded_bytes();
        Ok(())
    })
    .expect("walks");
    assert!(
        filled / nodes.packed.len() > crate::node::NODE_BYTES_MAX * 3 / 4,
        "{} bytes a node",
        filled / nodes.packed.len()
    );

    let before = nodes.packed.clone();
    root = apply(
        &mut nodes,
        root,
        &[(&25_000u64.to_be_bytes(), Change::Put(&[2; 20]))],
    )
    .expect("applies");
    let changed = nodes
        .packed
        .iter()
        .filter(|(pointer, frame)| before.get(pointer) != Some(frame))
        .count();
    assert_eq!(
        changed, 1,
        "a node that keeps its pointer leaves its parent alone"
    );
    assert!(root.is_some());
}
