//! Reads the body of a call, bounded in size, time and memory.

use std::future::poll_fn;
use std::pin::Pin;
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
use tidegate_tower::BodyShare;

use crate::access::CallScope;
use crate::body_memory::{BodyMemory, HeldBody, UNCOUNTED};
use crate::problem::HttpProblem;

/// The largest body of a call that never needs a token, or that needs no body.
pub(crate) const TINY: usize = 16 << 10;
/// The largest body of a check.
pub(crate) const CHECK: usize = 64 << 10;
/// The largest batch of checks, or body of a call that names one thing.
pub(crate) const SMALL: usize = 1 << 20;
/// The largest set of rules.
pub(crate) const LARGE: usize = 8 << 20;
/// For calls that leave their body unread, however large it is.
pub(crate) const UNREAD: usize = usize::MAX;
/// How long a client may take to send a body.
const PATIENCE: Duration = Duration::from_secs(10);

/// The body of a call, with the bounds that its route has.
pub(super) struct ArrivingBody {
    incoming: Incoming,
    most: usize,
    scope: CallScope,
}

impl ArrivingBody {
    pub(super) fn new(incoming: Incoming, most: usize, scope: CallScope) -> Self {
        Self {
            incoming,
            most,
            scope,
        }
    }

    /// The same body with another bound, for a call that answers by itself to one that is too long.
    pub(super) fn at_most(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Refuses a body that is known to be too long.
    pub(super) fn check_length(&self) -> Result<(), HttpProblem> {
        if self.incoming.size_hint().lower() > self.most as u64 {
            return Err(too_large(self.most));
        }
        Ok(())
    }

    /// Reads the whole body within the memory that there is for bodies of its scope.
    pub(super) async fn read(self, memory: &BodyMemory) -> Result<HeldBody, HttpProblem> {
        self.check_length()?;
        let Self {
            mut incoming,
            most,
            scope,
        } = self;
        // A short body arrives with its head, and needs no timer.
        let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut incoming).poll_frame(cx))).await;
        let first = match first {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            Poll::Ready(Some(Err(error))) => return Err(unreadable(&error)),
            Poll::Ready(None) | Poll::Pending => Bytes::new(),
        };
        if first.len() <= UNCOUNTED.min(most) && incoming.is_end_stream() {
            return Ok(HeldBody::new(first, None));
        }
        let pool = match scope {
            CallScope::Open | CallScope::Probe | CallScope::Check | CallScope::Feedback => {
                &memory.clients
            }
            CallScope::Read | CallScope::Write | CallScope::AnyToken => &memory.operators,
        };
        Box::pin(read_rest(incoming, first, most, pool.share())).await
    }

    /// Reads the body of a call that needs none. If there is one, it must be an object.
    pub(super) async fn read_unused(self, memory: &BodyMemory) -> Result<(), HttpProblem> {
        let body = self.read(memory).await?;
        if body.trim_ascii().is_empty() {
            return Ok(());
        }
        parse::<IgnoredAny>(&body).map(drop)
    }

    /// The body itself, for a call that leaves it unread.
    pub(super) fn into_incoming(self) -> Incoming {
        self.incoming
    }
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

/// A body as a document, for rules.
pub(crate) fn document(body: &[u8]) -> Result<Node, HttpProblem> {
    parse(body)
}
