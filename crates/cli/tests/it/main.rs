//! The program `tidegate`: its commands, its life as a process, real proxies in front of it, and that the documentation
//! shows what it does. What front ends answer is tested in `crates/server/tests`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod docs;
mod envoy_ratelimit;
mod process;
mod program;
mod proxies;
mod server;
mod server_process;
mod spellings;
