//! A call whose route was found and whose caller may make it, as its handler gets it.

use std::sync::Arc;

use http::request::Parts;

use super::Api;
use super::body::ArrivingBody;
use crate::access::Caller;

/// A call that its handler may answer.
pub(super) struct ApiCall {
    pub(super) api: Arc<Api>,
    pub(super) parts: Parts,
    /// The values of the `{…}` in the route's path, still percent-encoded; empty without any.
    pub(super) names: [String; 2],
    pub(super) caller: Caller,
    pub(super) body: ArrivingBody,
}
