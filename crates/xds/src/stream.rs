//! One stream: its requests, its responses, and how it ends.

use std::future::poll_fn;
use std::pin::Pin;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use hyper::body::{Body as _, Incoming};
use percent_encoding::percent_decode;
use prost::Message;
use tidegate_codec::CodecError;
use tidegate_codec::grpc::{MessageBuffer, decode, framed};
use tokio::sync::mpsc;

use crate::connect::{ServerConnection, connect, with_sources};
use crate::error::XdsError;
use crate::outgoing::Outgoing;
use crate::proto::{DiscoveryResponse, PATH};
use crate::settings::{XdsSettings, XdsTls};
use crate::watched::ConnectionFailure;

const STATUS: &str = "grpc-status";
const STATUS_MESSAGE: &str = "grpc-message";

/// A stream.
pub(crate) struct XdsStream {
    requests: mpsc::Sender<Bytes>,
    answer: Answering,
    arrived: MessageBuffer,
    tls: Option<XdsTls>,
    connection: ServerConnection,
}

type AwaitedHead = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

/// How far the answer of the server is.
enum Answering {
    /// Some servers send it only with their first response.
    Head(AwaitedHead),
    Body(Incoming),
}

impl XdsStream {
    /// Connects, and sends the first request.
    pub(crate) async fn open(
        settings: &XdsSettings,
        first: &impl Message,
    ) -> Result<Self, XdsError> {
        let mut connection = connect(settings).await?;
        let tls = settings.tls.clone();
        let ready = connection.sender.ready().await;
        ready.map_err(|error| lost(&error, &connection.failure, tls.as_ref()))?;
        let (requests, outgoing) = Outgoing::new();
        let call = call(settings, outgoing)?;
        let head: AwaitedHead = Box::pin(connection.sender.send_request(call));
        let stream = Self {
            requests,
            answer: Answering::Head(head),
            arrived: MessageBuffer::with_largest(settings.max_message),
            tls,
            connection,
        };
        stream.send(first)?;
        Ok(stream)
    }

    /// Sends a request.
    pub(crate) fn send(&self, request: &impl Message) -> Result<(), XdsError> {
        match self.requests.try_send(framed(request)) {
            // A stream that has ended says so when it is read.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => Err(XdsError::Stuck),
        }
    }

    /// Waits for the next response. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<DiscoveryResponse, XdsError> {
        loop {
            if let Some(message) = self.arrived.take().map_err(unreadable)? {
                return decode(message).map_err(|error| XdsError::Malformed(error.to_string()));
            }
            let body = match &mut self.answer {
                Answering::Body(body) => body,
                Answering::Head(head) => {
                    let answered = head.as_mut().await;
                    let answered = answered.map_err(|error| {
                        lost(&error, &self.connection.failure, self.tls.as_ref())
                    })?;
                    let (head, body) = answered.into_parts();
                    if !head.status.is_success() {
                        return Err(XdsError::NotGrpc(head.status.as_u16()));
                    }
                    if let Some(ended) = ended(&head.headers) {
                        return Err(ended);
                    }
                    self.answer = Answering::Body(body);
                    continue;
                }
            };
            match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.arrived.put(data),
                    Err(frame) => {
                        let trailers = frame.trailers_ref().and_then(ended);
                        return Err(trailers.unwrap_or_else(without_status));
                    }
                },
                Some(Err(error)) => {
                    let failure = &self.connection.failure;
                    return Err(lost(&error, failure, self.tls.as_ref()));
                }
                None => return Err(without_status()),
            }
        }
    }
}

fn call(settings: &XdsSettings, body: Outgoing) -> Result<Request<Outgoing>, XdsError> {
    let scheme = if settings.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(settings.server.authority().clone())
        .path_and_query(PATH)
        .build();
    // Its parts were checked when they were read.
    let uri = uri.map_err(|error| XdsError::Lost(error.to_string()))?;
    let mut call = Request::new(body);
    *call.method_mut() = Method::POST;
    *call.uri_mut() = uri;
    let headers = call.headers_mut();
    for (name, value) in &settings.headers {
        headers.append(name.clone(), value.clone());
    }
    let agent = concat!("tidegate/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    Ok(call)
}

/// The status in the headers, if there is one.
fn ended(headers: &HeaderMap) -> Option<XdsError> {
    let code = headers.get(STATUS)?.to_str().ok()?.parse().ok()?;
    let message = headers.get(STATUS_MESSAGE).map(HeaderValue::as_bytes);
    let message = percent_decode(message.unwrap_or_default());
    Some(XdsError::Ended {
        code,
        message: message.decode_utf8_lossy().into_owned(),
    })
}

fn without_status() -> XdsError {
    XdsError::Lost("the stream has no status at its end".to_owned())
}

fn unreadable(error: CodecError) -> XdsError {
    match error {
        CodecError::TooLarge { given, most } => XdsError::TooLarge { given, most },
        error => XdsError::Malformed(error.to_string()),
    }
}

/// Why a connection failed. An alert of TLS that comes after the handshake is about the client's certificate.
fn lost(error: &hyper::Error, failure: &ConnectionFailure, tls: Option<&XdsTls>) -> XdsError {
    match (failure.get(), tls) {
        (Some(failure), Some(tls)) if failure.is_alert => tls.refused_by_server(&failure.text),
        (Some(failure), _) => XdsError::Lost(failure.text.clone()),
        (None, _) => XdsError::Lost(with_sources(error)),
    }
}
