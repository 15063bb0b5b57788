//! Access control of gRPC: the same tokens as elsewhere, as `authorization` in the metadata of a call.

use http::header::AUTHORIZATION;
use http::request::Parts;
use tidegate::rules::FrontEnd;
use tidegate_listen::Peer;

use super::status::{Code, Status};
use crate::access::{AccessRefusal, PresentedToken, UNKNOWN_TOKEN};
use crate::decider::Decider;
use crate::open_streams::{IN_ALL, ON_A_CONNECTION, OpenStream, OpenStreams};

/// Allows a call. With no token configured, and in place of envoyproxy/ratelimit, every caller may.
pub(super) fn may_check(decider: &Decider, parts: &Parts) -> Result<(), Status> {
    if !decider.wants_tokens_of_envoy() {
        return Ok(());
    }
    let asked = PresentedToken::of(parts, FrontEnd::Grpc);
    decider
        .access
        .check_token(&asked)
        .map_err(|refused| match refused {
            AccessRefusal::Missing => Status::new(
                Code::Unauthenticated,
                "this server requires a token; send it as metadata `authorization: Bearer TOKEN` (Envoy: `initial_metadata`)",
            ),
            AccessRefusal::Unknown => Status::new(Code::Unauthenticated, UNKNOWN_TOKEN),
            AccessRefusal::OutOfScope(problem) => Status::new(Code::PermissionDenied, problem),
        })
}

/// Opens a stream that needs no token. With a token it is not counted among `streams`.
pub(super) fn open_stream(
    decider: &Decider,
    parts: &Parts,
    streams: &OpenStreams,
) -> Result<Option<OpenStream>, Status> {
    let is_presented = decider.wants_tokens_of_envoy() && parts.headers.contains_key(AUTHORIZATION);
    if is_presented && may_check(decider, parts).is_ok() {
        return Ok(None);
    }
    let Some(Peer {
        address: connection,
        ..
    }) = parts.extensions.get()
    else {
        return Ok(None);
    };
    let open = streams.open(*connection);
    open.map(Some).ok_or_else(|| {
        Status::new(
            Code::ResourceExhausted,
            format!(
                "too many streams are open without a token: at most {ON_A_CONNECTION} on a connection and {IN_ALL} on all; send a token as metadata `authorization: Bearer TOKEN`, or close some"
            ),
        )
    })
}
