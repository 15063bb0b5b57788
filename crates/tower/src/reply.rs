//! Turns decisions and errors into replies: the answers instead of the service's, and the headers on the service's own.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};
use tidegate::gate::{Decision, LimitOutcome};
use tidegate::headers::{self, HeaderSettings};
use tidegate::rules::{DenialAnswer, DenialFacts};
use tidegate::{Limit, Reason, Retry};
use tidegate_usage::{DeniedFacts, FormName};

use crate::error::RequestError;
use crate::protocol::Protocol;

const PROBLEM_TYPES: &str = "https://iana.org/assignments/http-problem-types";
const QUOTA_EXCEEDED: (&str, &str) = (
    "quota-exceeded",
    "Request cannot be satisfied as assigned quota has been exceeded",
);
/// The attribute with the credentials of a request.
const AUTHORIZATION: &str = "header.authorization";
const BEARER: HeaderValue = HeaderValue::from_static("Bearer realm=\"tidegate\"");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
/// Names the permit that is left to the client.
pub(crate) const PERMIT: HeaderName = HeaderName::from_static("x-tidegate-lease");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// Says to clients of language models when to come back, more exactly than `Retry-After`.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// Says to them whether to come back by themselves.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// Says to gRPC clients, which get no problem document, why they are denied.
const REASON: HeaderName = HeaderName::from_static("x-tidegate-reason");

/// Why a request is not let through, as an extension of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenialReason(pub &'static str);

/// The answer to a request that is not let through.
struct Refusal {
    status: StatusCode,
    grpc_status: HeaderValue,
    body: Value,
    /// For gRPC, which has no body, and for language models.
    detail: String,
    /// The unit of the rule that denies.
    unit: String,
    /// The seconds of `Retry-After`.
    retry_after: Option<u64>,
}

impl Refusal {
    fn reply(self, protocol: &Protocol) -> Response<Bytes> {
        match protocol {
            Protocol::Http => document(self.status, &self.body),
            Protocol::Model { form, request_id } => self.model_reply(*form, request_id.as_ref()),
            // Headers alone, which then are its trailers.
            Protocol::Grpc(content_type) => {
                let mut reply = Response::new(Bytes::new());
                let headers = reply.headers_mut();
                headers.insert(CONTENT_TYPE, content_type.clone());
                headers.insert(GRPC_STATUS, self.grpc_status);
                if let Ok(message) = HeaderValue::try_from(grpc_message(&self.detail)) {
                    headers.insert(GRPC_MESSAGE, message);
                }
                reply
            }
        }
    }
}

impl Refusal {
    /// The answer in the words of a provider, with what its clients need to wait or to give up.
    fn model_reply(&self, form: FormName, request_id: Option<&HeaderValue>) -> Response<Bytes> {
        let mut facts = DeniedFacts::new(self.status.as_u16(), &self.detail, &self.unit);
        facts.retry_after = self.retry_after;
        facts.request_id = request_id.and_then(|id| id.to_str().ok());
        let Some(body) = facts.body(form) else {
            return document(self.status, &self.body);
        };
        let mut reply = Response::new(Bytes::from(body));
        *reply.status_mut() = self.status;
        reply.headers_mut().insert(CONTENT_TYPE, JSON);
        if !facts.should_retry() {
            let no = HeaderValue::from_static("false");
            reply.headers_mut().insert(SHOULD_RETRY, no);
        }
        reply
    }
}

/// How denied clients are answered.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DenialSettings {
    /// Which headers of limits the answer has.
    pub headers: HeaderSettings,
    /// Changes to the usual answer, where the rule has none of its own.
    pub answer: Option<DenialAnswer>,
    /// The attributes that identify clients, with the `WWW-Authenticate` that asks for each.
    pub challenges: Vec<(String, HeaderValue)>,
}

impl DenialSettings {
    /// How a client is asked to identify itself, if it is denied for not doing so.
    fn challenge(&self, denied: &LimitOutcome<'_>) -> Option<HeaderValue> {
        let of = |name: &str| {
            let known = self.challenges.iter().find(|(known, _)| known == name);
            let own = (name == AUTHORIZATION).then_some(BEARER);
            known.map(|(_, challenge)| challenge.clone()).or(own)
        };
        match denied.reason {
            Some(Reason::MissingAttribute) => denied.missing().find_map(of),
            Some(Reason::InvalidCredentials) => {
                let asked = denied.refused().and_then(of);
                let first = || Some(self.challenges.first()?.1.clone());
                Some(of_invalid(asked.or_else(first).unwrap_or(BEARER)))
            }
            _ => None,
        }
    }
}

/// The answer to a request that was denied, with the status of the reason, unless the rule or the settings have
/// another. Over gRPC the status that corresponds to it.
pub fn denied(
    decision: &Decision,
    settings: &DenialSettings,
    protocol: &Protocol,
) -> Response<Bytes> {
    let violated = decision
        .limits()
        .filter(|answer| !answer.is_shadow && !answer.outcome.allowed);
    let violated: Vec<_> = violated.map(|answer| answer.name()).collect();
    let headline = decision.headline();
    let reason = decision.reason().unwrap_or(Reason::OverLimit);
    let challenge = headline
        .as_ref()
        .and_then(|headline| settings.challenge(headline));
    let own = headline
        .as_ref()
        .and_then(|headline| headline.rule.denied())
        .or(settings.answer.as_ref())
        .filter(|_| reason != Reason::StoreUnavailable);
    let facts = DenialFacts {
        rule: decision.rule().unwrap_or_default(),
        limit: decision.limit().unwrap_or_default(),
        retry_after: decision.seconds_to_retry(),
    };
    let status = match &challenge {
        Some(_) => StatusCode::UNAUTHORIZED,
        None => status_of(reason.status()),
    };
    let status = own.and_then(DenialAnswer::status).map_or(status, status_of);
    let (kind, usual_title) = kind_of(reason, status);
    let title = own.and_then(|own| own.title(facts));
    let title = title.unwrap_or_else(|| usual_title.to_owned());
    let detail = own.and_then(|own| own.detail(facts));
    let detail = detail.unwrap_or_else(|| match protocol {
        Protocol::Model { .. } => model_detail(decision),
        _ => self::detail(decision),
    });
    let mut body = json!({
        "type": kind,
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
        "violated-policies": violated,
        "reason": reason.name(),
    });
    let missing = headline.iter().flat_map(LimitOutcome::missing);
    let missing: Vec<&str> = missing.collect();
    if !missing.is_empty() {
        body["missing"] = json!(missing);
    }
    let refusal = Refusal {
        status,
        grpc_status: grpc_status(status),
        body,
        detail,
        unit: unit_of(headline.as_ref()).to_owned(),
        retry_after: decision.seconds_to_retry(),
    };
    let mut reply = refusal.reply(protocol);
    reply.extensions_mut().insert(DenialReason(reason.name()));
    let headers = reply.headers_mut();
    for (name, value) in own.into_iter().flat_map(|own| own.headers(facts)) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
    if let Some(challenge) = challenge.filter(|_| status == StatusCode::UNAUTHORIZED) {
        headers.insert(WWW_AUTHENTICATE, challenge);
    }
    insert_headers(headers, decision, settings.headers);
    if let Protocol::Model { .. } = protocol
        && settings.headers.retry_after
        && let Some(millis) = millis_to_retry(decision)
    {
        headers.insert(RETRY_AFTER_MS, HeaderValue::from(millis));
    }
    if let (Protocol::Grpc(_), Some(headline)) = (protocol, headline) {
        headers.insert(GRPC_PUSHBACK, pushback(decision, headline.outcome.retry));
        headers.insert(REASON, HeaderValue::from_static(reason.name()));
    }
    reply
}

/// The challenge for invalid credentials. For a token, it says that the token is invalid (RFC 6750).
fn of_invalid(challenge: HeaderValue) -> HeaderValue {
    if !challenge.as_bytes().starts_with(b"Bearer") {
        return challenge;
    }
    let text = [challenge.as_bytes(), b", error=\"invalid_token\""].concat();
    HeaderValue::from_bytes(&text).unwrap_or(challenge)
}

/// The type and the usual title of a problem document.
fn kind_of(reason: Reason, status: StatusCode) -> (String, &'static str) {
    let (kind, title) = match reason {
        Reason::StoreUnavailable | Reason::KeysUnavailable => (
            "temporary-reduced-capacity",
            "Request cannot be satisfied due to temporary server capacity constraints",
        ),
        Reason::OverLimit | Reason::TooExpensive => QUOTA_EXCEEDED,
        _ if status == StatusCode::TOO_MANY_REQUESTS => QUOTA_EXCEEDED,
        _ => {
            let title = status.canonical_reason().unwrap_or("Denied");
            return ("about:blank".to_owned(), title);
        }
    };
    (format!("{PROBLEM_TYPES}#{kind}"), title)
}

/// A status that is known to be one.
fn status_of(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::TOO_MANY_REQUESTS)
}

/// The status of gRPC for a denied client that would get this status of HTTP.
fn grpc_status(status: StatusCode) -> HeaderValue {
    HeaderValue::from_static(match status.as_u16() {
        // INVALID_ARGUMENT, UNAUTHENTICATED, PERMISSION_DENIED, NOT_FOUND, UNAVAILABLE
        400 => "3",
        401 => "16",
        403 => "7",
        404 => "5",
        503 => "14",
        // RESOURCE_EXHAUSTED
        _ => "8",
    })
}

/// The answer to a request that was not decided: 400, over gRPC `INVALID_ARGUMENT`, if it could not be understood; 503
/// and `UNAVAILABLE`, if there was no room for it.
pub fn refused(error: &RequestError, protocol: &Protocol) -> Response<Bytes> {
    let detail = error.to_string();
    if let RequestError::NotReserved(_) = error {
        return busy("too_many_reservations", &detail, protocol);
    }
    let refusal = Refusal {
        status: StatusCode::BAD_REQUEST,
        grpc_status: HeaderValue::from_static("3"),
        body: plain(StatusCode::BAD_REQUEST, &detail),
        detail,
        unit: String::new(),
        retry_after: None,
    };
    refusal.reply(protocol)
}

/// The answer to a request that is denied for a reason of the front end's own, such as a model without a price. The
/// client must not repeat it by itself.
pub fn denied_with(
    status: StatusCode,
    reason: &'static str,
    detail: &str,
    protocol: &Protocol,
) -> Response<Bytes> {
    let mut body = plain(status, detail);
    body["reason"] = json!(reason);
    let refusal = Refusal {
        status,
        grpc_status: grpc_status(status),
        body,
        detail: detail.to_owned(),
        unit: String::new(),
        retry_after: None,
    };
    let mut reply = refusal.reply(protocol);
    reply.extensions_mut().insert(DenialReason(reason));
    let no = HeaderValue::from_static("false");
    reply.headers_mut().insert(SHOULD_RETRY, no);
    reply
}

/// The answer to a request for which there is no room now: 503, to be repeated in a second.
pub(crate) fn busy(reason: &'static str, detail: &str, protocol: &Protocol) -> Response<Bytes> {
    let mut reply = denied_with(StatusCode::SERVICE_UNAVAILABLE, reason, detail, protocol);
    reply.headers_mut().remove(SHOULD_RETRY);
    let soon = HeaderValue::from_static("1");
    reply.headers_mut().insert(http::header::RETRY_AFTER, soon);
    reply
}

/// A problem document (RFC 9457) without a type: a status and a detail.
pub fn problem(status: StatusCode, detail: &str) -> Response<Bytes> {
    document(status, &plain(status, detail))
}

fn plain(status: StatusCode, detail: &str) -> Value {
    json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or("Error"),
        "status": status.as_u16(),
        "detail": detail,
    })
}

fn document(status: StatusCode, body: &Value) -> Response<Bytes> {
    let mut reply = Response::new(Bytes::from(body.to_string()));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, PROBLEM);
    reply
}

/// Adds the headers of a decision to an answer, and replaces existing ones.
pub fn insert_headers(headers: &mut HeaderMap, decision: &Decision, settings: HeaderSettings) {
    for (name, value) in self::headers(decision, settings) {
        headers.insert(name, value);
    }
    for (name, value) in decision.headers_by_unit(&settings) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.insert(name, value);
        }
    }
}

/// The headers of a decision.
pub(crate) fn headers(
    decision: &Decision,
    settings: HeaderSettings,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
    let (text, ranges) = decision.headers(&settings).into_text();
    // Shared by all of them.
    let text = Bytes::from(text);
    ranges.filter_map(move |(name, range)| {
        // Every value is printable ASCII, so none is lost here.
        let value = HeaderValue::from_maybe_shared(text.slice(range)).ok()?;
        Some((header_name(name), value))
    })
}

/// The name of a decision's header, without a second look at its letters.
fn header_name(name: &'static str) -> HeaderName {
    const LIMIT: HeaderName = HeaderName::from_static(headers::X_RATELIMIT_LIMIT);
    const REMAINING: HeaderName = HeaderName::from_static(headers::X_RATELIMIT_REMAINING);
    const RESET: HeaderName = HeaderName::from_static(headers::X_RATELIMIT_RESET);
    const POLICY: HeaderName = HeaderName::from_static(headers::RATELIMIT_POLICY);
    const RATELIMIT: HeaderName = HeaderName::from_static(headers::RATELIMIT);
    match name {
        headers::X_RATELIMIT_LIMIT => LIMIT,
        headers::X_RATELIMIT_REMAINING => REMAINING,
        headers::X_RATELIMIT_RESET => RESET,
        headers::RATELIMIT_POLICY => POLICY,
        headers::RATELIMIT => RATELIMIT,
        other => HeaderName::from_static(other),
    }
}

fn detail(decision: &Decision) -> String {
    let Some(headline) = decision.headline() else {
        return "the request was denied".to_owned();
    };
    let name = headline.name();
    match headline.reason {
        Some(Reason::StoreUnavailable) => {
            format!("the limit `{name}` cannot be checked now; try again later")
        }
        Some(Reason::Blocked) => format!("the limit `{name}` grants nothing to this request"),
        Some(Reason::MissingAttribute) => {
            let missing: Vec<String> = headline.missing().map(|it| format!("`{it}`")).collect();
            let missing = missing.join(" and ");
            format!("the limit `{name}` needs {missing}, which the request does not have")
        }
        Some(Reason::TooExpensive) => {
            format!("the request costs more than the limit `{name}` can ever grant")
        }
        Some(Reason::InvalidCredentials) => {
            format!(
                "the credentials of the request are not valid, and the limit `{name}` needs them"
            )
        }
        Some(Reason::KeysUnavailable) => format!(
            "the token of the request cannot be verified now, and the limit `{name}` needs it; try again later"
        ),
        Some(Reason::Unpriced) => {
            let model = headline.unpriced_model().map_or_else(
                || "the request names no model".to_owned(),
                |model| format!("the model `{model}` has no price"),
            );
            format!("{model}, and the limit `{name}` counts money")
        }
        // `OverLimit`. The enum is `non_exhaustive`: name every other reason above.
        _ => {
            let wait = decision.seconds_to_retry().unwrap_or(1);
            let unit = if wait == 1 { "second" } else { "seconds" };
            // The headers have only the burst.
            let with_burst = |limit: &Limit| {
                let rate = limit.rate_unlike_capacity()?.to_string();
                Some(format!(" (burst {}, {rate})", limit.capacity()))
            };
            let burst = headline.limit.and_then(with_burst).unwrap_or_default();
            format!("the limit `{name}`{burst} is used up; try again in {wait} {unit}")
        }
    }
}

/// What a denied client of a language model reads: the rule, the unit, what was asked, what remains, and when.
fn model_detail(decision: &Decision) -> String {
    let Some(headline) = decision.headline() else {
        return detail(decision);
    };
    let (name, unit) = (headline.name(), unit_of(Some(&headline)));
    let (asked, outcome) = (headline.cost(), headline.outcome);
    match headline.reason {
        Some(Reason::OverLimit) | None => {
            let remaining = outcome.remaining;
            let wait = decision.seconds_to_retry().unwrap_or(1);
            let word = if wait == 1 { "second" } else { "seconds" };
            format!(
                "the limit `{name}` of {} {unit} is used up: the request asks for {asked} and {remaining} remain; try again in {wait} {word}",
                outcome.limit
            )
        }
        Some(Reason::TooExpensive) => format!(
            "the request asks for {asked} {unit}, and the limit `{name}` never grants more than {}",
            outcome.limit
        ),
        _ => detail(decision),
    }
}

fn unit_of<'d>(headline: Option<&LimitOutcome<'d>>) -> &'d str {
    headline.and_then(LimitOutcome::unit).unwrap_or("requests")
}

/// The milliseconds of `retry-after-ms`, rounded up; none if waiting cannot help. Never later than `Retry-After`.
fn millis_to_retry(decision: &Decision) -> Option<u64> {
    let most = decision.seconds_to_retry()?.saturating_mul(1_000);
    let wait = decision.headline()?.outcome.retry.wait()?;
    Some(wait.get().div_ceil(1_000).clamp(1, most))
}

/// When a gRPC client may try again by itself, in milliseconds; below zero if it should not. Never later than
/// `Retry-After`.
fn pushback(decision: &Decision, retry: Retry) -> HeaderValue {
    match retry.wait() {
        Some(wait) => {
            let most = decision.seconds_to_retry().unwrap_or(u64::MAX);
            let millis = wait.get().div_ceil(1_000).min(most.saturating_mul(1_000));
            HeaderValue::from(i32::try_from(millis).unwrap_or(i32::MAX))
        }
        None => HeaderValue::from_static("-1"),
    }
}

/// A text as `grpc-message` wants it: printable ASCII stays, everything else is percent-encoded.
fn grpc_message(text: &str) -> String {
    const ENCODED: &AsciiSet = &CONTROLS.add(b'%');
    utf8_percent_encode(text, ENCODED).to_string()
}
