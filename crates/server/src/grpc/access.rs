//! Access control of gRPC: the same tokens as elsewhere, as `authorization` in the metadata of a call.

use http::request::Parts;
use tidegate::rules::FrontEnd;

use super::status::{Code, Status};
use crate::access::{AccessRefusal, PresentedToken, UNKNOWN_TOKEN};
use crate::server::Server;

/// Allows a call. With no token configured, every caller may.
pub(super) fn may_check(server: &Server, parts: &Parts) -> Result<(), Status> {
    if !server.access.wants_tokens() {
        return Ok(());
    }
    let asked = PresentedToken::of(parts, FrontEnd::Grpc);
    server
        .access
        .may_check_with(&asked)
        .map_err(|refused| match refused {
            AccessRefusal::Missing => Status::new(
                Code::Unauthenticated,
                "this server requires a token; send it as metadata `authorization: Bearer TOKEN` (Envoy: `initial_metadata`)",
            ),
            AccessRefusal::Unknown => Status::new(Code::Unauthenticated, UNKNOWN_TOKEN),
            AccessRefusal::OutOfScope(problem) => Status::new(Code::PermissionDenied, problem),
        })
}
