//! Sends traces and metrics to a collector over OTLP/HTTP, in the background. A collector that does not answer costs
//! what waits to be sent, and never a decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tidegate_listen::client_tls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio_rustls::TlsConnector;

use super::proto::OtlpSpan;

/// How long the collector may take to accept what is sent.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many traces are sent together.
pub(super) const BATCH: usize = 256;
/// How much of an answer is read, in bytes.
const ANSWER: usize = 64 << 10;

/// Where a collector listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpUrl {
    is_tls: bool,
    host: String,
    port: u16,
    authority: String,
    /// What comes before `/v1/traces`.
    prefix: String,
}

impl OtlpUrl {
    /// Reads `http://host:port` or `https://…`, perhaps with a path.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "`{text}` is not the URL of a collector; write for example `http://127.0.0.1:4318`"
            )
        };
        let uri: Uri = text.parse().map_err(|_| refused())?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(refused()),
        };
        let authority = uri.authority().ok_or_else(refused)?;
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(format!(
                "the URL of a collector has no user and no query; write for example `http://{}`",
                authority.host()
            ));
        }
        Ok(Self {
            is_tls,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority
                .port_u16()
                .unwrap_or(if is_tls { 443 } else { 4318 }),
            authority: authority.as_str().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

/// Sends messages to a collector.
pub(super) struct Collector {
    url: OtlpUrl,
    tls: TlsConnector,
    /// Whether the last message was accepted, so that each change is logged once.
    is_up: bool,
    failures: Arc<AtomicU64>,
}

impl Collector {
    pub(super) fn new(url: OtlpUrl, failures: Arc<AtomicU64>) -> Result<Self, rustls::Error> {
        let mut config = client_tls::trusting(None)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            url,
            tls: TlsConnector::from(Arc::new(config)),
            is_up: true,
            failures,
        })
    }

    /// Sends one message. What is not accepted is lost.
    pub(super) async fn send(&mut self, path: &str, message: &impl prost::Message) {
        let body = Bytes::from(message.encode_to_vec());
        let sent = match tokio::time::timeout(PATIENCE, self.post(path, body)).await {
            Ok(sent) => sent,
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        if sent.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        match (&sent, self.is_up) {
            (Err(problem), true) => {
                let collector = &self.url.authority;
                tracing::warn!("the collector {collector} does not accept {path}: {problem}");
            }
            (Ok(()), false) => tracing::info!("the collector accepts telemetry again"),
            _ => {}
        }
        self.is_up = sent.is_ok();
    }

    async fn post(&self, path: &str, body: Bytes) -> Result<(), String> {
        let url = &self.url;
        let stream = TcpStream::connect((url.host.as_str(), url.port)).await;
        let stream = stream.map_err(|error| error.to_string())?;
        if !url.is_tls {
            return exchange(stream, url, path, body).await;
        }
        let name = ServerName::try_from(url.host.clone()).map_err(|error| error.to_string())?;
        let stream = self.tls.connect(name, stream).await;
        exchange(stream.map_err(|error| error.to_string())?, url, path, body).await
    }
}

async fn exchange<T>(stream: T, url: &OtlpUrl, path: &str, body: Bytes) -> Result<(), String>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let asking = async {
        let request = Request::post(format!("{}{path}", url.prefix))
            .header(HOST, url.authority.as_str())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(USER_AGENT, concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = answer.status();
        let _ = Limited::new(answer.into_body(), ANSWER).collect().await;
        if status.is_success() {
            return Ok(());
        }
        Err(format!("it answers {status}"))
    };
    // Driven by this task, so that a timeout drops it.
    tokio::pin!(asking);
    tokio::select! {
        sent = &mut asking => sent,
        ended = connection => match ended {
            Ok(()) => asking.await,
            Err(error) => Err(error.to_string()),
        },
    }
}

/// The spans of the traces that wait, of up to a batch of them.
pub(super) fn take_waiting(waiting: &mut Receiver<Vec<OtlpSpan>>) -> Vec<OtlpSpan> {
    let mut spans = Vec::new();
    for _ in 0..BATCH {
        match waiting.try_recv() {
            Ok(trace) => spans.extend(trace),
            Err(_) => break,
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_collectors() {
        let url = OtlpUrl::parse("https://otel.example.com/base/").unwrap();
        assert_eq!(
            (url.is_tls, url.port, url.prefix.as_str()),
            (true, 443, "/base")
        );
        let url = OtlpUrl::parse("http://[::1]:4319").unwrap();
        assert_eq!(
            (url.host.as_str(), url.port, url.prefix.as_str()),
            ("::1", 4319, "")
        );
        assert_eq!(OtlpUrl::parse("http://collector").unwrap().port, 4318);
        for text in [
            "",
            "collector:4318",
            "grpc://a",
            "http://u:p@a",
            "http://a?b",
            "http://",
        ] {
            assert!(OtlpUrl::parse(text).is_err(), "{text}");
        }
    }
}
