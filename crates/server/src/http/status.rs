//! `GET /v1/status`: the state of this server, for people and their tools.

use http::StatusCode;
use serde_json::{Value, json};
use tidegate::{MemoryStore, Micros, RemoteStore};
use tidegate_listen::clock::Stopwatch;
use tidegate_redis::{Breaker, Health, RedisStore};

use super::call::ApiCall;
use super::probes::{self, Readiness, unix};
use super::query::parameters;
use crate::kept_counters::SnapshotState;
use crate::problem::{ApiReply, HttpProblem};
use crate::seconds::decimal_seconds;

/// Answers with the state of this server. What does not apply to its store is null.
pub(super) async fn status(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let [] = parameters(&call.parts, [])?;
    let admin = &call.api.admin;
    let asked = Stopwatch::start();
    let readiness = Readiness::of(admin).await;
    let latency = asked.elapsed();

    let store = &admin.store;
    let redis = store.redis();
    let memory = store.memory().map(MemoryStore::stats);
    let is_asked = redis.is_some() && !matches!(readiness.store, Health::Down(_));
    let breaker = redis.map(|redis| match redis.breaker() {
        Breaker::Closed => "closed",
        Breaker::Partial => "partial",
        Breaker::Open => "open",
    });
    let degraded_since = redis.and_then(RedisStore::degraded_since);
    let mut rules = probes::rules(admin);
    // Whole, because a reader may be on another machine.
    let file = admin
        .book
        .file()
        .map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone()));
    rules["file"] = json!(file.map(|file| file.display().to_string()));
    let body = json!({
        "status": readiness.status,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime": seconds(admin.started.elapsed().into()),
        "store": {
            "kind": store.kind(),
            "latency": is_asked.then(|| seconds(latency.into())),
            "breaker": breaker,
            "degraded_since": degraded_since.map(unix),
            "problem": readiness.problem(),
        },
        "instances": redis.map_or(Some(1), RemoteStore::instances),
        "rules": rules,
        "keys": memory.as_ref().map(|stats| stats.keys),
        "memory": memory
            .as_ref()
            .map(|stats| json!({"used": stats.memory, "bound": stats.max_memory})),
        "leases": match (&memory, redis) {
            (Some(stats), _) => Some(stats.permits as u64),
            (None, redis) => redis.map(RedisStore::units_on_lease),
        },
        "reservations": admin.gate.reservations().open()
            + memory.as_ref().map_or(0, |stats| stats.reservations as u64),
        "snapshot": admin.counters.as_ref().map(|counters| snapshot(&counters.state())),
        "console": admin.has_console,
        "activity": admin.activity.is_some(),
        "warnings": readiness.warnings,
    });
    Ok(super::json(StatusCode::OK, body.to_string().into_bytes()))
}

fn snapshot(state: &SnapshotState) -> Value {
    json!({
        "last_written": state.written_at.map(unix),
        "age": seconds(state.age),
        "problem": state.problem,
    })
}

fn seconds(span: Micros) -> f64 {
    decimal_seconds(span.get())
}
