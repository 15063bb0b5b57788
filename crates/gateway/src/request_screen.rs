//! What a gateway does with the head of a request before it is decided: ambiguous requests are refused, the rest is
//! normalised, and is matched and forwarded in that form. Needs no server behind it, so that requests can be explained
//! without a gateway.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::{CONTENT_LENGTH, COOKIE, HOST};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version};
use tidegate::host::normalise;
use tidegate::path::{EncodedSlashes, PathError, forwarded, has_hidden_slash};
use tidegate::{AttributeError, Attributes};
use tidegate_identity::Identity;
use tidegate_tower::{PeerAddress, RateLimitLayer, RequestError, UnderscoreHeaders};

use crate::failure::GatewayFailure;
use crate::hop::PROXY_TOKEN;

/// Reads the heads of requests as a gateway does.
#[derive(Clone)]
pub struct RequestScreen {
    /// Identifies clients.
    pub identity: Arc<Identity>,
    /// How `%2f` in a path is read. `None` refuses such paths.
    pub encoded_slashes: Option<EncodedSlashes>,
    /// The handling of headers that some servers treat as the same as a header that is read.
    pub underscore_headers: UnderscoreHeaders,
}

/// Why a gateway would refuse a request, as it reports it to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScreenRefusal(String);

impl From<GatewayFailure> for ScreenRefusal {
    fn from(failure: GatewayFailure) -> Self {
        Self(failure.to_string())
    }
}

impl From<RequestError> for ScreenRefusal {
    fn from(error: RequestError) -> Self {
        Self(error.to_string())
    }
}

impl RequestScreen {
    /// What a gateway would know of a request from `peer` before it decides it by the rules of `layer`. Without a
    /// peer, no address is known.
    pub async fn describe(
        &self,
        layer: RateLimitLayer,
        mut request: Request<()>,
        peer: Option<IpAddr>,
    ) -> Result<Attributes<'static>, ScreenRefusal> {
        self.settle(&mut request, false)?;
        let identity = Arc::clone(&self.identity);
        let layer = self.describing(layer).client_address(move |request| {
            let peer = request.extensions.get::<PeerAddress>();
            let client = peer.map(|peer| identity.client_address(peer.0, &request.headers));
            client.transpose()
        });
        let (mut parts, ()) = request.into_parts();
        if let Some(peer) = peer {
            parts.extensions.insert(PeerAddress(peer));
        }
        Ok(layer.describe(&mut parts).await?)
    }

    /// The layer, with the identity of clients.
    pub(crate) fn describing(&self, layer: RateLimitLayer) -> RateLimitLayer {
        let [identity, waiting] = [(); 2].map(|()| Arc::clone(&self.identity));
        layer
            .forwarded_header(self.identity.forwarded_header())
            .underscore_headers(self.underscore_headers)
            .reads_headers(self.identity.headers())
            // For its twins: the header itself is removed with those of the connection.
            .reads_headers([HeaderName::from_static(PROXY_TOKEN)])
            .challenges(self.identity.challenges())
            .encoded_slashes(self.slashes())
            .attributes(move |request, attributes| {
                identity.describe(&request.headers, request.uri.query(), attributes)
            })
            .next_keys(move || {
                let identity = Arc::clone(&waiting);
                async move { identity.next_keys().await }
            })
    }

    /// Refuses an ambiguous request, and normalises any other. A request of HTTP/1.0 may have no host, unless one is
    /// needed.
    pub(crate) fn settle<B>(
        &self,
        request: &mut Request<B>,
        needs_host: bool,
    ) -> Result<(), GatewayFailure> {
        if request.method() == Method::CONNECT {
            return Err(GatewayFailure::Connect);
        }
        if request.headers().get_all(CONTENT_LENGTH).iter().count() > 1 {
            return Err(GatewayFailure::bad_request(
                "the request has more than one `Content-Length`; send one",
            ));
        }
        settle_host(request, needs_host)?;
        join_cookies(request.headers_mut());
        settle_path(self, request)
    }

    /// The address of the client of a request from `peer`.
    pub(crate) fn client_address(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<IpAddr, AttributeError> {
        self.identity.client_address(peer, headers)
    }

    /// How `%2f` is read in paths that are not refused for it.
    pub(crate) fn slashes(&self) -> EncodedSlashes {
        self.encoded_slashes.unwrap_or_default()
    }
}

/// Normalises the host: from here on it is in `Host`, once, and the URI is a path.
fn settle_host<B>(request: &mut Request<B>, needs_host: bool) -> Result<(), GatewayFailure> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(GatewayFailure::bad_request(
            "the request has more than one `Host`; send one",
        ));
    }
    let Some(authority) = request.uri().authority() else {
        return match host {
            Some(host) => check_host(host.as_bytes()),
            // Whether a rule needs a host is checked when the request is decided.
            None if request.version() == Version::HTTP_10 && !needs_host => Ok(()),
            None => Err(GatewayFailure::bad_request(
                "the request has no `Host`; send one",
            )),
        };
    };
    check_host(authority.as_str().as_bytes())?;
    let is_other = |host: &HeaderValue| {
        !host
            .as_bytes()
            .eq_ignore_ascii_case(authority.as_str().as_bytes())
    };
    if host.is_some_and(is_other) {
        return Err(GatewayFailure::bad_request(
            "the request's URI names one host, and `Host` another; send the same",
        ));
    }
    let host = HeaderValue::from_str(authority.as_str());
    let host =
        host.map_err(|_| GatewayFailure::bad_request("the host in the request's URI is not text"))?;
    let path = request.uri().path_and_query().cloned();
    let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    request.headers_mut().insert(HOST, host);
    Ok(())
}

/// Joins cookies: HTTP/2 allows several fields, HTTP/1.1 does not.
fn join_cookies(headers: &mut HeaderMap) {
    let mut pieces = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let (Some(first), Some(second)) = (pieces.next(), pieces.next()) else {
        return;
    };
    let mut joined = first.to_vec();
    for piece in std::iter::once(second).chain(pieces) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(piece);
    }
    // Joined header values are a valid value.
    if let Ok(joined) = HeaderValue::from_bytes(&joined) {
        headers.insert(COOKIE, joined);
    }
}

fn check_host(host: &[u8]) -> Result<(), GatewayFailure> {
    let text = String::from_utf8_lossy(host);
    let normal = normalise(&text);
    normal.map_err(|error| GatewayFailure::bad_request(error.to_string()))?;
    Ok(())
}

/// Normalises the path: from here on there is nothing left to resolve in it.
fn settle_path<B>(screen: &RequestScreen, request: &mut Request<B>) -> Result<(), GatewayFailure> {
    let uri = request.uri();
    let path = uri.path();
    if !path.starts_with('/') {
        return Err(GatewayFailure::bad_request(
            "the request's URI has no path; send one that begins with `/`",
        ));
    }
    if screen.encoded_slashes.is_none() && has_hidden_slash(path) {
        return Err(GatewayFailure::bad_request(
            PathError::HiddenSlash.to_string(),
        ));
    }
    let slashes = screen.slashes();
    let settled =
        forwarded(path, slashes).map_err(|error| GatewayFailure::bad_request(error.to_string()))?;
    let is_as_sent = matches!(settled, Cow::Borrowed(_));
    // `http://a?x` has an implicit path.
    if is_as_sent
        && uri
            .path_and_query()
            .is_some_and(|all| all.as_str().starts_with('/'))
    {
        return Ok(());
    }
    let whole = match uri.query() {
        Some(query) => format!("{settled}?{query}"),
        None => settled.into_owned(),
    };
    let path = PathAndQuery::try_from(whole).map_err(|error| {
        GatewayFailure::bad_request(format!("the path cannot be forwarded: {error}"))
    })?;
    *request.uri_mut() = Uri::from(path);
    Ok(())
}
