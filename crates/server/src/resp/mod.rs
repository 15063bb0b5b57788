//! The RESP front end: `CL.THROTTLE`, `TG.CHECK`, and the commands that Redis clients send to set up.
//!
//! `connection.rs` moves bytes, `arguments.rs` parses commands, `session.rs` authenticates and dispatches,
//! `throttle.rs` and `check.rs` read and answer the two commands that decide, `replies.rs` writes. With the
//! in-memory store a command is decided as it is parsed; with Redis, commands that arrived together are asked
//! together and answered in order.

mod arguments;
mod check;
mod commands;
mod connection;
mod inline;
mod questions;
mod replies;
mod session;
mod throttle;

use std::sync::Arc;

use tidegate_listen::{Drain, ListenSettings, accept_all};
use tokio::net::TcpListener;

use crate::server::Server;

/// The error when the store cannot answer and the rule denies then.
const UNDECIDED: &str = "the store cannot answer; try again in a second";

/// Serves connections until the drain begins and the open ones have ended.
pub(crate) async fn serve(
    listener: TcpListener,
    server: Arc<Server>,
    settings: ListenSettings,
    drain: Drain,
) {
    let connections = Arc::new(connection::RespConnections::new(
        server,
        &settings,
        drain.clone(),
    ));
    accept_all(listener, &settings, &drain, move |stream, peer| {
        let connections = Arc::clone(&connections);
        async move {
            if let Err(error) = connections.serve(stream).await {
                tracing::debug!(%peer, %error, "connection ended early");
            }
        }
    })
    .await;
}

/// A client's bytes for a message: short, and one line.
fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let more = if bytes.len() > SHOWN { "..." } else { "" };
    format!("{}{more}", shown.escape_ascii())
}
