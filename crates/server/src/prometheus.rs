//! The port for Prometheus: the stats of envoyproxy/ratelimit by their mapping, and all metrics of the server.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tidegate_listen::{Drain, ListenSettings};
use tokio::net::TcpListener;

use crate::admin::Admin;
use crate::metrics_page::metrics_page;
use crate::ratelimit_stats::ServerStats;
use crate::telemetry::plain_text;

/// The older text format: in the newer one the names of counters would have to end with `_total`.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Serves the page at its path until the drain begins and the open connections have ended.
pub(crate) async fn serve(
    listener: TcpListener,
    admin: Arc<Admin>,
    path: Arc<str>,
    settings: ListenSettings,
    drain: Drain,
) {
    let service = move |request: Request<Incoming>, _| {
        let (admin, path) = (Arc::clone(&admin), Arc::clone(&path));
        Box::pin(async move {
            let is_page = request.uri().path() == &*path;
            let reply = if is_page {
                let mut reply = Response::new(Full::from(page(&admin).await));
                reply.headers_mut().insert(CONTENT_TYPE, TEXT);
                reply
            } else {
                let mut reply = Response::new(Full::from(format!("the metrics are at {path}\n")));
                *reply.status_mut() = StatusCode::NOT_FOUND;
                reply
            };
            Ok::<Response<Full<Bytes>>, Infallible>(reply)
        })
    };
    tidegate_listen::serve(listener, service, settings, drain).await;
}

async fn page(admin: &Admin) -> String {
    let stats = admin.decider.stats.as_deref();
    let series = stats.map(ServerStats::series).unwrap_or_default();
    series + &plain_text(&metrics_page(admin).await)
}
