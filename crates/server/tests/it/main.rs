//! The server in the process of the test, asked over real connections: a module for each front end, and one story
//! through all of them. What concerns the program (signals, flags, exit codes, kills) is in `crates/cli/tests`.
//!
//! Nothing here waits for a time to pass: what is awaited is an answer, a line of the log, or the end of a server.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot be set up has failed"
)]

mod authorize;
mod budgets;
mod debug;
mod envoy_ratelimit;
mod exchanges;
mod folder;
mod following;
mod grpc;
mod http;
mod invalid_credentials;
mod jwks;
mod model_costs;
mod otlp;
mod record;
mod redis;
mod reload;
mod resp;
mod story;
mod tls;
mod token_files;
mod xds;

use tidegate_testkit_server::InProcessServer as Server;
