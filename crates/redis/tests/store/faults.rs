//! Redis that is unreachable, hung, slow, or loses its replies: every call ends by its deadline, and the
//! store recovers soon after Redis does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate_core::RemoteStore as _;
use tidegate_core::{Limit, Scope, StoreError};
use tidegate_redis::{RedisSettings, RedisStore};
use tidegate_testkit::fault_proxy::FaultMode;
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::{FaultProxy, eventually};

use crate::{Asked, store, store_within};

/// The deadline of decisions, and what a test on a busy machine allows beyond it.
const DEADLINE: Duration = Duration::from_millis(15);
const BUSY: Duration = Duration::from_millis(150);
/// How long a busy machine may take to notice a fault or its end.
const PATIENCE: Duration = Duration::from_secs(30);

fn asked() -> Asked {
    let limit: Limit = "1000000000/23h".parse().unwrap();
    Asked::new(Scope::new("faults"), &limit, "key")
}

/// Charges as long as `goes_on`, one call after the other. Returns how many were answered, and the errors.
async fn ask_while(store: &RedisStore, goes_on: impl Fn() -> bool) -> (u64, Vec<StoreError>) {
    let asked = asked();
    let (mut answered, mut errors, mut times) = (0, Vec::new(), Vec::new());
    while goes_on() {
        let begin = Instant::now();
        match asked.ask(store, 1).await {
            Ok(_) => answered += 1,
            Err(error) => errors.push(error),
        }
        times.push(begin.elapsed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    times.sort();
    // A busy machine may delay some of them, and not half of them.
    let median = times.get(times.len() / 2);
    assert!(
        median < Some(&(DEADLINE + BUSY)),
        "decisions took {times:?}"
    );
    (answered, errors)
}

async fn ask_for(store: &RedisStore, time: Duration) -> (u64, Vec<StoreError>) {
    let end = Instant::now() + time;
    ask_while(store, || Instant::now() < end).await
}

async fn ask_until_down(store: &RedisStore) -> (u64, Vec<StoreError>) {
    let end = Instant::now() + PATIENCE;
    let asked = ask_while(store, || store.is_up() && Instant::now() < end).await;
    assert!(!store.is_up(), "the breaker is open");
    asked
}

async fn wait_until_healed(store: &RedisStore) {
    let begin = Instant::now();
    while asked().ask(store, 1).await.is_err() {
        assert!(begin.elapsed() < PATIENCE, "{:?}", store.problem());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Breaks the connection to Redis, expects only errors after a moment, restores it and expects answers.
async fn breaks_and_heals(mode: FaultMode) {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.address());
    let url = format!("redis://{}", proxy.address());
    let store = store_within(&url, DEADLINE).await;
    wait_until_healed(&store).await;

    proxy.set(mode);
    ask_until_down(&store).await;
    let (answered, errors) = ask_for(&store, Duration::from_millis(200)).await;
    assert_eq!(answered, 0);
    assert!(
        errors
            .iter()
            .all(|error| matches!(error, StoreError::Unreachable(_))),
        "nothing is sent any more"
    );
    proxy.set(FaultMode::Pass);
    wait_until_healed(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_refuses_connections() {
    breaks_and_heals(FaultMode::Cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_swallows_everything() {
    breaks_and_heals(FaultMode::BlackHole).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_slower_than_the_deadline() {
    breaks_and_heals(FaultMode::DelayReplies(Duration::from_millis(60))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_whose_replies_are_lost() {
    breaks_and_heals(FaultMode::LoseReplies).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_stopped_and_goes_on() {
    let server = RedisServer::start();
    let store = store_within(&server.url(), DEADLINE).await;
    wait_until_healed(&store).await;
    server.stop();
    ask_until_down(&store).await;
    server.resume();
    wait_until_healed(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_killed_and_started_again() {
    let server = RedisServer::start();
    let store = store_within(&server.url(), DEADLINE).await;
    wait_until_healed(&store).await;
    server.kill();
    ask_until_down(&store).await;
    assert!(asked().ask(&store, 1).await.is_err());
    server.restart();
    wait_until_healed(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_not_there_at_the_start() {
    let server = RedisServer::start();
    server.kill();
    let settings = RedisSettings::new(server.url().parse().unwrap());
    let store = RedisStore::open(settings);
    let (answered, errors) = ask_for(&store, Duration::from_millis(50)).await;
    assert_eq!(answered, 0);
    assert!(matches!(errors[0], StoreError::Unreachable(_)));
    let problem = store.problem().unwrap();
    assert!(
        problem.contains(&server.address().to_string()) || problem.contains("reached"),
        "{problem}"
    );
    server.restart();
    wait_until_healed(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_flush_under_load_is_not_noticed() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (store, is_over, answered) =
            (store.clone(), Arc::clone(&is_over), Arc::clone(&answered));
        tasks.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                asked().ask(&store, 1).await.unwrap();
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let flushing = tokio::task::spawn_blocking(move || {
        for _ in 0..20 {
            let _: String = server.query(&["SCRIPT", "FLUSH"]);
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    });
    let server = flushing.await.unwrap();
    is_over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    let used = 1_000_000_000 - asked().remaining(&store).await;
    // A little has flowed back, and nothing was charged twice.
    assert!(used <= answered.load(Ordering::Relaxed));
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_and_not_answered_is_never_sent_again() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.address());
    let url = format!("redis://{}", proxy.address());
    let store = store_within(&url, DEADLINE).await;
    wait_until_healed(&store).await;
    let limit: Limit = "1000/23h".parse().unwrap();
    let asked = Asked::new(Scope::new("once"), &limit, "key");
    let error = loop {
        proxy.set(FaultMode::LoseReplies);
        let error = asked.ask(&store, 10).await.unwrap_err();
        proxy.set(FaultMode::Pass);
        wait_until_healed(&store).await;
        // A busy machine may not send it in time.
        if !matches!(error, StoreError::Unreachable(_)) {
            break error;
        }
    };
    assert!(matches!(error, StoreError::TimedOut(_)), "{error:?}");
    let direct = crate::store(&server.url()).await;
    let is_charged = async || asked.remaining(&direct).await != 1_000;
    eventually("it was charged", is_charged).await;
    assert_eq!(asked.remaining(&direct).await, 990, "it was charged once");
}

/// A server that answers and refuses to write counts as unreachable.
async fn refuses_and_heals(refuse: [&str; 2], restore: [&str; 2]) {
    let server = RedisServer::start();
    let store = store_within(&server.url(), DEADLINE).await;
    wait_until_healed(&store).await;
    let _: String = server.query(&["CONFIG", "SET", refuse[0], refuse[1]]);
    let (answered, errors) = ask_until_down(&store).await;
    assert_eq!(answered, 0);
    let is_known = |error: &StoreError| matches!(error, StoreError::Unreachable(_));
    // On a busy machine, a refusal may come after the deadline.
    let is_late = |error: &StoreError| matches!(error, StoreError::TimedOut(_));
    assert!(
        errors.iter().all(|error| is_known(error) || is_late(error)),
        "nothing was charged: {errors:?}"
    );
    assert!(is_known(&asked().ask(&store, 1).await.unwrap_err()));
    assert!(store.problem().is_some());
    let _: String = server.query(&["CONFIG", "SET", restore[0], restore[1]]);
    wait_until_healed(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_redis_denies_no_request_and_charges_nothing() {
    refuses_and_heals(["maxmemory", "1"], ["maxmemory", "0"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_without_the_replicas_that_it_needs_is_away() {
    let setting = "min-replicas-to-write";
    refuses_and_heals([setting, "1"], [setting, "0"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_with_more_patience_do_not_keep_the_breaker_shut() {
    let server = RedisServer::start();
    let store = store_within(&server.url(), DEADLINE).await;
    wait_until_healed(&store).await;
    server.stop();
    let patient: Vec<_> = (0..3)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.shared_rules(1).version().await })
        })
        .collect();
    ask_until_down(&store).await;
    server.resume();
    for one in patient {
        assert!(one.await.unwrap().is_err());
    }
    wait_until_healed(&store).await;
}
