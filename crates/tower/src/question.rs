//! What is asked of the gate: what is known of a request by its head.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Once;

use http::header::{FORWARDED, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use tidegate::Attributes;
use tidegate::address::TrustedProxies;
use tidegate::rules::RuleSet;

use crate::error::RequestError;
use crate::settings::Settings;

/// What the name of an attribute begins with that is a header of the request.
const HEADER: &str = "header.";

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

static NO_PEER: Once = Once::new();

/// The address that a connection came from, as an extension of its requests: for servers that have no
/// other way to tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        Self(address.ip())
    }
}

pub(crate) fn peer_in_extensions(request: &Parts) -> Option<IpAddr> {
    let peer: &PeerAddress = request.extensions.get()?;
    Some(peer.0)
}

/// The attributes of a request.
pub(crate) fn of<'r>(
    request: &'r Parts,
    settings: &Settings,
    rules: &RuleSet,
) -> Result<Attributes<'r>, RequestError> {
    let mut attributes = Attributes::new();
    if !settings.is_bare {
        attributes.insert("method", request.method.as_str())?;
        attributes.insert_path(request.uri.path(), settings.encoded_slashes)?;
        attributes.insert("host", host(request)?)?;
        match (settings.peer)(request) {
            Some(peer) => {
                let client = client_address(&request.headers, peer, &settings.trusted_proxies);
                attributes.insert_address(client)?;
            }
            None => warn_of_missing_peer(rules),
        }
        for name in rules.header_attributes() {
            if let Some(value) = header(&request.headers, &name[HEADER.len()..]) {
                attributes.insert(name.clone(), value)?;
            }
        }
    }
    for describe in &settings.describe {
        describe(request, &mut attributes)?;
    }
    Ok(attributes)
}

/// The host that the request is for: of the URI if that has one, as in HTTP/2, else of its header.
fn host(request: &Parts) -> Result<&str, RequestError> {
    if let Some(host) = request.uri.host() {
        return Ok(host);
    }
    let mut values = request.headers.get_all(HOST).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(RequestError::SeveralHosts);
    }
    let text = first.map_or(Ok(""), HeaderValue::to_str);
    text.map_err(|_| RequestError::UnreadableHost)
}

/// Whose request with these headers it is: the peer's, or that of whom trusted proxies name in
/// `X-Forwarded-For` or `Forwarded`.
pub fn client_address(headers: &HeaderMap, peer: IpAddr, proxies: &TrustedProxies) -> IpAddr {
    // Collected, because a header's values cannot be read from behind as they are.
    let values = |name: HeaderName| -> Vec<&HeaderValue> { headers.get_all(name).iter().collect() };
    if !proxies.is_trusted(peer) {
        return peer.to_canonical();
    }
    proxies.client_address(peer, values(X_FORWARDED_FOR), values(FORWARDED))
}

/// The values of a header as one text. Bytes that are no text are replaced, so that they cannot make
/// the header a missing one.
fn header<'r>(headers: &'r HeaderMap, name: &str) -> Option<Cow<'r, str>> {
    let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let first = String::from_utf8_lossy(values.next()?);
    Some(values.fold(first, |all, value| {
        Cow::Owned(format!("{all}, {}", String::from_utf8_lossy(value)))
    }))
}

fn warn_of_missing_peer(rules: &RuleSet) {
    let counts_by_ip =
        |rule: &std::sync::Arc<tidegate::rules::Rule>| rule.per().iter().any(|name| name == "ip");
    if !NO_PEER.is_completed() && rules.iter().any(counts_by_ip) {
        NO_PEER.call_once(|| {
            tracing::warn!(
                "rules count by `ip`, but a request came without the address of its peer; set `RateLimitLayer::peer_address`"
            );
        });
    }
}
