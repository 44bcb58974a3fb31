//! The key-value store: its bounds, its names, and what a crash leaves of its transactions.

use super::world::{create, open};
use crate::kv::{Durability, Store};
use crate::*;
use packstone_media::SimulatedMedia;
use std::ops::Bound;
use std::sync::Arc;

fn new_store() -> (Arc<SimulatedMedia>, Store) {
    let media = Arc::new(SimulatedMedia::new(32 << 20));
    create(&media);
    let store = Store::on(Arc::new(open(&media).expect("opens")));
    (media, store)
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn what_is_too_long_is_refused_at_once_and_the_rest_goes_on() {
    let (_, store) = new_store();
    let tree = store.tree("t").expect("makes");
    let mut writer = store.begin();
    let longest = (vec![7; KEY_BYTES_MAX], vec![8; VALUE_BYTES_MAX]);
    writer.put(tree, &longest.0, &longest.1).expect("puts");
    let refused = writer.put(tree, b"k", &[0; VALUE_BYTES_MAX + 1]);
    let message = refused.as_ref().expect_err("refuses").to_string();
    assert!(message.contains("spread it over several keys"), "{message}");
    assert_eq!(kind(refused), Some(ErrorKind::InvalidInput));
    let long_key = [0; KEY_BYTES_MAX + 1];
    assert_eq!(
        kind(writer.put(tree, &long_key, b"")),
        Some(ErrorKind::InvalidInput)
    );
    assert_eq!(
        kind(writer.delete(tree, &long_key)),
        Some(ErrorKind::InvalidInput)
    );
    assert_eq!(writer.get(tree, &long_key).expect("reads"), None);
    writer.put(tree, b"", b"").expect("puts the empty pair");
    writer.commit(Durability::Durable).expect("commits");
    store.pool().checkpoint_now().expect("checkpoints");
    let view = store.view();
    assert_eq!(view.get(tree, &longest.0).expect("reads"), Some(longest.1));
    assert_eq!(view.get(tree, b"").expect("reads"), Some(Vec::new()));
    assert_eq!(view.range(tree, Bound::Unbounded, Bound::Unbounded).count(), 2);
}

#[test]
fn trees_have_names_that_file_systems_do_not_share() {
    let (media, store) = new_store();
    store
        .pool()
        .create_dataset("files", Properties::new())
        .expect("makes");
    assert_eq!(kind(store.tree("files")), Some(ErrorKind::InvalidInput));
    assert_eq!(kind(store.tree("")), Some(ErrorKind::InvalidInput));
    let tree = store.tree("b").expect("makes");
    assert_ne!(store.tree("a").expect("makes"), tree);
    store.close().expect("closes");
    let store = Store::on(Arc::new(open(&media).expect("opens again")));
    assert_eq!(store.tree("b").expect("finds"), tree);
    assert_eq!(store.tree_names().expect("lists"), ["a", "b"]);
}

#[test]
fn a_crash_keeps_what_was_durable_and_takes_transactions_whole() {
    for seed in 0..20 {
        let (media, store) = new_store();
        let tree = store.tree("t").expect("makes");
        let put_ten = |first: u8, durability| {
            let mut writer = store.begin();
            (first..first + 10).for_each(|key| writer.put(tree, &[key], &[key; 300]).expect("puts"));
            writer.commit(durability).expect("commits")
        };
        put_ten(0, Durability::Buffered);
        // Makes the one before durable too.
        put_ten(10, Durability::Durable);
        put_ten(20, Durability::Buffered);
        if seed % 2 == 0 {
            // On media perhaps, but nobody was told that it is.
            let mut log = store.pool().log.lock();
            store.pool().write_group(&mut log, false).expect("writes");
        }
        media.crash(seed);
        drop(store);
        let store = Store::on(Arc::new(open(&media).expect("recovers")));
        let keys: Result<Vec<Pair>> = store
            .view()
            .range(tree, Bound::Unbounded, Bound::Unbounded)
            .collect();
        let keys: Vec<u8> = keys.expect("reads").iter().map(|(key, _)| key[0]).collect();
        let whole = [20, 30].map(|end| (0..end).collect::<Vec<u8>>());
        assert!(whole.contains(&keys), "seed {seed}: {keys:?}");
    }
}

#[test]
fn a_store_that_nobody_tends_keeps_its_log_short() {
    let (_, store) = new_store();
    let tree = store.tree("t").expect("makes");
    let noise = super::world::content(1, 40_000);
    // Always the same key: the changes in memory stay few, and only the log grows.
    for _ in 0..1_000 {
        let mut writer = store.begin();
        writer.put(tree, b"k", &noise).expect("puts");
        writer.commit(Durability::Durable).expect("commits");
        let bytes = store.pool().state.read().log_bytes;
        assert!(bytes <= (32 << 20) / 8 + (128 << 10), "{bytes} bytes of log");
    }
}
