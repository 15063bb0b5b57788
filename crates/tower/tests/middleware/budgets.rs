//! Five concurrent calls that each estimate 60 of 100 tokens a minute, by the library's guards and by the middleware, in
//! memory and over Redis: never more than 100 are held or used, but by an overrun that is reported.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::HeaderMap;
use tidegate::gate::ReservationEnd;
use tidegate::rules::BudgetKind;
use tidegate::{Attributes, Costs, Gate};
use tidegate_redis::{RedisSettings, RedisStore};
use tidegate_testkit::redis::RedisServer;
use tidegate_tower::RateLimitLayer;
use tokio::sync::Semaphore;

use super::{gate, left, request, rules, status};

/// A window in place of a bucket, so that time gives nothing back.
const RULES: &str = "
- {id: tokens, per: [], unit: tokens, limit: 100/day}
- {id: requests, per: [], limit: 500/day}";
const ESTIMATE: u64 = 60;

fn tokens(tokens: u64) -> Costs {
    Costs::by_unit([("tokens", tokens)]).unwrap()
}

pub(super) async fn over_redis(redis: &RedisServer, list: &str) -> Arc<Gate> {
    let mut settings = RedisSettings::new(redis.url().parse().unwrap());
    settings.deadline = Duration::from_secs(2);
    let store = RedisStore::open(settings);
    store.connected(Duration::from_secs(10)).await.unwrap();
    Arc::new(Gate::new(store, rules(list)))
}

/// What is left after one of five calls has used `actual`, and what the counts of the rule must be.
async fn assert_settled(gate: &Gate, actual: u64) {
    assert_eq!(left(gate).await, 100_u64.saturating_sub(actual), "{actual}");
    let rules = gate.rules();
    let counts = rules.get("tokens").unwrap().counts();
    let overrun = actual.saturating_sub(ESTIMATE);
    let charged = overrun.min(100 - ESTIMATE);
    for (kind, units) in [
        (BudgetKind::Reserved, ESTIMATE),
        (BudgetKind::Settled, actual),
        (BudgetKind::GivenBack, ESTIMATE.saturating_sub(actual)),
        (BudgetKind::Overrun, charged),
        (BudgetKind::Uncharged, overrun - charged),
    ] {
        assert_eq!(counts.budget(kind), units, "{kind:?} of {actual}");
    }
    let reservations = gate.reservations();
    assert_eq!(reservations.open(), 0);
    assert_eq!(reservations.ended(ReservationEnd::Settled), 1);
}

async fn five_guards(gate: &Gate, actual: u64) {
    let attributes = Attributes::new();
    let reserve = || gate.reserve(&attributes, tokens(ESTIMATE));
    let guards = tokio::join!(reserve(), reserve(), reserve(), reserve(), reserve());
    let guards = <[_; 5]>::from(guards);
    let guards = guards.into_iter().map(Result::unwrap);
    let mut admitted: Vec<_> = guards
        .filter(|guard| guard.decision().is_allowed())
        .collect();
    assert_eq!(admitted.len(), 1, "more than 100 tokens are held");
    let settlement = admitted
        .pop()
        .unwrap()
        .settle(tokens(actual))
        .await
        .unwrap();
    assert_eq!(
        settlement.overrun(),
        tokens(actual.saturating_sub(ESTIMATE))
    );
    assert_settled(gate, actual).await;
}

async fn five_requests(gate: &Arc<Gate>, actual: u64) {
    let work = Arc::new(Semaphore::new(0));
    let working = Arc::clone(&work);
    let answer = move || {
        let working = Arc::clone(&working);
        async move {
            // Until all five are decided.
            let _done = working.acquire().await;
            [("x-tokens", actual.to_string())]
        }
    };
    let used = |headers: &HeaderMap| headers.get("x-tokens")?.to_str().ok()?.parse().ok();
    let layer = RateLimitLayer::new(Arc::clone(gate))
        .costs(|_| tokens(ESTIMATE))
        .settle_costs(move |head| used(&head.headers).map(tokens));
    let app = Router::new().route("/", get(answer)).layer(layer);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let app = app.clone();
        calls.spawn(async move { status(&app, request("/")).await });
    }
    for _ in 0..4 {
        assert_eq!(calls.join_next().await.unwrap().unwrap(), 429);
    }
    assert_eq!(gate.reservations().open(), 1);
    work.add_permits(1);
    assert_eq!(calls.join_next().await.unwrap().unwrap(), 200);
    assert_settled(gate, actual).await;
}

#[tokio::test]
async fn five_concurrent_calls_do_not_spend_a_budget_five_times_in_memory() {
    for actual in [60, 20, 0, 90, 133] {
        five_guards(&gate(RULES), actual).await;
        five_requests(&gate(RULES), actual).await;
    }
}

#[tokio::test]
async fn five_concurrent_calls_do_not_spend_a_budget_five_times_over_redis() {
    for actual in [60, 20, 133] {
        let redis = RedisServer::start();
        five_guards(&*over_redis(&redis, RULES).await, actual).await;
        let redis = RedisServer::start();
        five_requests(&over_redis(&redis, RULES).await, actual).await;
    }
}

#[tokio::test]
async fn what_the_head_does_not_name_costs_the_estimate() {
    let gate = gate(RULES);
    let layer = RateLimitLayer::new(Arc::clone(&gate))
        .costs(|_| tokens(ESTIMATE))
        .settle_costs(|_| None);
    let app = super::app(layer);
    assert_eq!(status(&app, request("/")).await, 200);
    assert_settled(&gate, ESTIMATE).await;
}
