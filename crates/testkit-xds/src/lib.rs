//! A management server for tests, scripted: each test takes the streams that clients open, reads their requests, and says
//! what is answered. It serves over TCP, or over TLS with certificates of its own.
//!
//! It runs on a thread of its own, and its calls block, so that tests of any kind can use it. `message.rs` makes the
//! resources of rate limits, `certificates.rs` the files for TLS.

#![forbid(unsafe_code)]
#![expect(
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a server that cannot do what the test wants has failed the test"
)]

mod certificates;
mod message;
mod server;
mod stream;

pub use certificates::TestAuthority;
pub use message::{RATE_LIMIT_CONFIG, descriptor, domain, encoded, limited, per};
pub use server::{ManagementServer, ServedOver};
pub use stream::{ScriptedResponse, ServedStream};

use std::time::Duration;

/// Longer than anything takes: a test that waits for so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);
