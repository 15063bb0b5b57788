//! The gRPC front end: Envoy's rate limit service, health and reflection.
//!
//! `call.rs` dispatches by method, `message.rs` reads messages, `status.rs` turns errors into replies, `rate_limit.rs`
//! asks the gate. Frames and messages are bytes in `tidegate_codec::grpc`. Why the framing is not tonic's:
//! `docs/decisions/001-grpc-framing.md`.

mod access;
mod body;
mod call;
mod health;
mod message;
mod rate_limit;
mod reflection;
mod schema;
mod status;
mod stream;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tidegate_listen::{Drain, ListenSettings, Listener, Peer, RoundRobin, Threads, serve_on};

use crate::decider::Decider;
use crate::open_streams::OpenStreams;
use body::GrpcBody;
pub(crate) use rate_limit::decide;

/// How long an idle connection is kept; clients keep theirs open.
const IDLE: Duration = Duration::from_hours(1);
/// The most concurrent calls on one connection.
const MAX_STREAMS: u32 = 1_000;

/// What all calls share.
struct GrpcCalls {
    decider: Arc<Decider>,
    drain: Drain,
    /// Streams of health and of reflection that are open without a token.
    watches: OpenStreams,
    reflections: OpenStreams,
}

/// Serves connections until the drain begins and the open ones have ended.
pub(crate) async fn serve(
    listener: impl Into<Listener>,
    decider: Arc<Decider>,
    threads: &Threads,
    settings: ListenSettings,
    drain: Drain,
) {
    let settings = ListenSettings {
        idle_timeout: IDLE,
        max_streams: MAX_STREAMS,
        date: false,
        ..settings
    };
    let calls = Arc::new(GrpcCalls {
        decider,
        drain: drain.clone(),
        watches: OpenStreams::default(),
        reflections: OpenStreams::default(),
    });
    // Boxed, because it is moved several times before it is first polled.
    let service = move |request, peer| Box::pin(answer(Arc::clone(&calls), request, peer));
    let workers = threads
        .runtimes()
        .map(|runtime| (runtime.clone(), service.clone()));
    let workers = RoundRobin::new(workers.collect());
    serve_on(listener, settings, drain, move || workers.take()).await;
}

/// Answers one call. Errors become a status.
async fn answer(
    calls: Arc<GrpcCalls>,
    request: Request<Incoming>,
    peer: Peer,
) -> Result<Response<GrpcBody>, Infallible> {
    let (mut parts, body) = request.into_parts();
    // `ShouldRateLimit` asks for its peer only where tokens are wanted, and the extensions are two allocations.
    if parts.uri.path() != call::SHOULD_RATE_LIMIT || calls.decider.wants_tokens_of_envoy() {
        parts.extensions.insert(peer);
    }
    let reply = match call::dispatch(&calls, &parts, body).await {
        Ok(reply) => reply,
        Err(status) => status.reply(),
    };
    Ok(reply)
}
