//! What a client without a token can make the server hold: messages that do not end, and streams that stay open.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, once, pending};
use futures_util::{FutureExt as _, StreamExt as _};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use tidegate_testkit_server::TestFolder;

use super::{Running, SHOULD_RATE_LIMIT, start_in};

const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

const RULES: &str = "rules: []";

/// A connection on which calls begin and do not end.
struct OpenCalls {
    sender: http2::SendRequest<BoxBody<Bytes, Infallible>>,
    uri: String,
    token: Option<&'static str>,
}

impl OpenCalls {
    async fn to(server: &Running) -> Self {
        let address = server.server.grpc.unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let builder = http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let uri = format!("http://{address}");
        let token = None;
        Self { sender, uri, token }
    }

    /// Announces a message of this length, and sends so much of it. The status, once there is one.
    fn begin(
        &mut self,
        path: &str,
        announced: u32,
        sent: usize,
    ) -> impl Future<Output = String> + use<> {
        let mut bytes = vec![0];
        bytes.extend(announced.to_be_bytes());
        bytes.resize(5 + sent, b' ');
        let part = once(async { Ok(Frame::data(Bytes::from(bytes))) });
        let mut request = http::Request::post(format!("{}{path}", self.uri))
            .header("content-type", "application/grpc")
            .body(BodyExt::boxed(StreamBody::new(part.chain(pending()))))
            .unwrap();
        if let Some(token) = self.token {
            let token = http::HeaderValue::from_static(token);
            request.headers_mut().insert("authorization", token);
        }
        let answer = self.sender.send_request(request);
        async {
            let answer = answer.await.unwrap();
            if let Some(status) = answer.headers().get("grpc-status") {
                return status.to_str().unwrap().to_owned();
            }
            let whole = answer.into_body().collect().await.unwrap();
            let status = &whole.trailers().unwrap()["grpc-status"];
            status.to_str().unwrap().to_owned()
        }
    }
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_by_its_length() {
    let server = start_in(TestFolder::new(), Some(RULES), "");
    let mut calls = OpenCalls::to(&server).await;
    for (path, largest) in [
        (CHECK, 16 << 10),
        (WATCH, 16 << 10),
        (REFLECTION, 16 << 10),
        (SHOULD_RATE_LIMIT, 256 << 10),
    ] {
        assert_eq!(calls.begin(path, largest + 1, 0).await, "3", "{path}");
    }
}

#[tokio::test]
async fn messages_that_do_not_end_share_the_memory_of_bodies() {
    let server = start_in(TestFolder::new(), Some(RULES), "body_memory: 1MiB");
    for path in [CHECK, REFLECTION] {
        let (mut open, mut answers) = (Vec::new(), FuturesUnordered::new());
        for _ in 0..5 {
            let mut calls = OpenCalls::to(&server).await;
            answers.extend((0..16).map(|_| calls.begin(path, 16 << 10, 16_000)));
            open.push(calls);
        }
        for _ in 0..16 {
            assert_eq!(answers.next().await.unwrap(), "14", "{path}");
        }
        // A short message that is there whole needs none of it.
        let mut others = OpenCalls::to(&server).await;
        assert_eq!(others.begin(CHECK, 0, 0).await, "0");
    }
}

const TOKENS: &str = "tokens: [{name: edge, token_env: TOKEN, scopes: [check]}]";

#[tokio::test]
async fn streams_without_a_token_are_bounded_for_a_connection() {
    let server = start_in(TestFolder::new(), Some(RULES), TOKENS);
    for (path, length) in [(WATCH, 0), (REFLECTION, 9)] {
        let mut calls = OpenCalls::to(&server).await;
        let mut open: FuturesUnordered<_> = (0..17).map(|_| calls.begin(path, length, 0)).collect();
        assert_eq!(open.next().await.unwrap(), "8", "{path}");
        let mut others = OpenCalls::to(&server).await;
        assert_eq!(others.begin(CHECK, 0, 0).await, "0");
        // A token lifts the bound: it is one of those that may ask anything here.
        calls.token = Some("Bearer s3cret");
        let mut more: FuturesUnordered<_> = (0..40).map(|_| calls.begin(path, length, 0)).collect();
        assert_eq!(others.begin(CHECK, 0, 0).await, "0");
        assert!(more.next().now_or_never().is_none(), "{path}");
        // Streams that have ended do not count.
        drop((open, more));
        calls.token = None;
    }
}
