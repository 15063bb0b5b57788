//! `ShouldRateLimit` of Envoy's rate limit service, over HTTP/2 connections that several requests share.

use std::fmt;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::sync::Mutex;

use super::{Lane, LoadAnswer};
use crate::connect::Endpoint;
use crate::error::LoadRunError;
use crate::template::KeyTemplate;

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// A message follows a byte for compression and four for its length.
const FRAME_HEAD: usize = 5;
const OK: i32 = 1;
const OVER_LIMIT: i32 = 2;

/// A call with one descriptor.
#[derive(Clone)]
pub struct GrpcTarget {
    inner: Arc<GrpcCall>,
}

struct GrpcCall {
    endpoint: Endpoint,
    uri: Uri,
    domain: String,
    entries: Vec<(String, KeyTemplate)>,
    headers: HeaderMap,
}

impl GrpcTarget {
    /// Calls with this domain and the entries of one descriptor, in whose values `{key}` is replaced.
    pub fn new(
        endpoint: Endpoint,
        domain: &str,
        entries: &[(String, String)],
        token: Option<&str>,
    ) -> Result<Self, LoadRunError> {
        let authority = endpoint.authority();
        let uri = format!("{}://{authority}{METHOD}", endpoint.scheme());
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
        let entries = entries
            .iter()
            .map(|(name, value)| (name.clone(), KeyTemplate::new(value)));
        Ok(Self {
            inner: Arc::new(GrpcCall {
                endpoint: endpoint.with_protocol(b"h2"),
                uri,
                domain: domain.to_owned(),
                entries: entries.collect(),
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
            "gRPC ShouldRateLimit at {}",
            self.inner.endpoint.authority()
        )
    }
}

impl GrpcCall {
    fn build(&self, key: u64) -> Request<Full<Bytes>> {
        let entry = |(name, value): &(String, KeyTemplate)| LoadEntry {
            key: name.clone(),
            value: value.fill(key),
        };
        let message = LoadRequest {
            domain: self.domain.clone(),
            descriptors: vec![LoadDescriptor {
                entries: self.entries.iter().map(entry).collect(),
            }],
        };
        let length = message.encoded_len();
        let mut frame = BytesMut::with_capacity(FRAME_HEAD + length);
        frame.put_u8(0);
        // A descriptor is far below 4 GiB.
        frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        // The buffer has the room.
        let _ = message.encode(&mut frame);
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
            let request = self.call.build(*key);
            let response = self.sender().await?.send_request(request).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await?;
            let trailers = body.trailers().cloned().unwrap_or_default();
            let status = head
                .headers
                .get("grpc-status")
                .or_else(|| trailers.get("grpc-status"));
            let status = status.map_or("none", |status| status.to_str().unwrap_or("none"));
            answered(if status == "0" {
                read(&body.to_bytes())
            } else {
                LoadAnswer::Other(format!("gRPC status {status}"))
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
