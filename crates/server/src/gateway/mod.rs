//! The gateway: a reverse proxy that decides by the rules before anything goes on.
//!
//! The road of a request: `screen.rs` refuses what has two meanings and brings the rest into one form;
//! the middleware of `tidegate-tower` decides; `forward.rs` finds the route (`route.rs`) and picks a server
//! (`upstream.rs`, `health.rs`), as often as need be; `attempt.rs` sends it over a connection (`pool.rs`,
//! `connect.rs`, `http1/`) with the headers that belong on the next leg (`hop.rs`, `forwarded.rs`).
//! `body.rs` carries answers back, `tunnel.rs` connections that change their protocol, and `failure.rs` turns
//! what went wrong into replies.
//!
//! Each core has a runtime of its own, and a connection stays where it was accepted, with a pool of
//! connections to the servers behind: no request is handed from thread to thread.

mod alarm;
mod attempt;
mod body;
mod capacity;
mod check;
mod connect;
mod failure;
mod forsaken;
mod forward;
mod forwarded;
mod health;
mod hop;
mod http1;
mod lane;
mod metrics;
mod own;
mod pace;
mod pool;
mod request_body;
mod rewrite;
mod route;
mod screen;
mod tunnel;
mod upstream;

use capacity::Shortage;
pub(crate) use check::check_all;
pub(crate) use own::find_own;
use upstream::Upstream;

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::address::TrustedProxies;
use tidegate::path::EncodedSlashes;
use tidegate::rules::FrontEnd;
use tidegate_listen::{Drain, ListenSettings, Peer, Threads, TlsError, Turns, serve_on};
use tidegate_tower::{ForwardedHeader, RateLimitLayer, UnderscoreHeaders};
use tokio::net::TcpListener;
use tower::Layer as _;

use crate::config::{Config, GatewayConfig, HealthConfig};
use crate::descriptors::Descriptors;
use crate::server::Server;
use crate::store::AnyStore;
use crate::telemetry::Measured;
use capacity::{Capacity, OpenConnection};
use connect::Connector;
use lane::Lane;
use pace::BodyRate;
use pool::Pool;
use route::Routes;

/// What all workers of a gateway share.
pub(crate) struct Gateway {
    routes: Routes,
    upstreams: Vec<Arc<Upstream>>,
    connector: Connector,
    health: Option<HealthConfig>,
    /// How many connections there are to the servers.
    pub(crate) capacity: Capacity,
    /// The connections of every worker that wait for a request.
    pools: Mutex<Vec<Weak<Pool>>>,
    trusted_proxies: TrustedProxies,
    forwarded_header: ForwardedHeader,
    underscore_headers: UnderscoreHeaders,
    /// None: paths with an encoded slash are refused.
    encoded_slashes: Option<EncodedSlashes>,
    /// How fast the body of a request must come, if that matters.
    body_rate: Option<BodyRate>,
    /// Whether clients come over TLS.
    is_tls: bool,
}

impl Gateway {
    /// A gateway as the configuration says.
    pub(crate) fn new(
        config: &Config,
        gateway: &GatewayConfig,
        descriptors: &Descriptors,
    ) -> Result<Self, TlsError> {
        let (routes, upstreams) = Routes::new(&gateway.routes);
        Ok(Self {
            routes,
            upstreams,
            connector: Connector::new(gateway.upstream_ca.as_deref())?,
            health: gateway.health.clone(),
            capacity: Capacity::new(
                descriptors.upstream,
                descriptors.upstream_per_client,
                config.rule_settings.ipv6_prefix,
            ),
            pools: Mutex::default(),
            trusted_proxies: config.trusted_proxies.clone(),
            forwarded_header: config.identify.forwarded_header,
            underscore_headers: config.underscore_headers,
            encoded_slashes: config.encoded_slashes,
            body_rate: gateway.body_min_rate.map(|bytes_per_second| BodyRate {
                bytes_per_second,
                window: gateway.body_rate_window,
            }),
            is_tls: gateway.tls.is_some() || config.tls.is_some(),
        })
    }

    /// Leave to open one more connection to a server, if need be in place of one that waits for a request.
    fn open_connection(&self) -> Option<OpenConnection> {
        self.capacity.open().or_else(|| {
            let pools = self.pools.lock();
            let mut pools = pools.iter().filter_map(Weak::upgrade);
            pools.any(|pool| pool.close_one()).then_some(())?;
            self.capacity.open()
        })
    }

    /// The servers behind it.
    pub(crate) fn upstreams(&self) -> &[Arc<Upstream>] {
        &self.upstreams
    }
}

/// What a request meets first, before the service that is limited.
struct Entrance<S> {
    limited: S,
    server: Arc<Server>,
    gateway: Arc<Gateway>,
    end: End,
    /// How long a client may take nothing of an answer.
    patience: Duration,
}

/// How connections are served that end, when it comes to that, with the drain.
#[derive(Clone)]
struct End {
    drain: Drain,
    patience: Duration,
}

/// Serves connections until the drain begins, and then until those that are open have ended.
pub(crate) async fn serve(
    listener: TcpListener,
    server: Arc<Server>,
    gateway: Arc<Gateway>,
    threads: &Threads,
    settings: ListenSettings,
    drain: Drain,
) {
    let layer = layer(&server, &gateway);
    let patience = settings.idle_timeout;
    let end = End {
        drain: drain.clone(),
        // Before the connections are cut without a word.
        patience: settings.drain_timeout.mul_f64(0.9),
    };
    let places = threads.runtimes().map(|runtime| {
        let lane = Arc::new(Lane {
            gateway: Arc::clone(&gateway),
            pool: Arc::new(Pool::new(gateway.upstreams.len())),
            server: Arc::clone(&server),
        });
        gateway.pools.lock().push(Arc::downgrade(&lane.pool));
        runtime.spawn(pool::sweep(Arc::downgrade(&lane.pool)));
        let limited = layer.layer(tower::service_fn(move |request| {
            forward::forward(Arc::clone(&lane), request)
        }));
        let entrance = Arc::new(Entrance {
            limited,
            server: Arc::clone(&server),
            gateway: Arc::clone(&gateway),
            end: end.clone(),
            patience,
        });
        let service = tower::service_fn(move |request| {
            // In a box, because it is moved several times before it is first polled.
            Box::pin(screen::admit(Arc::clone(&entrance), request))
        });
        (runtime.clone(), service)
    });
    let settings = ListenSettings {
        strict: true,
        half_close: false,
        ..settings
    };
    let places = Turns::new(places.collect());
    serve_on(listener, settings, drain, move || places.take()).await;
}

/// How requests are put to the gate.
fn layer(server: &Arc<Server>, gateway: &Gateway) -> RateLimitLayer<Measured<AnyStore>> {
    let [finding, describing, observing] = [(); 3].map(|()| Arc::clone(server));
    RateLimitLayer::new(Arc::clone(&server.gate))
        .forwarded_header(server.identity.forwarded_header())
        .underscore_headers(gateway.underscore_headers)
        .reads_headers(server.identity.headers())
        .front_end(FrontEnd::Gateway)
        .headers(server.headers)
        .encoded_slashes(gateway.encoded_slashes.unwrap_or_default())
        .client_address(move |request| {
            let Some(Peer(peer)) = request.extensions.get() else {
                return Ok(None);
            };
            let client = finding.identity.client_address(peer.ip(), &request.headers);
            client.map(Some)
        })
        .attributes(move |request, attributes| {
            let query = request.uri.query();
            describing
                .identity
                .describe(&request.headers, query, attributes)
        })
        .on_decision(move |decision, attributes| observing.observe(decision, attributes))
}
