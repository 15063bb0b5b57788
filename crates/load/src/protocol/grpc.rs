//! Unary calls of gRPC over HTTP/2 connections that several requests share: `ShouldRateLimit` of Envoy's rate limit
//! service, or any other method.

use std::fmt;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::sync::Mutex;

use super::fields::{MessageField, write_fields};
use super::{Lane, LoadAnswer};
use crate::connect::Endpoint;
use crate::error::LoadRunError;
use crate::template::KeyTemplate;

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// A message follows a byte for compression and four for its length.
const FRAME_HEAD: usize = 5;
const OK: i32 = 1;
const OVER_LIMIT: i32 = 2;
/// The status of a method that is limited.
const RESOURCE_EXHAUSTED: &str = "8";

/// A call, made again and again with another key in it.
#[derive(Clone)]
pub struct GrpcTarget {
    inner: Arc<GrpcCall>,
}

struct GrpcCall {
    endpoint: Endpoint,
    uri: Uri,
    message: GrpcMessage,
    headers: HeaderMap,
}

enum GrpcMessage {
    /// A request of `ShouldRateLimit` with one descriptor.
    Descriptor {
        domain: String,
        entries: Vec<(String, KeyTemplate)>,
    },
    /// A request of another method.
    Fields(Vec<MessageField>),
}

impl GrpcTarget {
    /// Calls with this domain and the entries of one descriptor, in whose values `{key}` is replaced.
    pub fn new(
        endpoint: Endpoint,
        domain: &str,
        entries: &[(String, String)],
        token: Option<&str>,
    ) -> Result<Self, LoadRunError> {
        let entries = entries
            .iter()
            .map(|(name, value)| (name.clone(), KeyTemplate::new(value)));
        let message = GrpcMessage::Descriptor {
            domain: domain.to_owned(),
            entries: entries.collect(),
        };
        Self::build(endpoint, METHOD, message, token)
    }

    /// Calls of any method, `/package.Service/Method`, with a message of these fields. The status
    /// `RESOURCE_EXHAUSTED` is a denial.
    pub fn of_method(
        endpoint: Endpoint,
        method: &str,
        fields: Vec<MessageField>,
        token: Option<&str>,
    ) -> Result<Self, LoadRunError> {
        if !method.starts_with('/') || method.matches('/').count() != 2 {
            return Err(LoadRunError::Invalid(format!(
                "`{method}` is not a method; write it as /package.Service/Method"
            )));
        }
        Self::build(endpoint, method, GrpcMessage::Fields(fields), token)
    }

    fn build(
        endpoint: Endpoint,
        method: &str,
        message: GrpcMessage,
        token: Option<&str>,
    ) -> Result<Self, LoadRunError> {
        let authority = endpoint.authority();
        let uri = format!("{}://{authority}{method}", endpoint.scheme());
        let uri = uri.parse::<Uri>().map_err(|error| LoadRunError::Address {
            address: authority,
            reason: error.to_string(),
        })?;
        let mut headers = HeaderMap::new();
        let media_type = HeaderValue::from_static("application/grpc");
        headers.insert(header::CONTENT_TYPE, media_type);
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        if let Some(token) = token {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value =
                value.map_err(|_| LoadRunError::Invalid("the token cannot be sent".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(Self {
            inner: Arc::new(GrpcCall {
                endpoint: endpoint.with_protocol(b"h2"),
                uri,
                message,
                headers,
            }),
        })
    }

    /// The lanes of one connection.
    pub(crate) fn lanes(&self, in_flight: usize) -> Vec<impl Lane + use<>> {
        let connection = Arc::new(Mutex::new(None));
        let lane = || GrpcLane {
            call: Arc::clone(&self.inner),
            connection: Arc::clone(&connection),
        };
        std::iter::repeat_with(lane).take(in_flight).collect()
    }
}

impl fmt::Display for GrpcTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gRPC {} at {}",
            self.inner.uri.path().rsplit('/').next().unwrap_or_default(),
            self.inner.endpoint.authority()
        )
    }
}

impl GrpcCall {
    fn frame(&self, key: u64) -> Request<Full<Bytes>> {
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        match &self.message {
            GrpcMessage::Descriptor { domain, entries } => {
                let entry = |(name, value): &(String, KeyTemplate)| LoadEntry {
                    key: name.clone(),
                    value: value.fill(key),
                };
                let message = LoadRequest {
                    domain: domain.clone(),
                    descriptors: vec![LoadDescriptor {
                        entries: entries.iter().map(entry).collect(),
                    }],
                };
                let length = message.encoded_len();
                frame.reserve(FRAME_HEAD + length);
                // A descriptor is far below 4 GiB.
                frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
                // The buffer has the room.
                let _ = message.encode(&mut frame);
            }
            GrpcMessage::Fields(fields) => {
                let message = write_fields(fields, key);
                frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
                frame.extend_from_slice(&message);
            }
        }
        let mut request = Request::new(Full::from(frame.freeze()));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

type SharedSender = Arc<Mutex<Option<SendRequest<Full<Bytes>>>>>;

struct GrpcLane {
    call: Arc<GrpcCall>,
    connection: SharedSender,
}

impl GrpcLane {
    async fn sender(&mut self) -> Result<SendRequest<Full<Bytes>>, LoadRunError> {
        let mut shared = self.connection.lock().await;
        if let Some(sender) = shared.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let stream = TokioIo::new(self.call.endpoint.connect().await?);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        tokio::spawn(connection);
        Ok(shared.insert(sender).clone())
    }
}

impl Lane for GrpcLane {
    async fn exchange(
        &mut self,
        keys: &[u64],
        mut answered: impl FnMut(LoadAnswer) + Send,
    ) -> Result<(), LoadRunError> {
        for key in keys {
            let request = self.call.frame(*key);
            let response = self.sender().await?.send_request(request).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await?;
            let trailers = body.trailers().cloned().unwrap_or_default();
            let status = head
                .headers
                .get("grpc-status")
                .or_else(|| trailers.get("grpc-status"));
            let status = status.map_or("none", |status| status.to_str().unwrap_or("none"));
            answered(match (status, &self.call.message) {
                ("0", GrpcMessage::Descriptor { .. }) => read(&body.to_bytes()),
                ("0", GrpcMessage::Fields(_)) => LoadAnswer::Allowed,
                (RESOURCE_EXHAUSTED, GrpcMessage::Fields(_)) => LoadAnswer::Denied,
                _ => LoadAnswer::Other(format!("gRPC status {status}")),
            });
        }
        Ok(())
    }

    fn disconnect(&mut self) {
        // The next exchange opens another connection if this one is closed.
    }
}

/// The answer in a frame.
fn read(frame: &[u8]) -> LoadAnswer {
    let message = frame.get(FRAME_HEAD..).unwrap_or_default();
    match LoadResponse::decode(message).map(|response| response.overall_code) {
        Ok(OK) => LoadAnswer::Allowed,
        Ok(OVER_LIMIT) => LoadAnswer::Denied,
        Ok(code) => LoadAnswer::Other(format!("code {code}")),
        Err(_) => LoadAnswer::Other("an unreadable message".to_owned()),
    }
}

/// `RateLimitRequest`, as far as load needs it.
#[derive(Clone, PartialEq, Message)]
struct LoadRequest {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<LoadDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct LoadDescriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<LoadEntry>,
}

#[derive(Clone, PartialEq, Message)]
struct LoadEntry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// `RateLimitResponse`, of which only the code counts.
#[derive(Clone, PartialEq, Message)]
struct LoadResponse {
    #[prost(int32, tag = "1")]
    overall_code: i32,
}
