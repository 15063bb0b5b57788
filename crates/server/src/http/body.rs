//! Reads the body of a call, bounded in size, time and memory.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tidegate::document::Node;
use tidegate_codec::json;

use crate::body_memory::{BodyPool, BodyShare, HeldBody, UNCOUNTED};
use crate::problem::HttpProblem;

/// The largest body of a call that never needs a token, or that needs no body.
pub(crate) const TINY: usize = 16 << 10;
/// The largest body of a check.
pub(crate) const CHECK: usize = 64 << 10;
/// The largest batch of checks, or body of a call that names one thing.
pub(crate) const SMALL: usize = 1 << 20;
/// The largest set of rules.
pub(crate) const LARGE: usize = 8 << 20;
/// How long a client may take to send a body.
const PATIENCE: Duration = Duration::from_secs(10);

/// Refuses a body that is known to be longer than `most` bytes.
pub(super) fn check_length(body: &Incoming, most: usize) -> Result<(), HttpProblem> {
    if body.size_hint().lower() > most as u64 {
        return Err(too_large(most));
    }
    Ok(())
}

/// Reads the whole body, `most` bytes at the most, within the memory of a pool.
pub(crate) async fn read(
    mut body: Incoming,
    most: usize,
    pool: &Arc<BodyPool>,
) -> Result<HeldBody, HttpProblem> {
    check_length(&body, most)?;
    // A short body arrives with its head, and needs no timer.
    let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx))).await;
    let first = match first {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        Poll::Ready(Some(Err(error))) => return Err(unreadable(&error)),
        Poll::Ready(None) | Poll::Pending => Bytes::new(),
    };
    if first.len() <= UNCOUNTED.min(most) && body.is_end_stream() {
        return Ok(HeldBody::new(first, None));
    }
    Box::pin(read_rest(body, first, most, pool.share())).await
}

/// Reads a body whose first piece has arrived, in a bounded time.
async fn read_rest(
    body: Incoming,
    first: Bytes,
    most: usize,
    mut share: BodyShare,
) -> Result<HeldBody, HttpProblem> {
    let mut bytes = Vec::new();
    let reading = async {
        add(&mut bytes, &first, most, &mut share)?;
        // The pieces may be parts of larger buffers.
        drop(first);
        let mut body = body;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| unreadable(&error))?;
            if let Ok(piece) = frame.into_data() {
                add(&mut bytes, &piece, most, &mut share)?;
            }
        }
        Ok::<(), HttpProblem>(())
    };
    let read = tokio::time::timeout(PATIENCE, reading).await;
    read.map_err(|_| {
        let detail = format!(
            "the body did not arrive within {} seconds",
            PATIENCE.as_secs()
        );
        HttpProblem::new(StatusCode::REQUEST_TIMEOUT, detail)
    })??;
    Ok(HeldBody::new(bytes.into(), Some(share)))
}

/// Adds a piece. Memory is allocated only after the share has grown.
fn add(
    bytes: &mut Vec<u8>,
    piece: &[u8],
    most: usize,
    share: &mut BodyShare,
) -> Result<(), HttpProblem> {
    let length = bytes.len() + piece.len();
    if length > most {
        return Err(too_large(most));
    }
    if length > bytes.capacity() {
        let capacity = length.max(2 * bytes.capacity()).min(most);
        share.grow_to(capacity)?;
        bytes.reserve_exact(capacity - bytes.len());
    }
    bytes.extend_from_slice(piece);
    Ok(())
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
pub(super) async fn read_unused(body: Incoming, pool: &Arc<BodyPool>) -> Result<(), HttpProblem> {
    let body = read(body, TINY, pool).await?;
    if body.trim_ascii().is_empty() {
        return Ok(());
    }
    parse::<IgnoredAny>(&body).map(drop)
}

/// A body as a document, for rules.
pub(crate) fn document(body: &[u8]) -> Result<Node, HttpProblem> {
    parse(body)
}
