//! Rules that all instances share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_core::RemoteStore as _;
use tidegate_core::StoreError;
use tidegate_redis::{RedisDocument, RedisStore, Written};
use tidegate_testkit::eventually;
use tidegate_testkit::redis::{Cluster, RedisServer, Sentinel};

use crate::store;

fn rules(store: &RedisStore) -> RedisDocument {
    store.shared_rules(3)
}

async fn write(document: &RedisDocument, after: u64, text: &str) -> Written {
    document.write(after, text, "{}").await.unwrap()
}

async fn distinguishes_versions(url: &str) {
    let stores = (store(url).await, store(url).await);
    let (first, second) = (rules(&stores.0), rules(&stores.1));
    assert_eq!(first.current().await.unwrap(), (0, None));
    assert_eq!(first.version().await.unwrap(), 0);
    assert_eq!(write(&first, 0, "one").await, Written::Version(1));
    assert_eq!(write(&second, 0, "other").await, Written::Stale(1));
    assert_eq!(second.text(1).await.unwrap().as_deref(), Some("one"));
    for version in 1..5 {
        assert_eq!(
            write(&second, version, "more").await,
            Written::Version(version + 1)
        );
    }
    assert_eq!(first.version().await.unwrap(), 5);
    assert_eq!(first.text(1).await.unwrap(), None, "three are kept");
    let history = first.history().await.unwrap();
    let versions: Vec<u64> = history.iter().map(|(version, _)| *version).collect();
    assert_eq!(versions, [5, 4, 3]);
    let text = first.current().await.unwrap();
    assert_eq!(text, (5, Some("more".to_owned())));

    let (first, second) = (stores.0.shared_overrides(), stores.1.shared_overrides());
    assert_eq!(first.version().await.unwrap(), 0);
    assert_eq!(first.current().await.unwrap(), (0, None));
    assert_eq!(write(&first, 0, "one").await, Written::Version(1));
    assert_eq!(write(&second, 0, "other").await, Written::Stale(1));
    assert_eq!(write(&second, 1, "two").await, Written::Version(2));
    assert_eq!(first.version().await.unwrap(), 2);
    let text = first.current().await.unwrap();
    assert_eq!(text, (2, Some("two".to_owned())));
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
async fn a_change_reaches_every_follower() {
    let server = RedisServer::start();
    let (writer, follower) = (store(&server.url()).await, store(&server.url()).await);
    let received = Arc::new(AtomicU64::new(0));
    let receiving = Arc::clone(&received);
    let following = tokio::spawn(async move {
        follower
            .follow_rules(|| {
                receiving.fetch_add(1, Ordering::Relaxed);
            })
            .await;
    });
    let wait_for = async |count: u64| {
        eventually("it is received", async || {
            received.load(Ordering::Relaxed) >= count
        })
        .await;
    };
    wait_for(1).await;
    write(&rules(&writer), 0, "one").await;
    wait_for(2).await;
    write(&writer.shared_overrides(), 0, "one").await;
    wait_for(3).await;
    following.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_nothing_is_written() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    server.kill();
    eventually("the store knows", async || !store.is_up()).await;
    let error = rules(&store).write(0, "one", "{}").await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
    assert!(rules(&store).version().await.is_err());
}
