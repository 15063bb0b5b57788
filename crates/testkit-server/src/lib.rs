//! Tests of the server: a folder for its files, the server in the process of the test, its log, and a client that
//! speaks HTTP/1.1 by hand. The tests of the program start it in the same folder and get the same [`TestServer`].

#![forbid(unsafe_code)]
#![expect(
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a server that cannot be started has failed the test"
)]

mod folder;
mod http_client;
mod in_process;
mod log;
mod server;
mod upstream;

use std::time::Duration;

pub use folder::{TestFolder, serve_arguments};
pub use http_client::{ClientReply, HttpClient, request};
pub use in_process::InProcessServer;
pub use log::ServerLog;
pub use server::TestServer;
pub use upstream::{OWN_HEADERS, OWN_VALUE, RecordingUpstream};

/// Longer than anything takes: a test that waits for so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);
