//! Many instances, one limit: never more than it grants, and not less.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_core::{Algorithm, Anchor, Limit, MemoryStore, Micros, Outcome, Rate, Scope};
use tidegate_redis::RedisStore;
use tidegate_testkit::redis::RedisServer;

use crate::{Asked, store_within};

const INSTANCES: usize = 8;
const TASKS: usize = 200;
const LIMIT: u64 = 1_000;

fn every_algorithm(count: u64, window: Micros) -> Vec<Limit> {
    let algorithms = [
        Algorithm::FIXED_WINDOW,
        Algorithm::FixedWindow {
            anchor: Anchor::FirstRequest,
        },
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
        Algorithm::SLIDING_WINDOW_SLOTS,
        Algorithm::TOKEN_BUCKET,
        Algorithm::LeakyBucket { shape: false },
    ];
    let limits = algorithms.map(|algorithm| Limit::new(Rate::new(count, window), algorithm));
    limits.into_iter().map(Result::unwrap).collect()
}

async fn instances(server: &RedisServer) -> Vec<RedisStore> {
    let mut stores = Vec::new();
    for _ in 0..INSTANCES {
        stores.push(store_within(&server.url(), Duration::from_secs(10)).await);
    }
    stores
}

/// All tasks of all instances ask until `go_on` has enough. What was allowed.
async fn everyone_asks(
    stores: &[RedisStore],
    asked: &Asked,
    go_on: impl Fn(&Outcome) -> bool + Send + Sync + 'static,
) -> Vec<Outcome> {
    let go_on = Arc::new(go_on);
    let mut tasks = tokio::task::JoinSet::new();
    for store in stores {
        for _ in 0..TASKS {
            let (store, asked, go_on) = (store.clone(), asked.clone(), Arc::clone(&go_on));
            tasks.spawn(async move {
                let mut allowed = Vec::new();
                loop {
                    let outcome = asked.ask(&store, 1).await.unwrap();
                    if outcome.allowed {
                        allowed.push(outcome);
                    }
                    if !go_on(&outcome) {
                        return allowed;
                    }
                    tokio::task::yield_now().await;
                }
            });
        }
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_instances_admit_exactly_the_limit() {
    let server = RedisServer::start();
    let stores = instances(&server).await;
    for limit in every_algorithm(LIMIT, Micros::DAY) {
        let asked = Asked::new(Scope::new("exact"), &limit, "hot");
        let allowed = everyone_asks(&stores, &asked, |outcome| outcome.allowed).await;
        let name = limit.algorithm().name();
        assert_eq!(allowed.len() as u64, LIMIT, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_instances_with_leases_admit_at_most_the_limit_and_nearly_all_of_it() {
    let server = RedisServer::start();
    let stores = instances(&server).await;
    for limit in every_algorithm(LIMIT, Micros::DAY) {
        if matches!(limit.algorithm(), Algorithm::SlidingWindowLog) {
            continue;
        }
        let asked = Asked::new(Scope::new("leased").leased(), &limit, "hot");
        let allowed = everyone_asks(&stores, &asked, |outcome| outcome.allowed).await;
        let (name, allowed) = (limit.algorithm().name(), allowed.len() as u64);
        assert!(allowed <= LIMIT, "{name}: {allowed}");
        assert!(allowed >= LIMIT * 95 / 100, "{name}: {allowed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_stay_within_their_limit_while_they_pass() {
    let server = RedisServer::start();
    let stores = instances(&server).await;
    let window = Micros::from_millis(700);
    let limit = Limit::new(Rate::new(300, window), Algorithm::FIXED_WINDOW).unwrap();
    for (scope, is_leased) in [
        (Scope::new("exact"), false),
        (Scope::new("l").leased(), true),
    ] {
        let asked = Asked::new(scope, &limit, "hot");
        let seen = Mutex::new(BTreeSet::new());
        let goes_on = move |outcome: &Outcome| {
            let mut seen = seen.lock();
            if outcome.allowed {
                seen.insert(outcome.reset_at);
            }
            seen.len() <= 4
        };
        let allowed = everyone_asks(&stores, &asked, goes_on).await;
        let mut windows = BTreeMap::<_, u64>::new();
        for outcome in &allowed {
            *windows.entry(outcome.reset_at).or_default() += 1;
        }
        assert!(windows.values().all(|count| *count <= 300), "{windows:?}");
        // A busy machine may sleep through some of a window.
        let is_full = windows.values().any(|count| *count == 300);
        assert!(is_leased || is_full, "{windows:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_interval_of_a_log_or_of_strict_slots_holds_more_than_the_limit() {
    let server = RedisServer::start();
    let stores = instances(&server).await;
    let window = Micros::from_millis(600);
    let strict = Algorithm::SlidingWindowSlots {
        slots: None,
        strict: true,
    };
    for algorithm in [Algorithm::SlidingWindowLog, strict] {
        let limit = Limit::new(Rate::new(200, window), algorithm).unwrap();
        let asked = Asked::new(Scope::new("interval"), &limit, "hot");
        let admitted = AtomicU64::new(0);
        let goes_on = move |outcome: &Outcome| {
            admitted.fetch_add(u64::from(outcome.allowed), Ordering::Relaxed) < 600
        };
        let allowed = everyone_asks(&stores, &asked, goes_on).await;
        let mut times: Vec<_> = allowed.iter().map(|outcome| outcome.at).collect();
        times.sort();
        for pair in times.windows(201) {
            let span = pair[200].since(pair[0]);
            assert!(span >= window, "{}: 201 within {span}", algorithm.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leased_bucket_never_grants_more_than_its_burst_and_what_flows_back() {
    let server = RedisServer::start();
    let stores = instances(&server).await;
    let rate = Rate::new(400, Micros::SECOND).burst(300);
    let limit = Limit::new(rate, Algorithm::TOKEN_BUCKET).unwrap();
    let asked = Asked::new(Scope::new("bucket").leased(), &limit, "hot");
    let begin = Instant::now();
    let end = begin + Duration::from_millis(2_500);
    // Decides the same requests, which shows what the limit had to give.
    let (memory, again) = (MemoryStore::new(), asked.clone());
    let possible = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&possible);
    let goes_on = move |_: &Outcome| {
        let goes_on = Instant::now() < end;
        let is_possible = goes_on && memory.charge_one(&again.charge(1)).allowed;
        counted.fetch_add(u64::from(is_possible), Ordering::Relaxed);
        goes_on
    };
    let allowed = everyone_asks(&stores, &asked, goes_on).await;
    let most = 300.0 + 400.0 * begin.elapsed().as_secs_f64();
    let allowed = u32::try_from(allowed.len()).unwrap();
    assert!(f64::from(allowed) <= most, "{allowed} of {most}");
    let possible = possible.load(Ordering::Relaxed);
    assert!(
        u64::from(allowed) * 10 >= possible * 9,
        "{allowed} of {possible}"
    );
}
