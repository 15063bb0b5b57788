//! The requests and the server to send them to: one file for each protocol.

mod fields;
mod grpc;
mod http;
mod resp;

pub use fields::MessageField;
pub use grpc::GrpcTarget;
pub use http::HttpTarget;
pub use resp::{LoadCommand, RespTarget};

use std::future::Future;

use crate::error::LoadRunError;

/// The requests and the server to send them to.
#[derive(Clone)]
#[non_exhaustive]
pub enum Target {
    /// Requests over HTTP/1.1.
    Http(HttpTarget),
    /// Unary calls of gRPC over HTTP/2.
    Grpc(GrpcTarget),
    /// Commands of the Redis protocol.
    Resp(RespTarget),
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoadAnswer {
    Allowed,
    Denied,
    /// An answer that is neither, in a few words: `HTTP 503`.
    Other(String),
}

/// One request at a time, or several that are sent together.
pub(crate) trait Lane: Send {
    /// Sends a request for each key, and waits for the answers, which come in this order.
    fn exchange(
        &mut self,
        keys: &[u64],
        answered: impl FnMut(LoadAnswer) + Send,
    ) -> impl Future<Output = Result<(), LoadRunError>> + Send;

    /// Forgets the connection after an error. The next exchange opens another.
    fn disconnect(&mut self);
}

/// A request line without secrets, for the report.
impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Http(target) => target.fmt(f),
            Self::Grpc(target) => target.fmt(f),
            Self::Resp(target) => target.fmt(f),
        }
    }
}
