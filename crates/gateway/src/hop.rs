//! Hop-by-hop headers: removed before a message is forwarded.

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, COOKIE, HOST, MAX_FORWARDS, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::forwarded::is_about_client;

/// The header in which a proxy presents its token to Tidegate, because `Authorization` is its client's. No server
/// behind the gateway gets it.
pub const PROXY_TOKEN: &str = "x-tidegate-token";

/// The options of the `Connection` header of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Leg {
    /// The protocol to upgrade to.
    pub(crate) upgrade: Option<HeaderValue>,
}

/// Removes hop-by-hop headers: `Connection`, those that it names, and the fixed ones. `Trailer` stays, because
/// trailers are forwarded.
pub(crate) fn strip(headers: &mut HeaderMap) -> Leg {
    let mut leg = Leg::default();
    // Most messages have no such header.
    if !headers.keys().any(is_of_one_leg) {
        return leg;
    }
    if headers.contains_key(CONNECTION) {
        let named = named(headers);
        let upgrade = headers.get(UPGRADE).cloned();
        leg.upgrade = upgrade.filter(|_| named.contains(&UPGRADE));
        for name in named {
            // Removing these would lose the end of the message, or its client.
            if name != CONTENT_LENGTH && name != HOST {
                headers.remove(name);
            }
        }
        headers.remove(CONNECTION);
    }
    let takes_trailers = headers.get_all(TE).iter().any(names_trailers);
    let others: SmallVec<[HeaderName; 4]> = headers
        .keys()
        .filter(|name| is_of_one_leg(name))
        .cloned()
        .collect();
    for name in others {
        headers.remove(name);
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    leg
}

/// Removes trailers that were not [announced](announce_trailers).
pub(crate) fn strip_trailers(trailers: &mut HeaderMap, announced: &[HeaderName]) {
    let names: Vec<HeaderName> = trailers.keys().cloned().collect();
    for name in names.iter().filter(|name| !announced.contains(name)) {
        trailers.remove(name);
    }
}

/// Whether a field is allowed only as a header, where it was checked: servers that merge trailers into headers
/// would trust it.
fn is_header_only(name: &HeaderName) -> bool {
    let never = [
        AUTHORIZATION,
        CACHE_CONTROL,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        COOKIE,
        HOST,
        MAX_FORWARDS,
        SET_COOKIE,
        TRAILER,
    ];
    never.contains(name) || is_of_one_leg(name) || is_about_client(name)
}

/// Whether a header is always hop-by-hop.
fn is_of_one_leg(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "http2-settings"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            // The client gets `100 Continue` when its body is read.
            | "expect"
            // A token for Tidegate itself.
            | PROXY_TOKEN
    )
}

/// Whether the length of a response body is given once and unambiguously.
pub(crate) fn has_one_length(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    match (codings.next(), codings.next()) {
        (None, _) => lengths <= 1,
        (Some(coding), None) => {
            lengths == 0
                && coding
                    .as_bytes()
                    .trim_ascii()
                    .eq_ignore_ascii_case(b"chunked")
        }
        (Some(_), Some(_)) => false,
    }
}

/// Adds the headers that request or accept an upgrade.
pub(crate) fn put_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Whether a request asks for an upgrade that is forwarded.
pub(crate) fn wants_upgrade(headers: &HeaderMap) -> bool {
    let Some(protocol) = headers.get(UPGRADE) else {
        return false;
    };
    is_websocket(protocol) && named(headers).contains(&UPGRADE)
}

/// Whether a protocol is WebSocket, the only one that is forwarded: the requests of another HTTP version, or of
/// HTTP in TLS, would bypass the gateway.
pub(crate) fn is_websocket(protocol: &HeaderValue) -> bool {
    protocol
        .as_bytes()
        .trim_ascii()
        .eq_ignore_ascii_case(b"websocket")
}

/// The trailers that a request announces, without those that must not reach a server. `Trailer` is rewritten to
/// name only these.
pub(crate) fn announce_trailers(
    headers: &mut HeaderMap,
    is_refused: impl Fn(&HeaderName) -> bool,
) -> Vec<HeaderName> {
    let mut names = names_in(headers.get_all(TRAILER).iter());
    names.retain(|name| !is_header_only(name) && !is_refused(name));
    let list: Vec<&str> = names.iter().map(HeaderName::as_str).collect();
    // Names of headers and commas are a valid value.
    match HeaderValue::try_from(list.join(", ")) {
        Ok(list) if !list.is_empty() => drop(headers.insert(TRAILER, list)),
        _ => drop(headers.remove(TRAILER)),
    }
    names
}

/// Whether a request is a gRPC call, whose body may be an endless stream.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// The headers that `Connection` names.
fn named(headers: &HeaderMap) -> Vec<HeaderName> {
    names_in(headers.get_all(CONNECTION).iter())
}

fn names_in<'v>(values: impl Iterator<Item = &'v HeaderValue>) -> Vec<HeaderName> {
    let tokens = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    tokens
        .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
        .collect()
}

fn names_trailers(value: &HeaderValue) -> bool {
    let mut tokens = value.as_bytes().split(|byte| *byte == b',');
    tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn what_is_for_one_leg_goes_and_the_rest_stays() {
        let mut all = headers(&[
            ("connection", "close, X-Internal"),
            ("connection", "content-length, host, x-forwarded-for"),
            ("x-internal", "1"),
            ("x-forwarded-for", "1.2.3.4"),
            ("content-length", "5"),
            ("host", "a"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "x"),
            ("proxy-connection", "close"),
            ("te", "gzip, Trailers"),
            ("trailer", "x-sum"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("expect", "100-continue"),
            ("x-kept", "1"),
        ]);
        assert_eq!(strip(&mut all), Leg::default());
        let left = headers(&[
            ("content-length", "5"),
            ("host", "a"),
            ("te", "trailers"),
            ("trailer", "x-sum"),
            ("x-kept", "1"),
        ]);
        assert_eq!(all, left);
    }

    #[test]
    fn an_upgrade_is_one_only_if_connection_says_so_and_only_to_websocket() {
        let asks = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ]);
        assert!(wants_upgrade(&asks));
        assert_eq!(strip(&mut asks.clone()).upgrade.unwrap(), "websocket");
        for none in [
            headers(&[("upgrade", "websocket")]),
            headers(&[("connection", "upgrade")]),
            headers(&[
                ("connection", "upgrade, http2-settings"),
                ("upgrade", "h2c"),
            ]),
            headers(&[("connection", "upgrade"), ("upgrade", "websocket, H2C")]),
            headers(&[("connection", "upgrade"), ("upgrade", "TLS/1.0")]),
        ] {
            assert!(!wants_upgrade(&none), "{none:?}");
        }
    }
}
