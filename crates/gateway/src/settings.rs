//! The settings of a gateway.

use std::time::Duration;

use tidegate::path::EncodedSlashes;
use tidegate::rules::HostPattern;
use tidegate_listen::stall::BodyRate;
use tidegate_tower::UnderscoreHeaders;

use crate::UpstreamUrl;

/// How a gateway is set up.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// Where requests go; the one for everything, if there is one, is the last.
    pub routes: Vec<RouteConfig>,
    /// Whose certificates are trusted behind it, in PEM form; otherwise the public authorities.
    pub upstream_ca: Option<Vec<u8>>,
    /// How the servers behind it are asked whether they are well.
    pub health: Option<HealthConfig>,
    /// How fast the body of a request must come, if that matters.
    pub body_rate: Option<BodyRate>,
    /// How many connections to servers there may be.
    pub max_connections: usize,
    /// How many of them the requests of one client may have.
    pub max_connections_per_client: usize,
    /// How many bits of an IPv6 address make a client.
    pub ipv6_prefix: u8,
    /// What `%2f` in a path is. None: paths with an encoded slash are refused.
    pub encoded_slashes: Option<EncodedSlashes>,
    /// What happens to headers that some servers take for others that are read.
    pub underscore_headers: UnderscoreHeaders,
    /// Whether clients come over TLS.
    pub is_tls: bool,
}

/// Where requests go that match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteConfig {
    /// The host that the request must be for.
    pub host: Option<HostPattern>,
    /// What its path must begin with, in whole segments. Normal, and `/` for all.
    pub prefix: String,
    /// The servers that answer, one or more.
    pub upstreams: Vec<UpstreamUrl>,
    /// How long the head of an answer may take.
    pub timeout: Duration,
    /// How long a connection may take to stand.
    pub connect_timeout: Duration,
    /// How long a body, or a connection with another protocol, may be silent.
    pub idle_timeout: Duration,
    /// How often a request is sent again that has certainly not been answered.
    pub retries: u32,
    /// Whether the server gets its own name as `Host`, and not the one that the client sent.
    pub replaces_host: bool,
    /// Whether the server sees paths without the prefix.
    pub strips_prefix: bool,
}

/// How servers are asked whether they are well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthConfig {
    /// The path to ask for.
    pub path: String,
    /// How often.
    pub interval: Duration,
}

impl RouteConfig {
    /// A route for everything, with what holds unless something else is said.
    pub fn to(upstream: UpstreamUrl) -> Self {
        Self {
            host: None,
            prefix: "/".to_owned(),
            upstreams: vec![upstream],
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_mins(5),
            retries: 1,
            replaces_host: false,
            strips_prefix: false,
        }
    }
}
