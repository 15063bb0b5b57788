//! The answer to Envoy, built from a decision.

use prost_types::Duration;
use tidegate::gate::{self, Decision, Decisions, Part};
use tidegate::headers::HeaderSettings;
use tidegate::rules::RuleSet;
use tidegate::{Micros, Outcome, Window};

use super::metadata;
use super::proto::rate_limit::{
    CurrentLimit, DescriptorStatus, HeaderValue, LimitCode, RateLimitDescriptor, RateLimitRequest,
    RateLimitResponse, Unit,
};

/// The header of a denial because the store could not answer.
const DEGRADED: &str = "x-tidegate-degraded";
/// The header with the reason of a denial.
const REASON: &str = "x-tidegate-reason";

/// A decision, and the call that asked for it.
pub(super) struct RateLimitAnswer<'a, 'p> {
    pub(super) asked: &'a RateLimitRequest,
    pub(super) rules: &'a RuleSet,
    pub(super) parts: &'a [Part<'p>],
    pub(super) decisions: &'a Decisions,
}

impl RateLimitAnswer<'_, '_> {
    pub(super) fn message(&self, settings: HeaderSettings) -> RateLimitResponse {
        let asked = self.parts.iter().zip(&self.asked.descriptors);
        let decided = self.decisions.iter().zip(asked);
        let (text, places) = self.decisions.headers(&settings).into_text();
        // Shared by all headers.
        let text = bytes::Bytes::from(text);
        let mut headers: Vec<HeaderValue> = places
            .map(|(key, place)| header(key, text.slice(place)))
            .collect();
        if self.decisions.is_failed() {
            headers.push(header(DEGRADED, bytes::Bytes::from_static(b"deny")));
        }
        if let Some(reason) = self.decisions.reason() {
            let name = bytes::Bytes::from_static(reason.name().as_bytes());
            headers.push(header(REASON, name));
        }
        RateLimitResponse {
            overall_code: code(self.decisions.is_allowed()),
            statuses: decided
                .map(|(decision, (part, asked))| self.status(decision, part, asked))
                .collect(),
            response_headers_to_add: headers,
            request_headers_to_add: Vec::new(),
            raw_body: bytes::Bytes::new(),
            dynamic_metadata: metadata::of_quotas(self.asked, self.decisions),
            quota: None,
        }
    }

    /// The descriptor's own status, also if it is a quota and the request is allowed by another.
    fn status(
        &self,
        decision: &Decision,
        part: &Part<'_>,
        asked: &RateLimitDescriptor,
    ) -> DescriptorStatus {
        // With descriptor rules a shadow limit is reported, as in envoyproxy/ratelimit.
        let shadow = || {
            let by_descriptors = self.rules.is_by_descriptors();
            decision.limits().next().filter(|_| by_descriptors)
        };
        let Some(decided) = decision.headline().or_else(shadow) else {
            let is_unlimited = part.grant.is_none() && self.rules.is_unlimited(&part.attributes);
            return DescriptorStatus {
                code: code(true),
                limit_remaining: if is_unlimited { u32::MAX } else { 0 },
                ..DescriptorStatus::default()
            };
        };
        DescriptorStatus {
            code: code(decision.is_allowed()),
            current_limit: Some(limit(&decided, asked)),
            limit_remaining: u32::try_from(decided.outcome.remaining).unwrap_or(u32::MAX),
            duration_until_reset: until_reset(decided.outcome),
            quota: None,
        }
    }
}

fn header(key: &'static str, value: bytes::Bytes) -> HeaderValue {
    HeaderValue {
        key: bytes::Bytes::from_static(key.as_bytes()),
        value,
        raw_value: bytes::Bytes::new(),
    }
}

fn code(is_allowed: bool) -> i32 {
    let code = if is_allowed {
        LimitCode::Ok
    } else {
        LimitCode::OverLimit
    };
    code.into()
}

/// The limit as written in the call or in the rules: requests per unit of time, if there is a unit for it.
fn limit(decided: &gate::LimitOutcome<'_>, asked: &RateLimitDescriptor) -> CurrentLimit {
    if let Some(brought) = asked.limit {
        return CurrentLimit {
            requests_per_unit: brought.requests_per_unit,
            unit: brought.unit,
            name: decided.rule.limit_name().to_owned(),
        };
    }
    let rate = decided.limit.map(tidegate::Limit::rate);
    let count = rate.map_or(0, |rate| rate.count);
    let window = rate.and_then(|rate| rate.window);
    let window = window.or_else(|| decided.rule.unit());
    let units = [
        (Window::Span(Micros::SECOND), Unit::Second),
        (Window::Span(Micros::MINUTE), Unit::Minute),
        (Window::Span(Micros::HOUR), Unit::Hour),
        (Window::Span(Micros::DAY), Unit::Day),
        (Window::Span(Micros::WEEK), Unit::Week),
        (Window::Month, Unit::Month),
        (Window::Year, Unit::Year),
    ];
    let unit = units.iter().find(|(known, _)| Some(*known) == window);
    CurrentLimit {
        requests_per_unit: u32::try_from(count).unwrap_or(u32::MAX),
        unit: unit.map_or(Unit::Unknown, |(_, unit)| *unit).into(),
        name: decided.rule.limit_name().to_owned(),
    }
}

/// When to retry, if denied; otherwise when the limit is fully available again. `None` if waiting cannot help.
fn until_reset(outcome: &Outcome) -> Option<Duration> {
    let wait = if outcome.allowed {
        outcome.reset_at.since(outcome.at)
    } else {
        outcome.retry.wait()?
    };
    let micros = wait.get();
    Some(Duration {
        seconds: i64::try_from(micros / 1_000_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(micros % 1_000_000 * 1_000).unwrap_or(0),
    })
}
