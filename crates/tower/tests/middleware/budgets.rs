//! Five concurrent calls that each estimate 60 of 100 tokens a minute, by the library's guards and by the middleware, in
//! memory and over Redis: never more than 100 are held or used, but by an overrun that is reported.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::{HeaderMap, Request};
use serde_json::json;
use tidegate::gate::ReservationEnd;
use tidegate::rules::BudgetKind;
use tidegate::{Attributes, Costs, Gate};
use tidegate_redis::{RedisSettings, RedisStore};
use tidegate_testkit::redis::RedisServer;
use tidegate_tower::RateLimitLayer;
use tidegate_usage::UsageForm;
use tokio::sync::Semaphore;

use super::{gate, left, request, rules, send, status, text};

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

/// What a layer reads of the cost of a request.
#[derive(Debug, Clone, Copy)]
enum Reads {
    /// The head of its answer.
    Heads,
    /// Its body, and that of its answer.
    Bodies,
}

async fn five_requests(gate: &Arc<Gate>, actual: u64, reads: Reads) {
    let work = Arc::new(Semaphore::new(0));
    let working = Arc::clone(&work);
    let answer = move || {
        let working = Arc::clone(&working);
        async move {
            // Until all five are decided.
            let _done = working.acquire().await;
            let usage = json!({"prompt_tokens": 0, "completion_tokens": actual});
            let usage = json!({ "usage": usage }).to_string();
            ([("x-tokens", actual.to_string())], usage)
        }
    };
    let used = |headers: &HeaderMap| headers.get("x-tokens")?.to_str().ok()?.parse().ok();
    let layer = RateLimitLayer::new(Arc::clone(gate));
    let router = Router::new().route("/", post(answer));
    let app = match reads {
        Reads::Heads => {
            let layer = layer.costs(|_| tokens(ESTIMATE));
            router.layer(layer.settle_costs(move |head| used(&head.headers).map(tokens)))
        }
        Reads::Bodies => router.layer(layer.usage(UsageForm::openai())),
    };
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let app = app.clone();
        // 40 bytes, so 10 tokens of input, and 50 of output.
        let asked =
            Request::post("/").body(Body::from(r#"{"max_tokens":50,"messages":["1234567"]}"#));
        calls.spawn(async move {
            let answer = send(&app, asked.unwrap()).await;
            let status = answer.status().as_u16();
            text(answer).await;
            status
        });
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
        for reads in [Reads::Heads, Reads::Bodies] {
            five_requests(&gate(RULES), actual, reads).await;
        }
    }
}

async fn five_calls_over_redis(list: &str, actual: u64) {
    let redis = RedisServer::start();
    five_guards(&*over_redis(&redis, list).await, actual).await;
    for reads in [Reads::Heads, Reads::Bodies] {
        let redis = RedisServer::start();
        five_requests(&over_redis(&redis, list).await, actual, reads).await;
    }
}

#[tokio::test]
async fn five_concurrent_calls_do_not_spend_a_budget_five_times_over_redis() {
    for actual in [60, 20, 133] {
        five_calls_over_redis(RULES, actual).await;
    }
}

#[tokio::test]
async fn five_concurrent_calls_do_not_spend_a_budget_five_times_by_leases() {
    let leased = RULES.replace("100/day", "100/day, sync: leased");
    for actual in [60, 20, 133] {
        five_calls_over_redis(&leased, actual).await;
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
