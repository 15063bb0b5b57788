//! Sends traces and metrics to a collector over OTLP/HTTP, in the background. If a collector does not answer, queued
//! telemetry is lost, but never a decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Uri};
use http_body_util::Full;
use tidegate_listen::{HttpCallError, HttpCaller, HttpUrl, TlsError};
use tokio::sync::mpsc::Receiver;

use super::proto::OtlpSpan;

/// How long the collector may take to accept a message.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many traces are sent together.
pub(super) const BATCH: usize = 256;
/// How much of an answer is read, in bytes.
const ANSWER: usize = 64 << 10;

/// The port of a collector without TLS.
const PORT: u16 = 4318;

/// Reads where a collector listens: `http://host:port` or `https://…`, perhaps with a path.
pub(crate) fn parse_otlp_url(text: &str) -> Result<HttpUrl, String> {
    let uri: Uri = text.parse().unwrap_or_default();
    if let Some(authority) = uri.authority()
        && (authority.as_str().contains('@') || uri.query().is_some())
    {
        return Err(format!(
            "the URL of a collector has no user and no query; write for example `http://{}`",
            authority.host()
        ));
    }
    HttpUrl::parse(text, PORT).map_err(|_| {
        format!("`{text}` is not the URL of a collector; write for example `http://127.0.0.1:4318`")
    })
}

/// Sends messages to a collector.
pub(super) struct Collector {
    url: HttpUrl,
    caller: HttpCaller,
    /// Whether the last message was accepted, so that each change is logged once.
    is_up: bool,
    failures: Arc<AtomicU64>,
}

impl Collector {
    pub(super) fn new(url: HttpUrl, failures: Arc<AtomicU64>) -> Result<Self, TlsError> {
        Ok(Self {
            url,
            caller: HttpCaller::new(None, |_| true)?,
            is_up: true,
            failures,
        })
    }

    /// Sends one message. A message that is not accepted is lost.
    pub(super) async fn send(&mut self, path: &str, message: &impl prost::Message) {
        let body = Bytes::from(message.encode_to_vec());
        let sent = match tokio::time::timeout(PATIENCE, self.post(path, body)).await {
            Ok(sent) => sent,
            Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs()).into()),
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

    async fn post(&self, path: &str, body: Bytes) -> Result<(), HttpCallError> {
        let prefix = self.url.path.path().trim_end_matches('/');
        let request = Request::post(format!("{prefix}{path}"))
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(body))?;
        let status = self.caller.call(&self.url, request, ANSWER).await?.status();
        if status.is_success() {
            return Ok(());
        }
        Err(format!("it answers {status}").into())
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
        let parse = |text| {
            let url = parse_otlp_url(text).unwrap();
            (url.is_tls, url.host, url.port, url.path.to_string())
        };
        let https = parse("https://otel.example.com/base/");
        assert_eq!(
            https,
            (true, "otel.example.com".into(), 443, "/base/".into())
        );
        let http = parse("http://[::1]:4319");
        assert_eq!(http, (false, "::1".into(), 4319, "/".into()));
        assert_eq!(parse("http://collector").2, 4318);
        for text in [
            "",
            "collector:4318",
            "grpc://a",
            "http://u:p@a",
            "http://a?b",
            "http://",
        ] {
            assert!(parse_otlp_url(text).is_err(), "{text}");
        }
    }
}
