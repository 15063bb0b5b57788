//! The answer to Envoy, built from a decision.

use bytes::Bytes;
use prost::Message as _;
use tidegate::gate::{Decision, Decisions, LimitOutcome, Part, RulesInForce};
use tidegate::rules::{GrantSource, Units};
use tidegate::{Micros, Outcome, Window};

use super::answer_settings::{AnswerSettings, EnvoyHeaders, MetadataCalls};
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
    pub rules: &'a RulesInForce,
    /// The call as parts of a request.
    pub parts: &'a [Part<'p>],
    /// The decision of each part.
    pub decisions: &'a Decisions,
}

/// The status of one descriptor.
struct StatusFields<'d> {
    is_allowed: bool,
    limit: Option<StatusLimit<'d>>,
    remaining: u32,
    /// None if waiting cannot help.
    wait: Option<Micros>,
}

/// A limit as it is written: requests per unit of time, if there is a unit for it.
struct StatusLimit<'d> {
    count: u32,
    unit: i32,
    name: &'d str,
}

impl RateLimitAnswer<'_, '_> {
    /// The `RateLimitResponse` that answers the call, with its prefix. Written directly: as a message it would first
    /// be built of a dozen allocations, and measured twice.
    pub fn framed(&self, settings: &AnswerSettings) -> Bytes {
        let mut out = MessageWriter::new();
        let is_let_pass = settings.shadow && self.rules.is_by_descriptors();
        let is_allowed = is_let_pass || self.decisions.is_allowed();
        out.number(1, code(is_allowed));
        for status in self.statuses() {
            out.message(2, |out| write_status(out, &status));
        }
        if let Some(names) = &settings.envoy_headers {
            self.write_envoy_headers(&mut out, names);
        }
        self.write_own_headers(&mut out, settings, is_allowed);
        let metadata = match settings.metadata {
            MetadataCalls::None => None,
            MetadataCalls::OfQuotas => metadata::of_quotas(self.asked, self.decisions),
            MetadataCalls::All => metadata::of_call(self.asked, self.decisions),
        };
        if let Some(metadata) = metadata {
            out.bytes(6, &metadata.encode_to_vec());
        }
        out.framed()
    }

    fn write_own_headers(
        &self,
        out: &mut MessageWriter,
        settings: &AnswerSettings,
        is_allowed: bool,
    ) {
        let mut headers = settings.headers;
        // A client that is let pass has nothing to retry.
        headers.retry_after &= !is_allowed || self.decisions.is_allowed();
        let (text, values) = self.decisions.headers(&headers).into_text();
        for (key, value) in values {
            header(out, key, text.get(value).unwrap_or_default());
        }
        if headers.are_by_unit() {
            for (key, value) in self.decisions.headers_by_unit(&headers) {
                header(out, &key, &value);
            }
        }
        if !settings.has_reasons {
            return;
        }
        if self.decisions.is_failed() {
            header(out, DEGRADED, "deny");
        }
        if let Some(reason) = self.decisions.reason().filter(|_| !is_allowed) {
            header(out, REASON, reason.name());
        }
    }

    /// The headers of envoyproxy/ratelimit: of the last descriptor that is over its limit, else of the first with the
    /// least left.
    fn write_envoy_headers(&self, out: &mut MessageWriter, names: &EnvoyHeaders) {
        let mut chosen: Option<StatusFields<'_>> = None;
        for status in self.statuses().filter(|status| status.limit.is_some()) {
            let is_chosen = match &chosen {
                _ if !status.is_allowed => true,
                Some(chosen) => chosen.is_allowed && status.remaining < chosen.remaining,
                None => true,
            };
            if is_chosen {
                chosen = Some(status);
            }
        }
        let Some(StatusFields {
            limit: Some(limit),
            remaining,
            wait,
            ..
        }) = chosen
        else {
            return;
        };
        let seconds = whole_seconds(wait.unwrap_or(Micros::ZERO));
        header(out, &names.limit, &limit.count.to_string());
        header(out, &names.remaining, &remaining.to_string());
        header(out, &names.reset, &seconds.to_string());
    }

    fn statuses(&self) -> impl Iterator<Item = StatusFields<'_>> {
        let asked = self.parts.iter().zip(&self.asked.descriptors);
        let both = self.decisions.iter().zip(asked);
        both.map(|(decision, (part, asked))| self.status(decision, part, asked))
    }

    /// The descriptor's own status, also if it is a quota and the request is allowed by another.
    fn status<'d>(
        &self,
        decision: &'d Decision,
        part: &Part<'_>,
        asked: &CallDescriptor<'_>,
    ) -> StatusFields<'d> {
        let by_descriptors = self.rules.is_by_descriptors();
        // With descriptor rules a shadow limit is reported, as in envoyproxy/ratelimit.
        let shadow = || decision.limits().next().filter(|_| by_descriptors);
        let Some(decided) = decision.headline().or_else(shadow) else {
            let is_unlimited = part.grant.is_none() && self.rules.is_unlimited(&part.attributes);
            return StatusFields {
                is_allowed: true,
                limit: None,
                remaining: if is_unlimited { u32::MAX } else { 0 },
                wait: None,
            };
        };
        let outcome = decided.outcome;
        let is_exceeded = by_descriptors && !outcome.allowed;
        let remaining = if is_exceeded { 0 } else { outcome.remaining };
        StatusFields {
            is_allowed: decision.is_allowed(),
            limit: Some(status_limit(&decided, asked, self.rules.descriptor_units())),
            remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
            wait: if by_descriptors {
                Some(until_window_ends(&decided))
            } else {
                until_reset(outcome)
            },
        }
    }
}

fn write_status(out: &mut MessageWriter, status: &StatusFields<'_>) {
    out.number(1, code(status.is_allowed));
    if let Some(limit) = &status.limit {
        out.message(2, |out| {
            out.number(1, limit.count.into());
            out.number(2, enumerated(limit.unit));
            out.text(3, limit.name);
        });
    }
    out.number(3, status.remaining.into());
    if let Some(wait) = status.wait {
        out.message(4, |out| {
            out.number(1, wait.get() / 1_000_000);
            out.number(2, wait.get() % 1_000_000 * 1_000);
        });
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

/// The limit as written in the call or in the rules.
fn status_limit<'d>(
    decided: &LimitOutcome<'d>,
    asked: &CallDescriptor<'_>,
    units: Option<Units>,
) -> StatusLimit<'d> {
    let (count, unit) = if let Some(brought) = asked.limit {
        (brought.requests_per_unit, brought.unit)
    } else {
        let rate = decided.whole.map(tidegate::Limit::rate);
        let count = rate.map_or(0, |rate| rate.count);
        let window = rate.and_then(|rate| rate.window);
        let own = decided.rule.period();
        let window = match (decided.source(), rate) {
            // The unit of the rule is not that of an override.
            (GrantSource::Temporary, Some(_)) => window.map(|window| match units {
                Some(units) => units.unit(window),
                None => window,
            }),
            _ => own.or(window),
        };
        let unit = unit(window);
        (u32::try_from(count).unwrap_or(u32::MAX), unit.into())
    };
    StatusLimit {
        count,
        unit,
        name: decided.rule.limit_name(),
    }
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

/// The same by descriptors: the rest of the window, if the limit has windows of the clock. In whole seconds and never
/// zero, because Envoy cuts fractions.
fn until_window_ends(decided: &LimitOutcome<'_>) -> Micros {
    let outcome = decided.outcome;
    let ends_at = match decided.whole {
        Some(limit) => limit.window_end(outcome.at),
        // Of what grants nothing.
        None => decided.rule.period().map(|unit| unit.around(outcome.at).1),
    };
    let wait = match ends_at {
        Some(ends_at) => ends_at.since(outcome.at),
        None => until_reset(outcome).unwrap_or_else(|| outcome.reset_at.since(outcome.at)),
    };
    Micros::from_seconds(whole_seconds(wait).max(1))
}

/// Rounded up.
fn whole_seconds(wait: Micros) -> u64 {
    wait.get().div_ceil(1_000_000)
}

#[cfg(test)]
mod tests;
