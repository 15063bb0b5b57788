//! The memory store keeps the contract that every store keeps.

use std::sync::Arc;

use tidegate_core::{MemoryStore, conformance};
use tidegate_testkit::block_on;

#[test]
fn memory_keeps_the_store_contract() {
    block_on(conformance::run_all(MemoryStore::new()));
}

/// A store with as many keys as it has room for agrees with one that has plenty.
#[test]
fn a_small_store_agrees_with_a_large_one() {
    let small = Arc::new(MemoryStore::builder().max_keys(60).build());
    let store = Arc::clone(&small).into();
    block_on(conformance::agrees_with_memory(&store, 7, 20_000));
    assert_eq!(small.stats().evicted, 0);
}
