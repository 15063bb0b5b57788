//! The debug port: pages of text that every caller may read, as envoyproxy/ratelimit has them on port 6070.
//!
//! A new page is a row of [`PAGES`].

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use tidegate_listen::{Drain, ListenSettings};
use tokio::net::TcpListener;

use crate::admin::Admin;
use crate::ratelimit_stats::ServerStats;

/// A page of the debug port.
struct DebugPage {
    /// Its path; with a `/` at its end all paths below it, too.
    path: &'static str,
    /// What it shows, for the list.
    about: &'static str,
    /// Its text, or that of an answer that says that it is not available.
    text: fn(&Admin) -> Result<String, &'static str>,
}

static PAGES: [DebugPage; 3] = [
    DebugPage {
        path: "/debug/pprof/",
        about: "not available: this is not a Go program",
        text: |_| Err("not available: this is not a Go program"),
    },
    DebugPage {
        path: "/rlconfig",
        about: "the limits in force",
        text: |admin| Ok(tidegate_ratelimit::listed(&admin.gate.rules())),
    },
    DebugPage {
        path: "/stats",
        about: "counters, by the names of envoyproxy/ratelimit",
        text: |admin| {
            let stats = admin.decider.stats.as_deref();
            stats.map(ServerStats::text).ok_or("nothing is counted")
        },
    },
];

/// Serves connections until the drain begins and the open ones have ended.
pub(crate) async fn serve(
    listener: TcpListener,
    admin: Arc<Admin>,
    settings: ListenSettings,
    drain: Drain,
) {
    let service = move |request: http::Request<_>, _| {
        let reply = answer(&admin, request.uri().path());
        std::future::ready(Ok::<_, Infallible>(reply))
    };
    tidegate_listen::serve(listener, service, settings, drain).await;
}

fn answer(admin: &Admin, path: &str) -> Response<Full<Bytes>> {
    if path == "/" {
        return text(StatusCode::OK, list());
    }
    let is_below = |page: &DebugPage| page.path.ends_with('/') && path.starts_with(page.path);
    let page = PAGES
        .iter()
        .find(|page| page.path == path || is_below(page));
    match page.map(|page| (page.text)(admin)) {
        Some(Ok(page)) => text(StatusCode::OK, page),
        Some(Err(problem)) => text(StatusCode::NOT_FOUND, problem.to_owned()),
        None => text(
            StatusCode::NOT_FOUND,
            format!("there is no page `{path}` here; these are:\n{}", list()),
        ),
    }
}

/// The pages, one in a line.
fn list() -> String {
    let mut list = String::new();
    for DebugPage { path, about, .. } in &PAGES {
        // Writing to a String cannot fail.
        let _ = writeln!(list, "{path}: {about}");
    }
    list
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::from(text));
    *reply.status_mut() = status;
    let media_type = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    reply
}
