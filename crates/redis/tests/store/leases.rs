//! `sync: leased`: few questions, nothing lost that is not needed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::{
    Algorithm, Anchor, Limit, MemoryStore, Micros, Rate, RemoteStore as _, Request, Scope,
};
use tidegate_redis::RedisStore;
use tidegate_testkit::eventually;
use tidegate_testkit::redis::RedisServer;

use crate::{Asked, store};

fn leasable(count: u64, window: Micros) -> Vec<Limit> {
    [
        Algorithm::FIXED_WINDOW,
        Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        },
        Algorithm::SlidingWindowCounter,
        Algorithm::SLIDING_WINDOW_SLOTS,
        Algorithm::TOKEN_BUCKET,
    ]
    .map(|algorithm| Limit::new(Rate::new(count, window), algorithm).unwrap())
    .into()
}

fn asked(limit: &Limit) -> Asked {
    Asked::new(Scope::new("leased").leased(), limit, "hot")
}

fn calls(store: &RedisStore) -> u64 {
    store.stats().calls.load(Ordering::Relaxed)
}

/// What Redis itself says is left, by a store that has taken nothing.
async fn left(server: &RedisServer, asked: &Asked) -> u64 {
    asked.remaining(&store(&server.url()).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_is_asked_for_in_one_of_twenty_decisions_at_the_most() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    for limit in leasable(5_000, Micros::DAY) {
        let asked = asked(&limit);
        let before = calls(&store);
        let mut allowed = 0_u64;
        while asked.ask(&store, 1).await.unwrap().allowed {
            allowed += 1;
        }
        let name = limit.algorithm().name();
        assert_eq!(allowed, 5_000, "{name}");
        let calls = calls(&store) - before;
        assert!(calls * 20 <= allowed, "{name}: {calls} calls");
    }
}

/// One client and no other request: each cost waits as long as it must, and no longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_denied_request_of_any_cost_is_allowed_after_its_retry_after() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let slots = Algorithm::SlidingWindowSlots {
        slots: Some(10),
        strict: false,
    };
    let algorithms = [
        Algorithm::TOKEN_BUCKET,
        Algorithm::LeakyBucket { shape: false },
        Algorithm::FIXED_WINDOW,
        Algorithm::SlidingWindowCounter,
        slots,
    ];
    let cases = algorithms
        .into_iter()
        .flat_map(|algorithm| [1, 5, 10, 20].map(|cost| (algorithm, cost)));
    let tries = cases.map(async |(algorithm, cost)| {
        let limit = Limit::new(Rate::per_second(40), algorithm).unwrap();
        let (name, key) = (limit.algorithm().name(), cost.to_string());
        let asked = Asked::new(Scope::new(name).leased(), &limit, &key);
        for _ in 0..3 {
            let denied = loop {
                let outcome = asked.ask(&store, cost).await.unwrap();
                if !outcome.allowed {
                    break outcome;
                }
            };
            let wait = Duration::from(denied.retry.wait().unwrap());
            if limit.algorithm().is_bucket() {
                let units = Duration::from_millis(25 * cost);
                assert!(wait <= units, "{name}, cost {cost}: {wait:?}");
            }
            tokio::time::sleep(wait).await;
            let again = asked.ask(&store, cost).await.unwrap();
            assert!(again.allowed, "{name}, cost {cost}: {denied:?}, {again:?}");
        }
    });
    futures_util::future::join_all(tries).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_idle_goes_back() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    for limit in leasable(1_000, Micros::DAY) {
        let asked = asked(&limit);
        for _ in 0..100 {
            assert!(asked.ask(&store, 1).await.unwrap().allowed);
        }
        let name = limit.algorithm().name();
        let is_back = async || left(&server, &asked).await == 900 && store.units_on_lease() == 0;
        eventually(name, is_back).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_goes_back_at_the_end_of_the_program_and_when_rules_change() {
    let server = RedisServer::start();
    let limit = &leasable(1_000, Micros::DAY)[4];
    let asked = asked(limit);
    let leaving = store(&server.url()).await;
    for _ in 0..100 {
        assert!(asked.ask(&leaving, 1).await.unwrap().allowed);
    }
    leaving.leave().await;
    assert_eq!(left(&server, &asked).await, 900);
    for _ in 0..100 {
        assert!(asked.ask(&leaving, 1).await.unwrap().allowed);
    }
    leaving.rules_changed();
    let is_back = async || left(&server, &asked).await == 800;
    eventually("it goes back", is_back).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_instance_had_taken_is_whole_again_when_its_lease_has_ended() {
    let server = RedisServer::start();
    // Flows back within a second and a half.
    let limit = Limit::new(
        Rate::new(300, Micros::from_millis(1_500)),
        Algorithm::TOKEN_BUCKET,
    );
    let asked = asked(&limit.unwrap());
    let dying = store(&server.url()).await;
    for _ in 0..100 {
        assert!(asked.ask(&dying, 1).await.unwrap().allowed);
    }
    assert!(dying.units_on_lease() > 0);
    drop(dying);
    let is_whole = async || left(&server, &asked).await == 300;
    eventually("it is whole again", is_whole).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_forgets_what_was_taken_in_advance_too() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let asked = asked(&leasable(100, Micros::DAY)[4]);
    while asked.ask(&store, 1).await.unwrap().allowed {}
    store
        .forget(&asked.scope, &asked.limit, &asked.key)
        .await
        .unwrap();
    let mut allowed = 0;
    while asked.ask(&store, 1).await.unwrap().allowed {
        allowed += 1;
    }
    assert_eq!(allowed, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_moves_between_tiers_loses_nothing() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let tiers = [10_000, 10_001]
        .map(|count| Limit::new(Rate::new(count, Micros::DAY), Algorithm::FIXED_WINDOW).unwrap());
    for number in 0..400 {
        let asked = asked(&tiers[number / 20 % 2]);
        assert!(asked.ask(&store, 1).await.unwrap().allowed);
    }
    store.leave().await;
    assert_eq!(left(&server, &asked(&tiers[0])).await, 10_000 - 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_given_up_lose_nothing() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let limit = Limit::new(Rate::new(100_000, Micros::DAY), Algorithm::FIXED_WINDOW).unwrap();
    let asked = asked(&limit);
    let mut requests = 0;
    for number in 0..3_000 {
        if number % 10 == 0 {
            let asking = asked.ask(&store, 1);
            // Dropped after its first steps.
            let _ = tokio::time::timeout(Duration::ZERO, asking).await;
        } else {
            assert!(asked.ask(&store, 1).await.unwrap().allowed);
        }
        requests += 1;
    }
    // What was given up may still be on its way to Redis.
    let is_back = async || {
        store.leave().await;
        left(&server, &asked).await >= 100_000 - requests
    };
    eventually("nothing is lost", is_back).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_another_limit_denies_lose_nothing() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let limit = Limit::new(Rate::new(10_000, Micros::DAY), Algorithm::FIXED_WINDOW).unwrap();
    let leased = asked(&limit);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let (store, leased) = (store.clone(), leased.clone());
        tasks.spawn(async move {
            let few: Limit = "5/hour".parse().unwrap();
            let mut allowed = 0_u64;
            for number in 0..50 {
                let key = format!("user-{task}-{}", number / 10);
                let exact = Asked::new(Scope::new("exact"), &few, &key);
                let charges = [leased.charge(1), exact.charge(1)];
                let outcomes = store.charge(&Request::new(&charges)).await.unwrap();
                allowed += u64::from(outcomes.iter().all(|outcome| outcome.allowed));
            }
            allowed
        });
    }
    let allowed: u64 = tasks.join_all().await.into_iter().sum();
    assert_eq!(allowed, 16 * 25);
    // What was given back may still be on its way to Redis.
    let is_back = async || {
        store.leave().await;
        left(&server, &leased).await == 10_000 - allowed
    };
    eventually("nothing is lost", is_back).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_has_run_dry_is_not_asked_for_every_drop() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let rate = Rate::new(2_000, Micros::SECOND).burst(500);
    let asked = asked(&Limit::new(rate, Algorithm::TOKEN_BUCKET).unwrap());
    let (before, begin) = (calls(&store), std::time::Instant::now());
    // Decides the same requests, which shows what the limit had to give.
    let memory = Arc::new(MemoryStore::new());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, asked, memory) = (store.clone(), asked.clone(), Arc::clone(&memory));
        tasks.spawn(async move {
            let (mut allowed, mut possible) = (0_u64, 0_u64);
            while begin.elapsed() < Duration::from_secs(2) {
                possible += u64::from(memory.charge_one(&asked.charge(1)).allowed);
                if asked.ask(&store, 1).await.unwrap().allowed {
                    allowed += 1;
                } else {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            [allowed, possible]
        });
    }
    let counts = tasks.join_all().await;
    let [allowed, possible] = [0, 1].map(|at| counts.iter().map(|counts| counts[at]).sum::<u64>());
    let calls = calls(&store) - before;
    assert!(allowed * 100 >= possible * 90, "{allowed} of {possible}");
    assert!(calls * 20 <= allowed, "{calls} calls for {allowed}");
}
