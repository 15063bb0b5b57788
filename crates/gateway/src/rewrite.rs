//! Rewrites a request for a server.

use http::header::{HOST, TRANSFER_ENCODING};
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{HeaderMap, HeaderValue, Request, Version};
use tidegate::path::{EncodedSlashes, encode};

use crate::failure::GatewayFailure;
use crate::request_body::RequestBody;
use crate::route::Route;
use crate::upstream::Upstream;
use crate::upstream_url::UpstreamScheme;

/// The URI without the prefix of its route. The normal path is the one that its route was found by.
pub(crate) fn without_prefix(
    uri: &Uri,
    prefix: &str,
    (normal, slashes): (&str, EncodedSlashes),
) -> Result<Uri, GatewayFailure> {
    let prefix = prefix.trim_end_matches('/');
    let rest = if let Some(rest) = uri.path().strip_prefix(prefix) {
        rest.to_owned()
    } else {
        // The request spells the prefix differently.
        encode(normal.strip_prefix(prefix).unwrap_or(normal), slashes).into_owned()
    };
    let slash = if rest.starts_with('/') { "" } else { "/" };
    let path = match uri.query() {
        Some(query) => format!("{slash}{rest}?{query}"),
        None => format!("{slash}{rest}"),
    };
    let path =
        PathAndQuery::try_from(path).map_err(|error| GatewayFailure::Unsendable(error.into()))?;
    Ok(Uri::from(path))
}

/// The host to send, if it is not the client's.
pub(crate) fn other_host<'u>(
    headers: &HeaderMap,
    upstream: &'u Upstream,
    route: &Route,
) -> Option<&'u HeaderValue> {
    let is_other = route.config.replaces_host || !headers.contains_key(HOST);
    upstream.host.as_ref().filter(|_| is_other)
}

/// The HTTP/2 form: the host is part of the URI.
pub(crate) fn for_http2(
    mut request: Request<RequestBody>,
    upstream: &Upstream,
    route: &Route,
) -> Result<Request<RequestBody>, GatewayFailure> {
    let headers = request.headers_mut();
    let sent = headers.remove(HOST);
    headers.remove(TRANSFER_ENCODING);
    let authority = match sent {
        Some(host) if !route.config.replaces_host => host.as_bytes().try_into(),
        _ => Ok(upstream.url.authority.clone()),
    };
    let scheme = match upstream.url.scheme {
        UpstreamScheme::Https => Scheme::HTTPS,
        _ => Scheme::HTTP,
    };
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(scheme);
    parts.authority = Some(
        authority
            .map_err(|error: http::uri::InvalidUri| GatewayFailure::Unsendable(error.into()))?,
    );
    let uri = Uri::from_parts(parts).map_err(|error| GatewayFailure::Unsendable(error.into()))?;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    Ok(request)
}
