//! The answers in place of the service's, and the headers on its own: the one place that turns decisions and
//! errors into replies.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};
use tidegate::gate::{Decision, LimitOutcome};
use tidegate::headers::{self, HeaderSettings};
use tidegate::{Limit, Reason, Retry};

use crate::error::RequestError;

const PROBLEM_TYPES: &str = "https://iana.org/assignments/http-problem-types";
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
/// Names the permit that is left to the client.
pub(crate) const PERMIT: HeaderName = HeaderName::from_static("x-tidegate-lease");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// Says to gRPC clients, which get no problem document, why they are denied.
const REASON: HeaderName = HeaderName::from_static("x-tidegate-reason");

/// Why a request is not let through, as an extension of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenialReason(pub &'static str);

/// How a client is spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// By status and problem document.
    Http,
    /// By `grpc-status`, under this content type.
    Grpc(HeaderValue),
}

impl Protocol {
    /// What the sender of a request with these headers understands.
    pub fn of(headers: &HeaderMap) -> Self {
        let Some(content_type) = headers.get(CONTENT_TYPE) else {
            return Self::Http;
        };
        match content_type.as_bytes().strip_prefix(b"application/grpc") {
            Some([] | [b'+' | b';', ..]) => Self::Grpc(GRPC),
            Some([b'-', ..]) => Self::Grpc(content_type.clone()),
            _ => Self::Http,
        }
    }
}

/// The answer to a request that is not let through.
struct Refusal {
    status: StatusCode,
    grpc_status: HeaderValue,
    body: Value,
    /// For gRPC, which has no body.
    detail: String,
}

impl Refusal {
    fn reply(self, protocol: &Protocol) -> Response<Bytes> {
        match protocol {
            Protocol::Http => document(self.status, &self.body),
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

/// The answer to a request that was denied: 429; 401 for invalid credentials; 503 if the store could not answer
/// and a rule says `deny` then, or if credentials cannot be verified. Over gRPC `RESOURCE_EXHAUSTED`,
/// `UNAUTHENTICATED` and `UNAVAILABLE`.
pub fn denied(
    decision: &Decision,
    settings: HeaderSettings,
    protocol: &Protocol,
) -> Response<Bytes> {
    let violated = decision
        .limits()
        .filter(|answer| !answer.is_shadow && !answer.outcome.allowed);
    let violated: Vec<_> = violated.map(|answer| answer.name()).collect();
    let detail = detail(decision);
    let headline = decision.headline();
    let reason = decision.reason();
    let is_unavailable = decision.is_failed() || reason == Some(Reason::KeysUnavailable);
    let (status, grpc_status, kind, title) = if reason == Some(Reason::InvalidCredentials) {
        (
            StatusCode::UNAUTHORIZED,
            HeaderValue::from_static("16"),
            "about:blank".to_owned(),
            "Unauthorized",
        )
    } else if is_unavailable {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            HeaderValue::from_static("14"),
            format!("{PROBLEM_TYPES}#temporary-reduced-capacity"),
            "Request cannot be satisfied due to temporary server capacity constraints",
        )
    } else {
        (
            StatusCode::TOO_MANY_REQUESTS,
            HeaderValue::from_static("8"),
            format!("{PROBLEM_TYPES}#quota-exceeded"),
            "Request cannot be satisfied as assigned quota has been exceeded",
        )
    };
    let mut body = json!({
        "type": kind,
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
        "violated-policies": violated,
        "reason": decision.reason().map(Reason::name),
    });
    let missing = headline.iter().flat_map(LimitOutcome::missing);
    let missing: Vec<&str> = missing.collect();
    if !missing.is_empty() {
        body["missing"] = json!(missing);
    }
    let refusal = Refusal {
        status,
        grpc_status,
        body,
        detail,
    };
    let mut reply = refusal.reply(protocol);
    insert_headers(reply.headers_mut(), decision, settings);
    if let Some(reason) = decision.reason() {
        reply.extensions_mut().insert(DenialReason(reason.name()));
    }
    if let (Protocol::Grpc(_), Some(headline)) = (protocol, headline) {
        let headers = reply.headers_mut();
        headers.insert(GRPC_PUSHBACK, pushback(decision, headline.outcome.retry));
        if let Some(reason) = headline.reason {
            headers.insert(REASON, HeaderValue::from_static(reason.name()));
        }
    }
    reply
}

/// The answer to a request that could not be understood: 400, over gRPC `INVALID_ARGUMENT`.
pub fn refused(error: &RequestError, protocol: &Protocol) -> Response<Bytes> {
    let detail = error.to_string();
    let refusal = Refusal {
        status: StatusCode::BAD_REQUEST,
        grpc_status: HeaderValue::from_static("3"),
        body: plain(StatusCode::BAD_REQUEST, &detail),
        detail,
    };
    refusal.reply(protocol)
}

/// A problem document (RFC 9457) of no special type: a status, and what is wrong.
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

/// Puts the headers of a decision on an answer, in place of any of the same names.
pub fn insert_headers(headers: &mut HeaderMap, decision: &Decision, settings: HeaderSettings) {
    for (name, value) in self::headers(decision, settings) {
        headers.insert(name, value);
    }
}

/// The headers of a decision.
pub(crate) fn headers(
    decision: &Decision,
    settings: HeaderSettings,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
    let (text, places) = decision.headers(&settings).into_text();
    // Shared by all of them.
    let text = Bytes::from(text);
    places.filter_map(move |(name, place)| {
        // Every value is printable ASCII, so none is lost here.
        let value = HeaderValue::from_maybe_shared(text.slice(place)).ok()?;
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
        // `OverLimit`. The enum is `non_exhaustive`: name every other reason above.
        _ => {
            let wait = decision.seconds_to_retry().unwrap_or(1);
            let unit = if wait == 1 { "second" } else { "seconds" };
            // The headers have only the burst.
            let with_burst = |limit: &Limit| {
                let rate = limit.rate_unlike_capacity()?.in_words();
                Some(format!(" (burst {}, {rate})", limit.capacity()))
            };
            let burst = headline.limit.and_then(with_burst).unwrap_or_default();
            format!("the limit `{name}`{burst} is used up; try again in {wait} {unit}")
        }
    }
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
