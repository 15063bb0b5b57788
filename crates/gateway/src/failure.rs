//! Why a request was not forwarded or answered, and the reply to its client. The reply reveals nothing about the
//! servers behind the gateway; the log does.

use std::borrow::Cow;
use std::error::Error;
use std::io;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::Full;
use tidegate_tower::{UnreadBody, problem};

use crate::capacity::Shortage;
use crate::http1::Broken;
use crate::request_body::BrokenBody;

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatewayFailure {
    #[error("{0}")]
    NotReady(String),
    #[error("this gateway is not a forward proxy: CONNECT is not supported")]
    Connect,
    #[error("{0}")]
    BadRequest(Cow<'static, str>),
    #[error("nothing is served under this host and path")]
    NoRoute,
    #[error("no server behind this gateway can be reached now; try again later")]
    NoneUp,
    #[error("{}", no_connection(*.0))]
    NoConnection(Shortage),
    #[error("the server behind this gateway cannot be reached")]
    Unreachable(#[source] io::Error),
    #[error("the server behind this gateway cannot be reached in time")]
    SlowConnection,
    #[error("the server behind this gateway sent an invalid HTTP response")]
    BadAnswer(#[source] Box<dyn Error + Send + Sync>),
    #[error("the server behind this gateway sent a response of ambiguous length")]
    TwoLengths,
    #[error("the server behind this gateway changed the protocol without being asked")]
    UnwantedUpgrade,
    #[error("the server behind this gateway did not answer in time")]
    SlowAnswer,
    #[error("the body of the request did not arrive in time")]
    SlowClient,
    #[error("the body of the request could not be read; it ended early or is malformed")]
    BrokenBody,
    #[error(transparent)]
    UnreadBody(#[from] UnreadBody),
    #[error("a key is needed that is known here")]
    UnknownKey,
    #[error("the request cannot be forwarded")]
    Unsendable(#[source] http::Error),
}

impl GatewayFailure {
    /// The failure for an error of an HTTP/1.1 connection.
    pub(crate) fn of_http1(error: Broken) -> Self {
        match error {
            Broken::Body(error) => Self::of_body(&error),
            other => Self::BadAnswer(other.into()),
        }
    }

    /// The failure for an error of an HTTP/2 connection.
    pub(crate) fn of_http2(error: hyper::Error) -> Self {
        let mut source: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(inner) = source {
            if let Some(error) = inner.downcast_ref() {
                return Self::of_body(error);
            }
            source = inner.source();
        }
        Self::BadAnswer(error.into())
    }

    fn of_body(error: &BrokenBody) -> Self {
        match error {
            BrokenBody::Slow => Self::SlowClient,
            BrokenBody::Unreadable(_) | BrokenBody::Length => Self::BrokenBody,
        }
    }

    /// Whether a server may have got the request: it did not answer, or not in time.
    pub(crate) fn may_be_sent(&self) -> bool {
        matches!(
            self,
            Self::BadAnswer(_) | Self::TwoLengths | Self::UnwantedUpgrade | Self::SlowAnswer
        )
    }

    /// A malformed or ambiguous request.
    pub(crate) fn bad_request(problem: impl Into<Cow<'static, str>>) -> Self {
        Self::BadRequest(problem.into())
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::Connect => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotReady(_) | Self::NoneUp | Self::NoConnection(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::UnreadBody(error) => error.status(),
            Self::UnknownKey => StatusCode::UNAUTHORIZED,
            Self::Unreachable(_)
            | Self::BadAnswer(_)
            | Self::TwoLengths
            | Self::UnwantedUpgrade => StatusCode::BAD_GATEWAY,
            Self::SlowConnection | Self::SlowAnswer => StatusCode::GATEWAY_TIMEOUT,
            Self::SlowClient => StatusCode::REQUEST_TIMEOUT,
            Self::BadRequest(_) | Self::BrokenBody | Self::Unsendable(_) => StatusCode::BAD_REQUEST,
        }
    }

    pub(crate) fn reply(&self) -> Response<Full<Bytes>> {
        let mut reply = problem(self.status(), &self.to_string()).map(Full::from);
        if matches!(
            self,
            Self::BrokenBody
                | Self::SlowClient
                | Self::UnreadBody(UnreadBody::TooLong(_) | UnreadBody::NoMemory(_))
        ) {
            let close = HeaderValue::from_static("close");
            reply.headers_mut().insert(CONNECTION, close);
        }
        if matches!(self, Self::UnknownKey) {
            let challenge = HeaderValue::from_static("Bearer realm=\"tidegate\"");
            reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        if matches!(
            self,
            Self::NoConnection(_) | Self::UnreadBody(UnreadBody::NoMemory(_))
        ) {
            let one = HeaderValue::from_static("1");
            reply.headers_mut().insert(RETRY_AFTER, one);
        }
        reply
    }
}

fn no_connection(shortage: Shortage) -> &'static str {
    match shortage {
        Shortage::Client => {
            "too many requests from your address wait for a server behind this gateway, or for their answers to be read; try again in a second"
        }
        Shortage::All | Shortage::System(_) => {
            "this gateway has no free connection to a server; try again in a second"
        }
    }
}
