//! A request in the form in which a server gets it.

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{HeaderValue, Request, Version};
use tidegate::path::{EncodedSlashes, encode, normalise};

use super::failure::Failure;
use super::request_body::RequestBody;
use super::route::Route;
use super::upstream::Upstream;
use crate::config::UpstreamScheme;

/// The same without the prefix of its route.
pub(super) fn without_prefix(
    uri: &Uri,
    prefix: &str,
    slashes: EncodedSlashes,
) -> Result<Uri, Failure> {
    let prefix = prefix.trim_end_matches('/');
    let rest = if let Some(rest) = uri.path().strip_prefix(prefix) {
        rest.to_owned()
    } else {
        // It is spelled another way in the request.
        let normal = normalise(uri.path(), slashes).unwrap_or_default();
        encode(normal.strip_prefix(prefix).unwrap_or(&normal), slashes).into_owned()
    };
    let slash = if rest.starts_with('/') { "" } else { "/" };
    let path = match uri.query() {
        Some(query) => format!("{slash}{rest}?{query}"),
        None => format!("{slash}{rest}"),
    };
    let path = PathAndQuery::try_from(path).map_err(|error| Failure::Unsendable(error.into()))?;
    Ok(Uri::from(path))
}

/// The same request once more, without its body.
pub(super) fn copy(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::None);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    *copy.version_mut() = request.version();
    copy
}

/// In the form of HTTP/1.1: the length of a body is said by one header.
pub(super) fn for_http1(
    mut request: Request<RequestBody>,
    upstream: &Upstream,
    route: &Route,
) -> Request<RequestBody> {
    let has_body = matches!(request.body(), RequestBody::Client(..));
    let headers = request.headers_mut();
    if has_body && !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if (route.config.replaces_host || !headers.contains_key(HOST))
        && let Some(host) = &upstream.host
    {
        headers.insert(HOST, host.clone());
    }
    request
}

/// In the form of HTTP/2: the host is part of the URI.
pub(super) fn for_http2(
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
