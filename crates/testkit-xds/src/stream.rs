//! A stream that a client has opened, for the test to answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use hyper::body::{Body, Frame};
use prost_types::Any;
use tidegate_codec::grpc::framed;
use tidegate_xds::proto::{DiscoveryRequest, DiscoveryResponse};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::{PATIENCE, RATE_LIMIT_CONFIG};

/// A stream that a client has opened.
#[derive(Debug)]
pub struct ServedStream {
    pub(crate) requests: mpsc::Receiver<DiscoveryRequest>,
    pub(crate) frames: UnboundedSender<Frame<Bytes>>,
    /// The headers of the call.
    pub headers: HeaderMap,
}

/// What is answered.
#[derive(Debug, Clone)]
pub struct ScriptedResponse {
    /// The version.
    pub version: String,
    /// The nonce.
    pub nonce: String,
    /// The type of the response and of its resources.
    pub type_url: String,
    /// The resources, as bytes.
    pub resources: Vec<Vec<u8>>,
}

impl ScriptedResponse {
    /// A response of rate limits, whose nonce is its version with an `n`.
    pub fn new(version: &str, resources: Vec<Vec<u8>>) -> Self {
        Self {
            version: version.to_owned(),
            nonce: format!("n{version}"),
            type_url: RATE_LIMIT_CONFIG.to_owned(),
            resources,
        }
    }
}

impl ServedStream {
    /// Waits for the next request. `None` if the client has ended the stream.
    pub fn request(&self) -> Option<DiscoveryRequest> {
        match self.requests.recv_timeout(PATIENCE) {
            Ok(request) => Some(request),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no request came"),
        }
    }

    /// The requests that have come and were not taken.
    pub fn requests(&self) -> Vec<DiscoveryRequest> {
        self.requests.try_iter().collect()
    }

    /// Sends a response.
    pub fn respond(&self, response: &ScriptedResponse) {
        let any = |bytes: &Vec<u8>| Any {
            type_url: response.type_url.clone(),
            value: bytes.clone(),
        };
        self.send(framed(&DiscoveryResponse {
            version_info: response.version.clone(),
            resources: response.resources.iter().map(any).collect(),
            type_url: response.type_url.clone(),
            nonce: response.nonce.clone(),
        }));
    }

    /// Sends rate limits with a version, and waits for the answer of the client.
    pub fn publish(&self, version: &str, resources: Vec<Vec<u8>>) -> DiscoveryRequest {
        self.respond(&ScriptedResponse::new(version, resources));
        self.request().unwrap()
    }

    /// Sends these bytes.
    pub fn send(&self, bytes: Bytes) {
        // A client that has gone is noticed by the test when it waits for a request.
        let _ = self.frames.send(Frame::data(bytes));
    }

    /// Ends the stream with a status.
    pub fn end(self, code: i32, message: &'static str) {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from(code));
        trailers.insert("grpc-message", HeaderValue::from_static(message));
        let _ = self.frames.send(Frame::trailers(trailers));
    }
}

/// The body of the answer.
pub(crate) struct ScriptedBody(pub(crate) UnboundedReceiver<Frame<Bytes>>);

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}
