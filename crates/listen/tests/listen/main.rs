//! The accept loop on real sockets.

#![expect(clippy::unwrap_used, reason = "a test may")]

mod drain;
mod floods;
mod http;
mod resting;
mod server;
mod slow_clients;
mod tls;
