//! The gateway on real sockets, with real servers behind it.

#![expect(clippy::unwrap_used, reason = "a test may")]

mod abandoned;
mod capacity;
mod connections;
mod failing;
mod forwarding;
mod limits;
mod malformed;
mod running;
mod self_upstream;
mod shared_permits;
mod slow_bodies;
mod smuggling;
mod tls;
mod upgrades;
mod upstream;
mod usage;
mod versions;
