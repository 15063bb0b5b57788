//! The gateway: a reverse proxy that decides by the rules before it forwards a request.
//!
//! The path of a request: `screen.rs` takes it, and `request_screen.rs` refuses ambiguous requests and normalises the
//! rest; the middleware of `tidegate-tower` decides; `forward.rs` finds the route (`route.rs`) and picks a server
//! (`upstream.rs`, `health.rs`), again after a failure; `attempt.rs` sends it over a connection (`pool.rs`,
//! `connect.rs`, `http1/`) with the headers for the next hop (`hop.rs`, `forwarded.rs`). `body.rs` carries answers
//! back, `tunnel.rs` upgraded connections, and `failure.rs` turns errors into replies. Of requests that share permits,
//! `body_start.rs` reads the body before they are decided; `abandoned.rs` ends those that hold permits and have lost
//! their client.
//!
//! Each core has its own runtime, and a connection stays where it was accepted, with a pool of connections to the
//! servers: no request moves from thread to thread.

#![forbid(unsafe_code)]

mod abandoned;
mod attempt;
mod body;
mod body_start;
mod capacity;
mod check;
mod connect;
mod failure;
mod forward;
mod forwarded;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod hop;
mod http1;
mod metrics;
mod model_request;
mod pool;
mod request_body;
mod request_screen;
mod rewrite;
mod route;
mod screen;
mod self_upstream;
mod settings;
mod tunnel;
mod upstream;
mod upstream_url;
mod worker;

pub use check::check_all;
pub use hop::PROXY_TOKEN;
pub use request_screen::{RequestScreen, ScreenRefusal};
pub use self_upstream::{SelfUpstream, find_self_upstream};
pub use settings::{GatewaySettings, HealthConfig, RouteConfig};
pub use upstream_url::{UpstreamScheme, UpstreamUrl};

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::rules::FrontEnd;
use tidegate_identity::Identity;
use tidegate_listen::clock::now;
use tidegate_listen::stall::BodyRate;
use tidegate_listen::{Drain, ListenSettings, RoundRobin, Threads, TlsError, serve_on};
use tidegate_tower::{BackgroundRequests, RateLimitLayer, UsageReading};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tower::Layer as _;

use body_start::StartRoom;
use capacity::{Capacity, OpenConnection};
use connect::Connector;
use pool::Pool;
use route::Routes;
use screen::Screened;
use upstream::Upstream;
use worker::Worker;

/// The state that all workers of a gateway share.
pub struct Gateway {
    screen: RequestScreen,
    routes: Routes,
    /// The servers behind it.
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    connector: Connector,
    health: Option<HealthConfig>,
    /// The counts of connections to the servers.
    capacity: Capacity,
    /// The idle connections of every worker.
    pools: Mutex<Vec<Weak<Pool>>>,
    /// The minimum rate of request bodies, if bounded.
    body_rate: Option<BodyRate>,
    /// Whether clients connect with TLS.
    is_tls: bool,
    /// The requests that hold permits and continue without their client.
    background: Arc<BackgroundRequests>,
    start_room: StartRoom,
    /// What is read of the cost of requests to language models.
    usage: UsageReading,
}

impl Gateway {
    /// A gateway whose clients are identified by `identity`.
    pub fn new(settings: &GatewaySettings, identity: Arc<Identity>) -> Result<Self, TlsError> {
        let (routes, upstreams) = Routes::new(&settings.routes);
        Ok(Self {
            screen: RequestScreen {
                identity,
                encoded_slashes: settings.encoded_slashes,
                underscore_headers: settings.underscore_headers,
            },
            routes,
            upstreams,
            connector: Connector::new(settings.upstream_ca.as_deref())?,
            health: settings.health.clone(),
            capacity: Capacity::new(
                settings.max_connections,
                settings.max_connections_per_client,
                settings.ipv6_prefix,
            ),
            pools: Mutex::default(),
            body_rate: settings.body_rate,
            is_tls: settings.is_tls,
            background: Arc::new(
                BackgroundRequests::new(settings.max_background_requests).untimed(),
            ),
            start_room: StartRoom::default(),
            usage: UsageReading::new(settings.usage.clone()),
        })
    }

    /// Reads the authorities that are trusted behind the gateway again, for new connections. After an error the previous
    /// ones stay in use.
    pub fn reload_authorities(&self) -> Result<(), TlsError> {
        self.connector.reload_authorities()
    }

    /// Permission to open one more connection to a server, if needed by closing an idle one.
    fn open_connection(&self) -> Option<OpenConnection> {
        self.capacity.open().or_else(|| {
            let pools = self.pools.lock();
            let mut pools = pools.iter().filter_map(Weak::upgrade);
            pools.any(|pool| pool.close_one()).then_some(())?;
            self.capacity.open()
        })
    }
}

/// Checks that requests can be decided; if not, returns the reply.
pub type ReadyCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// How clients are served and their requests decided.
pub struct Serving<'t> {
    /// Decides requests. The gateway adds the identity of clients.
    pub layer: RateLimitLayer,
    /// Called before each request.
    pub is_ready: ReadyCheck,
    /// The threads that connections are spread over.
    pub threads: &'t Threads,
    /// The settings of connections.
    pub settings: ListenSettings,
    /// Begins the shutdown.
    pub drain: Drain,
}

/// The first stage of a request, in front of the rate limited service.
struct Ingress<L> {
    limited: L,
    is_ready: ReadyCheck,
    gateway: Arc<Gateway>,
    guard: DrainGuard,
    layer: RateLimitLayer,
    /// How long a client may read nothing of an answer.
    write_timeout: Duration,
}

/// Ends tunnels shortly before the drain closes their connections.
#[derive(Clone)]
struct DrainGuard {
    drain: Drain,
    /// How long they may continue after it has begun.
    timeout: Duration,
}

/// Serves connections until the drain begins and the open ones have ended.
pub async fn serve(listener: TcpListener, gateway: Arc<Gateway>, serving: Serving<'_>) {
    let Serving {
        layer,
        is_ready,
        threads,
        settings,
        drain,
    } = serving;
    let layer = gateway.describing(layer);
    let write_timeout = settings.idle_timeout;
    let guard = DrainGuard {
        drain: drain.clone(),
        timeout: settings.drain_timeout.mul_f64(0.9),
    };
    let workers = threads.runtimes().map(|runtime| {
        let worker = Arc::new(Worker {
            gateway: Arc::clone(&gateway),
            pool: Arc::new(Pool::new(gateway.upstreams.len())),
            layer: layer.clone(),
        });
        gateway.pools.lock().push(Arc::downgrade(&worker.pool));
        runtime.spawn(pool::sweep(Arc::downgrade(&worker.pool)));
        let limited = layer.layer(tower::service_fn(move |request| {
            forward::forward(Arc::clone(&worker), request)
        }));
        let ingress = Arc::new(Ingress {
            limited,
            is_ready: Arc::clone(&is_ready),
            gateway: Arc::clone(&gateway),
            guard: guard.clone(),
            layer: layer.clone(),
            write_timeout,
        });
        let service = move |request, peer| {
            // Boxed, because it is moved several times before it is first polled.
            Box::pin(screen::admit(Arc::clone(&ingress), request, peer))
        };
        (runtime.clone(), service)
    });
    let settings = ListenSettings {
        strict: true,
        half_close: false,
        ..settings
    };
    let workers = RoundRobin::new(workers.collect());
    let drain_timeout = settings.drain_timeout;
    let begun = async {
        guard.drain.begun().await;
        now()
    };
    let serving = serve_on(listener, settings, drain, move || workers.take());
    let (begun, ()) = tokio::join!(begun, serving);
    let left = drain_timeout.saturating_sub(begun.elapsed());
    if timeout(left, gateway.background.ended()).await.is_err() {
        let requests = gateway.background.running();
        tracing::warn!(requests, "cut requests without a client that held permits");
    }
}

impl Gateway {
    /// The layer, with the identity of clients.
    fn describing(&self, layer: RateLimitLayer) -> RateLimitLayer {
        self.screen
            .describing(layer)
            .front_end(FrontEnd::Gateway)
            .background(Arc::clone(&self.background))
            .client_address(|request| {
                let screened = request.extensions.get::<Screened>();
                screened.map(|screened| screened.client.clone()).transpose()
            })
    }
}
