//! The answer to Envoy, built from a decision.

use bytes::Bytes;
use prost::Message as _;
use tidegate::gate::{self, Decision, Decisions, Part};
use tidegate::headers::HeaderSettings;
use tidegate::rules::RuleSet;
use tidegate::{Micros, Outcome, Window};

use super::call::{CallDescriptor, RateLimitCall};
use super::metadata;
use super::proto::rate_limit::{LimitCode, Unit};
use super::write::MessageWriter;

/// The header of a denial because the store could not answer.
const DEGRADED: &str = "x-tidegate-degraded";
/// The header with the reason of a denial.
const REASON: &str = "x-tidegate-reason";

/// A decision, and the call that asked for it.
pub struct RateLimitAnswer<'a, 'p> {
    /// The call.
    pub asked: &'a RateLimitCall<'p>,
    /// The rules that decided.
    pub rules: &'a RuleSet,
    /// The call as parts of a request.
    pub parts: &'a [Part<'p>],
    /// The decision of each part.
    pub decisions: &'a Decisions,
}

impl RateLimitAnswer<'_, '_> {
    /// The `RateLimitResponse` that answers the call, with its prefix. Written directly: as a message it would first
    /// be built of a dozen allocations, and measured twice.
    pub fn framed(&self, settings: HeaderSettings) -> Bytes {
        let mut out = MessageWriter::new();
        out.number(1, code(self.decisions.is_allowed()));
        let asked = self.parts.iter().zip(&self.asked.descriptors);
        for (decision, (part, asked)) in self.decisions.iter().zip(asked) {
            out.message(2, |out| self.status(out, decision, part, asked));
        }
        let (text, values) = self.decisions.headers(&settings).into_text();
        for (key, value) in values {
            header(&mut out, key, text.get(value).unwrap_or_default());
        }
        for (key, value) in self.decisions.headers_by_unit(&settings) {
            header(&mut out, &key, &value);
        }
        if self.decisions.is_failed() {
            header(&mut out, DEGRADED, "deny");
        }
        if let Some(reason) = self.decisions.reason() {
            header(&mut out, REASON, reason.name());
        }
        if let Some(metadata) = metadata::of_quotas(self.asked, self.decisions) {
            out.bytes(6, &metadata.encode_to_vec());
        }
        out.framed()
    }

    /// The descriptor's own status, also if it is a quota and the request is allowed by another.
    fn status(
        &self,
        out: &mut MessageWriter,
        decision: &Decision,
        part: &Part<'_>,
        asked: &CallDescriptor<'_>,
    ) {
        // With descriptor rules a shadow limit is reported, as in envoyproxy/ratelimit.
        let shadow = || {
            let by_descriptors = self.rules.is_by_descriptors();
            decision.limits().next().filter(|_| by_descriptors)
        };
        let Some(decided) = decision.headline().or_else(shadow) else {
            let is_unlimited = part.grant.is_none() && self.rules.is_unlimited(&part.attributes);
            out.number(1, code(true));
            out.number(3, if is_unlimited { u32::MAX.into() } else { 0 });
            return;
        };
        out.number(1, code(decision.is_allowed()));
        out.message(2, |out| limit(out, &decided, asked));
        let remaining = u32::try_from(decided.outcome.remaining).unwrap_or(u32::MAX);
        out.number(3, remaining.into());
        if let Some(wait) = until_reset(decided.outcome) {
            out.message(4, |out| {
                out.number(1, wait.get() / 1_000_000);
                out.number(2, wait.get() % 1_000_000 * 1_000);
            });
        }
    }
}

/// A `HeaderValue` of `response_headers_to_add`.
fn header(out: &mut MessageWriter, key: &str, value: &str) {
    out.message(3, |out| {
        out.text(1, key);
        out.text(2, value);
    });
}

fn code(is_allowed: bool) -> u64 {
    let code = if is_allowed {
        LimitCode::Ok
    } else {
        LimitCode::OverLimit
    };
    enumerated(code.into())
}

/// A value of an enum, as it is encoded.
fn enumerated(value: i32) -> u64 {
    i64::from(value).cast_unsigned()
}

/// The limit as written in the call or in the rules: requests per unit of time, if there is a unit for it.
fn limit(out: &mut MessageWriter, decided: &gate::LimitOutcome<'_>, asked: &CallDescriptor<'_>) {
    let (count, unit) = if let Some(brought) = asked.limit {
        (brought.requests_per_unit, brought.unit)
    } else {
        let rate = decided.limit.map(tidegate::Limit::rate);
        let count = rate.map_or(0, |rate| rate.count);
        let window = rate.and_then(|rate| rate.window);
        let unit = unit(window.or_else(|| decided.rule.period()));
        (u32::try_from(count).unwrap_or(u32::MAX), unit.into())
    };
    out.number(1, count.into());
    out.number(2, enumerated(unit));
    out.text(3, decided.rule.limit_name());
}

fn unit(window: Option<Window>) -> Unit {
    match window {
        Some(Window::Span(Micros::SECOND)) => Unit::Second,
        Some(Window::Span(Micros::MINUTE)) => Unit::Minute,
        Some(Window::Span(Micros::HOUR)) => Unit::Hour,
        Some(Window::Span(Micros::DAY)) => Unit::Day,
        Some(Window::Span(Micros::WEEK)) => Unit::Week,
        Some(Window::Month) => Unit::Month,
        Some(Window::Year) => Unit::Year,
        _ => Unit::Unknown,
    }
}

/// When to retry, if denied; otherwise when the limit is fully available again. `None` if waiting cannot help.
fn until_reset(outcome: &Outcome) -> Option<Micros> {
    if outcome.allowed {
        Some(outcome.reset_at.since(outcome.at))
    } else {
        outcome.retry.wait()
    }
}

#[cfg(test)]
mod tests;
