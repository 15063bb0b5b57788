//! A request in the form in which a server gets it.

use http::header::{HOST, TRANSFER_ENCODING};
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{HeaderMap, HeaderValue, Request, Version};
use tidegate::path::{EncodedSlashes, encode};

use crate::failure::Failure;
use crate::request_body::RequestBody;
use crate::route::Route;
use crate::upstream::Upstream;
use crate::upstream_url::UpstreamScheme;

/// The same without the prefix of its route. The normal path is the one that its route was found by.
pub(crate) fn without_prefix(
    uri: &Uri,
    prefix: &str,
    (normal, slashes): (&str, EncodedSlashes),
) -> Result<Uri, Failure> {
    let prefix = prefix.trim_end_matches('/');
    let rest = if let Some(rest) = uri.path().strip_prefix(prefix) {
        rest.to_owned()
    } else {
        // It is spelled another way in the request.
        encode(normal.strip_prefix(prefix).unwrap_or(normal), slashes).into_owned()
    };
    let slash = if rest.starts_with('/') { "" } else { "/" };
    let path = match uri.query() {
        Some(query) => format!("{slash}{rest}?{query}"),
        None => format!("{slash}{rest}"),
    };
    let path = PathAndQuery::try_from(path).map_err(|error| Failure::Unsendable(error.into()))?;
    Ok(Uri::from(path))
}

/// The host that a server is asked for, if it is not the one that the request names.
pub(crate) fn other_host<'u>(
    headers: &HeaderMap,
    upstream: &'u Upstream,
    route: &Route,
) -> Option<&'u HeaderValue> {
    let is_other = route.config.replaces_host || !headers.contains_key(HOST);
    upstream.host.as_ref().filter(|_| is_other)
}

/// In the form of HTTP/2: the host is part of the URI.
pub(crate) fn for_http2(
    mut request: Request<RequestBody>,
    upstream: &Upstream,
    route: &Route,
) -> Result<Request<RequestBody>, Failure> {
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
    parts.authority =
        Some(authority.map_err(|error: http::uri::InvalidUri| Failure::Unsendable(error.into()))?);
    let uri = Uri::from_parts(parts).map_err(|error| Failure::Unsendable(error.into()))?;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    Ok(request)
}
