//! A few thousand items through Packstone: what is measured adds up, and what is wrong is found.

use packstone_kv_bench::engines::Engine;
use packstone_kv_bench::items::{Items, Order};
use packstone_kv_bench::measure::{Plan, run};

fn plan(order: Order) -> Plan {
    Plan {
        items: Items {
            order,
            count: 3_000,
            value_bytes: 100,
        },
        per_transaction: 250,
        gets: 500,
    }
}

#[test]
fn a_small_run_reads_back_what_it_wrote_and_counts_its_bytes() {
    for order in [Order::Sequential, Order::Random] {
        let directory = tempfile::tempdir().expect("makes a directory");
        let outcome = run(Engine::Packstone, &plan(order), 1, directory.path()).expect("runs");
        let own = outcome.own_written_bytes.expect("counts");
        // Every value once into the log and once into the tree, and no more than as much again beside them.
        let values_bytes = 3_000 * 100;
        assert!((2 * values_bytes..4 * values_bytes).contains(&own), "{own} bytes");
        assert!(outcome.stored_bytes.is_some_and(|stored| stored < own));
        assert!(outcome.file_bytes < outcome.preallocated_bytes);
        let json = serde_json::to_value(&outcome).expect("is JSON");
        assert_eq!(json["engine"], "packstone");
        assert_eq!(json["items_per_transaction"], 250);
    }
}

#[test]
fn a_store_that_lost_something_fails_the_run() {
    let directory = tempfile::tempdir().expect("makes a directory");
    let plan = plan(Order::Random);
    run(Engine::Packstone, &plan, 1, directory.path()).expect("runs");
    let mut more = plan;
    more.items.count += 1;
    let mut store = Engine::Packstone
        .open(directory.path(), &plan.items)
        .expect("opens");
    let error =
        packstone_kv_bench::measure::verify(store.as_mut(), &more.items).expect_err("finds one missing");
    assert!(error.to_string().contains("3000 pairs where 3001"), "{error}");
}
