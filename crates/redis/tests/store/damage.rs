//! Values in Redis that are not the states that they should be: repaired where no version can have written
//! them, reported, and of no concern to other keys.

use tidegate_core::algorithm::Form;
use tidegate_core::{Algorithm, Limit, Rate, RemoteStore as _, Request, Scope, StoreError};
use tidegate_redis::RedisStore;
use tidegate_testkit::conformance::limits_of;
use tidegate_testkit::redis::RedisServer;

use crate::{Asked, store};

/// The one key of a state that was charged, without the details of permits.
fn name_of(server: &RedisServer, key: &str) -> String {
    let mut keys: Vec<String> = server.query(&["KEYS", &format!("tg:{{{key}}}*")]);
    keys.retain(|key| !key.ends_with(":leases"));
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.remove(0)
}

/// Asks, and takes permits of a concurrency limit.
async fn ask(asked: &Asked, store: &RedisStore) -> Result<tidegate_core::Outcome, StoreError> {
    let charges = [asked.charge(1)];
    let lease = store.permit_for(&charges);
    let outcomes = store.charge(&Request::new(&charges).under(lease)).await?;
    Ok(outcomes[0])
}

fn damage_of(store: &RedisStore) -> Vec<(String, u64)> {
    let damage = store.damage().into_iter();
    damage.map(|damage| (damage.rule, damage.met)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_is_replaced_by_what_is_known_to_be_used() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    for (index, limit) in limits_of(5).into_iter().enumerate() {
        let scope = Scope::new(&format!("rule{index}@user_id"));
        let mine = Asked::new(scope, &limit, "mine");
        for _ in 0..2 {
            assert!(ask(&mine, &store).await.unwrap().allowed);
        }
        let name = name_of(&server, "mine");
        let _: u64 = server.query(&["DEL", &name]);
        let _: u64 = server.query(&["LPUSH", &name, "foreign"]);
        let kind = limit.algorithm().name();
        let outcome = ask(&mine, &store).await.unwrap();
        let known = if matches!(limit.form(), Form::Concurrency(_)) {
            // It is unknown how many permits are held.
            4
        } else {
            2
        };
        assert_eq!(
            (outcome.allowed, outcome.remaining),
            (true, known),
            "{kind}"
        );
        let _: String = server.query(&["FLUSHALL"]);
    }
    let damage = damage_of(&store);
    assert_eq!(damage.len(), limits_of(5).len(), "{damage:?}");
    assert_eq!(damage[0], ("rule0".to_owned(), 1));
    let repaired = &store.stats().repaired_states;
    let repaired = repaired.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(repaired, damage.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_over_a_key_of_another_type_replaces_it_too() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let limit: Limit = "100/23h".parse().unwrap();
    let mine = Asked::new(Scope::new("leased@").leased(), &limit, "mine");
    let name = {
        let exact = Asked::new(Scope::new("leased@"), &limit, "mine");
        ask(&exact, &store).await.unwrap();
        name_of(&server, "mine")
    };
    let _: u64 = server.query(&["DEL", &name]);
    let _: u64 = server.query(&["SADD", &name, "foreign"]);
    assert!(ask(&mine, &store).await.unwrap().allowed);
    assert_eq!(damage_of(&store), [("leased".to_owned(), 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_the_right_type_that_cannot_be_read_is_refused_and_left() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let limit: Limit = "10/hour".parse().unwrap();
    let mine = Asked::new(Scope::new("mine@user_id"), &limit, "mine");
    let other = Asked::new(Scope::new("mine@user_id"), &limit, "other");
    ask(&mine, &store).await.unwrap();
    let name = name_of(&server, "mine");
    let _: String = server.query(&["SET", &name, "garbage"]);
    for _ in 0..3 {
        let error = ask(&mine, &store).await.unwrap_err();
        assert!(matches!(error, StoreError::BadState(_)), "{error:?}");
        assert!(ask(&other, &store).await.unwrap().allowed);
    }
    let kept: String = server.query(&["GET", &name]);
    assert_eq!(kept, "garbage");
    assert_eq!(damage_of(&store), [("mine".to_owned(), 3)]);
    let (scope, limit) = (&mine.scope, &mine.limit);
    store.forget(scope, limit, &mine.key).await.unwrap();
    assert_eq!(ask(&mine, &store).await.unwrap().remaining, 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_negative_number_is_refused_once_and_never_grants_more() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let slots = Limit::new(Rate::per_hour(3), Algorithm::SLIDING_WINDOW_SLOTS).unwrap();
    let mine = Asked::new(Scope::new("slots@"), &slots, "slots");
    ask(&mine, &store).await.unwrap();
    let name = name_of(&server, "slots");
    let fields: Vec<String> = server.query(&["HKEYS", &name]);
    let slot = fields.iter().find(|field| *field != "at").unwrap();
    let _: u64 = server.query(&["HSET", &name, slot, "-100"]);
    let error = ask(&mine, &store).await.unwrap_err();
    assert!(matches!(error, StoreError::BadState(_)), "{error:?}");
    let mut admitted = 0;
    for _ in 0..6 {
        admitted += u32::from(ask(&mine, &store).await.unwrap().allowed);
    }
    assert_eq!(admitted, 3);

    let holders = Limit::concurrent(3).unwrap();
    let mine = Asked::new(Scope::new("places@"), &holders, "places");
    for _ in 0..2 {
        ask(&mine, &store).await.unwrap();
    }
    let name = [&name_of(&server, "places"), ":leases"].concat();
    let _: u64 = server.query(&["HSET", &name, "held", "-1000"]);
    let error = ask(&mine, &store).await.unwrap_err();
    assert!(matches!(error, StoreError::BadState(_)), "{error:?}");
    assert!(ask(&mine, &store).await.unwrap().allowed, "2 of 3 are held");
    assert!(!ask(&mine, &store).await.unwrap().allowed);
    let damage = damage_of(&store);
    assert_eq!(damage, [("places".to_owned(), 1), ("slots".to_owned(), 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_with_a_negative_end_are_removed_and_the_others_stay() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let holders = Limit::concurrent(3).unwrap();
    for end in ["-5", "-inf"] {
        let mine = Asked::new(Scope::new("places@"), &holders, end);
        ask(&mine, &store).await.unwrap();
        let name = name_of(&server, end);
        let _: u64 = server.query(&["ZADD", &name, end, "planted"]);
        let companion = [&name, ":leases"].concat();
        let _: u64 = server.query(&["HSET", &companion, "held", "2", "planted", "1 60000"]);
        let error = ask(&mine, &store).await.unwrap_err();
        assert!(matches!(error, StoreError::BadState(_)), "{error:?}");
        let mut admitted = 0;
        for _ in 0..4 {
            admitted += u32::from(ask(&mine, &store).await.unwrap().allowed);
        }
        assert_eq!(admitted, 2, "{end}: 1 of 3 was held");
        let planted: Option<String> = server.query(&["HGET", &companion, "planted"]);
        assert_eq!(planted, None);
    }
    assert_eq!(damage_of(&store), [("places".to_owned(), 2)]);
}
