//! The HTTP log of `HAProxy`, with or without what syslog writes in front.

use smallvec::smallvec;

use super::exact::ExactTime;
use super::format::ReadTerms;
use super::line::{LineProblem, LineRequest, NO_TIME, before_port, present};
use super::values::LineValues;

const NOT_HAPROXY: LineProblem = LineProblem::Malformed(
    "it is not `CLIENT:PORT [ACCEPT DATE] FRONTEND BACKEND/SERVER TIMERS STATUS …`",
);

pub(super) fn read<'l>(
    line: &'l [u8],
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    let Some(bracket) = memchr::memmem::find_iter(line, b" [").find(|at| is_date(&line[at + 2..]))
    else {
        // Starts, stops and health of servers.
        let is_message = memchr::memmem::find(line, b"haproxy[").is_some();
        return Err(if is_message {
            LineProblem::Ignored
        } else {
            NOT_HAPROXY
        });
    };
    let client = &line[..bracket];
    let client = &client[memchr::memrchr(b' ', client).map_or(0, |at| at + 1)..];
    let rest = &line[bracket + 2..];
    let end = memchr::memchr(b']', rest).ok_or(NOT_HAPROXY)?;
    let (date, rest) = (&rest[..end], &rest[end + 1..]);
    let quote = memchr::memchr(b'"', rest).ok_or(NOT_HAPROXY)?;
    let (fields, request) = (&rest[..quote], &rest[quote + 1..]);
    // Quotes in a request are not escaped. A line that was cut has no last one.
    let request = &request[..memchr::memrchr(b'"', request).unwrap_or(request.len())];
    let mut words = fields
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty());
    let mut word = || words.next().ok_or(NOT_HAPROXY);
    let (frontend, backend, timers, status, bytes) = (word()?, word()?, word()?, word()?, word()?);
    let is_status = status == b"-1" || (status.len() == 3 && status.iter().all(u8::is_ascii_digit));
    if !is_status || !backend.contains(&b'/') {
        return Err(NOT_HAPROXY);
    }
    let total = timers
        .rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or_default();
    let total = total.strip_prefix(b"+").unwrap_or(total);
    let mut read = LineRequest {
        time: Some(terms.times.read(date).ok_or(NO_TIME)?),
        duration: ExactTime::decimal(total, 3).filter(|_| !total.starts_with(b"-")),
        address: present(before_port(client).into()),
        ..LineRequest::default()
    };
    if terms.keeps_values {
        read.values = LineValues::Variables(smallvec![
            ("client", client.into()),
            (
                "frontend",
                frontend.strip_suffix(b"~").unwrap_or(frontend).into()
            ),
            ("backend", backend.into()),
            ("status", status.into()),
            ("bytes", bytes.into()),
            ("request", request.into()),
        ]);
    }
    read.take_request(request.into())?;
    Ok(read)
}

/// Whether a text begins with a day, a month and a year.
fn is_date(text: &[u8]) -> bool {
    matches!(text, [b'0'..=b'9', b'0'..=b'9', b'/', _, _, _, b'/', ..])
}
