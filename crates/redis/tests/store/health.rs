//! How much of Redis answers.

use std::time::Duration;

use tidegate_redis::{Health, RedisStore};
use tidegate_testkit::redis::{Cluster, RedisServer};

use crate::store;

const PATIENCE: Duration = Duration::from_secs(10);

/// Asks until the answer is as it should be.
async fn wait_for(store: &RedisStore, is_right: impl Fn(&Health) -> bool) -> Health {
    let asking = async {
        loop {
            let health = store.health().await;
            if is_right(&health) {
                return health;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_master_of_a_cluster_is_a_part_and_all_of_them_are_down() {
    let cluster = Cluster::start();
    let store = store(&cluster.url()).await;
    wait_for(&store, |health| *health == Health::Whole).await;
    let keys = cluster.nodes()[1].query::<u64>(&["DBSIZE"]);

    cluster.nodes()[0].kill();
    let health = wait_for(&store, |health| matches!(health, Health::Part(_))).await;
    let Health::Part(problem) = health else {
        unreachable!()
    };
    assert!(
        problem.contains("one of its masters is unreachable"),
        "{problem}"
    );
    let left = cluster.nodes()[1].query::<u64>(&["DBSIZE"]);
    assert!(left <= keys, "asking leaves nothing behind: {keys}, {left}");

    cluster.nodes()[1].kill();
    cluster.nodes()[2].kill();
    wait_for(&store, |health| matches!(health, Health::Down(_))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_is_there_or_not() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    assert_eq!(store.health().await, Health::Whole);
    server.kill();
    wait_for(&store, |health| matches!(health, Health::Down(_))).await;
    server.restart();
    wait_for(&store, |health| *health == Health::Whole).await;
}
