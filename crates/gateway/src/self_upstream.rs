//! A gateway that stands before its own server would open the API to everybody, or ask itself in circles.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use tokio::net::lookup_host;

use crate::settings::RouteConfig;
use crate::upstream_url::UpstreamUrl;

/// A server behind the gateway that is this program.
#[derive(Debug)]
pub struct OwnAddress {
    /// The upstream as written.
    pub upstream: String,
    /// What listens there.
    pub front_end: &'static str,
    /// Where.
    pub address: SocketAddr,
}

/// Looks for a server behind the gateway that is one of these addresses of this program.
pub async fn find_own(
    routes: &[RouteConfig],
    own: &[(&'static str, SocketAddr)],
) -> Option<OwnAddress> {
    for url in routes.iter().flat_map(|route| &route.upstreams) {
        for &(front_end, address) in own {
            if address.port() == url.port && reaches(url, address.ip()).await {
                return Some(OwnAddress {
                    upstream: url.to_string(),
                    front_end,
                    address,
                });
            }
        }
    }
    None
}

/// Whether the host of an address leads to where this program listens. A name that nobody knows yet does not.
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
            // The kernel takes it for this machine.
            || (ip.is_unspecified() && (listening.is_loopback() || listening.is_unspecified()))
        })
}

/// Whether an address is one of this machine's: nobody else can listen on it.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}
