//! Screens a request, finds its route, and passes it on to be decided. `request_screen.rs` refuses ambiguous requests
//! and normalises the rest.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, Response, StatusCode, Version, request};
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use tidegate::AttributeError;
use tidegate_listen::Peer;
use tidegate_listen::stall::TakenBody;
use tidegate_tower::UsageBody;
use tower::Service;

use crate::body_start::{Awaited, BodyStart, StartPace};
use crate::failure::GatewayFailure;
use crate::upstream_url::UpstreamScheme;
use crate::{Gateway, Ingress, hop, tunnel};

/// The body of an answer: of a server, watched if needed, or of this gateway.
type GatewayBody<B> = Either<Either<UsageBody<B>, TakenBody<UsageBody<B>>>, Full<Bytes>>;

/// Screens a request, and passes it on to be decided.
pub(crate) async fn admit<S, B>(
    ingress: Arc<Ingress<S>>,
    mut request: Request<Incoming>,
    peer: Peer,
) -> Result<Response<GatewayBody<B>>, Infallible>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Data = Bytes, Error: Unpin + Send> + Unpin + Send + 'static,
{
    let is_ready = (ingress.is_ready)().map_err(GatewayFailure::NotReady);
    match is_ready.and_then(|()| screen(&ingress.gateway, &mut request, peer)) {
        Ok(screened) => request.extensions_mut().insert(screened),
        Err(failure) => return Ok(failure.reply().map(Either::Right)),
    };
    let mut call = None;
    if let Some(route) = ingress.usage_route(&request) {
        let (mut head, mut body) = request.into_parts();
        // Boxed, because most requests do not take this path.
        call = match Box::pin(ingress.prepare(&route, &mut head, &mut body)).await {
            Ok(call) => call,
            Err(refused) => return Ok(refused.map(|body| Either::Right(Full::new(body)))),
        };
        request = Request::from_parts(head, body);
    }
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
    let answer = limited.call(request).await?;
    let mut answer = match call {
        Some(call) => Box::pin(call.attend(ingress.layer.gate(), answer)).await,
        None => answer.map(UsageBody::plain),
    };
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
        let is_read = |screened: &Screened| screened.start.is_some();
        if !head.extensions.get().is_some_and(is_read)
            && let Some(pace) = self.start_pace(&head)
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
    pub(crate) fn start_pace(&self, head: &request::Parts) -> Option<StartPace> {
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
    Peer { address: peer, .. }: Peer,
) -> Result<Screened, GatewayFailure> {
    gateway.screen.settle(request, gateway.routes.read_host())?;
    let peer = peer.ip();
    let client = gateway.screen.client_address(peer, request.headers());
    let (mut route, mut path) = (Some(0), String::new());
    if !gateway.routes.are_one() {
        let host = request.headers().get(HOST);
        let host = host.and_then(|host| host.to_str().ok());
        let slashes = gateway.screen.slashes();
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
