//! The attributes of a request, from its head.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Once;

use http::header::{AUTHORIZATION, COOKIE, HOST};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};
use tidegate::address::{AddressError, ForwardedHeader, TrustedProxies};
use tidegate::host::normalise;
use tidegate::rules::RuleSet;
use tidegate::white_space::{plain, trimmed};
use tidegate::{AttributeError, AttributeValue, Attributes};

use crate::error::RequestError;
use crate::settings::Settings;

/// The prefix of attributes that are request headers.
pub(crate) const HEADER: &str = "header.";

static NO_PEER: Once = Once::new();

/// The peer address of a connection, as an extension of its requests, for servers that have no other way to provide it.
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
        // The service gets the path as it was sent.
        attributes.insert_raw_path(request.uri.path(), settings.encoded_slashes)?;
        attributes.insert("host", host(request)?)?;
        match client_of(request, settings)? {
            Some(client) => attributes.insert_address(client)?,
            None => warn_of_missing_peer(rules),
        }
        for name in rules.header_attributes() {
            if let Some(value) = header(&request.headers, name, rules)? {
                attributes.insert(name.clone(), value)?;
            }
        }
    }
    for describe in &settings.describe {
        describe(request, &mut attributes)?;
    }
    let needs_host = !settings.is_bare && !settings.allows_missing_host && rules.reads_host();
    if needs_host && attributes.get("host").is_none() {
        return Err(RequestError::NoHost);
    }
    Ok(attributes)
}

/// The host that the request is for: of the URI if that has one, as in HTTP/2, else of its header.
fn host(request: &Parts) -> Result<&str, RequestError> {
    let mut values = request.headers.get_all(HOST).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(RequestError::SeveralHosts);
    }
    let header = first.map(HeaderValue::to_str).transpose();
    let header = header.map_err(|_| RequestError::UnreadableHost)?;
    let Some(authority) = request.uri.authority().map(Authority::as_str) else {
        return Ok(header.unwrap_or_default());
    };
    if header.is_some_and(|header| normalise(header) != normalise(authority)) {
        return Err(RequestError::TwoHosts);
    }
    Ok(authority)
}

fn client_of(request: &Parts, settings: &Settings) -> Result<Option<IpAddr>, AttributeError> {
    if let Some(client) = &settings.client {
        return client(request);
    }
    let Some(peer) = (settings.peer)(request) else {
        return Ok(None);
    };
    let (proxies, header) = (&settings.trusted_proxies, settings.forwarded_header);
    Ok(Some(client_address(
        &request.headers,
        peer,
        proxies,
        header,
    )?))
}

/// The address of the client: the peer, or the client that trusted proxies name in `X-Forwarded-For` or `Forwarded`.
pub fn client_address(
    headers: &HeaderMap,
    peer: IpAddr,
    proxies: &TrustedProxies,
    header: ForwardedHeader,
) -> Result<IpAddr, AddressError> {
    // Collected, because a header's values cannot be read from behind as they are.
    proxies.client_by(header, peer, |name| headers.get_all(name).iter().collect())
}

/// The values of the header of an attribute `header.*`, joined, without the white space around each value, which is not
/// significant. Cookies may come in pieces. If clients are counted by the header, its values must be equal, because
/// servers use the first, the last or all of several.
fn header<'r>(
    headers: &'r HeaderMap,
    attribute: &str,
    rules: &RuleSet,
) -> Result<Option<AttributeValue<'r>>, RequestError> {
    let name = &attribute[HEADER.len()..];
    let values = headers.get_all(name).iter();
    let mut values = values.map(|value| trimmed(value.as_bytes()));
    let Some(first) = values.next() else {
        return Ok(None);
    };
    let mut all = Cow::Borrowed(first);
    let is_cookie = name == COOKIE.as_str();
    let separator: &[u8] = if is_cookie { b"; " } else { b", " };
    for value in values {
        if !is_cookie && rules.counts_by(attribute) {
            if value != first {
                let name = name.to_owned();
                return Err(RequestError::DifferentValues { name });
            }
            continue;
        }
        let joined = all.to_mut();
        joined.extend_from_slice(separator);
        joined.extend_from_slice(value);
    }
    if name == AUTHORIZATION.as_str()
        && let Cow::Owned(text) = plain(&all)
    {
        all = Cow::Owned(text);
    }
    Ok(Some(AttributeValue::from(all)))
}

fn warn_of_missing_peer(rules: &RuleSet) {
    if !NO_PEER.is_completed() && rules.counts_by("ip") {
        NO_PEER.call_once(|| {
            tracing::warn!(
                "rules count by `ip`, but a request came without the address of its peer; set `RateLimitLayer::peer_address`"
            );
        });
    }
}
