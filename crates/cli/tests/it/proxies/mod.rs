//! Real proxies in front of a real server: nginx, Caddy, Traefik, `HAProxy` and a JavaScript worker, set up as
//! their guides print it. Only addresses are replaced.
//!
//! Clients come from 127.0.0.2 and above, so that they are others than the proxy, which asks from
//! 127.0.0.1.

mod caddy;
mod express;
mod from;
mod guide;
mod haproxy;
mod headers;
mod nginx;
pub(crate) mod proxy;
mod rolling_restart;
mod story;
mod traefik;
mod untrusted;
mod worker;
