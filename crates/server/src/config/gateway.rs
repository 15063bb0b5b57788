//! The settings of the gateway: where it listens, and the servers behind it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tidegate::document::{Fields, Node, Problems, Spot, Value};
use tidegate::path::{EncodedSlashes, normalise};
use tidegate::rules::HostPattern;
use tidegate_gateway::{HealthConfig, RouteConfig, UpstreamUrl};

use super::read::{TakenField, flag, listen_address, number, setting, span, tls_files, word};
use super::redis::certificates_file;
use super::settings::{self, HEALTH, ROUTE};
use super::size::bytes_of;
use super::usage::{self, UsageConfig};
use super::{Overrides, TlsFiles};

const INCLUDE_USAGE: [(&str, bool); 2] = [("add", true), ("leave", false)];

/// The gateway. Validated.
#[derive(Debug, Clone)]
pub struct GatewayConfig {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its own certificate, if it does not use the API's.
    pub tls: Option<TlsFiles>,
    /// The routes; the catch-all route, if there is one, is the last.
    pub routes: Vec<RouteConfig>,
    /// The authorities trusted behind it, a PEM file; by default the public ones.
    pub upstream_ca: Option<PathBuf>,
    /// How the health of the servers behind it is checked.
    pub health: Option<HealthConfig>,
    /// The least bytes per second of a request body, if bounded.
    pub body_min_rate: Option<u64>,
    /// The window over which the rate is measured. Not a setting.
    pub body_rate_window: Duration,
    /// The most connections to servers, if set; otherwise derived from the file descriptors.
    pub max_upstream_connections: Option<usize>,
    /// The most upstream connections for one client.
    pub max_upstream_connections_per_client: Option<usize>,
    /// The most requests that hold permits and continue without their client.
    pub max_background_requests: usize,
    /// How language models are read.
    pub usage: UsageConfig,
}

pub(super) fn read(
    fields: &mut Fields<'_>,
    overrides: &Overrides<'_>,
    problems: &mut Problems,
) -> Option<GatewayConfig> {
    let Some((spot, node)) = fields.take("gateway") else {
        let message = "this has no meaning without `gateway`, the address where it listens";
        for key in settings::keys().filter(|key| key.needs == ["gateway"]) {
            fields.refuse(key.name, message, problems);
        }
        return None;
    };
    let address = spot.parsed(node, listen_address, problems);
    let tls = tls_files(fields, ["gateway_tls_cert", "gateway_tls_key"], problems);
    let upstream = fields.parsed("upstream", UpstreamUrl::parse, problems);
    let routes = fields.take("routes");
    if routes.is_none() && fields.key("upstream").is_none() {
        let message =
            "a gateway needs a server behind it: set `upstream` (--upstream URL) or `routes`";
        problems.error(&node.place, &spot, message);
    }
    let mut routes = read_routes(routes, overrides, problems);
    let (usage, adds_usage) = (
        usage::usage(fields.take("usage"), problems),
        word(fields, "include_usage", &INCLUDE_USAGE, problems),
    );
    routes.extend(upstream.map(|upstream| RouteConfig {
        usage: usage.unwrap_or_default(),
        adds_usage: adds_usage.unwrap_or(true),
        ..RouteConfig::to(upstream)
    }));
    let usage = usage::read(fields, problems);
    let upstream_ca = fields.parsed("upstream_ca", certificates_file, problems);
    let health = fields.take("upstream_health");
    let health = health.and_then(|(spot, node)| read_health(&spot, node, problems));
    let body_min_rate = setting(fields, "body_min_rate", rate_or_off, problems);
    let [most, most_per_client, most_in_background] = [
        "max_upstream_connections",
        "max_upstream_connections_per_client",
        "max_background_requests",
    ]
    .map(|key| number(fields, key, problems));
    Some(GatewayConfig {
        address: address?,
        tls,
        routes,
        upstream_ca,
        health,
        body_min_rate: body_min_rate?,
        body_rate_window: Duration::from_secs(30),
        max_upstream_connections: most,
        max_upstream_connections_per_client: most_per_client,
        max_background_requests: most_in_background?,
        usage: usage?,
    })
}

/// `256B/s`, with `KiB`, `MiB`, `kB` and `MB` too, or `off`.
fn rate_or_off(text: &str) -> Result<Option<u64>, String> {
    if text == "off" {
        return Ok(None);
    }
    let bad =
        || format!("`{text}` is not a rate; write for example `256B/s` or `1KiB/s`, or `off`");
    let size = text.strip_suffix("/s").ok_or_else(bad)?.trim_end();
    match bytes_of(size) {
        Some(rate @ 1..=0xffff_ffff) => Ok(Some(rate)),
        Some(0) => Err("a rate of zero has no meaning; write `off`".to_owned()),
        _ => Err(bad()),
    }
}

fn read_routes(
    taken: TakenField<'_>,
    overrides: &Overrides<'_>,
    problems: &mut Problems,
) -> Vec<RouteConfig> {
    let Some((spot, node)) = taken else {
        return Vec::new();
    };
    let Value::List(items) = &node.value else {
        let message = "this must be a list of routes, each `{host: ..., prefix: /..., upstreams: [http://...]}`";
        problems.error(&node.place, &spot, message);
        return Vec::new();
    };
    let mut routes: Vec<RouteConfig> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let spot = spot.item(index);
        let Some(route) = read_route(item, &spot, overrides, problems) else {
            continue;
        };
        let is_same =
            |other: &RouteConfig| (&other.host, &other.prefix) == (&route.host, &route.prefix);
        if routes.iter().any(is_same) {
            let message =
                "another route has the same host and prefix; put the upstreams of both into one";
            problems.error(&item.place, &spot, message);
        }
        routes.push(route);
    }
    routes
}

fn read_route(
    node: &Node,
    spot: &Spot,
    overrides: &Overrides<'_>,
    problems: &mut Problems,
) -> Option<RouteConfig> {
    let fields = Fields::new(node, spot.clone(), &ROUTE, problems)?;
    let host = fields.parsed("host", HostPattern::parse, problems);
    let prefix = setting(&fields, "prefix", path_prefix, problems);
    let upstreams = fields.take("upstreams");
    let timeout = setting(&fields, "timeout", some_time, problems);
    let connect_timeout = setting(&fields, "connect_timeout", some_time, problems);
    let idle_timeout = setting(&fields, "idle_timeout", some_time, problems);
    let retries = number(&fields, "retries", problems);
    let words = [("pass", false), ("upstream", true)];
    let replaces_host = word(&fields, "host_header", &words, problems);
    let strips_prefix = flag(&fields, "strip_prefix", problems);
    let usage = usage::usage(fields.take("usage"), problems);
    let adds_usage = word(&fields, "include_usage", &INCLUDE_USAGE, problems);
    let set_headers = usage::set_headers(fields.take("set_headers"), overrides, problems);
    fields.done(problems);
    let Some((upstreams_spot, upstreams)) = upstreams else {
        let message = "a route needs `upstreams`, for example `[http://10.0.0.1:3000]`";
        return spot.refused(node, message, problems);
    };
    let mut read = Vec::new();
    for (spot, node) in upstreams_spot.items(upstreams, problems) {
        let Some(url) = spot.parsed(node, UpstreamUrl::parse, problems) else {
            continue;
        };
        if read.contains(&url) {
            problems.error(
                &node.place,
                &spot,
                "this upstream is listed twice; remove one",
            );
        }
        read.push(url);
    }
    if read.is_empty() {
        let message = "a route needs at least one upstream, for example `http://10.0.0.1:3000`";
        if !problems.has_errors() {
            problems.error(&upstreams.place, &upstreams_spot, message);
        }
        return None;
    }
    Some(RouteConfig {
        host,
        prefix: prefix?,
        timeout: timeout?,
        connect_timeout: connect_timeout?,
        idle_timeout: idle_timeout?,
        retries: retries?,
        replaces_host: replaces_host?,
        strips_prefix: strips_prefix?,
        usage: usage?,
        adds_usage: adds_usage?,
        set_headers,
        upstreams: read,
    })
}

fn read_health(spot: &Spot, node: &Node, problems: &mut Problems) -> Option<HealthConfig> {
    let fields = Fields::new(node, spot.clone(), &HEALTH, problems)?;
    let path = fields.parsed("path", health_path, problems);
    let interval = setting(&fields, "interval", some_time, problems);
    fields.done(problems);
    if fields_missing(node, "path") {
        problems.error(
            &node.place,
            spot,
            "`path` is missing; give the path to request, for example `/healthz`",
        );
    }
    Some(HealthConfig {
        path: path?,
        interval: interval?,
    })
}

fn fields_missing(node: &Node, key: &str) -> bool {
    matches!(&node.value, Value::Map(entries) if !entries.iter().any(|entry| entry.key == key))
}

fn health_path(text: &str) -> Result<String, String> {
    match text.parse::<http::uri::PathAndQuery>() {
        Ok(path) if path.as_str().starts_with('/') => Ok(text.to_owned()),
        _ => Err(format!("`{text}` is not a path, such as `/healthz`")),
    }
}

fn path_prefix(text: &str) -> Result<String, String> {
    match normalise(text, EncodedSlashes::Decode) {
        Ok(normal) if normal == text => Ok(text.to_owned()),
        Ok(normal) => Err(format!(
            "`{text}` never matches, because paths are normalised before they are compared; write `{normal}`"
        )),
        Err(error) => Err(error.to_string()),
    }
}

fn some_time(text: &str) -> Result<Duration, String> {
    match Duration::from(span(text)?) {
        Duration::ZERO => Err("must be more than zero; write for example `5s`".to_owned()),
        time => Ok(time),
    }
}
