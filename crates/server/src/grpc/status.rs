//! The status of a failed call: a gRPC code, and a message that says what to do.

use http::{HeaderMap, HeaderName, HeaderValue, Response};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tidegate_codec::CodecError;

use super::body::GrpcBody;

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// What is escaped in `grpc-message`, next to everything that is not ASCII.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');
/// The content type of every reply.
pub(super) const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// The codes that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Cancelled = 1,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    pub(super) code: Code,
    message: String,
}

impl Status {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// Whether it has this message.
    pub(super) fn says(&self, message: &str) -> bool {
        self.message == message
    }

    /// A reply with this status and no message.
    pub(super) fn reply(&self) -> Response<GrpcBody> {
        let mut reply = Response::new(GrpcBody::empty());
        *reply.headers_mut() = self.trailers();
        reply
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, MEDIA_TYPE);
        reply
    }

    /// The trailers that end a stream with this status.
    pub(super) fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::with_capacity(3);
        trailers.insert(GRPC_STATUS, HeaderValue::from(self.code as u16));
        let message = utf8_percent_encode(&self.message, ENCODED).to_string();
        if let Ok(message) = HeaderValue::try_from(message) {
            trailers.insert(GRPC_MESSAGE, message);
        }
        trailers
    }
}

impl From<CodecError> for Status {
    fn from(error: CodecError) -> Self {
        let code = match &error {
            CodecError::Unsupported(_) => Code::Unimplemented,
            _ => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }
}

/// The trailers of an answered call.
pub(super) fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_header() {
        let status = Status::invalid("100 % größer\n");
        let reply = status.reply();
        assert_eq!(reply.headers()[GRPC_STATUS], "3");
        assert_eq!(reply.headers()[GRPC_MESSAGE], "100 %25 gr%C3%B6%C3%9Fer%0A");
    }
}
