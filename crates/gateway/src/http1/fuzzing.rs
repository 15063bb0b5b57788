//! Reads an answer from bytes instead of a socket, with the same functions and in the same order.

use bytes::BytesMut;
use http::{HeaderMap, Method, StatusCode, Version};

use super::Broken;
use super::download::{Download, DownloadStep};
use super::head;
use crate::hop;

/// An answer that was read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadAnswer {
    /// Its status.
    pub status: StatusCode,
    /// Its version.
    pub version: Version,
    /// Its headers, without a `Connection: keep-alive` that has no effect.
    pub headers: HeaderMap,
    /// Its body, without the framing.
    pub body: Vec<u8>,
    /// Its trailers, if it has some.
    pub trailers: Option<HeaderMap>,
    /// How many bytes it has.
    pub length: usize,
    /// Whether it ends only where the connection does.
    pub is_until_close: bool,
    /// Whether the connection can be used again.
    pub is_kept: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerRefusal {
    /// The bytes end before it does.
    Incomplete,
    /// It is malformed.
    Malformed(&'static str),
    /// It has two lengths, or a coding other than chunks.
    TwoLengths,
    /// It changes the protocol, and was not asked to.
    Upgrade,
}

impl From<Broken> for AnswerRefusal {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Malformed(message) => Self::Malformed(message),
            Broken::Io(_) | Broken::Closed | Broken::Body(_) => Self::Incomplete,
        }
    }
}

/// Reads the answer to a request with this method; its bytes arrive in pieces of `step` bytes.
pub fn read_answer(
    method: &Method,
    bytes: &[u8],
    step: usize,
) -> Result<ReadAnswer, AnswerRefusal> {
    let mut pieces = bytes.chunks(step.max(1));
    let (mut arrived, mut heads) = (BytesMut::new(), 0);
    let mut read = 0;
    let mut more = |arrived: &mut BytesMut| {
        let piece = pieces.next().ok_or(AnswerRefusal::Incomplete)?;
        arrived.extend_from_slice(piece);
        read += piece.len();
        Ok::<(), AnswerRefusal>(())
    };
    let head = loop {
        if let Some(head) = head::read_final(&mut arrived, &mut heads)? {
            break head;
        }
        more(&mut arrived)?;
    };
    // Refused in any case: here, or where the body does not begin as chunks do.
    let mut download = head::download(method, &head)?;
    if !hop::has_one_length(&head.headers) {
        return Err(AnswerRefusal::TwoLengths);
    }
    let is_until_close = download == Download::UntilClose;
    let is_kept = head::keeps_alive(&head) && !is_until_close;
    while download.begins_well(&arrived)?.is_none() {
        more(&mut arrived)?;
    }
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(AnswerRefusal::Upgrade);
    }
    let (mut body, mut trailers) = (Vec::new(), None);
    loop {
        match download.next(&mut arrived)? {
            DownloadStep::Ended => break,
            DownloadStep::Frame(frame) => match frame.into_data() {
                Ok(data) => body.extend_from_slice(&data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
            DownloadStep::More => match more(&mut arrived) {
                Ok(()) => {}
                // The end of the connection is the end of the body.
                Err(_) if is_until_close => break,
                Err(refusal) => return Err(refusal),
            },
        }
    }
    Ok(ReadAnswer {
        status: head.status,
        version: head.version,
        headers: head.headers,
        body,
        trailers,
        length: read - arrived.len(),
        is_until_close,
        is_kept,
    })
}
