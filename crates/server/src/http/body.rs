//! Reads the body of a call, bounded in size and time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Incoming};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tidegate::document::Node;
use tidegate_codec::json;

use crate::problem::HttpProblem;

/// The largest body of a check, or of a call that names one thing.
pub(crate) const SMALL: usize = 1 << 20;
/// The largest batch or set of rules.
pub(crate) const LARGE: usize = 8 << 20;
/// How long a client may take to send a body.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads the whole body, `most` bytes at the most.
pub(crate) async fn read(mut body: Incoming, most: usize) -> Result<Bytes, HttpProblem> {
    if body.size_hint().lower() > most as u64 {
        return Err(too_large(most));
    }
    // A short body arrives with its head, and needs no timer.
    let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx))).await;
    let first = match first {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        Poll::Ready(Some(Err(error))) => return Err(unreadable(&error)),
        Poll::Ready(None) => return Ok(Bytes::new()),
        Poll::Pending => Bytes::new(),
    };
    let Some(left) = most.checked_sub(first.len()) else {
        return Err(too_large(most));
    };
    if body.is_end_stream() {
        return Ok(first);
    }
    let rest = Box::pin(read_rest(body, left, most)).await?;
    if first.is_empty() {
        return Ok(rest);
    }
    Ok([first, rest].concat().into())
}

/// Reads the rest of a body: `left` of at most `most` bytes, in a bounded time.
async fn read_rest(body: Incoming, left: usize, most: usize) -> Result<Bytes, HttpProblem> {
    match tokio::time::timeout(PATIENCE, Limited::new(body, left).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_large(most)),
        Ok(Err(error)) => Err(unreadable(&*error)),
        Err(_) => {
            let detail = format!(
                "the body did not arrive within {} seconds",
                PATIENCE.as_secs()
            );
            Err(HttpProblem::new(StatusCode::REQUEST_TIMEOUT, detail))
        }
    }
}

fn too_large(most: usize) -> HttpProblem {
    let detail = format!("the body may have at most {most} bytes");
    HttpProblem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

fn unreadable(error: &(dyn std::error::Error + 'static)) -> HttpProblem {
    HttpProblem::bad_request(format!("the body could not be read: {error}"))
}

/// Parses a body as a JSON object of a known form.
pub(crate) fn parse<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, HttpProblem> {
    Ok(json::parse(body)?)
}

/// Parses a part of a body, such as `checks[0]`, as a JSON object of a known form.
pub(super) fn parse_part<'b, T: Deserialize<'b>>(
    part: &'b RawValue,
    name: impl Fn() -> String,
) -> Result<T, HttpProblem> {
    Ok(json::parse_part(part, name)?)
}

/// Reads the body of a call that needs none. If there is one, it must be an object.
pub(super) async fn read_unused(body: Incoming) -> Result<(), HttpProblem> {
    let body = read(body, SMALL).await?;
    if body.trim_ascii().is_empty() {
        return Ok(());
    }
    parse::<IgnoredAny>(&body).map(drop)
}

/// A body as a document, for rules.
pub(crate) fn document(body: &[u8]) -> Result<Node, HttpProblem> {
    parse(body)
}
