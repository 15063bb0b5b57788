//! The RESP front end: `CL.THROTTLE`, `TG.CHECK`, and the commands that Redis clients send to set up.
//!
//! `connection.rs` moves bytes, `session.rs` authenticates and dispatches, `questions.rs` asks the gate. Commands and
//! replies are bytes in `tidegate_codec::resp`. With the in-memory store a command is decided as it is parsed; with
//! Redis, commands that arrived together are asked together and answered in order.

mod commands;
mod connection;
mod questions;
mod reservations;
mod session;

use std::sync::Arc;

use tidegate_listen::{Drain, ListenSettings, RoundRobin, Threads, accept_all, hand_over};
use tokio::net::TcpListener;

use crate::decider::Decider;

/// Serves connections until the drain begins and the open ones have ended.
pub(crate) async fn serve(
    listener: TcpListener,
    decider: Arc<Decider>,
    threads: &Threads,
    settings: ListenSettings,
    drain: Drain,
) {
    let connections = Arc::new(connection::RespConnections::new(
        decider,
        &settings,
        drain.clone(),
    ));
    let runtimes = RoundRobin::new(threads.runtimes().cloned().collect());
    accept_all(listener, &settings, &drain, move |stream, peer| {
        let connections = Arc::clone(&connections);
        hand_over(&runtimes.take(), stream, move |stream| async move {
            // Boxed: it is large, and would be moved several times before it is first polled.
            if let Err(error) = Box::pin(connections.serve(stream)).await {
                tracing::debug!(%peer, %error, "connection ended early");
            }
        })
    })
    .await;
}
