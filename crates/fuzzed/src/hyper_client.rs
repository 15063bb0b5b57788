//! What hyper's client makes of the bytes of a server: the reference for the client of the gateway.

use std::future::Future as _;
use std::pin::pin;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;

use crate::memory_stream::{MemoryStream, poll_to_end};

/// An answer whose body has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceivedAnswer {
    pub(crate) status: StatusCode,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

/// The answer to a request with this method, if hyper reads all of it in these bytes, after which the server closes.
pub(crate) fn receive(
    method: &Method,
    bytes: &[u8],
    most_headers: usize,
) -> Option<ReceivedAnswer> {
    let request = Request::builder()
        .method(method)
        .uri("/")
        .header("host", "a")
        .body(Empty::<Bytes>::new())
        .ok()?;
    let mut client = http1::Builder::new();
    client.max_headers(most_headers);
    let mut handshake = pin!(client.handshake(MemoryStream::from_server(bytes)));
    let (mut sender, connection) = poll_to_end(|cx| handshake.as_mut().poll(cx)).ok()?;
    let mut connection = pin!(connection);
    let answer = async {
        let answer = sender.send_request(request).await.ok()?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.ok()?;
        Some(ReceivedAnswer {
            status: head.status,
            version: head.version,
            headers: head.headers,
            trailers: body.trailers().cloned(),
            body: body.to_bytes(),
        })
    };
    let mut answer = pin!(answer);
    let mut has_ended = false;
    poll_to_end(|cx| {
        if !has_ended {
            has_ended = connection.as_mut().poll(cx).is_ready();
        }
        match answer.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(answer),
            Poll::Pending => Poll::Pending,
        }
    })
}
