//! What an operator finds in Redis.

use tidegate_core::{Algorithm, Charge, Limit, PermitId, Rate, RemoteStore as _, Request, Scope};
use tidegate_testkit::conformance::limits_of;
use tidegate_testkit::redis::RedisServer;

use crate::{Asked, store};

#[tokio::test(flavor = "multi_thread")]
async fn every_state_is_readable_and_goes_by_itself() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    for limit in limits_of(5) {
        let asked = Asked::new(Scope::new("per-user"), &limit, "user_42");
        let charges = [asked.charge(2)];
        let lease = store.permit_for(&charges);
        let request = Request::new(&charges).under(lease);
        assert!(store.charge(&request).await.unwrap()[0].allowed);
    }
    let mut keys: Vec<String> = server.query(&["KEYS", "tg:{user_42}*"]);
    keys.sort();
    assert_eq!(
        keys,
        [
            "tg:{user_42}:per-user:con",
            "tg:{user_42}:per-user:con:leases",
            "tg:{user_42}:per-user:fw:1h",
            "tg:{user_42}:per-user:fwf:1h",
            "tg:{user_42}:per-user:lb:1h",
            "tg:{user_42}:per-user:log:1h",
            "tg:{user_42}:per-user:swc:1h",
            "tg:{user_42}:per-user:sws:1h/60",
            "tg:{user_42}:per-user:sws:1h/60s",
            "tg:{user_42}:per-user:tb:1h",
        ]
    );
    let all: Vec<String> = server.query(&["KEYS", "*"]);
    for key in all {
        let ttl: i64 = server.query(&["PTTL", &key]);
        assert!((1..=7_200_000).contains(&ttl), "{key}: {ttl}");
    }
    let bucket: String = server.query(&["GET", "tg:{user_42}:per-user:tb:1h"]);
    assert!(bucket.starts_with("debt=2 part=0 at="), "{bucket}");
    let kind: String = server.query(&["TYPE", "tg:{user_42}:per-user:log:1h"]);
    assert_eq!(kind, "zset");
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_keys_are_nowhere_in_redis() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let limit = Limit::new(Rate::per_hour(5), Algorithm::TOKEN_BUCKET).unwrap();
    let secret = Asked::new(
        Scope::new("per-key").with_secret_keys(),
        &limit,
        "sk_live_1",
    );
    let long = Asked::new(Scope::new("per-path"), &limit, &"p".repeat(500));
    let odd = Asked::new(Scope::new("per-name"), &limit, "} {x} \n\0");
    for asked in [&secret, &long, &odd] {
        asked.ask(&store, 1).await.unwrap();
    }
    let keys: Vec<String> = server.query(&["KEYS", "*"]);
    assert!(keys.iter().all(|key| !key.contains("sk_live")), "{keys:?}");
    assert!(keys.iter().all(|key| key.len() < 100), "{keys:?}");
    let is_plain = |key: &String| key.bytes().all(|byte| byte.is_ascii_graphic());
    assert!(keys.iter().all(is_plain), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_with_default_settings_share_what_they_count() {
    let server = RedisServer::start();
    let (first, second) = (store(&server.url()).await, store(&server.url()).await);
    let limit: Limit = "5/hour".parse().unwrap();
    let asked = Asked::new(Scope::new("shared").with_secret_keys(), &limit, "key");
    asked.ask(&first, 3).await.unwrap();
    assert_eq!(asked.remaining(&second).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_released_by_another_instance_and_once() {
    let server = RedisServer::start();
    let (first, second) = (store(&server.url()).await, store(&server.url()).await);
    let (scope, limit) = (Scope::new("holders"), Limit::concurrent(1).unwrap());
    let charges = [Charge {
        scope: &scope,
        limit: &limit,
        key: "key",
        cost: 1,
    }];
    let lease: PermitId = first.permit_for(&charges);
    let request = Request::new(&charges).under(lease);
    assert!(first.charge(&request).await.unwrap()[0].allowed);
    assert!(second.renew(lease).await.unwrap());
    assert!(second.release(lease).await.unwrap());
    assert!(!first.release(lease).await.unwrap());
    let next = Request::new(&charges).under(first.permit_for(&charges));
    assert!(first.charge(&next).await.unwrap()[0].allowed);
}
