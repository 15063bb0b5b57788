//! Who may ask: the same tokens as everywhere, as `authorization` in the metadata of a call.

use http::header::AUTHORIZATION;
use http::request::Parts;

use super::status::{Code, Status};
use crate::http::{Refused, bearer};
use crate::server::Server;

/// Whether a decision may be asked for. Without any token, everybody may.
pub(super) fn may_check(server: &Server, parts: &Parts) -> Result<(), Status> {
    if !server.access.wants_tokens() {
        return Ok(());
    }
    let given = parts.headers.get(AUTHORIZATION);
    let secret = given.and_then(|value| bearer(value.as_bytes()));
    let Some(secret) = secret else {
        return Err(Status::new(
            Code::Unauthenticated,
            "this server wants a token; send it as metadata `authorization: Bearer TOKEN` (Envoy: `initial_metadata`)",
        ));
    };
    server
        .access
        .may_check_with(secret)
        .map_err(|refused| match refused {
            Refused::Unknown => Status::new(
                Code::Unauthenticated,
                "nobody knows this token; check it for typing errors and spaces",
            ),
            Refused::OutOfScope(problem) => Status::new(Code::PermissionDenied, problem),
        })
}
