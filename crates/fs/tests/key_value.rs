//! Trees of a key-value store in the same pool: files are not laid over them, and no check or repair takes them for files.

use std::sync::Arc;

use packstone_fs::{Caller, ErrorKind, FileSystem, MountOptions, Timestamp, check, repair};
use packstone_media::{Media, SimulatedMedia};
use packstone_pool::kv::{Durability, Store};
use packstone_pool::{CreateOptions, OpenOptions, Pool};

const CALLER: Caller = Caller {
    uid: 0,
    gid: 0,
    umask: 0,
    now: Timestamp {
        seconds: 0,
        nanoseconds: 0,
    },
};

#[test]
fn a_key_value_tree_is_left_alone() {
    let member: Arc<dyn Media> = Arc::new(SimulatedMedia::new(64 << 20));
    let options = CreateOptions {
        name: "tank".into(),
        pool_id: [7; 16],
        segment_bytes: None,
        properties: Default::default(),
    };
    Pool::create(std::slice::from_ref(&member), &options).expect("creates");
    let pool = Arc::new(Pool::open(vec![member], &OpenOptions::default()).expect("opens"));
    let store = Store::on(pool.clone());
    let tree = store.tree("pairs").expect("makes");
    let mut writer = store.begin();
    // Keys that look like nothing, and like any kind of a file's.
    for kind in 0..=255u8 {
        writer.put(tree, &[kind], b"x").expect("puts");
        writer.put(tree, &[kind; 9], b"x").expect("puts");
    }
    writer.commit(Durability::Durable).expect("commits");

    let opened = FileSystem::open(pool.clone(), "pairs", MountOptions::default(), &CALLER);
    let error = opened.err().expect("is refused");
    assert_eq!(error.kind, ErrorKind::InvalidInput);
    let report = check(&pool, "pairs", &mut |_, _| {}).expect("checks");
    assert_eq!((report.problem_count, report.files, report.orphans), (0, 0, 0));
    assert!(repair(&pool, "pairs", &CALLER).expect("repairs").is_empty());
    let view = store.view();
    let left = view.range(tree, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    assert_eq!(left.count(), 512);
}
