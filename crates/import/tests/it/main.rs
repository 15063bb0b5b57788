//! What is written for configurations of nginx and ingresses, and whether it decides as nginx does.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test may")]

mod locations;
mod nginx_connections;
mod nginx_delays;
mod nginx_keys;
mod nginx_peer;
mod peer_limit;
mod shapes;
mod support;
