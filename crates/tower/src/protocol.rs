//! The protocol in which a client is answered.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, request};
use tidegate_usage::FormName;

use crate::described::DenialForm;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The protocol of the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// By status and problem document.
    Http,
    /// By `grpc-status`, under this content type.
    Grpc(HeaderValue),
    /// By status, in the words of a language model's provider.
    Model {
        /// The provider's form.
        form: FormName,
        /// The id of the request, if it has one.
        request_id: Option<HeaderValue>,
    },
}

impl Protocol {
    /// The protocol for the sender of a request with these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let Some(content_type) = headers.get(CONTENT_TYPE) else {
            return Self::Http;
        };
        match content_type.as_bytes().strip_prefix(b"application/grpc") {
            Some([] | [b'+' | b';', ..]) => Self::Grpc(GRPC),
            Some([b'-', ..]) => Self::Grpc(content_type.clone()),
            _ => Self::Http,
        }
    }

    /// The protocol for the sender of a request to a language model: the words of its [form](DenialForm), if it has
    /// one.
    pub fn of_call(request: &request::Parts) -> Self {
        match request.extensions.get::<DenialForm>() {
            Some(DenialForm(form)) => Self::Model {
                form: *form,
                request_id: request.headers.get("x-request-id").cloned(),
            },
            None => Self::Http,
        }
    }
}
