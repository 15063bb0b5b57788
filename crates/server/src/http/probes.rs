//! Probes: liveness, readiness, metrics, and the description of the API.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tidegate::Timestamp;
use tidegate_redis::Health;

use super::call::ApiCall;
use crate::admin::Admin;
use crate::metrics_page::metrics_page;
use crate::problem::{ApiReply, HttpProblem};
use crate::seconds::decimal_seconds;
use crate::telemetry::plain_text;

/// `GET /healthz`: the process answers.
pub(super) fn health() -> ApiReply {
    super::json(StatusCode::OK, br#"{"status":"alive"}"#.to_vec())
}

/// How well requests can be decided.
pub(super) struct Readiness {
    pub(super) status: &'static str,
    pub(super) store: Health,
    pub(super) warnings: Vec<String>,
}

impl Readiness {
    /// Asks the store, and waits as long as a decision does.
    ///
    /// A server without its store stays ready if every rule can decide without it: otherwise an outage of Redis
    /// would take all servers out of service together. The same holds for a Cluster that has lost a master: the
    /// others decide their keys exactly.
    pub(super) async fn of(admin: &Admin) -> Self {
        let store = admin.decider.store_health().await;
        let status = if admin.decider.is_draining() {
            "draining"
        } else if !admin.book.has_rules() || admin.decider.identity.lacks_keys() {
            "not ready"
        } else if store == Health::Whole {
            "ready"
        } else if matches!(store, Health::Part(_)) || admin.decider.works_without_store() {
            "degraded"
        } else {
            "not ready"
        };
        let mut warnings = admin.warnings();
        if let Health::Part(problem) = &store {
            warnings.push(format!(
                "part of Redis does not answer; its keys are decided without it: {problem}"
            ));
        }
        Self {
            status,
            store,
            warnings,
        }
    }

    /// The problem, if the store or a part of it does not answer.
    pub(super) fn problem(&self) -> Option<&str> {
        match &self.store {
            Health::Whole => None,
            Health::Part(problem) | Health::Down(problem) => Some(problem),
        }
    }
}

/// Where the rules come from, and whether they are up to date.
pub(super) fn rules(admin: &Admin) -> Value {
    let mut rules = json!({
        "source": admin.book.source(),
        "version": admin.book.version(),
        "count": admin.gate.rules().len(),
        "problem": admin.book.problem(),
    });
    if let Some(xds) = admin.book.xds_status() {
        rules["server"] = json!(xds.server);
        rules["node"] = json!(xds.node);
        rules["connected"] = json!(xds.is_connected);
        rules["failure"] = json!(xds.failure);
        rules["server_version"] = json!(xds.server_version);
        rules["received"] = json!(xds.received.map(unix));
        if xds.is_kept {
            rules["kept"] = json!(true);
        }
    }
    rules
}

/// A time in Unix seconds.
pub(super) fn unix(at: Timestamp) -> f64 {
    decimal_seconds(at.as_micros())
}

/// `GET /readyz`: requests can be decided. The body lists problems.
pub(super) async fn readiness(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let admin = &call.api.admin;
    let readiness = Readiness::of(admin).await;
    let body = json!({
        "status": readiness.status,
        "store": readiness.problem().unwrap_or("ok"),
        "warnings": readiness.warnings,
        "rules": rules(admin),
    });
    let code = if matches!(readiness.status, "ready" | "degraded") {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    Ok(super::json(code, body.to_string().into_bytes()))
}

/// `GET /metrics`, for Prometheus: as `OpenMetrics` if the scraper accepts it, else in the older format.
pub(super) async fn metrics(call: ApiCall) -> Result<ApiReply, HttpProblem> {
    let accepted = call.parts.headers.get_all(ACCEPT).iter();
    let mut accepted = accepted.filter_map(|accepted| accepted.to_str().ok());
    let open_metrics = metrics_page(&call.api.admin).await;
    let (text, media_type) = if accepted.any(|list| list.contains("application/openmetrics-text")) {
        let media_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        (open_metrics, media_type)
    } else {
        let media_type = "text/plain; version=0.0.4; charset=utf-8";
        (plain_text(&open_metrics), media_type)
    };
    let mut reply = Response::new(Full::from(text));
    let media_type = HeaderValue::from_static(media_type);
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    Ok(reply)
}

/// `GET /openapi.json`.
pub(super) fn openapi(call: &ApiCall) -> ApiReply {
    super::json(StatusCode::OK, call.api.openapi.clone())
}
