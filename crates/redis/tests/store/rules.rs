//! Rules that all instances share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_core::SharedStore as _;
use tidegate_core::StoreError;
use tidegate_redis::{NewRules, RedisStore, Written};
use tidegate_testkit::eventually;
use tidegate_testkit::redis::{Cluster, RedisServer, Sentinel};

use crate::store;

async fn write(store: &RedisStore, after: u64, text: &str) -> Written {
    let new = NewRules {
        after,
        text,
        row: "{}",
        keep: 3,
    };
    store.write_rules(new).await.unwrap()
}

async fn distinguishes_versions(url: &str) {
    let (first, second) = (store(url).await, store(url).await);
    assert_eq!(first.rules_version().await.unwrap(), 0);
    assert_eq!(write(&first, 0, "one").await, Written::Version(1));
    assert_eq!(write(&second, 0, "other").await, Written::Stale(1));
    assert_eq!(second.rules_text(1).await.unwrap().as_deref(), Some("one"));
    for version in 1..5 {
        assert_eq!(
            write(&second, version, "more").await,
            Written::Version(version + 1)
        );
    }
    assert_eq!(first.rules_version().await.unwrap(), 5);
    assert_eq!(first.rules_text(1).await.unwrap(), None, "three are kept");
    let history = first.rules_history().await.unwrap();
    let versions: Vec<u64> = history.iter().map(|(version, _)| *version).collect();
    assert_eq!(versions, [5, 4, 3]);

    assert_eq!(first.overrides_version().await.unwrap(), 0);
    assert_eq!(first.overrides_text().await.unwrap(), None);
    let write = async |store: &RedisStore, after, text: &str| {
        store.write_overrides(after, text).await.unwrap()
    };
    assert_eq!(write(&first, 0, "one").await, Written::Version(1));
    assert_eq!(write(&second, 0, "other").await, Written::Stale(1));
    assert_eq!(write(&second, 1, "two").await, Written::Version(2));
    assert_eq!(first.overrides_version().await.unwrap(), 2);
    let text = first.overrides_text().await.unwrap();
    assert_eq!(text, Some((2, "two".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_faster_of_two_writers_wins() {
    distinguishes_versions(&RedisServer::start().url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_with_a_replica_that_has_to_confirm() {
    let sentinel = Sentinel::start();
    sentinel.wait_for_replicas();
    distinguishes_versions(&sentinel.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_in_a_cluster() {
    distinguishes_versions(&Cluster::start().url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_heard_by_those_who_follow() {
    let server = RedisServer::start();
    let (writer, follower) = (store(&server.url()).await, store(&server.url()).await);
    let heard = Arc::new(AtomicU64::new(0));
    let hearing = Arc::clone(&heard);
    let following = tokio::spawn(async move {
        follower
            .follow_rules(|| {
                hearing.fetch_add(1, Ordering::Relaxed);
            })
            .await;
    });
    let wait_for = async |count: u64| {
        eventually("it is heard", async || {
            heard.load(Ordering::Relaxed) >= count
        })
        .await;
    };
    wait_for(1).await;
    write(&writer, 0, "one").await;
    wait_for(2).await;
    writer.write_overrides(0, "one").await.unwrap();
    wait_for(3).await;
    following.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_nothing_is_written() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    server.kill();
    eventually("the store knows", async || !store.is_up()).await;
    let new = NewRules {
        after: 0,
        text: "one",
        row: "{}",
        keep: 3,
    };
    let error = store.write_rules(new).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
    assert!(store.rules_version().await.is_err());
}
