//! Screens a request: ambiguous ones are refused, the rest is normalised, and is matched and forwarded in that
//! form.

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, COOKIE, HOST};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, request};
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use tidegate::AttributeError;
use tidegate::host::normalise;
use tidegate::path::{PathError, forwarded, has_hidden_slash};
use tidegate_listen::Peer;
use tidegate_listen::stall::TakenBody;
use tower::Service;

use crate::body_start::{Awaited, BodyStart, StartPace};
use crate::failure::GatewayFailure;
use crate::upstream_url::UpstreamScheme;
use crate::{Gateway, Ingress, hop, tunnel};

/// The body of an answer: of a server, watched if needed, or of this gateway.
type GatewayBody<B> = Either<Either<B, TakenBody<B>>, Full<Bytes>>;

/// Screens a request, and passes it on to be decided.
pub(crate) async fn admit<S, B>(
    ingress: Arc<Ingress<S>>,
    mut request: Request<Incoming>,
    peer: Peer,
) -> Result<Response<GatewayBody<B>>, Infallible>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body + Send + 'static,
{
    let is_ready = (ingress.is_ready)().map_err(GatewayFailure::NotReady);
    match is_ready.and_then(|()| screen(&ingress.gateway, &mut request, peer)) {
        Ok(screened) => request.extensions_mut().insert(screened),
        Err(failure) => return Ok(failure.reply().map(Either::Right)),
    };
    if !request.body().is_end_stream() && ingress.layer.has_shared_permits() {
        request = match Box::pin(ingress.read_start(request)).await {
            Ok(request) => request,
            Err(failure) => return Ok(failure.reply().map(Either::Right)),
        };
    }
    let is_http1 = request.version() == Version::HTTP_11;
    let is_http2 = request.version() == Version::HTTP_2;
    let wants_upgrade = is_http1 && hop::wants_upgrade(request.headers());
    let client = wants_upgrade.then(|| hyper::upgrade::on(&mut request));
    let mut limited = ingress.limited.clone();
    poll_fn(|cx| limited.poll_ready(cx)).await?;
    let mut answer = limited.call(request).await?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let is_watched = is_http2 && !answer.body().is_end_stream();
        return Ok(answer.map(|body| {
            Either::Left(if is_watched {
                Either::Right(TakenBody::new(body, ingress.write_timeout))
            } else {
                Either::Left(body)
            })
        }));
    }
    let server = answer.extensions_mut().remove::<tunnel::ServerEnd>();
    let (head, body) = answer.into_parts();
    if let (Some(client), Some(server)) = (client, server) {
        let guard = ingress.guard.clone();
        tokio::spawn(tunnel::relay(client, server, guard, body));
    }
    Ok(Response::from_parts(head, Either::Right(Full::default())))
}

impl<L> Ingress<L> {
    /// Reads the start of a request's body, if it takes a permit that clients share.
    async fn read_start(
        &self,
        request: Request<Incoming>,
    ) -> Result<Request<Incoming>, GatewayFailure> {
        let (mut head, mut body) = request.into_parts();
        if let Some(pace) = self.start_pace(&head)
            && self.layer.takes_shared_permit(&mut head)
        {
            let start = self.gateway.start_room.read(&mut body, pace).await?;
            if let Some(screened) = head.extensions.get_mut::<Screened>() {
                screened.start = Some(Box::new(start));
            }
        }
        Ok(Request::from_parts(head, body))
    }

    /// How much of the body of a request is awaited before the request is decided; `None` if it has no route.
    fn start_pace(&self, head: &request::Parts) -> Option<StartPace> {
        let screened = head.extensions.get::<Screened>()?;
        let route = self.gateway.routes.get(screened.route?)?;
        let is_grpc = head.version == Version::HTTP_2 && hop::is_grpc(&head.headers);
        let mut upstreams = route.upstreams.iter();
        let is_stream =
            is_grpc && upstreams.any(|upstream| upstream.url.scheme != UpstreamScheme::Http);
        Some(StartPace {
            awaited: if is_stream {
                Awaited::First
            } else {
                Awaited::Start
            },
            rate: self.gateway.body_rate,
            timeout: route.config.timeout,
        })
    }
}

/// The properties of a request that are determined once, before it is decided, and carried with it.
#[derive(Clone)]
pub(crate) struct Screened {
    /// The address that the connection came from.
    pub(crate) peer: IpAddr,
    /// The address of the client. An error is answered when the request is decided.
    pub(crate) client: Result<IpAddr, AttributeError>,
    /// The index of its route, if there is one for it.
    pub(crate) route: Option<usize>,
    /// The normal path, which routes are matched by. Empty if every request has the same route.
    pub(crate) path: String,
    /// The start of its body, if it was read before the decision.
    pub(crate) start: Option<Box<BodyStart>>,
}

fn screen<B>(
    gateway: &Gateway,
    request: &mut Request<B>,
    Peer(peer): Peer,
) -> Result<Screened, GatewayFailure> {
    if request.method() == Method::CONNECT {
        return Err(GatewayFailure::Connect);
    }
    if request.headers().get_all(CONTENT_LENGTH).iter().count() > 1 {
        return Err(GatewayFailure::bad_request(
            "the request has more than one `Content-Length`; send one",
        ));
    }
    settle_host(gateway, request)?;
    join_cookies(request.headers_mut());
    settle_path(gateway, request)?;
    let peer = peer.ip();
    let client = gateway.identity.client_address(peer, request.headers());
    let (mut route, mut path) = (Some(0), String::new());
    if !gateway.routes.are_one() {
        let host = request.headers().get(HOST);
        let host = host.and_then(|host| host.to_str().ok());
        let slashes = gateway.encoded_slashes.unwrap_or_default();
        let normal = tidegate::path::normalise(request.uri().path(), slashes);
        path = normal.unwrap_or_default().into_owned();
        route = gateway.routes.find(host.unwrap_or_default(), &path);
    }
    Ok(Screened {
        peer,
        client,
        route,
        path,
        start: None,
    })
}

/// Normalises the host: from here on it is in `Host`, once, and the URI is a path.
fn settle_host<B>(gateway: &Gateway, request: &mut Request<B>) -> Result<(), GatewayFailure> {
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
            None if request.version() == Version::HTTP_10 && !gateway.routes.read_host() => Ok(()),
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
fn settle_path<B>(gateway: &Gateway, request: &mut Request<B>) -> Result<(), GatewayFailure> {
    let uri = request.uri();
    let path = uri.path();
    if !path.starts_with('/') {
        return Err(GatewayFailure::bad_request(
            "the request's URI has no path; send one that begins with `/`",
        ));
    }
    if gateway.encoded_slashes.is_none() && has_hidden_slash(path) {
        return Err(GatewayFailure::bad_request(
            PathError::HiddenSlash.to_string(),
        ));
    }
    let slashes = gateway.encoded_slashes.unwrap_or_default();
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
