//! Refuses a gateway in front of its own server: it would expose the API, or call itself in a loop.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use tokio::net::lookup_host;

use crate::settings::RouteConfig;
use crate::upstream_url::UpstreamUrl;

/// A server behind the gateway that is this program.
#[derive(Debug)]
pub struct SelfUpstream {
    /// The upstream as written.
    pub upstream: String,
    /// The front end that listens there.
    pub front_end: &'static str,
    /// Where.
    pub address: SocketAddr,
}

/// Finds an upstream that is one of these addresses of this program.
pub async fn find_self_upstream(
    routes: &[RouteConfig],
    own: &[(&'static str, SocketAddr)],
) -> Option<SelfUpstream> {
    for url in routes.iter().flat_map(|route| &route.upstreams) {
        for &(front_end, address) in own {
            if address.port() == url.port && reaches(url, address.ip()).await {
                return Some(SelfUpstream {
                    upstream: url.to_string(),
                    front_end,
                    address,
                });
            }
        }
    }
    None
}

/// Whether an upstream resolves to an address where this program listens. A name that does not resolve does
/// not.
async fn reaches(url: &UpstreamUrl, listening: IpAddr) -> bool {
    let Ok(addresses) = lookup_host((url.host.as_str(), url.port)).await else {
        return false;
    };
    let listening = listening.to_canonical();
    addresses
        .map(|address| address.ip().to_canonical())
        .any(|ip| {
            ip == listening
            || (listening.is_unspecified() && is_local(ip))
            // The kernel treats it as this machine.
            || (ip.is_unspecified() && (listening.is_loopback() || listening.is_unspecified()))
        })
}

/// Whether an address belongs to this machine: only those can be bound.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}
