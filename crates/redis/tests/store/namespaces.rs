//! Deployments that share a Redis and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::{Limit, RemoteStore as _, Request, Scope};
use tidegate_redis::{RedisSettings, RedisStore, Written};
use tidegate_testkit::redis::{Cluster, RedisServer};

use crate::Asked;

const PATIENCE: Duration = Duration::from_secs(10);

async fn store(url: &str, namespace: Option<&str>) -> RedisStore {
    let mut settings = RedisSettings::new(url.parse().unwrap());
    settings.deadline = Duration::from_secs(2);
    settings.namespace = namespace.map(|name| name.parse().unwrap());
    let store = RedisStore::open(settings);
    store.connected(PATIENCE).await.unwrap();
    store
}

async fn write_rules(store: &RedisStore, text: &str) -> Written {
    let rules = store.shared_rules(3);
    rules.write(0, text, "{}").await.unwrap()
}

/// Takes a permit, and returns its lease.
async fn take_permit(store: &RedisStore) -> tidegate_core::PermitId {
    let permits = Asked::new(Scope::new("permits"), &Limit::concurrent(1).unwrap(), "key");
    let charges = [permits.charge(1)];
    let lease = store.permit_for(&charges);
    let request = Request {
        permit: Some(lease),
        ..Request::new(&charges)
    };
    assert!(store.charge(&request).await.unwrap()[0].allowed);
    lease
}

/// Uses everything that a deployment keeps in Redis, in three deployments at the same time.
async fn share_nothing(url: &str) {
    // One is called like a key of a deployment without a namespace.
    let names = [None, Some("staging"), Some("rules")];
    let limit: Limit = "5/hour".parse().unwrap();
    let open = Asked::new(Scope::new("per-user"), &limit, "user_42");
    let leased = Asked::new(Scope::new("leased").leased(), &limit, "user_42");
    let secret = Asked::new(Scope::new("secret").with_secret_keys(), &limit, "user_42");
    let mut permits = Vec::new();
    let mut stores = Vec::new();
    for name in names {
        let store = store(url, name).await;
        for asked in [&open, &leased, &secret] {
            let outcome = asked.ask(&store, 1).await.unwrap();
            let scope = asked.scope.name();
            assert_eq!(outcome.remaining, 4, "{name:?}: {scope}");
        }
        permits.push(take_permit(&store).await);
        assert_eq!(
            store.shared_rules(3).version().await.unwrap(),
            0,
            "{name:?}"
        );
        assert_eq!(
            write_rules(&store, name.unwrap_or("none")).await,
            Written::Version(1)
        );
        let overrides = store.shared_overrides();
        assert_eq!(overrides.current().await.unwrap(), (0, None), "{name:?}");
        let written = overrides.write(0, name.unwrap_or("none"), "").await;
        assert_eq!(written.unwrap(), Written::Version(1));
        stores.push(store);
    }
    for (store, name) in stores.iter().zip(names) {
        let text = store.shared_rules(3).text(1).await.unwrap();
        assert_eq!(text.as_deref(), Some(name.unwrap_or("none")));
        let overrides = store.shared_overrides().current().await.unwrap();
        assert_eq!(overrides, (1, Some(name.unwrap_or("none").to_owned())));
        tokio::time::timeout(PATIENCE, async {
            while store.instances().is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap();
        assert_eq!(store.instances(), Some(1), "{name:?}");
    }
    // A lease is known where it was taken, and nowhere else.
    assert!(!stores[0].release(permits[1]).await.unwrap());
    assert!(!stores[1].renew(permits[0]).await.unwrap());
    for (store, lease) in stores.iter().zip(&permits) {
        assert!(store.release(*lease).await.unwrap());
    }
    // A reset is one here, too.
    stores[1]
        .forget(&open.scope, &open.limit, &open.key)
        .await
        .unwrap();
    assert_eq!(open.remaining(&stores[1]).await, 5);
    assert_eq!(open.remaining(&stores[0]).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_with_namespaces_of_their_own_share_nothing() {
    let server = RedisServer::start();
    share_nothing(&server.url()).await;
    let keys: Vec<String> = server.query(&["KEYS", "*"]);
    let of = |prefix: &str| keys.iter().filter(|key| key.starts_with(prefix)).count();
    let (none, staging, rules) = (of("tg:{"), of("tg:staging:{"), of("tg:rules:{"));
    assert_eq!(none + staging + rules, keys.len(), "{keys:?}");
    assert!(none > 0 && staging > 0 && rules > 0, "{keys:?}");
    let leased = "tg:staging:{user_42}:leased:tb:1h".to_owned();
    assert!(keys.contains(&leased), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_in_a_cluster_share_nothing() {
    share_nothing(&Cluster::start().url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_rules_are_announced_within_a_namespace_only() {
    let server = RedisServer::start();
    let received: [Arc<AtomicU64>; 2] = Default::default();
    let mut stores = Vec::new();
    for (name, received) in ["one", "two"].into_iter().zip(&received) {
        let store = store(&server.url(), Some(name)).await;
        let (following, received) = (store.clone(), Arc::clone(received));
        tokio::spawn(async move {
            let changed = || {
                received.fetch_add(1, Ordering::SeqCst);
            };
            following.follow_rules(changed).await;
        });
        stores.push(store);
    }
    let wait_for = |index: usize, times: u64| {
        let received = Arc::clone(&received[index]);
        tokio::time::timeout(PATIENCE, async move {
            while received.load(Ordering::SeqCst) < times {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    };
    // Each receives one message when it begins to listen.
    for index in [0, 1] {
        wait_for(index, 1).await.unwrap();
    }
    let mut channels: Vec<String> = server.query(&["PUBSUB", "CHANNELS"]);
    channels.sort();
    assert_eq!(channels, ["tg:one:rules", "tg:two:rules"]);
    write_rules(&stores[0], "[]").await;
    wait_for(0, 2).await.unwrap();
    write_rules(&stores[1], "[]").await;
    wait_for(1, 2).await.unwrap();
    assert_eq!(
        received[1].load(Ordering::SeqCst),
        2,
        "it received messages about its own rules alone"
    );
}
