//! Instances know how many they are.

use std::time::{Duration, Instant};

use tidegate_core::Store as _;
use tidegate_redis::RedisStore;
use tidegate_testkit::redis::{Cluster, RedisServer};

use crate::store;

async fn wait_for(store: &RedisStore, count: u64) -> Duration {
    let begin = Instant::now();
    while store.instances() != Some(count) {
        assert!(
            begin.elapsed() < Duration::from_secs(6),
            "{:?}",
            store.instances()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    begin.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_one_is_counted_and_one_that_leaves_is_not() {
    let server = RedisServer::start();
    let first = store(&server.url()).await;
    wait_for(&first, 1).await;
    let second = store(&server.url()).await;
    wait_for(&first, 2).await;
    wait_for(&second, 2).await;
    second.leave().await;
    drop(second);
    wait_for(&first, 1).await;
    let third = store(&server.url()).await;
    wait_for(&first, 2).await;
    drop(third);
    wait_for(&first, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_counts_them_too() {
    let cluster = Cluster::start();
    let (first, _second) = (store(&cluster.url()).await, store(&cluster.url()).await);
    wait_for(&first, 2).await;
}
