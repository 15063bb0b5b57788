//! The common and combined log formats of Apache and nginx, also with a virtual host in front.

use smallvec::smallvec;

use super::exact::ExactTime;
use super::format::ReadTerms;
use super::line::{LineProblem, LineRequest, LineValue, NO_TIME, present};
use super::values::{LineValues, unescaped};

const NOT_COMBINED: LineProblem =
    LineProblem::Malformed("it is not `ADDR IDENT USER [TIME] \"REQUEST\" STATUS BYTES`");

/// Reads a line; if `has_host`, one that begins with `HOST:PORT`.
pub(super) fn read<'l>(
    line: &'l [u8],
    has_host: bool,
    terms: &mut ReadTerms,
) -> Result<LineRequest<'l>, LineProblem> {
    let (host, rest) = if has_host {
        let (host, rest) = split_at_space(line)?;
        let colon = memchr::memrchr(b':', host).ok_or(NOT_COMBINED)?;
        let port = &host[colon + 1..];
        if colon == 0 || port.is_empty() || !port.iter().all(u8::is_ascii_digit) {
            return Err(NOT_COMBINED);
        }
        (Some(&host[..colon]), rest)
    } else {
        (None, line)
    };
    let (address, rest) = split_at_space(rest)?;
    let (_ident, rest) = split_at_space(rest)?;
    // A user may have spaces in its name.
    let bracket = memchr::memmem::find(rest, b" [").ok_or(NOT_COMBINED)?;
    let (user, rest) = (&rest[..bracket], &rest[bracket + 2..]);
    let end = memchr::memchr(b']', rest).ok_or(NOT_COMBINED)?;
    let (time_text, rest) = (&rest[..end], &rest[end + 1..]);
    let rest = rest.strip_prefix(b" \"").ok_or(NOT_COMBINED)?;
    let (request, rest) = quoted(rest).ok_or(NOT_COMBINED)?;
    let rest = rest.strip_prefix(b" ").ok_or(NOT_COMBINED)?;
    let (status, rest) = word(rest);
    let (bytes, rest) = word(rest.strip_prefix(b" ").ok_or(NOT_COMBINED)?);
    if !is_number(status) || !is_number(bytes) {
        return Err(NOT_COMBINED);
    }
    let time: ExactTime = terms.times.read(time_text).ok_or(NO_TIME)?;
    let mut read = LineRequest {
        time: Some(time),
        address: present(address.into()),
        host: host.and_then(|host| present(host.into())),
        ..LineRequest::default()
    };
    let mut headers = [None, None];
    if terms.reads_headers {
        let mut rest = rest;
        for header in &mut headers {
            let Some((value, after)) = rest.strip_prefix(b" \"").and_then(quoted) else {
                break;
            };
            (*header, rest) = (Some(unescaped(value)), after);
        }
        let named = ["referer", "user-agent"].into_iter().zip(&headers);
        for (name, value) in named {
            if let Some(value) = value {
                read.push_header(name, value.clone());
            }
        }
    }
    if terms.keeps_values {
        let field = |value: &'l [u8]| -> LineValue<'l> { value.into() };
        let [referer, agent] = headers.map(Option::unwrap_or_default);
        read.values = LineValues::Variables(smallvec![
            ("remote_addr", field(address)),
            ("remote_user", field(user)),
            ("time_local", field(time_text)),
            ("request", unescaped(request)),
            ("status", field(status)),
            ("body_bytes_sent", field(bytes)),
            ("http_referer", referer),
            ("http_user_agent", agent),
            ("host", field(host.unwrap_or_default())),
        ]);
    }
    read.take_request(unescaped(request))?;
    Ok(read)
}

/// Whether a line that was read ends after BYTES.
pub(super) fn is_common(line: &[u8]) -> bool {
    let after_time = memchr::memmem::find(line, b"] \"").map(|at| &line[at + 3..]);
    let after_request = after_time.and_then(quoted).map(|(_, rest)| rest);
    let words = after_request.map(|rest| {
        rest.split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty())
            .count()
    });
    words == Some(2)
}

fn split_at_space(text: &[u8]) -> Result<(&[u8], &[u8]), LineProblem> {
    let at = memchr::memchr(b' ', text)
        .filter(|at| *at > 0)
        .ok_or(NOT_COMBINED)?;
    Ok((&text[..at], &text[at + 1..]))
}

fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr(b' ', text).unwrap_or(text.len());
    text.split_at(end)
}

fn is_number(text: &[u8]) -> bool {
    text == b"-" || (!text.is_empty() && text.iter().all(u8::is_ascii_digit))
}

/// A text up to the first `"` without a backslash before it, and what follows that.
pub(super) fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut quotes = memchr::memchr_iter(b'"', text);
    let end = quotes.find(|at| *at == 0 || text[at - 1] != b'\\')?;
    Some((&text[..end], &text[end + 1..]))
}
