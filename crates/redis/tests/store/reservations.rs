//! Stored reservations on real servers: one call each, any instance settles, and no interleaving admits more than the
//! limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use tidegate_core::{
    Algorithm, CostUnit, Costs, ExtendAnswer, Limit, MadeReservation, Micros, PermitId, Rate,
    RemoteStore as _, Request, ReservationId, ReserveRequest, Reserved, ReservedCharge, Scope,
    SettleAnswer, SettleRequest,
};
use tidegate_redis::RedisStore;
use tidegate_testkit::eventually;
use tidegate_testkit::redis::{Cluster, RedisServer};

use crate::{Asked, store};

static TOKENS: LazyLock<CostUnit> = LazyLock::new(|| CostUnit::new("tokens").unwrap());
const TTL: Micros = Micros::MINUTE;
/// How long a caller waits that was not answered.
const RETRY: Duration = Duration::from_millis(5);

pub(crate) fn daily(count: u64) -> Limit {
    Limit::new(Rate::new(count, Micros::DAY), Algorithm::FIXED_WINDOW).unwrap()
}

pub(crate) fn tokens(asked: &Asked, cost: u64) -> ReservedCharge<'_> {
    ReservedCharge {
        charge: asked.charge(cost),
        unit: &TOKENS,
        unit_cost: 1,
        label: "label",
    }
}

/// Reserves `cost` of each.
async fn reserve(
    store: &RedisStore,
    asked: &[&Asked],
    cost: u64,
    ttl: Micros,
) -> Option<MadeReservation> {
    let group: Vec<_> = asked.iter().map(|asked| tokens(asked, cost)).collect();
    let request = ReserveRequest {
        id: ReservationId::random(),
        groups: &[&group],
        estimate: &Costs::from(cost),
        ttl,
        at: None,
    };
    match store.reserve(&request).await.unwrap() {
        Reserved::Decided { outcomes, made } => {
            let is_allowed = outcomes[0].iter().all(|outcome| outcome.allowed);
            assert_eq!(is_allowed, made.is_some());
            made
        }
        Reserved::TooMany => None,
    }
}

async fn settle(store: &RedisStore, id: ReservationId, cost: u64) -> SettleAnswer {
    let actual = Costs::from(cost);
    let request = SettleRequest {
        id,
        actual: Some(&actual),
        at: None,
    };
    store.settle_reservation(&request).await.unwrap()
}

/// How much was given back, and charged in addition, in each counter.
pub(crate) fn adjusted(answer: &SettleAnswer) -> Vec<(u64, u64)> {
    let SettleAnswer::Settled { reservation, .. } = answer else {
        return Vec::new();
    };
    let parts = reservation.parts.iter();
    parts
        .map(|part| (part.adjusted.given_back, part.adjusted.overrun))
        .collect()
}

fn calls(server: &RedisServer) -> u64 {
    let stats: String = server.query(&["INFO", "commandstats"]);
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_evalsha:"));
    let calls = line.and_then(|line| line.split("calls=").nth(1));
    let calls = calls.and_then(|calls| calls.split(',').next());
    calls.map_or(0, |calls| calls.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_reserves_and_one_settles_at_any_instance() {
    let server = RedisServer::start();
    let (one, other) = (store(&server.url()).await, store(&server.url()).await);
    let key = Asked::new(Scope::new("key"), &daily(100), "k");
    let all = Asked::new(Scope::new("all"), &daily(1_000), "");
    // The script is known by now.
    key.remaining(&one).await;
    let before = calls(&server);
    let made = reserve(&one, &[&key, &all], 60, TTL).await.unwrap();
    assert_eq!(calls(&server) - before, 1);
    assert_eq!(reserve(&other, &[&key, &all], 60, TTL).await, None);
    assert_eq!(key.remaining(&other).await, 40);
    let before = calls(&server);
    let settled = settle(&other, made.id, 25).await;
    assert_eq!(calls(&server) - before, 1);
    assert_eq!(adjusted(&settled), [(35, 0), (35, 0)]);
    assert_eq!(all.remaining(&one).await, 975);
    // The denial that this instance remembers is forgotten with the settlement.
    assert!(reserve(&other, &[&key, &all], 60, TTL).await.is_some());
    let keys: Vec<String> = server.query(&["KEYS", "tg:*:hold:*"]);
    assert_eq!(keys.len(), 2, "{keys:?}");
    for key in keys {
        let lives: i64 = server.query(&["PTTL", &key]);
        assert!((1..=60_002).contains(&lives), "{lives}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_settle_at_once_one_wins_and_the_other_gets_its_result() {
    let server = RedisServer::start();
    let stores = [store(&server.url()).await, store(&server.url()).await];
    let key = Asked::new(Scope::new("key"), &daily(100_000), "k");
    for _ in 0..50 {
        let made = reserve(&stores[0], &[&key], 60, TTL).await.unwrap();
        let (first, second) = tokio::join!(
            settle(&stores[0], made.id, 25),
            settle(&stores[1], made.id, 25)
        );
        assert_eq!(adjusted(&first), [(35, 0)]);
        assert_eq!(adjusted(&first), adjusted(&second));
        let made = reserve(&stores[0], &[&key], 60, TTL).await.unwrap();
        let (first, second) = tokio::join!(
            settle(&stores[0], made.id, 1),
            settle(&stores[1], made.id, 2)
        );
        let conflicts = [first, second]
            .iter()
            .filter(|answer| **answer == SettleAnswer::OtherCost)
            .count();
        assert_eq!(conflicts, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_never_settled_is_kept_or_given_back_though_no_instance_is_left() {
    let server = RedisServer::start();
    let kept = Asked::new(Scope::new("kept"), &daily(100), "k");
    let bucket: Limit = "100/hour".parse().unwrap();
    let back = [&daily(100), &bucket].map(|limit| {
        let scope = Scope::new("back").giving_back();
        Asked::new(scope, limit, "k")
    });
    let held = {
        let gone = store(&server.url()).await;
        let asked = [&kept, &back[0], &back[1]];
        let ttl = Micros::from_seconds(3);
        let made = reserve(&gone, &asked, 60, ttl).await.unwrap();
        let longer = gone.extend_reservation(made.id, ttl, None).await.unwrap();
        assert!(matches!(longer, ExtendAnswer::Until(until) if until > made.expires_at));
        made
    };
    let other = store(&server.url()).await;
    for asked in [&kept, &back[0], &back[1]] {
        assert_eq!(asked.remaining(&other).await, 40);
    }
    for asked in &back {
        let is_back = async || asked.ask(&other, 61).await.unwrap().allowed;
        eventually("given back", is_back).await;
    }
    assert_eq!(kept.remaining(&other).await, 40);
    assert_eq!(settle(&other, held.id, 1).await, SettleAnswer::Unknown);
    let left: Vec<String> = server.query(&["KEYS", "*:held*"]);
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_ends_with_its_reservation_alone() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    let limit = Limit::concurrent(1).unwrap();
    let held = Asked::new(Scope::new("held"), &limit, "k");
    let made = reserve(&store, &[&held], 1, TTL).await.unwrap();
    let permit = PermitId::from_u128(made.id.as_u128());
    assert!(!store.release(permit).await.unwrap());
    assert!(!store.renew(permit).await.unwrap());
    assert_eq!(reserve(&store, &[&held], 1, TTL).await, None);
    settle(&store, made.id, 1).await;
    let short = Micros::from_millis(50);
    assert!(reserve(&store, &[&held], 1, short).await.is_some());
    let is_free = async || reserve(&store, &[&held], 1, TTL).await.is_some();
    eventually("it ends with the reservation, not with its lease", is_free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leased_estimate_is_settled_as_of_its_lease() {
    let server = RedisServer::start();
    let (one, other) = (store(&server.url()).await, store(&server.url()).await);
    let scope = Scope::new("leased").leased();
    let key = Asked::new(scope, &daily(100), "k");
    let plain = Asked::new(Scope::new("plain"), &daily(100), "k");
    let made = reserve(&one, &[&key, &plain], 60, TTL).await.unwrap();
    let settled = settle(&other, made.id, 25).await;
    assert_eq!(adjusted(&settled), [(35, 0), (35, 0)]);
    let over = reserve(&one, &[&key, &plain], 10, TTL).await.unwrap();
    let settled = settle(&one, over.id, 20).await;
    assert_eq!(adjusted(&settled), [(0, 10), (0, 10)]);
    // Units that an instance has taken in advance go back when it leaves.
    one.leave().await;
    assert_eq!(plain.remaining(&other).await, 55);
    let is_back = async || key.remaining(&other).await == 55;
    eventually("all but what was used is back", is_back).await;
}

/// How long units certainly lie in a pool before they go back to Redis.
const IN_POOL: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn a_leased_estimate_goes_back_into_the_pool_where_it_was_reserved() {
    let server = RedisServer::start();
    let (one, other) = (store(&server.url()).await, store(&server.url()).await);
    let mut used = 0;
    // On a busy machine the units may have gone back to Redis before they are looked at.
    for number in 0..100 {
        let scope = Scope::new("leased").leased();
        let key = Asked::new(scope, &daily(100), &format!("k{number}"));
        let began = Instant::now();
        let made = reserve(&one, &[&key], 60, TTL).await.unwrap();
        let (lent, before) = (one.units_on_lease(), calls(&server));
        let settled = settle(&one, made.id, 25).await;
        let (after, units) = (calls(&server), one.units_on_lease());
        assert_eq!(adjusted(&settled), [(35, 0)]);
        let again = settle(&one, made.id, 25).await;
        assert_eq!(adjusted(&again), [(35, 0)]);
        let repeated = one.units_on_lease();
        let elsewhere = settle(&other, made.id, 25).await;
        assert_eq!(adjusted(&elsewhere), [(35, 0)]);
        if began.elapsed() < IN_POOL {
            assert_eq!((after - before, units - lent), (1, 35));
            assert_eq!(repeated, units, "they go back once");
            used += 1;
        }
        if began.elapsed() < IN_POOL {
            // From the pool: but for the record, Redis is not called.
            let before = calls(&server);
            let made = reserve(&one, &[&key], 30, TTL).await.unwrap();
            if began.elapsed() < IN_POOL {
                assert_eq!(calls(&server) - before, 1);
            }
            settle(&one, made.id, 0).await;
        }
        one.leave().await;
        let is_back = async || key.remaining(&other).await == 75;
        eventually("all but what was used is back", is_back).await;
        if used == 3 {
            return;
        }
    }
    panic!("units never stayed in the pool for {IN_POOL:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leased_estimate_whose_lease_has_ended_goes_back_to_redis() {
    let server = RedisServer::start();
    let (one, other) = (store(&server.url()).await, store(&server.url()).await);
    let bucket = Limit::new(Rate::new(1_000, Micros::DAY), Algorithm::TOKEN_BUCKET).unwrap();
    let key = Asked::new(Scope::new("leased").leased(), &bucket, "k");
    let made = reserve(&one, &[&key], 600, TTL).await.unwrap();
    one.leave().await;
    assert_eq!(adjusted(&settle(&one, made.id, 250).await), [(350, 0)]);
    let is_back = async || key.remaining(&other).await == 750;
    eventually("all but what was used is back", is_back).await;
}

/// What the callers of a counter hold and have used.
#[derive(Default)]
struct Held {
    estimates: AtomicU64,
    settled: AtomicU64,
}

/// Callers at two instances, with random estimates, costs and cancels, while Redis is disturbed: what is held and used never
/// exceeds the limit.
pub(crate) async fn never_over(stores: [RedisStore; 2], disturb: impl Fn()) {
    const LIMIT: u64 = 1_000;
    let user = Asked::new(Scope::new("user").giving_back(), &daily(LIMIT), "u1");
    let all = Asked::new(Scope::new("all"), &daily(LIMIT), "");
    let held = Arc::new(Held::default());
    let end = Instant::now() + Duration::from_secs(2);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16_u64 {
        let store = stores[usize::from(task % 2 == 0)].clone();
        let (user, all, held) = (user.clone(), all.clone(), Arc::clone(&held));
        tasks.spawn(async move {
            let mut seed = task + 1;
            let mut random = move |end: u64| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 33) % end
            };
            let mut lost = 0;
            while Instant::now() < end {
                let cost = 1 + random(200);
                let group = [tokens(&user, cost), tokens(&all, cost)];
                let estimate = Costs::from(cost);
                let request = ReserveRequest {
                    id: ReservationId::random(),
                    groups: &[&group],
                    estimate: &estimate,
                    ttl: TTL,
                    at: None,
                };
                let made = match store.reserve(&request).await {
                    Ok(Reserved::Decided { made, .. }) => made,
                    // It may have been charged: that stays.
                    Err(_) | Ok(Reserved::TooMany) => {
                        lost += 1;
                        tokio::time::sleep(RETRY).await;
                        None
                    }
                };
                let Some(made) = made else { continue };
                let open = held.estimates.fetch_add(cost, Ordering::SeqCst) + cost;
                assert!(open + held.settled.load(Ordering::SeqCst) <= LIMIT);
                tokio::time::sleep(Duration::from_millis(random(5))).await;
                // Mostly cancelled, so that it goes on.
                let actual = if random(20) == 0 {
                    random(cost + 1).min(3)
                } else {
                    0
                };
                let cost_of = Costs::from(actual);
                held.settled.fetch_add(actual, Ordering::SeqCst);
                held.estimates.fetch_sub(cost, Ordering::SeqCst);
                let request = SettleRequest {
                    id: made.id,
                    actual: Some(&cost_of),
                    at: None,
                };
                // Repeated until it is known.
                let mut answer = store.settle_reservation(&request).await;
                while answer.is_err() {
                    tokio::time::sleep(RETRY).await;
                    answer = store.settle_reservation(&request).await;
                }
                let Ok(SettleAnswer::Settled { reservation, .. }) = answer else {
                    unreachable!("it is open");
                };
                for part in &reservation.parts {
                    assert_eq!(part.adjusted.given_back, cost - actual);
                }
            }
            lost
        });
    }
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(300)).await;
        disturb();
    }
    let lost: u64 = tasks.join_all().await.into_iter().sum();
    let settled = held.settled.load(Ordering::SeqCst);
    let is_known = async || {
        let charges = [user.charge(0), all.charge(0)];
        let Ok(asked) = stores[0].peek(&Request::new(&charges)).await else {
            return false;
        };
        // What was lost may be charged, and nothing else.
        let most = LIMIT - settled;
        let mut left = asked.iter().map(|outcome| outcome.remaining);
        left.all(|left| left <= most && (lost > 0 || left == most))
    };
    eventually("nothing is charged but what was settled", is_known).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_held_or_used_than_the_limit() {
    let server = RedisServer::start();
    let stores = [store(&server.url()).await, store(&server.url()).await];
    never_over(stores, || {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_held_or_used_than_the_limit_though_connections_are_cut() {
    let server = RedisServer::start();
    let stores = [store(&server.url()).await, store(&server.url()).await];
    never_over(stores, || {
        let _: u64 = server.query(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_held_or_used_than_the_limit_over_several_slots() {
    let cluster = Cluster::start();
    let stores = [store(&cluster.url()).await, store(&cluster.url()).await];
    never_over(stores, || {}).await;
}
