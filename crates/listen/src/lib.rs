//! Accepts connections: HTTP/1.1 and HTTP/2 on one port, with or without TLS, with timeouts, and drained in
//! good order when the program stops. Other protocols share the accept loop, the certificate and the drain.
//!
//! What is answered is the service's business; how long a handler may take, too.

use std::net::SocketAddr;
use std::time::Duration;

mod accept;
mod activity;
mod budget;
pub mod client_tls;
pub mod clock;
mod connection;
mod drain;
mod frames;
mod framing;
mod leaving;
mod service;
pub mod stall;
mod threads;
mod timing;
mod tls;
mod wire;

pub use accept::{accept_all, ended_connections, serve, serve_on};
pub use budget::ConnectionBudget;
pub use drain::Drain;
pub use threads::{RoundRobin, Threads};
pub use timing::{Labels, Timing};
pub use tls::{Tls, TlsError, server_config};

/// Who sent a request: the other end of its connection, in each request's extensions.
///
/// An IPv4 client of a listener on `[::]` is an IPv4-mapped address here, as the kernel says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(pub SocketAddr);

/// How connections are treated. The default is fit for a port that anyone can reach.
#[derive(Debug, Clone)]
pub struct ListenSettings {
    /// The certificate to serve; without one the port speaks plain text.
    pub tls: Option<Tls>,
    /// How many connections are open at once. More wait, not yet accepted, until others end.
    pub max_connections: usize,
    /// How many there may be of all listeners together, if that is bounded.
    pub budget: Option<ConnectionBudget>,
    /// How long a client may take over its TLS handshake.
    pub handshake_timeout: Duration,
    /// How long an HTTP/1 client may take over the head of a request: counted from its first byte,
    /// and for the first request from when the connection stands. So a connection over which nothing is sent is
    /// closed after this.
    pub head_timeout: Duration,
    /// How long a connection is kept between requests. Also how long a client may take nothing of an answer
    /// before it is taken for gone.
    pub idle_timeout: Duration,
    /// How large the head of a request may be, in bytes; more is 431. HTTP/1 allows no less than
    /// 8 KiB, and a hundred headers.
    pub max_head_bytes: usize,
    /// Whether an HTTP/1 client that has closed its sending side still gets its answer. If not, it is
    /// taken for gone and its request is given up, with the handler that works on it.
    pub half_close: bool,
    /// Whether HTTP/1 requests are refused that two readers could take for two different things, such as
    /// one whose body has two lengths. For what passes requests on to another server.
    pub strict: bool,
    /// How many requests one HTTP/2 connection has open at once.
    pub max_streams: u32,
    /// How often the peer of an HTTP/2 connection is asked whether it is still there.
    pub ping_interval: Duration,
    /// How long the peer may take to say so.
    pub ping_timeout: Duration,
    /// For how long after the drain has begun an HTTP/1 connection may still begin a request. The
    /// answer says `Connection: close`. A client that sends its next request as soon as it has an
    /// answer, and cannot know that the server is about to close, loses none. Zero closes idle
    /// connections at once.
    pub last_call: Duration,
    /// For how long after the drain has begun requests may take to finish before they are cut.
    pub drain_timeout: Duration,
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
            max_head_bytes: 16 * 1024,
            half_close: true,
            strict: false,
            max_streams: 250,
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(10),
            last_call: Duration::from_millis(100),
            drain_timeout: Duration::from_secs(10),
        }
    }
}
