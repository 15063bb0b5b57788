//! The service as its users meet it: the program itself, started on a free port in a directory of
//! its own, asked over real connections, signalled and killed.
//!
//! `server.rs` starts and ends it, `client.rs` asks it. Nothing here waits for a time to pass: what is
//! awaited is an answer, a line of the log, or the end of a process.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod access;
mod authorize;
mod checks;
mod client;
mod envoy;
mod feedback;
mod following;
mod full_disk;
mod gateway;
mod jwks;
mod kept_counters;
mod killed;
mod logs;
mod made_token;
mod metrics;
mod mistakes;
mod namespaces;
mod permits;
mod random;
mod read_only;
mod reasons;
mod refusals;
mod reload;
mod resources;
mod resp;
mod rules;
mod server;
mod shared;
mod shared_rules;
mod shares;
mod signals;
mod starts;
#[path = "../story/mod.rs"]
mod story;
mod timelines;
mod tls;
mod token_files;
mod variables;
