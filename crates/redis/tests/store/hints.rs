//! Denials that are remembered, and what is forgotten with them.

use std::sync::atomic::Ordering;
use tidegate_core::{Limit, RemoteStore as _, Request, Retry, Scope};
use tidegate_redis::RedisStore;
use tidegate_testkit::eventually;
use tidegate_testkit::redis::RedisServer;

use crate::{Asked, store};

fn asked(limit: &str) -> Asked {
    let limit: Limit = limit.parse().unwrap();
    Asked::new(Scope::new("hints"), &limit, "key")
}

fn steps(store: &RedisStore) -> u64 {
    store.stats().steps.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_is_asked_for_once_and_counts_down() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let asked = asked("3/hour");
    asked.ask(&store, 3).await.unwrap();
    let denied = asked.ask(&store, 1).await.unwrap();
    let before = steps(&store);
    let again = asked.ask(&store, 1).await.unwrap();
    assert_eq!(steps(&store), before, "Redis was not asked");
    let (Retry::After(first), Retry::After(later)) = (denied.retry, again.retry) else {
        panic!("{denied:?} {again:?}");
    };
    assert!(later < first);
    assert_eq!((again.allowed, again.remaining), (false, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_a_limit_here_clears_the_memory_of_it() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let asked = asked("3/hour");
    asked.ask(&store, 3).await.unwrap();
    assert!(!asked.ask(&store, 1).await.unwrap().allowed);
    store
        .forget(&asked.scope, &asked.limit, &asked.key)
        .await
        .unwrap();
    let charges = [asked.charge(3)];
    let request = Request::new(&charges);
    let outcomes = store.charge(&request).await.unwrap();
    assert!(outcomes[0].allowed, "after a reset");
    assert!(!asked.ask(&store, 1).await.unwrap().allowed);
    let charges = request.given_back(&outcomes).unwrap();
    store.adjust(&request.adjusting(&charges)).await.unwrap();
    assert!(
        asked.ask(&store, 1).await.unwrap().allowed,
        "after a give-back"
    );
    asked.ask(&store, 2).await.unwrap();
    assert!(!asked.ask(&store, 1).await.unwrap().allowed);
    let before = steps(&store);
    store.rules_changed();
    assert!(!asked.ask(&store, 1).await.unwrap().allowed);
    assert!(
        steps(&store) > before,
        "asked again after a change of the rules"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_of_one_limit_answers_for_the_whole_request() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let (few, many) = (
        asked("2/hour"),
        Asked::new(Scope::new("many"), &"100/hour".parse().unwrap(), "key"),
    );
    let charges = [many.charge(1), few.charge(1)];
    for _ in 0..2 {
        let allowed = store.charge(&Request::new(&charges)).await.unwrap();
        assert!(allowed.iter().all(|outcome| outcome.allowed));
    }
    store.charge(&Request::new(&charges)).await.unwrap();
    let before = steps(&store);
    let denied = store.charge(&Request::new(&charges)).await.unwrap();
    assert_eq!(steps(&store), before);
    assert_eq!((denied[0].allowed, denied[0].remaining), (true, 98));
    assert_eq!((denied[1].allowed, denied[1].remaining), (false, 0));
    assert_eq!(many.remaining(&store).await, 98, "nothing was charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_last_used_is_known_when_redis_goes_away() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let asked = asked("10/hour");
    asked.ask(&store, 7).await.unwrap();
    server.kill();
    eventually("the store knows", async || !store.is_up()).await;
    assert_eq!(store.last_used(&asked.charge(1)), Some(7));
    assert_eq!(store.last_used(&asked.charge(1)), None, "returned once");
}
