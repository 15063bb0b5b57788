//! Access control of gRPC: the same tokens as elsewhere, as `authorization` in the metadata of a call.

use http::header::AUTHORIZATION;
use http::request::Parts;
use tidegate::rules::FrontEnd;
use tidegate_listen::Peer;

use super::status::{Code, Status};
use crate::access::{AccessRefusal, PresentedToken, bearer};
use crate::server::Server;

/// Allows a call. With no token configured, every caller may.
pub(super) fn may_check(server: &Server, parts: &Parts) -> Result<(), Status> {
    if !server.access.wants_tokens() {
        return Ok(());
    }
    let given = parts.headers.get(AUTHORIZATION);
    let peer = parts.extensions.get::<Peer>();
    let asked = PresentedToken {
        front_end: FrontEnd::Grpc,
        peer: peer.map(|Peer(peer)| peer.ip()),
        secret: given.and_then(|value| bearer(value.as_bytes())),
    };
    server
        .access
        .may_check_with(&asked)
        .map_err(|refused| match refused {
            AccessRefusal::None => Status::new(
                Code::Unauthenticated,
                "this server requires a token; send it as metadata `authorization: Bearer TOKEN` (Envoy: `initial_metadata`)",
            ),
            AccessRefusal::Unknown => Status::new(
                Code::Unauthenticated,
                "unknown token; check it for typos and spaces",
            ),
            AccessRefusal::OutOfScope(problem) => Status::new(Code::PermissionDenied, problem),
        })
}
