//! The settings of a gateway.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tidegate::path::EncodedSlashes;
use tidegate::rules::HostPattern;
use tidegate_listen::stall::BodyRate;
use tidegate_tower::{UnderscoreHeaders, UsageSettings};
use tidegate_usage::UsageSetting;

use crate::UpstreamUrl;

/// The settings of a gateway.
#[derive(Debug, Clone)]
pub struct GatewaySettings {
    /// The routes; the catch-all route, if there is one, is the last.
    pub routes: Vec<RouteConfig>,
    /// The authorities trusted behind it, a PEM file; by default the public ones.
    pub upstream_ca: Option<PathBuf>,
    /// How the health of the servers is checked.
    pub health: Option<HealthConfig>,
    /// The minimum rate of request bodies, if bounded.
    pub body_rate: Option<BodyRate>,
    /// The most connections to servers.
    pub max_connections: usize,
    /// The most connections for one client.
    pub max_connections_per_client: usize,
    /// The most requests that hold permits and continue without their client.
    pub max_background_requests: usize,
    /// How many bits of an IPv6 address identify a client.
    pub ipv6_prefix: u8,
    /// How `%2f` in a path is read. `None` refuses such paths.
    pub encoded_slashes: Option<EncodedSlashes>,
    /// The handling of headers that some servers treat as the same as a header that is read.
    pub underscore_headers: UnderscoreHeaders,
    /// Whether clients connect with TLS.
    pub is_tls: bool,
    /// How the cost of requests to language models is read.
    pub usage: UsageSettings,
}

/// The settings of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteConfig {
    /// The host that a request must have.
    pub host: Option<HostPattern>,
    /// The prefix of the path, in whole segments. Normalised, and `/` for all.
    pub prefix: String,
    /// The servers that answer, one or more.
    pub upstreams: Vec<UpstreamUrl>,
    /// How long the head of an answer may take.
    pub timeout: Duration,
    /// How long a connection may take to open.
    pub connect_timeout: Duration,
    /// How long a body, or a connection with another protocol, may be silent.
    pub idle_timeout: Duration,
    /// How often a request is retried that was certainly not answered.
    pub retries: u32,
    /// Whether the server gets its own name as `Host`, instead of the client's.
    pub replaces_host: bool,
    /// Whether the server sees paths without the prefix.
    pub strips_prefix: bool,
    /// What is read of the cost of its requests.
    pub usage: UsageSetting,
    /// Whether its streams are asked to include their usage.
    pub adds_usage: bool,
    /// Headers that are replaced for the server, such as its credentials. Only clients with a known key are let through.
    pub set_headers: Vec<(HeaderName, HeaderValue)>,
}

/// How the health of servers is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthConfig {
    /// The path to request.
    pub path: String,
    /// How often.
    pub interval: Duration,
}

impl RouteConfig {
    /// Whether its requests are described before they are decided: for their cost, or for the key of their client.
    pub(crate) fn reads_usage(&self) -> bool {
        self.usage != UsageSetting::Off || !self.set_headers.is_empty()
    }

    /// A catch-all route with the default settings.
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
            usage: UsageSetting::Off,
            adds_usage: true,
            set_headers: Vec::new(),
        }
    }
}
