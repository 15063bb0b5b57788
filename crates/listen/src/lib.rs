//! Accepts connections: HTTP/1.1 and HTTP/2 on one port, with or without TLS, with timeouts, and a graceful drain
//! when the program stops. Other protocols share the accept loop, the certificate and the drain.
//!
//! The service decides what to answer, and how long that may take.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::time::Duration;

mod accept;
mod age;
mod budget;
pub mod client_tls;
pub mod clock;
mod connection;
mod connection_state;
mod drain;
mod exchange;
mod frames;
mod framing;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod http_caller;
mod http_url;
mod inline;
mod leaving;
mod listener;
mod named_clients;
mod request_id;
mod resting;
mod service;
pub mod stall;
mod threads;
mod timing;
mod tls;
mod wire;

pub use accept::{accept_all, freed_connections, hand_over, serve, serve_on};
pub use budget::ConnectionBudget;
pub use drain::Drain;
pub use exchange::{ArrivedRequest, ExchangeObserver, Exchanges, ObservedExchange};
pub use http_caller::{HttpCallError, HttpCaller};
pub use http_url::HttpUrl;
pub use listener::Listener;
pub use request_id::X_REQUEST_ID;
pub use service::Handler;
pub use threads::{RoundRobin, Threads};
pub use timing::{Labels, Timing};
pub use tls::{Tls, TlsError};

/// The peer of a request's connection.
///
/// An IPv4 client of a listener on `[::]` is an IPv4-mapped address here, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Whether it has presented a certificate of the listener's authorities.
    pub is_certified: bool,
}

impl From<SocketAddr> for Peer {
    /// A peer without a certificate.
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            is_certified: false,
        }
    }
}

/// The settings of connections. The default suits a port that any client can reach.
#[derive(Debug, Clone)]
pub struct ListenSettings {
    /// The certificate to serve; without one the port speaks plain text.
    pub tls: Option<Tls>,
    /// The most open connections. Further ones wait in the kernel's queue.
    pub max_connections: usize,
    /// The budget of all listeners together, if bounded.
    pub budget: Option<ConnectionBudget>,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long the head of an HTTP/1 request may take: counted from its first byte, and for the first request from
    /// the start of the connection. So a connection over which nothing is sent is closed after this.
    pub head_timeout: Duration,
    /// How long a connection is kept between requests. Also how long a client may read nothing of an answer before
    /// it counts as gone.
    pub idle_timeout: Duration,
    /// How long an HTTP/1 connection is idle before it gives its buffers back.
    pub rest_after: Duration,
    /// The largest head of a request, in bytes; more is 431. For HTTP/1 the minimum is 8 KiB, and a head has at
    /// most a hundred headers.
    pub max_head_bytes: usize,
    /// Whether an HTTP/1 client that has closed its sending side still gets its answer. If not, it counts as gone
    /// and its request is dropped, with its handler.
    pub half_close: bool,
    /// Whether ambiguous HTTP/1 requests are refused, such as one whose body has two lengths. For services that
    /// forward requests to another server.
    pub strict: bool,
    /// The most concurrent requests on one HTTP/2 connection.
    pub max_streams: u32,
    /// Whether answers over HTTP/2 have a `Date`. Clients of gRPC do not use it.
    pub date: bool,
    /// How often an HTTP/2 peer is pinged.
    pub ping_interval: Duration,
    /// How long the peer may take to answer a ping.
    pub ping_timeout: Duration,
    /// How old a connection may get, if that is bounded.
    pub max_age: Option<ConnectionAge>,
    /// How long after the drain has begun an HTTP/1 connection may still begin a request. The answer has
    /// `Connection: close`. A client that sends its next request right after an answer, without knowing about the
    /// drain, loses none. Zero closes idle connections immediately.
    pub last_call: Duration,
    /// How long after the drain has begun requests may take to finish before they are aborted.
    pub drain_timeout: Duration,
    /// Gives requests and answers an id, and lets an observer see them; if not set, neither.
    pub exchanges: Option<Exchanges>,
}

/// How old a connection may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionAge {
    /// After this, a tenth more or less, it is asked to end after its answers: over HTTP/2 with GOAWAY.
    pub age: Duration,
    /// After this in addition it is cut, if it has not ended.
    pub grace: Duration,
}

impl Default for ListenSettings {
    fn default() -> Self {
        Self {
            tls: None,
            max_connections: 10_000,
            budget: None,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            rest_after: Duration::from_secs(1),
            max_head_bytes: 16 * 1024,
            half_close: true,
            strict: false,
            max_streams: 250,
            date: true,
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(10),
            max_age: None,
            last_call: Duration::from_millis(100),
            drain_timeout: Duration::from_secs(10),
            exchanges: None,
        }
    }
}
