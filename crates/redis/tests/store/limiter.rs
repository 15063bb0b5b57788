//! The limiter of an application over Redis: several processes wait for the same limit.

use std::time::Duration;

use tidegate::{
    AcquireError, Algorithm, Limiter, LimiterBuilder, ManualClock, SharedLimiter, Timestamp,
};
use tidegate_testkit::redis::RedisServer;

use crate::store;

async fn limiter(server: &RedisServer, builder: LimiterBuilder) -> SharedLimiter {
    let store = store(&server.url()).await;
    builder.build_shared("api", store).unwrap()
}

#[tokio::test]
async fn limiters_with_one_name_share_what_they_use() {
    let server = RedisServer::start();
    let one = limiter(&server, Limiter::builder("3/minute")).await;
    let other = limiter(&server, Limiter::builder("3/minute")).await;
    assert!(one.check("u").await.unwrap().is_allowed());
    assert!(other.check_cost("u", 2).await.unwrap().is_allowed());
    let denied = one.check("u").await.unwrap();
    assert!(denied.is_denied());
    assert!(denied.retry_after() > Some(Duration::ZERO));
    assert!(one.check("v").await.unwrap().is_allowed());
    one.reset("u").await.unwrap();
    assert_eq!(other.peek("u").await.unwrap().remaining(), 3);
    assert_eq!(other.settle("u", 2).await.unwrap().remaining(), 1);

    let store = store(&server.url()).await;
    let elsewhere = Limiter::builder("3/minute").build_shared("other", store);
    let elsewhere = elsewhere.unwrap();
    assert_eq!(elsewhere.peek("u").await.unwrap().remaining(), 3);
}

#[tokio::test]
async fn callers_in_two_processes_wait_for_one_bucket() {
    let server = RedisServer::start();
    let one = limiter(&server, Limiter::builder("20/second burst 1")).await;
    let other = limiter(&server, Limiter::builder("20/second burst 1")).await;
    let started = std::time::Instant::now();
    for _ in 0..3 {
        let (first, second) = tokio::join!(one.acquire("k"), other.acquire("k"));
        assert!(first.is_ok() && second.is_ok());
    }
    // The first goes on immediately, five wait for 50 ms each.
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(245), "{waited:?}");

    let never = one.acquire_cost("k", 2).await.unwrap_err();
    assert!(matches!(never, AcquireError::Never(_)), "{never}");
    let hour = limiter(&server, Limiter::builder("1/hour")).await;
    drop(hour.acquire("k").await.unwrap());
    let error = hour.acquire("k").await.unwrap_err();
    assert!(matches!(error, AcquireError::TooLong { .. }), "{error}");
}

#[tokio::test]
async fn a_caller_that_gives_up_gives_back_its_turn() {
    let server = RedisServer::start();
    let builder = Limiter::builder("1/minute burst 1").max_wait(Duration::from_hours(1));
    let limiter = limiter(&server, builder).await;
    drop(limiter.acquire("k").await.unwrap());
    for _ in 0..20 {
        let impatient = tokio::time::timeout(Duration::from_millis(5), limiter.acquire("k"));
        assert!(impatient.await.is_err());
    }
    // Twenty turns would have pushed the next one twenty minutes away. They are given back in the background.
    let is_soon = async {
        loop {
            let peeked = limiter.peek("k").await.unwrap();
            if peeked.retry_after() <= Some(Duration::from_mins(1)) {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), is_soon).await;
    assert!(waited.is_ok(), "the turns were not given back");
}

#[tokio::test]
async fn a_permit_that_another_process_releases_is_noticed() {
    let server = RedisServer::start();
    let places = || Limiter::builder("1").algorithm(Algorithm::CONCURRENCY);
    let one = limiter(&server, places()).await;
    let other = limiter(&server, places()).await;
    let permit = one.acquire("k").await.unwrap();
    assert!(permit.renew().await.unwrap());
    assert!(other.check("k").await.unwrap().is_denied());
    let waiting = tokio::spawn(async move { other.acquire("k").await.map(drop) });
    drop(permit);
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_an_error() {
    let server = RedisServer::start();
    let limiter = limiter(&server, Limiter::builder("1/second")).await;
    server.stop();
    assert!(limiter.check("k").await.is_err());
    let error = limiter.acquire("k").await.unwrap_err();
    assert!(matches!(error, AcquireError::Store(_)), "{error}");
    assert!(error.decision().is_none());
}

#[tokio::test]
async fn a_limiter_that_brings_its_time_is_ruled_by_its_clock() {
    let server = RedisServer::start();
    let clock = ManualClock::new(Timestamp::from_seconds(1_800_000_000));
    let builder = Limiter::builder("1/minute").clock(clock.clone());
    let limiter = limiter(&server, builder.bring_time()).await;
    assert!(limiter.check("u").await.unwrap().is_allowed());
    let denied = limiter.check("u").await.unwrap();
    assert_eq!(denied.retry_after(), Some(Duration::from_mins(1)));
    clock.advance(Duration::from_mins(1));
    assert!(limiter.peek("u").await.unwrap().is_allowed());
    assert!(limiter.settle("u", 1).await.unwrap().is_allowed());
    assert!(limiter.check("u").await.unwrap().is_denied());
}

#[tokio::test]
async fn secret_keys_are_not_readable_and_a_wait_may_be_shorter() {
    let server = RedisServer::start();
    let builder = Limiter::builder("1/minute").secret_keys();
    let limiter = limiter(&server, builder).await;
    drop(limiter.acquire("hidden").await.unwrap());
    let short = Duration::from_millis(10);
    let refused = limiter.acquire_within("hidden", 1, short).await;
    assert!(matches!(refused, Err(AcquireError::TooLong { .. })));
    limiter.reset("hidden").await.unwrap();
    let permit = limiter.acquire("hidden").await.unwrap();
    assert_eq!(permit.into_decision().permit(), None);
    let keys: Vec<String> = server.query(&["KEYS", "*"]);
    assert!(
        keys.iter().any(|key| key.ends_with(":api:tb:1m")),
        "{keys:?}"
    );
    assert!(keys.iter().all(|key| !key.contains("hidden")), "{keys:?}");
}
